"""Reads at places that are themselves read from memory: what may be moved, and what is refused."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import tlm
from tlm.errors import ScheduleError
from tlm.ir.build import Builder
from tlm.ir.nodes import Program
from tlm.schedule import Schedule, apply
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target


def gather() -> Program:
    """B at places that a stage before computes."""
    b = Builder("gather")
    x, t = b.input("X", (6,), "i64"), b.input("B", (5,), "f32")
    at = b.compute("T", (6,), lambda i: x[i] + 1, axes=("i",))
    b.compute("Y", (6,), lambda j: t[at[j]], axes=("j",), output=True)
    return b.build()


def test_no_packed_copy_is_made_before_its_places_are_known() -> None:
    with pytest.raises(ScheduleError, match="the place in B is itself read from memory"):
        Schedule(gather()).cache_read("B", layout=("Y_j",))
    places, values = np.array([0, 1, 2, 3, 2, 1]), np.arange(10, 15, dtype="f4")
    s = Schedule(gather()).cache_read("B")
    assert np.array_equal(s.run(places, values)[0], values[places + 1])


@pytest.mark.parametrize("pad", [False, True])
def test_no_packed_copy_reads_beyond_the_places(pad: bool) -> None:
    b = Builder("gather")
    t, at = b.input("B", (20,), "f32"), b.input("at", (10,), "i64")
    b.compute("Y", (10,), lambda i: t[at[i]], axes=("i",), output=True)
    s = Schedule(b.build()).split("i", 4)
    with pytest.raises(ScheduleError, match="the place in B is itself read from memory"):
        s.cache_read("B", layout=("i.0", "i.1"), pad=pad)


@tlm.operator
def jump(x):
    (n,) = x.shape
    p = tlm.compute((n,), lambda i: (x[i] * 3 + 1) % n)
    return tlm.compute((n,), lambda i: p[p[i]])


def test_a_stage_that_tells_its_own_places_is_not_inlined() -> None:
    x = np.arange(20)
    p = (x * 3 + 1) % 20
    program = jump.program(x)
    with pytest.raises(ScheduleError, match="map is read at a place that it tells itself"):
        Schedule(program).inline("map")
    for seed in range(20):
        apply(program, run(space_for(program, Target("avx2", threads=2)), at_random(Random(seed))).steps)
    for schedule in ("default", "heuristic", "generate"):
        np.testing.assert_array_equal(jump(x, schedule=schedule), p[p])


def test_only_the_named_stage_reads_a_copy() -> None:
    b = Builder("both")
    x = b.input("X", (6,), "f32")
    y = b.compute("Y", (6,), lambda i: x[i] * 2.0, axes=("i",))
    b.compute("Z", (6,), lambda j: y[j] + x[5 - j], axes=("j",), output=True)
    s = Schedule(b.build())
    with pytest.raises(ScheduleError, match="X is read at 2 different places there"):
        s.cache_read("X", layout=("i",))
    with pytest.raises(ScheduleError, match="X is not read anywhere by W"):
        s.cache_read("X", layout=("i",), stage="W")
    s.cache_read("X", layout=("i",), name="P", stage="Y")
    text = str(s.program)
    assert "P[i] * 2.0" in text
    assert text.count("X[") == 2  # of the copy, and of Z
    values = np.arange(6, dtype="f4")
    assert np.array_equal(s.run(values)[0], values * 2 + values[::-1])
