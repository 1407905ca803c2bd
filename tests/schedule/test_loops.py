"""Split, fuse, reorder, tile: every element is computed once, whatever the tails."""

from __future__ import annotations

import numpy as np
import pytest

from tlm.errors import ScheduleError
from tlm.ir.build import Builder
from tlm.ir.dtypes import f32, i32
from tlm.ir.exprs import Load, Var, const
from tlm.ir.nodes import Block, Buffer, For, Program, Store
from tlm.ir.paths import extents_of
from tlm.ir.verify import verify
from tlm.schedule import Schedule


def counts(m: int = 13, n: int = 17) -> Program:
    b = Builder("counts")
    b.reduce("cnt", (m, n), {"k": 1}, lambda i, j, k: const(1, i32), output=True)
    return b.build()


def add_one(m: int, n: int) -> Program:
    b = Builder("add")
    x = b.input("x", (m, n), "f32")
    b.compute("y", (m, n), lambda i, j: x[i, j] + 1.0, output=True)
    return b.build()


def once(schedule: Schedule) -> None:
    verify(schedule.program)
    (found,) = schedule.run()
    assert found.tolist() == np.ones(found.shape, "i4").tolist()


@pytest.mark.parametrize("tail", ["guard", "peel"])
@pytest.mark.parametrize("factors", [(4,), (4, 3), (5, 2), (5, 3, 2), (9, 4, 3)])
def test_nested_ragged_splits_count_each_element_once(factors: tuple[int, ...], tail: str) -> None:
    s = Schedule(counts())
    name = "i"
    for factor in factors:
        s.split(name, factor, tail)
        name += ".1"
    once(s)
    s = Schedule(counts())
    name = "j"
    for factor in factors:
        s.split(name, factor, tail)
        name += ".0"
    once(s)


def test_splits_of_a_fused_loop_keep_their_guards() -> None:
    s = Schedule(counts()).split("i", 4).split("j", 5)
    s.reorder("j.0", "i.0", "i.1").fuse("j.0", "i.0").split("j.0*i.0", 7).split("j.0*i.0.1", 3)
    once(s)
    once(s.reorder("i.1", "j.0*i.0.0").fuse("i.1", "j.0*i.0.1.0"))


def test_a_factor_that_divides_makes_no_guard() -> None:
    text = str(Schedule(counts(12, 16)).split("i", 4).split("j", 16))
    assert "if " not in text
    assert "i.0 in 3" in text
    assert "j.0 in 1" in text


@pytest.mark.parametrize("shape", [(2, 2), (1, 3), (3, 1)])
def test_a_factor_above_the_extent_is_clamped(shape: tuple[int, int]) -> None:
    s = Schedule(add_one(*shape)).split("i", 4).split("j", 8)
    extents = extents_of(s.program.body)
    assert (extents["i.1"], extents["j.1"]) == shape
    assert "if " not in str(s)
    x = np.arange(shape[0] * shape[1], dtype="f4").reshape(shape)
    assert np.array_equal(s.run(x)[0], x + 1)


def test_exact_refuses_what_does_not_divide_and_names_divisors() -> None:
    with pytest.raises(ScheduleError, match=r"5 does not divide the extent 12 of i(.|\n)*3, 4, 6"):
        Schedule(counts(12, 16)).split("i", 5, "exact")
    Schedule(counts(12, 16)).split("i", 4, "exact")


def test_peel_makes_a_loop_of_its_own_for_the_rest() -> None:
    s = Schedule(counts()).split("i", 4, "peel")
    assert (
        str(s)
        == """\
program counts() -> (cnt: i32[13, 17])
for i.0 in 3:
  for i.1 in 4:
    for j in 17:
      for k in 1:
        cnt[i.0 * 4 + i.1, j] (k)+= i32(1)
for i.t in 1:
  for j@i.t in 17:
    for k@i.t in 1:
      cnt[i.t + 12, j@i.t] (k@i.t)+= i32(1)"""
    )


def test_a_peeled_reduction_starts_once() -> None:
    b = Builder("sum")
    x = b.input("x", (3, 11), "f32")
    b.reduce("y", (3,), {"k": 11}, lambda i, k: x[i, k], axes=("i",), output=True)
    s = Schedule(b.build()).split("k", 4, "peel")
    assert "(k.t; no init)" in str(s)
    data = np.arange(33, dtype="f4").reshape(3, 11)
    assert np.array_equal(s.run(data)[0], data.sum(1))


def test_reorder_permutes_the_named_loops_in_their_places() -> None:
    s = Schedule(counts(12, 16)).split("i", 4).split("j", 4).reorder("j.0", "i.0", "i.1")
    assert list(extents_of(s.program.body)) == ["j.0", "i.0", "i.1", "j.1", "k"]
    once(s)


def test_guards_go_right_inside_the_loop_that_decides_them() -> None:
    s = Schedule(counts()).split("i", 4).reorder("j", "i.0", "k", "i.1")
    assert (
        str(s)
        == """\
program counts() -> (cnt: i32[13, 17])
for j in 17:
  for i.0 in 4:
    for k in 1:
      for i.1 in 4:
        if i.0 * 4 + i.1 < 13:
          cnt[i.0 * 4 + i.1, j] (k)+= i32(1)"""
    )
    s.reorder("i.1", "k")
    assert str(s).index("if i.0") < str(s).index("for k in")


def test_reorder_of_a_shift_in_place_is_refused() -> None:
    x, y = Buffer("x", (6, 6), f32), Buffer("y", (6, 6), f32)
    a, b, i, j = map(Var, "abij")
    first = For("a", 6, For("b", 6, Store("y", (a, b), Load("x", (a, b), f32))))
    # The distance (1, -1) turns around when the loops swap.
    second = For("i", 5, For("j", 5, Store("y", (i + 1, j), Load("y", (i, j + 1), f32) + 1.0)))
    program = Program("shift", (x,), (y,), Block((first, second)))
    with pytest.raises(ScheduleError, match="y keeps iterations of i and j in their order"):
        Schedule(program).reorder("j", "i")
    Schedule(program).reorder("b", "a")


def test_fuse_needs_loops_of_one_kind_directly_nested() -> None:
    s = Schedule(counts())
    with pytest.raises(ScheduleError, match="cnt reduces over k but not over j"):
        s.fuse("j", "k")
    with pytest.raises(ScheduleError, match="not directly inside"):
        s.fuse("i", "k")
    once(s.fuse("i", "j"))
    assert "i*j in 221" in str(s)


def test_tile_is_split_and_reorder() -> None:
    s = Schedule(counts()).tile(("i", "j"), (4, 5))
    assert list(extents_of(s.program.body)) == ["i.0", "j.0", "i.1", "j.1", "k"]
    once(s)


def test_a_marked_loop_is_not_reshaped() -> None:
    s = Schedule(counts()).parallel("i")
    with pytest.raises(ScheduleError, match="marked parallel"):
        s.split("i", 2)
