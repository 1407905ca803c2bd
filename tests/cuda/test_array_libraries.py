"""Calls on arrays of several libraries of GPUs: whose stream waits, the kind of the result, whose memory."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import tlm
from tests.cuda import shim
from tests.cuda.fake_libraries import stream
from tests.cuda.gpu_arrays import HOW, A, B, exact

pytestmark = pytest.mark.skipif(bool(shim.missing()), reason=f"the shim needs {shim.missing()}")

bf16 = ml_dtypes.bfloat16


def test_the_current_stream(machine, torch, jax):
    a, b = machine.array(A), machine.array(B)
    with stream(machine, 11):
        exact(tlm.ops.matmul(a, b, **HOW), A @ B)
    assert machine.launches[-1][2] == 11
    assert not machine.log
    torch.stream = 12
    exact(tlm.ops.matmul(torch.of(A), torch.of(B), **HOW), A @ B)
    assert machine.launches[-1][2] == 12
    assert not machine.log
    with stream(machine, 11):
        exact(tlm.ops.matmul(torch.of(A), b, **HOW), A @ B)
        assert machine.launches[-1][2] == 12
        assert machine.log == [("wait", 12, 11)], "torch's stream waits for CuPy's array"
        machine.log.clear()
        tlm.ops.matmul(a, b, out=torch.of(np.zeros((24, 16), "f4")), **HOW)
        assert machine.log == [("wait", 11, 12), ("wait", 12, 11)]
        machine.log.clear()
        strided = torch.Tensor(machine.array(B)[:, ::2])
        exact(tlm.ops.matmul(a, strided, **HOW), A @ B[:, ::2])
        assert machine.log == [("torch copy", 12), ("wait", 11, 12), ("wait", 12, 11)], "the copy may go then"


def test_torch_in_torch_out(machine, torch):
    for dtype in ("f4", bf16):
        a, b = A.astype(dtype), B.astype(dtype)
        for _ in range(2):
            got = tlm.ops.matmul(torch.of(a), torch.of(b), **HOW)
            assert type(got) is torch.Tensor
            exact(got, (A @ B).astype(dtype))
    exact(tlm.ops.relu(torch.of(A[::2, ::2]), **HOW), np.maximum(A[::2, ::2], 0))
    exact(tlm.ops.add(torch.of(A), 1, **HOW), A + 1)
    out = torch.of(np.zeros((24, 16), bf16))
    machine.may_allocate = False
    with pytest.raises(AssertionError, match="allocates"):
        tlm.ops.matmul(torch.of(A), torch.of(B))
    machine.may_allocate = True
    assert tlm.ops.matmul(torch.of(A.astype(bf16)), torch.of(B.astype(bf16)), out=out, **HOW) is out
    exact(out, (A @ B).astype(bf16))
    wide = torch.of(np.zeros((24, 32), "f4"))
    part = torch.Tensor(wide.own[:, ::2])
    assert tlm.ops.matmul(torch.of(A), torch.of(B), out=part, **HOW) is part
    exact(SimpleNamespace(host=part.host.copy()), A @ B)


def test_jax_in_jax_out(machine, jax):
    for dtype in ("f4", bf16):
        a, b = jax.of(A.astype(dtype)), jax.of(B.astype(dtype))
        for _ in range(2):
            with stream(machine, 11):
                got = tlm.ops.matmul(a, b, **HOW)
            assert type(got) is type(a)
            exact(got, (A @ B).astype(dtype))
            assert set(a.exports) == {11}, "jax makes our stream wait, not the CPU"
            assert machine.log[-1] == ("export", 11), "jax waits for our stream"


def test_memory_of_others_is_kept_while_kernels_run(machine, jax):
    from tlm.ops import gpu_runner

    machine.running = False
    a, b = jax.of(A), jax.of(B)
    machine.running = True
    tlm.ops.matmul(a, b, **HOW)
    tlm.ops.matmul(a, b, **HOW)
    held = [arrays for _, (arrays, _) in gpu_runner._lent]
    assert sum(a in arrays for arrays in held) == 2
    machine.running = False
    tlm.ops.matmul(a, b, **HOW)
    assert not gpu_runner._lent


def test_dlpack_and_interface_only(machine):
    class Exporter:
        """DLPack, and a namespace that makes one."""

        def __init__(self, own):
            self.own, self.host = own, own.host
            self.shape, self.dtype, self.ndim = own.shape, own.dtype, own.ndim

        def __dlpack__(self, **settings):
            return self.own.__dlpack__(**settings)

        def __dlpack_device__(self):
            return self.own.__dlpack_device__()

        def __array_namespace__(self):
            return SimpleNamespace(from_dlpack=lambda x: Exporter(machine.cupy.from_dlpack(x)))

    got = tlm.ops.matmul(Exporter(machine.array(A)), Exporter(machine.array(B)), **HOW)
    assert type(got) is Exporter
    exact(got, A @ B)

    def shown(x, **more):
        own = machine.array(x)
        face = {**own.__cuda_array_interface__, **more}
        return SimpleNamespace(
            __cuda_array_interface__=face, own=own, shape=x.shape, dtype=x.dtype, ndim=x.ndim
        )

    got = tlm.ops.matmul(shown(A, strides=None), shown(B, stream=9), **HOW)
    exact(got, A @ B)
    assert ("wait", 0, 9) in machine.log
    exact(tlm.ops.relu(shown(A[::-1]), **HOW), np.maximum(A[::-1], 0))
    out = shown(np.zeros((24, 16), "f4"))
    assert tlm.ops.matmul(machine.array(A), machine.array(B), out=out, **HOW) is out
    exact(out.own, A @ B)
