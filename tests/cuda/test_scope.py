"""Memories of temporaries, and dimensions cut so that their indices are loops."""

from __future__ import annotations

import numpy as np
import pytest

from tlm.errors import ScheduleError
from tlm.ir.build import Builder
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.ir.walk import buffers
from tlm.schedule import apply
from tlm.schedule.steps import Merge, SetScope, Split, SplitDimension, from_json, to_json


def _rows(width: int) -> Program:
    b = Builder("rows")
    x = b.input("x", (3, width), "f32")
    e = b.compute("e", (3, width), lambda i, j: x[i, j] * 2.0)
    s = b.reduce("s", (3,), {"k": width}, lambda i, k: e[i, k], axes=("i",))
    b.compute("y", (3, width), lambda i, j: e[i, j] - s[i], output=True)
    return b.build()


SHAPING = (
    Split("j", 8), Split("j.1", 2), Split("s_k", 8), Split("y_j", 8), Split("y_j.1", 2),
    Merge("i", "s_i"), Merge("i", "y_i"),
)  # fmt: skip


@pytest.mark.parametrize("width", [24, 21, 5])
def test_dimensions_follow_the_loops_that_index_them(width):
    program = _rows(width)
    steps = (*SHAPING, SplitDimension("e", 1, 8), SplitDimension("e", 2, 2), SetScope("e", "shared"))
    scheduled = apply(program, steps)
    made = buffers(scheduled)["e"]
    inner = min(8, width)
    assert made.shape == (1, -(-width // 8), -(-inner // 2), 2)
    assert made.memory == "shared"
    if width > 8:
        assert "e[0, j.0, j.1.0, j.1.1]" in str(scheduled)
    x = np.random.default_rng(0).integers(-4, 5, (3, width)).astype("f4")
    for got, wanted in zip(interpret(scheduled, [x]), interpret(program, [x]), strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert from_json(to_json(steps)) == steps


def test_what_cannot_be_is_refused():
    program = _rows(24)
    with pytest.raises(ScheduleError, match="outside of all loops"):
        SetScope("e", "shared").check(program)
    with pytest.raises(ScheduleError, match="no memory 'shard'"):
        SetScope("e", "shard").check(program)
    with pytest.raises(ScheduleError, match="no temporary 'y'"):
        SetScope("y", "heap").check(program)
    with pytest.raises(ScheduleError, match="2 dimensions"):
        SplitDimension("e", 2, 4).check(program)
    with pytest.raises(ScheduleError, match="must be an integer"):
        SplitDimension("e", 1, 0).check(program)
