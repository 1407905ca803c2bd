"""Calls on arrays of a GPU: a stand-in for CuPy, whose kernels run in the shim."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import tlm
from tests.cuda import shim
from tests.cuda.fake_libraries import stream
from tests.cuda.gpu_arrays import HOW, A, B, exact, whole
from tests.ops.values import near
from tlm.backend.cuda.emitter import emit
from tlm.errors import ArgumentError, BackendError, DTypeError
from tlm.space.decide import run
from tlm.space.spaces import space_for

BF16 = np.dtype(ml_dtypes.bfloat16)
pytestmark = pytest.mark.skipif(bool(shim.missing()), reason=f"the shim needs {shim.missing()}")


def test_arrays_of_a_gpu_run_there_by_themselves(machine):
    a, b = machine.array(A), machine.array(B)
    for settings in ({}, {"target": "cuda"}, {"target": tlm.Target("sm_80")}):
        got = tlm.ops.matmul(a, b, **HOW, **settings)
        assert type(got) is machine.cupy.ndarray
        exact(got, A @ B)
    assert {device for _, device, _ in machine.launches} == {0}


def test_a_second_call_compiles_nothing(machine, monkeypatch):
    a, b = machine.array(A), machine.array(B)
    tlm.ops.matmul(a, b, **HOW)
    tlm.ops.add(a, 1.5, **HOW)
    monkeypatch.setattr("tlm.ops.gpu_call.run", lambda *_: pytest.fail("decides again"))
    exact(tlm.ops.matmul(machine.array(A + 1), b, **HOW), (A + 1) @ B)
    texts = len(machine.texts)
    monkeypatch.setattr("tlm.ops.operator.FormulaOperator._slow", lambda *_: pytest.fail("binds again"))
    exact(tlm.ops.add(machine.array(A + 1), 1.5, **HOW), A + 1 + np.float32(1.5))
    assert len(machine.texts) == texts


def test_the_device_of_the_arrays_runs(machine):
    machine.capabilities[1] = "90"
    a, b = machine.array(A, 1), machine.array(B, 1)
    got = tlm.ops.matmul(a, b, **HOW)
    exact(got, A @ B)
    assert got.data.device_id == 1
    assert {device for _, device, _ in machine.launches} == {1}
    assert machine.current == 0
    with pytest.raises(BackendError, match="compiled for sm_80, and GPU 1 has another architecture"):
        tlm.ops.matmul(a, b, target=tlm.Target("sm_80"), **HOW)
    kernel = tlm.ops.matmul.kernel(a, b, **HOW)
    assert kernel.target.isa == "sm_90a"
    exact(kernel(a, b), A @ B)


def test_layouts(machine):
    """Columns are read in place; what is strided in all axes, or reversed, is copied by its library."""
    a, b = machine.array(A), machine.array(B)
    exact(tlm.ops.matmul(b.T, a.T, **HOW), (A @ B).T)
    assert not any(what == "copy" for what, *_ in machine.log)
    exact(tlm.ops.matmul(a[:, :16], b[:16], **HOW), A[:, :16] @ B[:16])
    assert not any(what == "copy" for what, *_ in machine.log)
    exact(tlm.ops.relu(a[::2, ::2], **HOW), np.maximum(A[::2, ::2], 0))
    exact(tlm.ops.relu(machine.array(A[::-1, ::-1]), **HOW), np.maximum(A[::-1, ::-1], 0))
    assert [what for what, *_ in machine.log] == ["copy", "copy"]
    exact(tlm.ops.add(a, machine.array(np.broadcast_to(A[:1], A.shape)), **HOW), A + A[:1])


def test_arrays_that_start_anywhere_take_code_without_vectors(machine):
    x = whole(8, 64)
    exact(tlm.ops.negative(machine.array(x), **HOW), -x)
    exact(tlm.ops.negative(machine.array(x, offset=4), **HOW), -x)
    wide, narrow = machine.texts
    assert "float4" in wide
    assert "float4" not in narrow
    with pytest.raises(ArgumentError, match="operand 0 starts at no multiple of 4 bytes"):
        tlm.ops.negative(machine.array(x, offset=2), **HOW)


def test_code_without_vectors_is_launched_with_its_own_shared_memory(machine):
    """With vectors, stages are filled ahead and need more memory than a text may declare; without, none."""
    a, b = whole(64, 192, dtype=BF16), whole(192, 128, dtype=BF16, seed=1)
    given, target = machine.array(a, offset=2), tlm.Target("sm_80")
    wanted = {
        "form": "matrix", "cta_m": 64, "cta_n": 128, "thread_m": 2, "thread_n": 8, "cta_k": 64,
        "align": "swapped", "stages": 3,
    }  # fmt: skip

    def decide(choice, _):
        value = wanted.get(choice.name)
        return choice.values.index(value) if value in choice.values else 0

    schedule = tlm.Schedule(tlm.ops.matmul.program(given, machine.array(b)))
    schedule.apply(*run(space_for(schedule.program, target), decide).steps)
    kernel = tlm.ops.matmul.kernel(given, machine.array(b), schedule=schedule, target=target)
    plain = emit(kernel.program, target, vectors=False).kernels
    assert max(x.shared_bytes for x in kernel.compiled.launches) > 0
    assert max(x.shared_bytes for x in plain) == 0
    for x in (given, machine.array(a)):
        exact(kernel(x, machine.array(b)), (a.astype("f4") @ b.astype("f4")).astype(BF16))


def test_out(machine):
    a, b = machine.array(A), machine.array(B)
    out = machine.array(np.zeros((24, 16), "f4"))
    tlm.ops.matmul(a, b, **HOW)
    machine.may_allocate = False
    assert tlm.ops.matmul(a, b, out=out, **HOW) is out
    exact(out, A @ B)
    machine.may_allocate = True
    wide = machine.array(np.zeros((24, 32), "f4"))
    tlm.ops.matmul(a, b, out=wide[:, ::2], **HOW)
    np.testing.assert_array_equal(wide.host[:, ::2], A @ B)
    assert not wide.host[:, 1::2].any()
    square = machine.array(whole(16, 16))
    want = square.host @ square.host
    assert tlm.ops.matmul(square, square, out=square, **HOW) is square
    exact(square, want)


def test_what_is_no_out(machine, jax):
    a, b = machine.array(A), machine.array(B)

    def refused(out, message):
        with pytest.raises(ArgumentError, match=message):
            tlm.ops.matmul(a, b, out=out, **HOW)

    refused(
        np.zeros((24, 16), "f4"), r"out= \(numpy.ndarray\) lies in the CPU's memory, the operands on GPU 0"
    )
    refused(machine.array(np.zeros((24, 16), "f4"), 1), "out= lies on GPU 1, the operands on GPU 0")
    refused(
        machine.array(np.zeros((16, 24), "f4")), r"out= has shape \(16, 24\), the result has shape \(24, 16\)"
    )
    refused(machine.array(np.zeros((24, 16))), "out= has dtype float64, the result has dtype float32")
    refused(machine.array(np.broadcast_to(np.float32(0), (24, 16))), "share their memory")
    refused(jax.of(np.zeros((24, 16), "f4")), "out= cannot be an array of jax, which never changes")
    face = {**machine.array(np.zeros((24, 16), "f4")).__cuda_array_interface__}
    face["data"] = (face["data"][0], True)
    refused(SimpleNamespace(__cuda_array_interface__=face), "out= is read-only")


def test_arrays_in_several_places(machine, torch):
    a, b = machine.array(A), machine.array(B)
    with pytest.raises(
        ArgumentError,
        match=r"matmul: operand 0 \(cupy.ndarray\) lies on GPU 0, operand 1 \(numpy.ndarray\) lies in the "
        r"CPU's memory; bring them to one place",
    ):
        tlm.ops.matmul(a, B, **HOW)
    with pytest.raises(ArgumentError, match=r"operand 1 \(torch.Tensor\) lies on GPU 1"):
        tlm.ops.add(a, torch.of(A, 1), **HOW)
    with pytest.raises(ArgumentError, match=r"operand 1 \(numpy.ndarray\) lies in the CPU's memory"):
        tlm.ops.add(a, [1.0, 2.0], **HOW)
    with pytest.raises(ArgumentError, match="the operands lie on GPU 0, and target='avx2' is a CPU"):
        tlm.ops.matmul(a, b, target="avx2", **HOW)
    with pytest.raises(ArgumentError, match="and target='cpu' is a CPU; leave target= away"):
        tlm.ops.matmul(a, b, target="cpu", **HOW)
    with pytest.raises(ArgumentError, match="threads= is of CPUs"):
        tlm.ops.matmul(a, b, threads=2, **HOW)
    with pytest.raises(
        BackendError, match=r"matmul: arrays of the CPU do not run on sm_80; give arrays of the"
    ):
        tlm.ops.matmul(A, B, target="cuda", **HOW)


def test_wrong_operands_are_named(machine, torch):
    a = machine.array(A)
    with pytest.raises(ArgumentError, match=r"matmul of shapes \(24, 20\) and \(24, 20\)"):
        tlm.ops.matmul(a, a, **HOW)
    with pytest.raises(DTypeError, match="complex64"):
        tlm.ops.matmul(machine.array(A.astype("c8")), machine.array(B.astype("c8")), **HOW)
    x = torch.of(A)
    x.requires_grad = True
    with pytest.raises(ArgumentError, match="operand 0 requires grad"):
        tlm.ops.relu(x, **HOW)
    tlm.ops.relu(torch.of(A), **HOW)
    tlm.ops.relu(torch.of(A), **HOW)
    with pytest.raises(ArgumentError, match="operand 0 requires grad"):
        tlm.ops.relu(x, **HOW)


def test_empty_arrays(machine, torch):
    got = tlm.ops.matmul(machine.array(whole(0, 5)), machine.array(whole(5, 3)), **HOW)
    assert (got.shape, got.dtype) == ((0, 3), np.float32)
    out = machine.array(whole(0, 3))
    assert tlm.ops.matmul(machine.array(whole(0, 5)), machine.array(whole(5, 3)), out=out, **HOW) is out
    with pytest.raises(ArgumentError, match="out= has shape"):
        tlm.ops.matmul(machine.array(whole(0, 5)), machine.array(whole(5, 3)), out=got[:, :2], **HOW)
    assert not machine.launches
    bias = np.array([-1, 0, 2], "f4")
    x, w = torch.of(np.zeros((4, 0), "f4")), torch.of(np.zeros((0, 3), "f4"))
    got = tlm.ops.linear(x, w, torch.of(bias), activation="relu", **HOW)
    assert type(got) is torch.Tensor
    exact(got, np.tile(np.maximum(bias, 0), (4, 1)))


def test_numbers_are_written_once(machine):
    a = machine.array(A)
    for _ in range(3):
        exact(tlm.ops.multiply(a, 2, **HOW), A * 2)
        exact(tlm.ops.multiply(a, 3, **HOW), A * 3)
    assert [what for what, *_ in machine.log] == ["fill", "fill"]
    with stream(machine, 5):
        exact(tlm.ops.multiply(a, 2, **HOW), A * 2)
    assert machine.log[-1] == ("fill", 5), "another stream does not wait for the first"


def split(machine):
    """A call whose kernels need a workspace: a long sum cut in two launches."""
    x = machine.array(whole(4, 20000))
    return x, lambda **more: tlm.ops.sum(x, **HOW, **more)


def test_a_captured_graph_owns_its_memory(machine):
    x, call = split(machine)
    call()
    a, square = machine.array(A), machine.array(whole(16, 16))
    tlm.ops.multiply(a, 2, **HOW)
    kernels = [k for k in _compiled() if k.workspace]
    assert kernels, "this test needs a kernel with a workspace"
    with stream(machine, 21):
        machine.capturing = {21}
        got = call()
        tlm.ops.multiply(a, 2, **HOW)
        fills = [what for what in machine.log if what == ("fill", 21)]
        assert len(fills) == 1, "a graph writes its numbers itself"
        tlm.ops.relu(a[::2, ::2], **HOW)
        tlm.ops.matmul(square, square, out=square, **HOW)
        machine.capturing = set()
    np.testing.assert_array_equal(got.host, x.host.sum(dtype="f4"))
    assert len(kernels[0].captured) == 1
    assert sum(len(k.captured) for k in _compiled()) == 4, (
        "a workspace, a number, a copy, a result on its way"
    )


def _compiled():
    from tlm.ops import dispatch

    return [k.compiled for k in dispatch._kernels.values()]


def test_a_kernel_takes_what_it_was_made_for(machine, torch):
    kernel = tlm.ops.matmul.kernel(A, B, target="cuda", **HOW)
    assert kernel.target.threads == 108
    exact(kernel(machine.array(A), machine.array(B)), A @ B)
    exact(kernel(torch.of(np.asfortranarray(A)), torch.of(B)), A @ B)
    out = machine.array(np.zeros((24, 16), "f4"))
    assert kernel(machine.array(A), machine.array(B), out=out) is out
    with pytest.raises(ArgumentError, match=r"operand 1 is float32\[24, 20\]; this kernel was made for"):
        kernel(machine.array(A), machine.array(A))
    with pytest.raises(ArgumentError, match="operand 1 is an array on the GPU, got ndarray"):
        kernel(machine.array(A), B)
    with pytest.raises(ArgumentError, match="takes 2 operands, got 1"):
        kernel(machine.array(A))
    columns = tlm.ops.matmul.kernel(machine.array(A).T, machine.array(A), **HOW)
    exact(columns(machine.array(A).T, machine.array(A)), A.T @ A)
    with pytest.raises(
        ArgumentError, match=r"operand 0 has strides of rows in elements; this kernel was made"
    ):
        columns(machine.array(np.ascontiguousarray(A.T)), machine.array(A))
    machine.may_wait = True
    assert kernel.time(machine.array(A), machine.array(B), number=1, repeats=2) > 0


def test_a_schedule_by_hand(machine):
    x = machine.array(whole(6, 8))
    s = tlm.Schedule(tlm.ops.transpose.program(x))
    s.bind("i", "blockIdx.x").bind("j", "threadIdx.x")
    exact(tlm.ops.transpose(x, schedule=s), x.host.T)
    assert "blockIdx.x" in machine.texts[0]
    exact(tlm.ops.transpose(x, schedule="default"), x.host.T)


def test_take_looks_at_no_index(machine):
    x, at = machine.array(whole(9, 4)), machine.array(np.array([0, 8, -1, 30]))
    exact(tlm.ops.take(x, at, 0, **HOW), x.host[[0, 8, 8, 8]])


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


OPERATORS = {
    "linear": (lambda o, x, y: o.linear(x, y, activation="relu", **HOW), lambda x, y: np.maximum(x @ y, 0)),
    "einsum": (lambda o, x, y: o.einsum("ij,jk->ki", x, y, **HOW), lambda x, y: (x @ y).T),
    "concatenate": (lambda o, x, y: o.concatenate([x, x], 1, **HOW), lambda x, y: np.concatenate([x, x], 1)),
    "softmax": (lambda o, x, y: o.softmax(x, **HOW), lambda x, y: softmax(x)),
    "layer_norm": (
        lambda o, x, y: o.layer_norm(x, **HOW),
        lambda x, y: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    ),
    "argmax": (lambda o, x, y: o.argmax(x, axis=1, **HOW), lambda x, y: x.argmax(1)),
    # Of one launch, so that its kernel would be called as the function of CUDA, or the namespace of C++.
    "round": (lambda o, x, y: o.round(x, **HOW), lambda x, y: x),
    "std": (lambda o, x, y: o.std(x, axis=1, **HOW), lambda x, y: x.std(1)),
    "mean": (lambda o, x, y: o.mean(x, axis=0, **HOW), lambda x, y: x.mean(0)),
    "cumsum": (lambda o, x, y: o.cumsum(x, axis=1, **HOW), lambda x, y: x.cumsum(1)),
    "where": (
        lambda o, x, y: o.where(o.greater(x, 0.0, **HOW), x, 0.5, **HOW),
        lambda x, y: np.where(x > 0, x, 0.5),
    ),
    "gelu": (
        lambda o, x, y: o.gelu(x, **HOW),
        lambda x, y: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    "transpose": (lambda o, x, y: o.transpose(x, **HOW), lambda x, y: x.T),
    "pad": (lambda o, x, y: o.pad(x, 1, **HOW), lambda x, y: np.pad(x, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(machine, name):
    call, right = OPERATORS[name]
    x, y = whole(12, 20), whole(20, 8, seed=1)
    near(call(tlm.ops, machine.array(x), machine.array(y)).host, right(x.astype("f8"), y.astype("f8")))


def test_windows_and_attention(machine):
    x, w = whole(1, 6, 6, 4), whole(1, 1, 4, 8, seed=1)
    near(tlm.ops.conv2d(machine.array(x), machine.array(w), **HOW).host, x.astype("f8") @ w[0, 0])
    pooled = x.reshape(1, 3, 2, 3, 2, 4).max((2, 4))
    exact(tlm.ops.max_pool2d(machine.array(x), 2, stride=2, **HOW), pooled)
    q = whole(1, 8, 2, 16)
    got = tlm.ops.dot_product_attention(machine.array(q), machine.array(q), machine.array(q), **HOW)
    wide = q.astype("f8").transpose(0, 2, 1, 3)
    want = softmax(wide @ wide.transpose(0, 1, 3, 2) / 4) @ wide
    near(got.host, want.transpose(0, 2, 1, 3))
