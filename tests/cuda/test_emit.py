"""The emitted text, run in the shim, computes what the interpreter does; kinds I, M and W."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tlm
from tests.cuda import programs
from tests.cuda.emitted import SM_80, check, values
from tlm.backend.cuda.emitter import emit
from tlm.errors import BackendError
from tlm.ir.build import Builder
from tlm.ir.dtypes import DTYPES, to_numpy
from tlm.ir.exprs import Expr, Load, Var, const, converted, op
from tlm.ir.nodes import Alloc, Buffer, For, Program, Store, Update, block
from tlm.ir.optable import OPS
from tlm.schedule import Schedule
from tlm.target import Target

SM_75 = Target("sm_75")


def barriers(text: str) -> int:
    return text.count("__syncthreads();")


def conditions(text: str, inner: str) -> list[str]:
    """The heads of all braces around each line that has `inner`."""
    heads: list[str] = []
    out = []
    for line in text.splitlines():
        if line.strip().startswith("}"):
            heads.pop()
        if inner in line:
            out += heads
        if line.rstrip().endswith("{"):
            heads.append(line)
    return out


def test_the_tiled_product_has_vectors_and_two_barriers():
    s = programs.bound_product(m=64, n=64, k=24, tile=(4, 4), block=(8, 8))
    source, _ = check(s.program)
    launch = source.kernels[0]
    assert (launch.grid, launch.block, launch.static_shared) == ((2, 2, 1), (8, 8, 1), 2048)
    assert barriers(source.text) == 2
    assert "float acc[4][4];" in source.text
    assert "const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C" in source.text
    assert source.text.count("reinterpret_cast<float4*>") == 2
    assert source.aligned
    assert not emit(s.program, SM_80, vectors=False).aligned


@pytest.mark.parametrize("stages", [1, 2])
def test_tails_never_put_a_barrier_under_a_condition_on_threads(stages):
    """Kind M: a barrier under a thread-dependent condition."""
    s = programs.bound_product(m=33, n=65, k=19, tile=(4, 4), block=(8, 8), stages=stages)
    source, _ = check(s.program)
    assert not [c for c in conditions(source.text, "__syncthreads") if "threadIdx" in c or "if (" in c]


def test_three_stages_are_asynchronous_copies_with_one_barrier():
    s = programs.bound_product(m=32, n=64, k=40, tile=(4, 4), block=(8, 8), stages=3)
    source, _ = check(s.program)
    assert "copy_async_16(&B_s" in source.text
    assert "copy_async_4(&A_s" in source.text
    assert "copy_async_wait<1>();" in source.text
    assert barriers(source.text) == 1
    assert source.kernels[0].static_shared == 3 * 2048


@pytest.mark.parametrize("stages", [2, 3])
def test_without_asynchronous_copies_the_next_tile_waits_in_registers(stages):
    s = programs.bound_product(m=32, n=64, k=40, tile=(4, 4), block=(8, 8), stages=stages)
    source, _ = check(s.program, SM_75)
    assert "copy_async" not in source.text
    assert "float B_s_next[" in source.text
    assert barriers(source.text) == 1


def test_what_is_read_together_and_scattered_waits_in_registers_beside_copies():
    s = programs.bound_product(m=32, n=64, k=40, tile=(4, 4), block=(8, 8), stages=3, columns=4)
    source, _ = check(s.program)
    assert "copy_async_16(&B_s" in source.text
    assert "float A_s_next[" in source.text
    assert "reinterpret_cast<const float4*>(&A[" in source.text
    assert barriers(source.text) == 1


def test_storage_align_pads_rows():
    b = Builder("transpose")
    x = b.input("x", (32, 32), "f32")
    b.compute("y", (32, 32), lambda i, j: x[j, i], output=True)
    s = Schedule(b.build())
    s.split("j", 32).split("i", 32).reorder("i.0", "j.0", "i.1", "j.1")
    s.cache_read("x", "j.0", "shared", ("j.1", "i.1"), "t").storage_align("t", 0, 32, 1)
    s.bind("i.0", "blockIdx.x")
    s.split("i.1", 8).bind("i.1.1", "threadIdx.y").bind("j.1", "threadIdx.x")
    s.split("j.1@t", 8).bind("j.1@t.1", "threadIdx.y").bind("i.1@t", "threadIdx.x")
    source, _ = check(s.program)
    assert "t[1055]" in source.text or "t[1056]" in source.text
    with pytest.raises(tlm.errors.ScheduleError, match="aligned already"):
        s.storage_align("t", 0, 32, 1)


@pytest.mark.parametrize(
    ("threads", "combiner"),
    [((4, 8), "sum"), ((2, 32), "max"), ((1, 128), "logsumexp"), ((2, 64), "argmax"), ((3, 5), "welford")],
)
def test_threads_merge_in_warps_across_warps_and_in_shared_memory(threads, combiner):
    s = programs.reduced_rows(5, 260, threads, combiner)
    source, _ = check(s.program, exact=combiner not in ("welford", "logsumexp"))
    shuffles = threads[1] != 5
    assert ("__shfl_xor_sync" in source.text) == shuffles
    assert barriers(source.text) == (0 if threads[1] <= 32 and shuffles else 1)
    assert not [c for c in conditions(source.text, "__syncthreads") if "if (" in c]


def test_a_reduction_over_the_slower_axis_of_threads():
    b = Builder("columns")
    x = b.input("x", (50, 40), "f32")
    b.reduce("s", (40,), {"r": 50}, lambda j, r: x[r, j], output=True, axes=("j",))
    s = Schedule(b.build())
    s.split("j", 32).split("r", 8).reorder("j.0", "r.1", "j.1", "r.0")
    s.bind("j.0", "blockIdx.x").bind("r.1", "threadIdx.y").bind("j.1", "threadIdx.x")
    source, _ = check(s.program)
    assert barriers(source.text) == 1


def test_virtual_threads_are_copies():
    s = programs.tiled_product(m=32, n=32, k=8, tile=(4, 4), block=(8, 8))
    s.bind("i.0", "blockIdx.y").bind("j.0", "blockIdx.x").bind("i.1.1", "vthread").bind("j.1.1", "vthread")
    for suffix in ("", "@init", "@acc"):
        s.bind(f"i.1.0{suffix}", "threadIdx.y").bind(f"j.1.0{suffix}", "threadIdx.x")
    source, _ = check(s.program)
    assert "#pragma unroll" in source.text


def test_a_program_without_marks_is_one_thread_a_nest():
    program = programs.tiled_product(m=9, n=7, k=5, tile=(2, 2), block=(2, 2)).original
    b = Builder("chain")
    x = b.input("x", (6, 7), "f32")
    t = b.reduce("t", (6,), {"k": 7}, lambda i, k: x[i, k], axes=("i",))
    b.compute("y", (6, 7), lambda i, j: x[i, j] - t[i], output=True)
    for p, kernels in ((program, 1), (b.build(), 2)):
        source, _ = check(p)
        assert len(source.kernels) == kernels
        assert all(k.grid == k.block == (1, 1, 1) for k in source.kernels)


NAMES = {
    "f32": [n for n, i in OPS.items() if i.rule in ("same", "float", "compare", "test") and n != "rem"],
    "f16": ["add", "mul", "div", "exp", "tanh", "minimum", "floor", "neg", "fma", "sqrt", "isfinite"],
    "bf16": ["add", "mul", "div", "exp", "logistic", "maximum", "sign", "lt"],
    "f64": ["add", "div", "exp", "erf", "mod", "floordiv", "pow", "sign", "isnan", "logistic"],
    **{
        d: [n for n, i in OPS.items() if i.rule in ("same", "compare", "logic", "integer")]
        for d in ("i8", "i16", "i32", "i64", "u8")
    },
    "bool": ["and", "or", "xor", "not", "eq", "minimum", "maximum"],
}


@pytest.mark.parametrize("dtype", NAMES)
def test_every_operation_of_every_dtype(dtype):
    """Kinds I, W: all types compile and compute without a header."""
    b = Builder(f"all_{dtype}")
    operands = [b.input(f"x{n}", (16,), dtype) for n in range(3)]
    for name in NAMES[dtype]:
        arity = OPS[name].arity
        b.compute(
            f"y_{name}", (16,), lambda i, n=name, k=arity: op(n, *[x[i] for x in operands[:k]]), output=True
        )
    for other in DTYPES:
        b.compute(f"to_{other}", (16,), lambda i, o=other: converted(operands[0][i], DTYPES[o]), output=True)
    s = Schedule(b.build())
    for loop in [x.var for x in s.program.body.stmts]:
        s.split(loop, 4).vectorize(f"{loop}.1").bind(f"{loop}.0", "threadIdx.x")
    check(s.program, exact=not DTYPES[dtype].is_float, inputs=_operands(dtype))


def _operands(dtype: str) -> list[np.ndarray]:
    kind = to_numpy(DTYPES[dtype])
    rng = np.random.default_rng(3)
    if DTYPES[dtype].is_float:
        edges = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.5, -3.5, 7.25])
        return [np.concatenate([np.roll(edges, n), rng.uniform(-2, 2, 6)]).astype(kind) for n in range(3)]
    if dtype == "bool":
        return [rng.integers(0, 2, 16).astype(kind) for _ in range(3)]
    limits = np.iinfo(kind)
    edges = np.array([limits.min, limits.max, 0, 1, limits.max // 3], kind)
    small = rng.integers(0, 5, 22) - (2 if limits.min < 0 else 0)
    whole = np.concatenate([edges, small[:11].astype(kind)])
    return [np.roll(whole, 3 * n).astype(kind) for n in range(3)]


def test_large_extents_have_long_indices():
    """Kind I: offsets beyond 31 bits."""
    b = Builder("huge")
    x = b.input("x", (70000, 40000), "u8")
    b.compute("y", (70000, 40000), lambda i, j: x[i, j], output=True)
    s = Schedule(b.build()).bind("i", "blockIdx.x")
    s.split("j", 256).bind("j.1", "threadIdx.x")
    text = emit(s.program, SM_80).text
    assert "(long long)i * 40000" in text
    small = Builder("small")
    x = small.input("x", (700, 400), "u8")
    small.compute("y", (700, 400), lambda i, j: x[i, j], output=True)
    assert "long long" not in emit(small.build(), SM_80).text


@pytest.mark.parametrize("rows", [65535, 65536])
def test_grids_beyond_the_limit_are_refused(rows):
    """Kind I: a grid dimension above 65535."""
    y = Buffer("y", (rows, 8), DTYPES["f32"])
    body = For(
        "i",
        rows,
        For("j", 8, Store("y", (Var("i"), Var("j")), const(1, y.dtype)), "threadIdx.x"),
        "blockIdx.y",
    )
    program = Program("ones", (), (y,), body)
    if rows == 65535:
        assert emit(program, SM_80).kernels[0].grid == (1, 65535, 1)
    else:
        with pytest.raises(BackendError, match=r"65536 is above the limit of blockIdx.y, 65535"):
            emit(program, SM_80)


def _threads(x: int, y: int, shared: int = 16) -> Program:
    """Two nests of a block whose axes are x and y threads long, with a shared temporary."""
    dtype = DTYPES["f32"]
    t, out = Buffer("t", (shared,), dtype, "shared"), Buffer("y", (x + y,), dtype)
    first = For("i", x, Store("y", (Var("i"),), const(1, dtype)), "threadIdx.x")
    second = For("j", y, Store("y", (Var("j") + x,), const(2, dtype)), "threadIdx.y")
    fill = For("k", 4, Store("t", (Var("k"),), const(0, dtype)), "threadIdx.x")
    return Program("p", (), (out,), For("b", 1, Alloc(t, block(fill, first, second)), "blockIdx.x"))


def test_blocks_over_the_limits_are_refused():
    """Kind M: configurations over the device limits."""
    emit(_threads(32, 32), SM_80)
    with pytest.raises(BackendError, match=r"64 x 32 x 1 = 2048 threads is above the limit of sm_80, 1024"):
        emit(_threads(64, 32), SM_80)
    source = emit(_threads(8, 8, 16 << 10), SM_80)
    assert source.kernels[0].shared_bytes == 64 << 10
    assert "extern __shared__ __align__(16) unsigned char tlm_shared[];" in source.text
    with pytest.raises(BackendError, match="bytes of shared memory, above the limit of sm_75, 65536"):
        emit(_threads(8, 8, 17 << 10), SM_75)


def test_names_never_reach_the_text():
    """Names with marks, keywords and helpers become other identifiers."""
    dtype = DTYPES["f32"]
    x, y = Buffer("int", (4,), dtype), Buffer("threadIdx", (4,), dtype)
    body = For(
        "for",
        4,
        Store("threadIdx", (Var("for"),), op("exp", op("neg", converted(0.0, dtype)))),
        "threadIdx.x",
    )
    nest = Program("asm", (x,), (y,), body)
    source, _ = check(nest)
    assert re.search(r"\basm_2\(const|\basm_2\(float", source.text)


def test_a_thread_loop_around_cooperative_code_is_shared_out():
    """One warp a row: the thread loop over rows surrounds two reductions and a serial loop."""
    dtype = DTYPES["f32"]
    x, y = Buffer("x", (4, 24), dtype), Buffer("y", (4, 24), dtype)
    s = Buffer("s", (1,), dtype, "register")
    i, t, k, v = Var("i"), Var("t"), Var("k"), Var("v")
    load = _load(x, i, k * 8 + t)
    total = For("t", 8, For("k", 3, Update(("s",), (const(0),), (load,), "sum", ("t", "k"))), "threadIdx.x")
    write = For("k2", 3, For("v", 8, Store("y", (i, Var("k2") * 8 + v), _load(s, const(0))), "threadIdx.x"))
    program = Program("rows", (x,), (y,), For("i", 4, Alloc(s, block(total, write)), "threadIdx.y"))
    source, _ = check(program)
    assert source.kernels[0].block == (8, 4, 1)
    assert barriers(source.text) == 1


def _load(buffer: Buffer, *indices: Expr) -> Load:
    return Load(buffer.name, indices, buffer.dtype)


def test_halves_travel_in_vectors_of_16_bytes():
    b = Builder("scaled")
    x = b.input("x", (64,), "bf16")
    b.compute("y", (64,), lambda i: x[i] * x[i], output=True)
    s = Schedule(b.build()).split("i", 8).vectorize("i.1").bind("i.0", "threadIdx.x")
    source, _ = check(s.program)
    assert source.text.count("uint4") == 4
    given = values(s.program)
    assert given[0].dtype.itemsize == 2
