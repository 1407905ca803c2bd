"""Kernels as objects: arguments, strides, lifetime, scratch memory, timing."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.backend.programs import check, elementwise, plain_matmul, run, target, tiled_matmul, whole_numbers
from tlm.backend import assembly, compile, cross_compile
from tlm.errors import ArgumentError, BackendError
from tlm.ir.build import Builder
from tlm.ir.dtypes import f32, i32
from tlm.ir.exprs import Cast, Load, Var, const, op
from tlm.ir.nodes import Alloc, Buffer, For, If, Program, Store, block
from tlm.schedule import Schedule
from tlm.target import Target


def test_import_is_light() -> None:
    code = "import sys, tlm, tlm.backend; assert 'llvmlite' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_arguments_are_checked() -> None:
    kernel = compile(plain_matmul(2, 3, 4), target("avx2"), cache=False)
    a, b, c = np.ones((2, 4), "f4"), np.ones((4, 3), "f4"), np.empty((2, 3), "f4")
    kernel(a, b, c)
    assert c.tolist() == [[4.0] * 3] * 2
    with pytest.raises(ArgumentError, match="takes 3 arrays, got 2"):
        kernel(a, b)
    with pytest.raises(ArgumentError, match=r"A is f32\[2, 4\], got float64\[2, 4\]"):
        kernel(a.astype("f8"), b, c)
    with pytest.raises(ArgumentError, match=r"B is f32\[4, 3\], got float32\[3, 4\]"):
        kernel(a, b.T, c)
    with pytest.raises(ArgumentError, match=r"A has strides of \(16, 4\) bytes, got \(4, 8\)"):
        kernel(np.asfortranarray(a), b, c)
    c.flags.writeable = False
    with pytest.raises(ArgumentError, match="C is an output, but the array is read-only"):
        kernel(a, b, c)
    with pytest.raises(ArgumentError, match="numpy array, got list"):
        kernel([1], b, c)  # type: ignore[arg-type]


@pytest.mark.parametrize("strides", [(6, 1), (1, 5), (-6, 1), (6, -1), (-12, -2), (24, 3), (0, 1), (1, 0)])
def test_any_strides(strides: tuple[int, int], isa: str) -> None:
    """Reversed, transposed, sliced and broadcast inputs, read lane by lane or in vectors."""
    b = Builder("double")
    x = b.input("x", (5, 6), "f32", strides=strides)
    b.compute("y", (5, 6), lambda i, j: x[i, j] * 2.0 + 1.0, output=True)
    for other, loop in (("i", "j"), ("j", "i")):
        s = Schedule(b.build())
        s.reorder(other, loop)
        s.vectorize(loop)
        check(s.program, isa)


def test_strided_output(isa: str) -> None:
    x, y = Buffer("x", (6, 9), f32), Buffer("y", (6, 9), f32, strides=(1, 7))
    for kinds in (("serial", "vectorize"), ("vectorize", "serial")):
        store = Store("y", (Var("i"), Var("j")), Load("x", (Var("i"), Var("j")), f32))
        body = For("i", 6, For("j", 9, store, kinds[1]), kinds[0])  # type: ignore[arg-type]
        check(Program("copy", (x,), (y,), body), isa)


def test_data_dependent_indices(isa: str) -> None:
    """Gathers and scatters, under a mask too."""
    x, at, y = Buffer("x", (11,), f32), Buffer("at", (21,), i32), Buffer("y", (21,), f32)
    index = Cast(Load("at", (Var("i"),), i32), Var("i").dtype)
    gather = Store("y", (Var("i"),), Load("x", (index,), f32))
    arrays = [np.arange(11, dtype="f4"), np.array([(7 * i) % 11 for i in range(21)], "i4")]
    check(Program("gather", (x, at), (y,), For("i", 21, gather, "vectorize")), isa, arrays)
    odd = op("ne", index % 2, const(0))
    masked = block(Store("y", (Var("i"),), const(-1.0, f32)), If(odd, gather))
    check(Program("gather", (x, at), (y,), For("i", 21, masked, "vectorize")), isa, arrays)
    scatter = Store("y", (index,), Load("x", (Var("i"),), f32))
    order = [np.arange(21, dtype="f4"), np.array([(8 * i) % 21 for i in range(21)], "i4")]
    whole = Program("scatter", (Buffer("x", (21,), f32), at), (y,), For("i", 21, scatter, "vectorize"))
    check(whole, isa, order)


def test_a_side_of_where_is_only_read_where_it_is_picked(isa: str) -> None:
    """Reading the other side would leave the array; at the end of a page that is a crash."""
    n = 37
    x, y = Buffer("x", (n,), f32), Buffer("y", (n + 16,), f32)
    shifted = op("sub", Var("i"), const(8))
    inside = op("and", op("le", const(8), Var("i")), Var("i") < n + 8)
    value = op("where", inside, Load("x", (shifted,), f32), const(0.0, f32))
    for kind in ("serial", "vectorize"):
        check(Program("pad", (x,), (y,), For("i", n + 16, Store("y", (Var("i"),), value), kind)), isa)  # type: ignore[arg-type]


def test_offsets_beyond_32_bits() -> None:
    """Element 2**31 + 5 of a broadcast view: strides and offsets are 64 bits wide."""
    wide = 1 << 31
    x = Buffer("x", (2, 16), f32, strides=(wide, 1))
    body = For("j", 16, Store("y", (Var("j"),), Load("x", (const(1), Var("j")), f32)), "vectorize")
    kernel = compile(Program("far", (x,), (Buffer("y", (16,), f32),), body), target("avx2"), cache=False)
    y = np.zeros(16, "f4")
    memory = np.arange(16, dtype="f4")
    kernel.call(memory.ctypes.data - 4 * wide, y.ctypes.data, threads=1)
    np.testing.assert_array_equal(y, memory)


def test_code_lives_as_long_as_its_callable() -> None:
    program = tiled_matmul(13, 50, 6, 8, 48, 16)
    kernel = compile(program, target("avx512"), cache=False)
    arrays = whole_numbers(program)
    (want,) = run(kernel, arrays)
    call, got = kernel.call, np.zeros_like(want)
    del kernel
    gc.collect()
    for n in range(1, 51):
        compile(elementwise("neg", [f32], f32, n), target("avx2"), cache=False)
    gc.collect()
    call(*[x.ctypes.data for x in (*arrays, got)], threads=1)
    np.testing.assert_array_equal(got, want)


def test_scratch_memory_is_per_thread_and_reused() -> None:
    program = tiled_matmul(40, 96, 32, 8, 48, 16, threads=True)
    kernel = compile(program, target("avx512"), cache=False)
    assert kernel.workspace_bytes(1) >= 2 * 32 * 48 * 4
    arrays = whole_numbers(program)
    (want,) = run(kernel, arrays)
    wrong: list[int] = []

    def repeat() -> None:
        for _ in range(50):
            if not (run(kernel, arrays)[0] == want).all():
                wrong.append(1)

    threads = [threading.Thread(target=repeat) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_time_and_text() -> None:
    kernel = compile(plain_matmul(4, 4, 4), target("avx2"), cache=False)
    arrays = [np.ones((4, 4), "f4") for _ in range(3)]
    times = kernel.time(*arrays, repeats=3)
    assert len(times) == 3
    assert all(0 < t < 1 for t in times)
    assert "define void @tlm_matmul" in kernel.source
    assert "tlm_matmul:" in kernel.assembly
    assert kernel.object[:4] == b"\x7fELF"


def test_names_never_reach_the_code() -> None:
    name = 'x"); system("touch m");//'
    x, y = Buffer(f"{name}x", (4,), f32), Buffer(f"{name}y", (4,), f32)
    body = For(name, 4, Store(y.name, (Var(name),), Load(x.name, (Var(name),), f32)))
    kernel = check(Program(name, (x,), (y,), body), "avx2")
    assert "system(" not in kernel.source
    assert kernel.module.symbol == "tlm_x____system__touch_m_____"


def test_other_targets_are_refused_or_cross_compiled() -> None:
    program = tiled_matmul(9, 9, 5, 4, 8, 4)
    with pytest.raises(BackendError, match="sm_90"):
        compile(program, Target("sm_90"))
    with pytest.raises(BackendError, match="cross_compile"):
        compile(program, Target("neon"))
    module, code = cross_compile(program, Target("neon"))
    assert code[:4] == b"\x7fELF"
    assert code[18] == 183  # EM_AARCH64
    assert "fmla" in assembly(module, Target("neon"))


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "log", "pow", "maximum", "sqrt"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_elementary_functions_for_aarch64(name: str, dtype: str) -> None:
    from tlm.ir.dtypes import DTYPES
    from tlm.ir.optable import OPS

    d = DTYPES[dtype]
    _, code = cross_compile(elementwise(name, [d] * OPS[name].arity, d, 19), Target("neon"))
    assert code[:4] == b"\x7fELF"


def test_shared_memory_needs_a_gpu() -> None:
    buffer = Buffer("s", (4,), f32, "shared")
    body = Alloc(buffer, For("i", 4, Store("s", (Var("i"),), const(0.0, f32))))
    with pytest.raises(BackendError, match="shared between GPU threads"):
        compile(Program("p", (), (Buffer("y", (4,), f32),), body), target("avx2"))


@pytest.mark.parametrize("dtype", ["f32", "f16", "u8", "f64"])
@pytest.mark.parametrize(("n", "k"), [(48, 37), (31, 16), (5, 40), (16, 15)])
def test_packing_of_a_transposed_operand(dtype: str, n: int, k: int, isa: str) -> None:
    """Vectors across rows, with tails both ways."""
    from tlm.ir.dtypes import DTYPES

    d, lanes = DTYPES[dtype], target(isa).vector_bytes // 8
    blocks = -(-n // (2 * lanes))
    source, packed = Buffer("B", (n, k), d), Buffer("P", (blocks, k, 2, lanes), d)
    row = Var("b") * (2 * lanes) + Var("v") * lanes + Var("l")
    value = op("where", row < n, Load("B", (row, Var("k")), d), const(0, d))
    store = Store("P", (Var("b"), Var("k"), Var("v"), Var("l")), value)
    body = For("k", k, For("v", 2, For("l", lanes, store, "vectorize"), "unroll"))
    check(Program("pack", (source,), (packed,), For("b", blocks, body)), isa)
