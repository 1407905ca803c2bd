"""compute_at, reverse_compute_at, inline: where a stage is computed, and when it cannot be moved."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tlm.errors import ScheduleError
from tlm.ir.build import Builder
from tlm.ir.exprs import Const, op
from tlm.ir.nodes import Program
from tlm.ir.verify import verify
from tlm.schedule import Schedule


def two_guards() -> Program:
    b = Builder("pair")
    x = b.input("x", (10,), "f32")
    p = b.compute("P", (10,), lambda i: x[i] * 2.0, axes=("i",))
    b.compute("C", (10,), lambda i: p[i] + p[op("minimum", i + 1, Const(9))], axes=("i",), output=True)
    return b.build()


def chain() -> Program:
    """Row sums S, then x - S, then its double."""
    b = Builder("chain")
    x = b.input("X", (6, 10), "f32")
    s = b.reduce("S", (6,), {"k": 10}, lambda i, k: x[i, k], axes=("i",))
    y = b.compute("Y", (6, 10), lambda i, j: x[i, j] - s[i])
    b.compute("Z", (6, 10), lambda i, j: y[i, j] * 2.0, output=True)
    return b.build()


def right(s: Schedule) -> Schedule:
    verify(s.program)
    x = np.random.default_rng(0).integers(-4, 5, (6, 10)).astype("f4")
    assert np.array_equal(s.run(x)[0], (x - x.sum(1, keepdims=True)) * 2)
    return s


def test_guards_of_producer_and_consumer_stay_apart() -> None:
    x = np.arange(10, dtype="f4") ** 2
    want = x * 2 + (x * 2)[np.minimum(np.arange(10) + 1, 9)]
    for split in (True, False):
        s = Schedule(two_guards()).split("C_i", 3)
        if split:
            s.split("i", 4)
        s.compute_at("P", "C_i.0")
        verify(s.program)
        assert "P: f32[4]" in str(s)
        assert np.array_equal(s.run(x)[0], want)


def test_inlining_a_shifted_read() -> None:
    x = np.arange(10, dtype="f4") ** 2
    s = Schedule(two_guards()).inline("P")
    assert "alloc" not in str(s)
    assert np.array_equal(s.run(x)[0], x * 2 + (x * 2)[np.minimum(np.arange(10) + 1, 9)])


def test_a_stage_is_computed_where_it_is_read() -> None:
    s = right(Schedule(chain()).compute_at("Y", "Z_j").compute_at("S", "Z_i"))
    assert (
        str(s)
        == """\
program chain(X: f32[6, 10]) -> (Z: f32[6, 10])
for Z_i in 6:
  alloc S: f32[1] heap:
    for i in 1:
      for k in 10:
        S[i] (k)+= X[Z_i + i, k]
    for Z_j in 10:
      alloc Y: f32[1, 1] heap:
        for Y_i in 1:
          for Y_j in 1:
            Y[Y_i, Y_j] = X[Y_i + Z_i, Y_j + Z_j] - S[Y_i]
        Z[Z_i, Z_j] = Y[0, 0] * 2.0"""
    )


def test_readers_follow_their_producer_tile_by_tile() -> None:
    s = Schedule(chain()).split("i", 4).reverse_compute_at("Y", "i.0").reverse_compute_at("Z", "i.0")
    right(s)
    assert "S: f32[4]" in str(s)
    assert "Y: f32[4, 10]" in str(s)
    right(Schedule(chain()).reverse_compute_at("Y", "i").reverse_compute_at("Z", "Y_j"))


def test_an_unfinished_producer_has_no_readers() -> None:
    with pytest.raises(ScheduleError, match="an iteration of k does not complete S, which is reduced over k"):
        Schedule(chain()).reverse_compute_at("Y", "k")
    s = Schedule(chain()).split("k", 5).reorder("k.0", "i")
    with pytest.raises(ScheduleError, match=r"reduced over k.0(.|\n)*Name a loop outside of k.0"):
        s.reverse_compute_at("Y", "i")


def test_a_tile_with_holes_is_refused() -> None:
    s = Schedule(chain()).split("i", 3).reorder("i.1", "i.0")
    with pytest.raises(ScheduleError, match="has holes"):
        s.reverse_compute_at("Y", "i.1")


def test_a_tile_that_a_guard_cuts_in_the_middle_is_refused() -> None:
    s = Schedule(chain()).split("i", 4).split("i.1", 3).reorder("i.1.0", "i.0")
    with pytest.raises(ScheduleError, match=r"a guard of S inside i\.0 leaves out elements of the tile"):
        s.reverse_compute_at("Y", "i.0")
    right(s)


def test_a_reduction_needs_its_whole_axis() -> None:
    b = Builder("sums")
    x = b.input("X", (6, 10), "f32")
    y = b.compute("Y", (6, 10), lambda i, j: x[i, j] * 2.0)
    b.reduce("S", (6,), {"k": 10}, lambda i, k: y[i, k], axes=("i",), output=True)
    program = b.build()
    with pytest.raises(ScheduleError, match="S reduces over S_k, of which an iteration of j has a part only"):
        Schedule(program).reverse_compute_at("S", "j")
    data = np.random.default_rng(0).integers(-4, 5, (6, 10)).astype("f4")
    s = Schedule(program).reverse_compute_at("S", "i")
    assert np.array_equal(s.run(data)[0], (data * 2).sum(1))


def test_inlining_both_ways() -> None:
    right(Schedule(chain()).inline("Y"))
    s = right(Schedule(chain()).split("Y_j", 4).reorder("Y_j.1", "Y_i").reverse_inline("Z"))
    assert "alloc Y" not in str(s)
    with pytest.raises(ScheduleError, match="S is a reduction"):
        Schedule(chain()).inline("S")
    with pytest.raises(ScheduleError, match="Z is an output"):
        Schedule(chain()).inline("Z")
    with pytest.raises(ScheduleError, match="not written by one plain store"):
        Schedule(chain()).reverse_inline("Y")


def test_no_stage_moves_into_itself_or_in_a_circle() -> None:
    start = time.perf_counter()
    s = Schedule(chain())
    with pytest.raises(ScheduleError, match="Y_i is a loop of Y itself"):
        s.compute_at("Y", "Y_i")
    s.compute_at("S", "Y_i")
    for loop in ("i", "k"):
        with pytest.raises(ScheduleError, match=f"Y is not read under {loop}(.|\n)*its readers: Z_i, Z_j"):
            s.compute_at("Y", loop)
        with pytest.raises(ScheduleError, match=f"{loop} is a loop of S itself"):
            s.compute_at("S", loop)
    assert time.perf_counter() - start < 1
    right(s)


def test_moves_past_a_write_are_refused() -> None:
    b = Builder("late")
    x = b.input("X", (8,), "f32")
    p = b.compute("P", (8,), lambda i: x[i] * 2.0, axes=("i",))
    q = b.compute("Q", (8,), lambda i: p[i] + 1.0, axes=("i",))
    b.compute("R", (8,), lambda i: q[i] + p[i], axes=("i",), output=True)
    s = Schedule(b.build())
    with pytest.raises(
        ScheduleError, match=r"also read outside of R_i(.|\n)*Loops around all of its readers: none"
    ):
        s.compute_at("P", "R_i")
    with pytest.raises(ScheduleError, match="Q is written between"):
        s.reverse_compute_at("R", "i")
    s.reverse_compute_at("Q", "i").reverse_compute_at("R", "i")
    data = np.arange(8, dtype="f4")
    assert np.array_equal(s.run(data)[0], data * 4 + 1)


def test_vectorised_and_block_loops_take_no_stages() -> None:
    s = Schedule(chain()).vectorize("Z_j")
    with pytest.raises(ScheduleError, match="loop Z_j is vectorised"):
        s.compute_at("Y", "Z_j")
    s = Schedule(chain()).bind("Z_i", "blockIdx.y").bind("Z_j", "blockIdx.x")
    with pytest.raises(ScheduleError, match="loop Z_j inside Z_i is bound to blocks too"):
        s.compute_at("Y", "Z_i")


def three() -> Program:
    b = Builder("three")
    x = b.input("X", (4, 10), "f32")
    f = b.compute("F", (4, 10), lambda i, j: x[i, j] + 1.0)
    b.compute("Z", (4, 10), lambda i, j: f[i, j] * 2.0, output=True)
    b.compute("W", (4, 10), lambda i, j: f[i, j] * 3.0, output=True)
    return b.build()


def test_a_loop_around_both_stages_is_neither_s_own() -> None:
    s = Schedule(three()).merge("i", "Z_i").reverse_compute_at("Z", "j")
    verify(s.program)
    assert "Z[i, Z_j + j] = F[i, Z_j + j] * 2.0" in str(s)
    x = np.random.default_rng(0).integers(-4, 5, (4, 10)).astype("f4")
    for got, want in zip(s.run(x), ((x + 1) * 2, (x + 1) * 3), strict=True):
        np.testing.assert_array_equal(got, want)
