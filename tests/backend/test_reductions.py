"""Reductions: over lanes, over tuples, with masks, with NaN, in every order that a schedule may ask for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.backend.programs import check, outputs, run, target
from tlm.backend import compile
from tlm.ir.build import Builder
from tlm.ir.dtypes import f32, i32
from tlm.ir.exprs import Cast, const
from tlm.ir.nodes import Program
from tlm.schedule import Schedule

SINGLE = {"sum": "f32", "prod": "i32", "max": "f32", "min": "i16", "any": "bool", "all": "bool"}


def rows(combiner: str, m: int, n: int, dtype: str = "f32") -> Program:
    """Each row of x reduced by `combiner`."""
    b = Builder(combiner)
    x = b.input("x", (m, n), dtype)
    if combiner in ("argmax", "argmin"):
        b.reduce(("v", "at"), (m,), over={"k": n}, fn=lambda i, k: (x[i, k], Cast(k, i32)), axes=("i",),
                 combiner=combiner, output=True)  # fmt: skip
    elif combiner == "welford":
        b.reduce(("n", "mean", "m2"), (m,), over={"k": n}, axes=("i",), combiner=combiner, output=True,
                 fn=lambda i, k: (const(1.0, f32), x[i, k], const(0.0, f32)))  # fmt: skip
    elif combiner == "logsumexp":
        b.reduce(("m", "s"), (m,), over={"k": n}, fn=lambda i, k: (x[i, k], const(1.0, f32)), axes=("i",),
                 combiner=combiner, output=True)  # fmt: skip
    else:
        b.reduce(
            "y", (m,), over={"k": n}, fn=lambda i, k: x[i, k], axes=("i",), combiner=combiner, output=True
        )
    return b.build()


def schedules(program: Program) -> list[Program]:
    """The reduction as it is, in lanes at once, in lanes round after round, with a tail, and over rows of
    lanes."""
    out = [program]
    for steps in (
        [("vectorize", "k")], [("split", "k", 16), ("vectorize", "k.1")],
        [("split", "k", 5), ("vectorize", "k.1")],
        [("split", "i", 3), ("reorder", "i.0", "k", "i.1"), ("unroll", "i.1")],
        [("split", "i", 3), ("split", "k", 8), ("reorder", "i.0", "k.0", "i.1", "k.1"),
         ("unroll", "i.1"), ("vectorize", "k.1")],
        [("reorder", "k", "i"), ("vectorize", "i")],
    ):  # fmt: skip
        s = Schedule(program)
        for name, *args in steps:
            getattr(s, str(name))(*args)
        out.append(s.program)
    return out


@pytest.mark.parametrize("combiner", [*SINGLE, "argmax", "argmin"])
def test_exact_combiners(combiner: str, isa: str) -> None:
    for program in schedules(rows(combiner, 7, 37, SINGLE.get(combiner, "f32"))):
        check(program, isa)


def test_sum_of_ones_in_lanes(isa: str) -> None:
    """A vectorised reduction axis sums all lanes, not the last."""
    s = Schedule(rows("sum", 1, 128))
    s.vectorize("k")
    kernel = compile(s.program, target(isa), cache=False)
    assert run(kernel, [np.ones((1, 128), "f4")])[0].tolist() == [128.0]


def test_lanes_are_merged_once_after_the_loop() -> None:
    s = Schedule(rows("sum", 1, 4096))
    s.split("k", 64)
    s.vectorize("k.1")
    kernel = compile(s.program, target("avx512"), cache=False)
    loop = max(kernel.assembly.split("\n.L"), key=lambda block: block.count("vaddps"))
    body = loop[: loop.index("jl")]
    assert body.count("vaddps") == 4  # four accumulators of 16 lanes each, straight from memory
    assert "vshuf" not in body
    assert "vextract" not in body


@pytest.mark.parametrize("combiner", ["welford", "logsumexp"])
def test_tuple_combiners_in_floats(combiner: str, isa: str) -> None:
    x = np.random.default_rng(0).normal(size=(7, 37)).astype("f4") + (1000 if combiner == "welford" else 0)
    wide = x.astype("f8")
    for program in schedules(rows(combiner, 7, 37)):
        got = run(compile(program, target(isa), cache=False), [x])
        if combiner == "welford":
            np.testing.assert_array_equal(got[0], np.full(7, 37))
            np.testing.assert_allclose(got[1], wide.mean(1), rtol=1e-6)
            np.testing.assert_allclose(got[2], wide.var(1) * 37, rtol=2e-3)
        else:
            want = np.log(np.exp(wide).sum(1))
            np.testing.assert_allclose(got[0] + np.log(got[1]), want, rtol=1e-5)


def test_max_keeps_a_nan_wherever_it_is(isa: str) -> None:
    for program in schedules(rows("max", 3, 33)):
        kernel = compile(program, target(isa), cache=False)
        for at in range(33):
            x = np.arange(99, dtype="f4").reshape(3, 33)
            x[1, at] = math.nan
            (got,) = run(kernel, [x])
            assert math.isnan(got[1])
            assert got[[0, 2]].tolist() == [32.0, 98.0]


def test_argmax_prefers_nan_then_the_first(isa: str) -> None:
    x = np.zeros((3, 21), "f4")
    x[0, [5, 17]] = 9
    x[1, [3, 20]] = math.nan
    for program in schedules(rows("argmax", 3, 21)):
        _, at = run(compile(program, target(isa), cache=False), [x])
        assert at.tolist() == [5, 3, 0]


def test_initial_value_counts_once_for_any_number_of_threads() -> None:
    b = Builder("bias")
    x, start = b.input("x", (100,), "f32"), b.input("start", (1,), "f32")
    total = b.reduce("total", (1,), over={"k": 100}, fn=lambda i, k: x[k], axes=("i",))
    b.compute("y", (1,), lambda i: total[i] + start[i], output=True)
    s = Schedule(b.build())
    s.split("k", 9)
    s.rfactor("k.0")
    s.parallel("k.0")
    kernel = compile(s.program, target("avx2"), cache=False)
    for threads in (1, 2, 3, 8):
        out = outputs(s.program)
        kernel(np.ones(100, "f4"), np.full(1, 3.0, "f4"), *out, threads=threads)
        assert out[0].tolist() == [103.0]


def test_split_reduction_into_memory_that_held_something_else() -> None:
    """Partial sums in parallel start from zero, however often the kernel runs into the same output."""
    b = Builder("mm")
    x, y = b.input("A", (16, 128), "f32"), b.input("B", (128, 16), "f32")
    b.reduce(
        "C", (16, 16), over={"k": 128}, fn=lambda i, j, k: x[i, k] * y[k, j], axes=("i", "j"), output=True
    )
    s = Schedule(b.build())
    s.split("k", 32)
    s.rfactor("k.0")
    s.parallel("k.0")
    kernel = compile(s.program, target("avx2"), cache=False)
    rng = np.random.default_rng(0)
    a, c = (rng.integers(-3, 4, s).astype("f4") for s in ((16, 128), (128, 16)))
    out = np.full((16, 16), np.nan, "f4")
    for _ in range(2):
        kernel(a, c, out, threads=4)
        np.testing.assert_array_equal(out, a @ c)


def test_transposed_accumulator_starts_at_the_identity(isa: str) -> None:
    b = Builder("sums")
    x = b.input("A", (6, 5, 7), "f32")
    b.reduce("B", (6, 5), over={"k": 7}, fn=lambda i, j, k: x[i, j, k], axes=("i", "j"), output=True)
    s = Schedule(b.build())
    s.cache_write("B", "", memory="heap", layout=("j", "i"))
    check(s.program, isa)
