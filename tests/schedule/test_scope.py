"""Dimensions of temporaries that are cut: every use goes along, and what is settled stays."""

from __future__ import annotations

import numpy as np
import pytest

from tlm.errors import ScheduleError
from tlm.ir.build import Builder
from tlm.ir.verify import verify
from tlm.schedule import Schedule


def test_hints_are_cut_with_the_buffer() -> None:
    b = Builder("two")
    x = b.input("X", (32,), "f32")
    t = b.compute("T", (32,), lambda i: x[i] * 2.0, axes=("i",))
    b.compute("Y", (32,), lambda i: t[i] + 1.0, axes=("i",), output=True)
    s = Schedule(b.build()).prefetch("T", "Y_i", 4).split_dimension("T", 0, 8)
    verify(s.program)
    values = np.arange(32, dtype="f4")
    assert np.array_equal(s.run(values)[0], values * 2 + 1)


def test_no_dimension_is_cut_after_the_elements_have_their_places() -> None:
    b = Builder("copy")
    x = b.input("X", (16, 16), "f32")
    b.compute("Y", (16, 16), lambda i, j: x[j, i], output=True)
    s = Schedule(b.build()).split("i", 4).cache_read("X", "i.0", "shared", name="S")
    cut = Schedule(s.program).split_dimension("S", 1, 4)
    verify(cut.program)
    with pytest.raises(ScheduleError, match="where the elements of S lie is settled already"):
        s.storage_align("S", 0, 8, 1).split_dimension("S", 1, 4)


def test_loops_are_not_fused_into_one_that_exists() -> None:
    b = Builder("cube")
    x = b.input("X", (2, 3, 4), "f32")
    b.compute("Y", (2, 3, 4), lambda h, i, j: x[h, i, j], axes=("i*j", "i", "j"), output=True)
    with pytest.raises(ScheduleError, match=r"loop i\*j exists already"):
        Schedule(b.build()).fuse("i", "j")
