"""Shared memory: padded strides and several stages, which change nothing of what a program means."""

from __future__ import annotations

import numpy as np
import pytest

from tlm.errors import RecordError, ScheduleError
from tlm.ir.build import Builder
from tlm.ir.dtypes import f32
from tlm.ir.exprs import Load, Var, const
from tlm.ir.nodes import Alloc, Buffer, For, Program, Store, block
from tlm.ir.serialize import from_json, to_json
from tlm.ir.walk import statements
from tlm.schedule import Schedule
from tlm.schedule.steps import from_json as steps_from_json
from tlm.schedule.steps import to_json as steps_to_json


def product() -> Program:
    b = Builder("product")
    x, y = b.input("A", (8, 12), "f32"), b.input("B", (12, 8), "f32")
    b.reduce("C", (8, 8), {"k": 12}, lambda i, j, k: x[i, k] * y[k, j], output=True)
    return b.build()


def staged() -> Schedule:
    s = Schedule(product()).split("k", 4).reorder("k.0", "i", "j", "k.1")
    return s.cache_read("A", "k.0", "shared", ("i", "k.1"), "A_s")


def buffer(s: Schedule, name: str):
    return next(
        x.buffer for x in statements(s.program.body) if isinstance(x, Alloc) and x.buffer.name == name
    )


@pytest.mark.parametrize(("factor", "offset", "row"), [(32, 1, 33), (8, 4, 4), (4, 0, 4), (16, 0, 16)])
def test_rows_are_padded_to_a_multiple_and_an_offset(factor, offset, row):
    s = staged().storage_align("A_s", 0, factor, offset)
    assert buffer(s, "A_s").strides == (row, 1)


def test_stages_and_strides_mean_nothing_and_survive_json():
    s = staged().storage_align("A_s", 0, 8, 1).double_buffer("A_s", 3)
    assert "alloc A_s: f32[8, 4] shared strides (9, 1) stages 3:" in str(s)
    a = np.arange(96, dtype="f4").reshape(8, 12)
    np.testing.assert_array_equal(s.run(a, a.T.copy())[0], a @ a.T)
    assert from_json(to_json(s.program)) == s.program
    assert steps_from_json(steps_to_json(s.steps)) == s.steps
    assert "stages" not in str(to_json(staged().program))


@pytest.mark.parametrize("stages", [0, 9, True, "2"])
def test_stages_of_stored_programs_are_limited(stages):
    data = to_json(staged().double_buffer("A_s").program)
    text = str(data).replace("'stages': 2", f"'stages': {stages!r}")
    with pytest.raises(RecordError, match="stages must be an integer from 1 to 8"):
        from_json(eval(text))


def test_refused_alignments():
    s = staged()
    with pytest.raises(ScheduleError, match=r"no temporary 'A_x'(.|\n)*Did you mean A_s"):
        s.storage_align("A_x", 0, 32, 1)
    with pytest.raises(ScheduleError, match="the last one is contiguous"):
        s.storage_align("A_s", 1, 32, 1)
    with pytest.raises(ScheduleError, match="the offset below the factor"):
        s.storage_align("A_s", 0, 32, 32)
    heap = Schedule(product()).cache_read("A", "", "heap", name="A_h")
    with pytest.raises(ScheduleError, match="A_h is in heap, not in shared memory"):
        heap.storage_align("A_h", 0, 32, 1)


def test_refused_stages():
    s = staged()
    with pytest.raises(ScheduleError, match="9 stages are more than 8"):
        s.double_buffer("A_s", 9)
    with pytest.raises(ScheduleError, match="must be an integer >= 2"):
        s.double_buffer("A_s", 1)
    outside = Schedule(product()).cache_read("A", "", "shared", name="A_s")
    with pytest.raises(ScheduleError, match="no serial loop makes A_s anew"):
        outside.double_buffer("A_s")
    k = Var("k")
    x, y, z = (Buffer(n, (4,), f32) for n in "xyz")
    t = Buffer("t", (1,), f32, "shared")
    fill = Store("t", (const(0),), Load("y", (k,), f32))
    body = block(Store("y", (k,), Load("x", (k,), f32)), fill, Store("z", (k,), Load("t", (const(0),), f32)))
    with pytest.raises(ScheduleError, match="t is filled from what loop k writes, or after other work of it"):
        Schedule(Program("p", (x,), (y, z), For("k", 4, Alloc(t, body)))).double_buffer("t")
