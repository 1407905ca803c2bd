"""How a kernel is called: with a stand-in for CuPy, since a call needs a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.cuda import programs
from tlm.backend.cuda import runtime
from tlm.backend.cuda.emitter import emit
from tlm.backend.cuda.kernel import Kernel
from tlm.backend.cuda.stats import Stats
from tlm.errors import ArgumentError
from tlm.ir.build import Builder
from tlm.schedule import Schedule
from tlm.target import Target

SM_80 = Target("sm_80")


class Array:
    """What CuPy's arrays say of themselves."""

    def __init__(self, shape, pointer, typestr="<f4", strides=None, read_only=False):
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (pointer, read_only), "strides": strides,
        }  # fmt: skip


class Device:
    """Records what a kernel asks of CuPy."""

    def __init__(self):
        self.loaded: list[bytes] = []
        self.launched: list[tuple] = []
        self.stream, self.allocated, self.captured = 7, 0, False
        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(getDevice=lambda: 0, streamIsCapturing=lambda ptr: self.captured),
            function=SimpleNamespace(Module=self._module),
            get_current_stream=lambda: SimpleNamespace(ptr=self.stream),
            alloc=self._alloc,
        )

    def _alloc(self, size):
        self.allocated += 1
        return SimpleNamespace(ptr=1 << 20 | self.allocated << 8)

    def _module(self):
        def function(name):
            def launch(grid, block, arguments, shared_mem, stream):
                assert stream.ptr == self.stream
                self.launched.append((name, grid, block, [int(a) for a in arguments], shared_mem))

            return launch

        return SimpleNamespace(load=self.loaded.append, get_function=function)


@pytest.fixture
def device(monkeypatch):
    made = Device()
    monkeypatch.setattr(runtime, "cupy", lambda: made)
    return made


def chain() -> Kernel:
    b = Builder("chain")
    x = b.input("x", (6, 8), "f32")
    t = b.compute("t", (6, 8), lambda i, j: x[i, j] + x[i, j])
    b.compute("y", (6, 8), lambda i, j: t[i, 7 - j] * t[i, j], output=True)
    s = Schedule(b.build()).bind("i", "blockIdx.x").bind("y_i", "blockIdx.x")
    s.split("j", 4).vectorize("j.1").bind("j.0", "threadIdx.x")
    return Kernel(s.program, SM_80, emit(s.program, SM_80), b"cubin", (Stats(8, 0, 0, 0, 16, 1.0),) * 2)


def test_a_call_launches_every_nest_on_the_current_stream(device):
    k = chain()
    k(Array((6, 8), 256), Array((6, 8), 512))
    scratch = 1 << 20 | 1 << 8
    assert device.launched == [
        ("chain_0", (6, 1, 1), (2, 1, 1), [256, scratch], 0),
        ("chain_1", (6, 1, 1), (1, 1, 1), [512, scratch], 0),
    ]
    device.stream = 8
    k(Array((6, 8), 256), Array((6, 8), 512))
    assert device.loaded == [b"cubin"]
    assert device.allocated == 2, "scratch is of CuPy's pool, which orders it by streams"
    assert not k.captured
    device.captured = True
    k(Array((6, 8), 256), Array((6, 8), 512))
    assert len(k.captured) == 1, "a graph keeps its scratch"


def test_arrays_that_start_anywhere_get_code_without_vectors(device, monkeypatch):
    texts = []
    monkeypatch.setattr(
        "tlm.backend.cuda.compiler.binary", lambda source, _, **__: (texts.append(source), ("", ""))[1]
    )
    k = chain()
    assert "float4" in k.source
    k(Array((6, 8), 260), Array((6, 8), 512))
    assert "float4" not in texts[0].text
    k(Array((6, 8), 260), Array((6, 8), 512))
    assert len(texts) == 1


def test_arrays_that_do_not_fit_are_named(device):
    k = chain()
    good = Array((6, 8), 256)
    for wrong, message in (
        (np.zeros((6, 8), "f4"), "x is an array on the GPU, got ndarray"),
        (Array((6, 9), 256), r"x is f32\[6, 8\], got float32\[6, 9\]"),
        (Array((6, 8), 256, "<f8"), r"x is f32\[6, 8\], got float64"),
        (Array((6, 8), 256, strides=(4, 24)), r"x has strides of \(32, 4\) bytes, got \(4, 24\)"),
    ):
        with pytest.raises(ArgumentError, match=message):
            k(wrong, good)
    with pytest.raises(ArgumentError, match="takes 2 arrays, got 1"):
        k(good)
    with pytest.raises(ArgumentError, match="y is an output, but the array is read-only"):
        k(good, Array((6, 8), 512, read_only=True))
    assert not device.launched


def test_more_shared_memory_than_usual_is_asked_for(device):
    s = programs.bound_product(m=128, n=128, k=64, depth=16, stages=4)
    source = emit(s.program, SM_80)
    k = Kernel(s.program, SM_80, source, b"cubin", ())
    k(*[Array(b.shape, 256) for b in s.program.parameters])
    assert device.launched[0][4] == source.kernels[0].shared_bytes == 4 * 16384
    assert k.shared_bytes == 65536
    assert k.grid == (1, 1, 1)
    assert k.block == (16, 16, 1)


def test_several_stages_without_alignment_wait_in_registers():
    s = programs.bound_product(m=32, n=32, k=24, tile=(4, 4), block=(8, 8), stages=3)
    assert "copy_async_16(" in emit(s.program, SM_80).text
    assert "copy_async" not in emit(s.program, SM_80, vectors=False).text
