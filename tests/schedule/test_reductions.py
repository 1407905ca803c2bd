"""Starts and partial results of reductions: nothing is added to memory that nobody set, and nothing twice."""

from __future__ import annotations

import numpy as np
import pytest

from tlm.errors import ScheduleError
from tlm.ir.build import Builder
from tlm.ir.dtypes import i64
from tlm.ir.exprs import Cast, const
from tlm.ir.nodes import Program
from tlm.ir.verify import verify
from tlm.schedule import Schedule


def total(n: int = 128, start: float = 0.0) -> Program:
    b = Builder("total")
    x = b.input("x", (n,), "f32")
    acc = b.reduce("acc", (), {"k": n}, lambda k: x[k], axes=())
    b.compute("y", (), lambda: acc[()] + start, axes=(), output=True)
    return b.build()


def row_sums(shape: tuple[int, int, int] = (6, 5, 7)) -> Program:
    b = Builder("rows")
    x = b.input("A", shape, "f32")
    b.reduce("B", shape[:2], {"k": shape[2]}, lambda i, j, k: x[i, j, k], output=True)
    return b.build()


def argmax(n: int = 12) -> Program:
    b = Builder("argmax")
    x = b.input("X", (5, n), "f32")
    b.reduce(
        ("V", "I"),
        (5,),
        {"k": n},
        lambda i, k: (x[i, k], Cast(k, i64)),
        combiner="argmax",
        axes=("i",),
        output=True,
    )
    return b.build()


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype("f4")


@pytest.mark.parametrize("memory", ["register", "heap", "stack"])
def test_the_start_follows_a_new_layout(memory: str) -> None:
    s = Schedule(row_sums()).cache_write("B", memory=memory, layout=("j", "i"))
    verify(s.program)
    x = data(6, 5, 7)
    assert "B_acc: f32[5, 6]" in str(s)
    assert np.array_equal(s.run(x)[0], x.sum(2))


def test_vector_reductions_are_right() -> None:
    s = Schedule(total()).vectorize("k")
    assert s.run(np.ones(128, "f4"))[0] == 128


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_a_start_value_is_added_once(workers: int) -> None:
    s = Schedule(total(100, 3.0)).split("k", -(-100 // workers)).rfactor("k.0").parallel("k.0")
    assert s.run(np.ones(100, "f4"))[0] == 103


def test_parallel_over_a_reduction_is_refused() -> None:
    with pytest.raises(ScheduleError, match=r"acc is reduced over k(.|\n)*Use rfactor\(k\) first"):
        Schedule(total()).parallel("k")


def test_decomposing_writes_the_identity_first() -> None:
    s = Schedule(row_sums()).split("j", 3).decompose_reduction("B", "j.1")
    assert (
        str(s)
        == """\
program rows(A: f32[6, 5, 7]) -> (B: f32[6, 5])
for i in 6:
  for j.0 in 2:
    for j.1@init in 3:
      if j.0 * 3 + j.1@init < 5:
        B[i, j.0 * 3 + j.1@init] = 0.0
    for j.1 in 3:
      if j.0 * 3 + j.1 < 5:
        for k in 7:
          B[i, j.0 * 3 + j.1] (k; no init)+= A[i, j.0 * 3 + j.1, k]"""
    )
    x = data(6, 5, 7)
    assert np.array_equal(s.run(x)[0], x.sum(2))


def test_decomposing_inside_a_reduction_loop_starts_in_its_first_iteration() -> None:
    s = Schedule(row_sums()).split("k", 3).reorder("k.0", "i", "j", "k.1").decompose_reduction("B", "j")
    assert "if k.0 < 1:" in str(s)
    x = data(6, 5, 7)
    assert np.array_equal(s.run(x)[0], x.sum(2))


def test_partial_sums_in_the_output() -> None:
    s = Schedule(row_sums()).split("k", 3).reorder("k.0", "i", "j", "k.1").cache_write("B", "i")
    assert "(k.0)+= B_acc" in str(s)
    x = data(6, 5, 7)
    assert np.array_equal(s.run(x)[0], x.sum(2))


def test_a_tile_without_a_first_step_adds_nothing() -> None:
    # With k.1 outside, some tiles start beyond the end of k: their sums are never started, nor may be used.
    s = Schedule(row_sums()).split("k", 4).split("k.1", 3).reorder("k.1.0", "k.0", "i", "j", "k.1.1")
    s.cache_write("B", "k.0")
    x = data(6, 5, 7)
    assert np.array_equal(s.run(x)[0], x.sum(2))


@pytest.mark.parametrize("n", [1, 5, 12])
def test_tuples_split_into_partial_results(n: int) -> None:
    x = data(5, n)
    for memory, at in (("heap", ""), ("register", "i")):
        s = Schedule(argmax(n)).split("k", 4).rfactor("k.1", memory, at)
        verify(s.program)
        value, index = s.run(x)
        assert np.array_equal(value, x.max(1))
        assert np.array_equal(index, x.argmax(1))
    s = Schedule(argmax(n)).split("k", 4).cache_write("V", "k.0").decompose_reduction("V", "i")
    value, index = s.run(x)
    assert np.array_equal(index, x.argmax(1))


def test_rfactor_names_what_it_cannot_do() -> None:
    with pytest.raises(ScheduleError, match="i is the reduction loop of 0 statements"):
        Schedule(row_sums()).rfactor("i")
    with pytest.raises(ScheduleError, match="loop k is not around k"):
        Schedule(row_sums()).rfactor("k", at="k")


def test_a_reduction_that_another_reads_is_not_split_in_parallel() -> None:
    b = Builder("two")
    x = b.input("x", (4, 6), "f32")
    s1 = b.reduce("s", (4,), {"k": 6}, lambda i, k: x[i, k], axes=("i",))
    b.reduce("m", (), {"r": 4}, lambda r: s1[r] * const(2, s1.dtype), combiner="max", axes=(), output=True)
    s = Schedule(b.build())
    (found,) = s.compute_at("s", "m_r").rfactor("m_r").run(data(4, 6))
    assert found == (data(4, 6).sum(1) * 2).max()
