"""Pieces of shared memory that change places: what it means (nothing), where elements lie, and that no two
threads of a warp meet on a bank."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tlm
from tests.cuda import programs, shim
from tests.cuda.emitted import SM_80, check, multiplied
from tlm.backend.cuda.emitter import emit
from tlm.backend.cuda.values import Values
from tlm.errors import RecordError, ScheduleError
from tlm.ir.dtypes import bf16
from tlm.ir.exprs import Expr, Var, const, op
from tlm.ir.nodes import Buffer
from tlm.ir.serialize import from_json, to_json
from tlm.schedule import Schedule, apply
from tlm.schedule.steps import StorageAlign, Swizzle
from tlm.schedule.steps import from_json as steps_from_json
from tlm.schedule.steps import to_json as steps_to_json
from tlm.search.gpu_traffic import swizzled
from tlm.search.heuristic import heuristic
from tlm.space.decide import run
from tlm.space.gpu.banks import SWAPPED, Matrix, Turned
from tlm.space.spaces import space_for
from tlm.target import Target

needs_shim = pytest.mark.skipif(bool(shim.missing()), reason=f"the shim needs {shim.missing()}")


def tiles(dtype="bf16", turned=False, swap=True, stages=1, **sizes) -> Schedule:
    """A product by matrix instructions of 64 x 32 results, 32 steps of k at a time: rows of 64 bytes."""
    s = programs.tensor_product(**{**dict(m=64, n=32, k=64), **sizes}, dtype=dtype, turned=turned)
    if swap:
        ways = (2, 4) if dtype != "f32" else (1, 8)
        s.swizzle("A_s", 3, *ways).swizzle("B_s", 3 if turned else 1, *ways)
    return s.double_buffer("A_s", stages).double_buffer("B_s", stages) if stages > 1 else s


def test_a_swizzle_means_nothing_and_survives_json():
    s = tiles(stages=3)
    assert re.search(r"alloc A_s: bf16\[.*\] shared swizzle \(64, 4, 8\) stages 3:", str(s))
    a = np.arange(64 * 64).reshape(64, 64) % 7 - 3
    b = np.arange(64 * 32).reshape(64, 32) % 5 - 2
    got = s.run(a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16))[0]
    np.testing.assert_array_equal(got, (a @ b).astype("f4"))
    assert from_json(to_json(s.program)) == s.program
    assert steps_from_json(steps_to_json(s.steps)) == s.steps
    assert "swizzle" not in str(to_json(tiles(swap=False).program))


@pytest.mark.parametrize("swizzle", [[64, 4], [64, 3, 8], [65, 4, 8], [64, 4, 0], "64", [64, 4, 8, 1]])
def test_swizzles_of_stored_programs_are_checked(swizzle):
    data = str(to_json(tiles().program)).replace("'swizzle': [64, 4, 8]", f"'swizzle': {swizzle!r}")
    with pytest.raises(RecordError, match="swizzle"):
        from_json(eval(data))


def test_refused_swizzles():
    s = tiles(swap=False)
    with pytest.raises(ScheduleError, match=r"no temporary 'A_x'(.|\n)*Did you mean A_s"):
        s.swizzle("A_x", 3)
    with pytest.raises(ScheduleError, match=r"A_s has 6 dimensions(.|\n)*The axis is 0 to 4"):
        s.swizzle("A_s", 5)
    with pytest.raises(ScheduleError, match="3 ways in strides of 1 pieces are not powers of two"):
        s.swizzle("A_s", 3, 1, 3)
    with pytest.raises(ScheduleError, match="8 ways in strides of 2 pieces are not powers of two within 8"):
        s.swizzle("A_s", 3, 1, 8, 2)
    with pytest.raises(ScheduleError, match=r"rows of A_s are 64 bytes apart(.|\n)*within 128 bytes"):
        s.swizzle("A_s", 3, 1, 8)
    s.swizzle("A_s", 3, 2, 4)
    with pytest.raises(ScheduleError, match="A_s is swizzled already"):
        s.swizzle("A_s", 3, 2, 4)
    with pytest.raises(ScheduleError, match=r"A_s is swizzled by its strides already(.|\n)*Align first"):
        s.storage_align("A_s", 3, 64, 8)
    s.storage_align("B_s", 1, 16, 8)
    with pytest.raises(ScheduleError, match="rows of B_s are 80 bytes apart"):
        s.swizzle("B_s", 1, 2, 4)


# Where elements lie


def evaluated(code: str, values: dict[str, int]) -> int:
    """C arithmetic of numbers that are not negative."""
    whole = re.sub(r"swizzled<(\d+), (\d+), (\d+)>", r"_swizzled(\1, \2, \3)", code)
    known = {"_swizzled": lambda *how: lambda x: swizzled(x, how)}
    return eval(whole.replace("/", "//"), known | values)


@st.composite
def places(draw):
    """A swizzled buffer of rows, and an index whose parts are loops, quotients and remainders."""
    ways, step = draw(st.sampled_from([(2, 1), (4, 1), (8, 1), (4, 2), (2, 4)]))
    pitch = 8 * ways * step * draw(st.integers(1, 3))
    buffer = Buffer(
        "s", (64, pitch), bf16, "shared", swizzle=(draw(st.integers(1, 4)) * pitch, ways, 8 * step)
    )
    extents = {"a": 4, "b": 8, "c": 2, "t": 32}
    parts = [Var("a"), Var("b"), Var("c"), op("floordiv", Var("t"), const(4)), op("mod", Var("t"), const(8))]

    def index(most: int) -> Expr:
        total = const(draw(st.integers(0, most // 4)))
        for part in draw(st.lists(st.sampled_from(parts), max_size=3, unique=True)):
            total = op("add", total, op("mul", part, const(draw(st.integers(1, most // 24)))))
        return total

    return buffer, extents, (index(64), index(pitch) if pitch >= 24 else const(3))


@settings(max_examples=80, deadline=None)
@given(places(), st.integers(0, 3), st.integers(0, 7), st.integers(0, 1), st.integers(0, 31))
def test_the_text_puts_elements_where_the_swizzle_says(place, a, b, c, t):
    buffer, extents, indices = place
    writer = Values()
    writer.extents = dict(extents)
    writer.names = {v: v for v in extents}
    at = {"a": a, "b": b, "c": c, "t": t}
    plain = Buffer("s", buffer.shape, bf16, "shared")
    offset = evaluated(writer.flat(plain, indices), at)
    assert evaluated(writer.flat(buffer, indices), at) == swizzled(offset, buffer.swizzle)


@pytest.mark.parametrize(
    ("shape", "swizzle"), [((32, 64), (64, 8, 8)), ((16, 32), (64, 4, 8)), ((9, 96), (96, 2, 8))]
)
def test_no_two_elements_share_a_place(shape, swizzle):
    buffer = Buffer("s", shape, bf16, "shared", swizzle=swizzle)
    found = {swizzled(x, swizzle) for x in range(buffer.size)}
    assert found == set(range(buffer.size))


def test_rows_alone_say_how_pieces_change_places():
    """What whole tiles add is outside of the swizzle, so that one register serves all of them."""
    text = emit(tiles().program, SM_80).text
    assert re.search(r"load_matrix_x4\(\S+, &A_s\[[^^]* \+ \(\([^^]*k_1_0[^^]*\) \^ [^k]*\)\]\);", text), text


# Banks


@needs_shim
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("stages", [1, 3])
def test_matrices_are_stored_and_loaded_without_conflicts(turned, stages):
    source, report = multiplied(tiles(turned=turned, stages=stages).program)
    reads, writes = report.total.shared_reads, report.total.shared_writes
    assert reads.transactions == reads.ideal > 0
    assert writes.transactions == writes.ideal > 0
    assert "load_matrix_x4(" in source.text
    if not turned and stages == 1:
        dense = multiplied(tiles(swap=False).program)[1].total.shared_reads
        assert dense.transactions > dense.ideal == reads.ideal


@needs_shim
def test_tails_of_swizzled_tiles_are_zero():
    multiplied(tiles(m=50, n=29, k=38, stages=2).program)
    multiplied(tiles("f16", turned=True, m=50, n=29, k=37).program)


@needs_shim
@pytest.mark.parametrize("way", [0, 4, SWAPPED])
def test_threads_that_store_a_column_meet_no_banks(way):
    """A row-major first factor is turned on its way into shared memory, four elements by each thread; dense
    rows, which meet, are not offered."""
    shape = np.empty((64, 48), "f4"), np.empty((48, 64), "f4")
    program = tlm.ops.matmul.program(*shape)
    wanted = {
        "cta_m": 64,
        "cta_n": 64,
        "cta_k": 16,
        "align": way or 4,
        "stage_m": "shared",
        "stages": 2,
        "form": "tiles",
    }

    def decide(choice, picked):
        value = wanted.get(choice.name)
        return choice.values.index(value) if value in choice.values else heuristic(choice, picked)

    found = run(space_for(program, SM_80), decide)
    assert {c.name: c.values for c, _ in found.choices}["align"] == (4, SWAPPED)
    steps = [s for s in found.steps if way or not isinstance(s, StorageAlign)]
    _, report = check(apply(program, steps))
    ways = Turned(64, 16, 4, 4).ways(way)
    stores, loads = report.total.shared_writes, report.total.shared_reads
    assert (stores.transactions > stores.ideal) == (ways > 1)
    assert loads.transactions == loads.ideal
    assert ways == {0: 2, 4: 1, SWAPPED: 1}[way]


@pytest.mark.parametrize("pitch", [8, 16, 32, 64, 128, 256])
def test_rows_of_matrices_lie_on_all_banks_whether_apart_or_swapped(pitch):
    m = Matrix(pitch)
    assert m.ways(0) == min(8, pitch // 8)
    assert m.ways(8) == 1
    assert m.ways(SWAPPED) == 1
    assert m.stride(SWAPPED) == pitch <= m.stride(8)


def test_spaces_offer_both_and_the_closed_form_takes_the_smaller():
    a = np.empty((1024, 1024), ml_dtypes.bfloat16)
    for name in ("sm_80", "sm_90"):
        found = run(space_for(tlm.ops.matmul.program(a, a), Target(name)), heuristic)
        choice = next(
            (c, v) for (c, _), v in zip(found.choices, found.values, strict=True) if c.name == "align"
        )
        assert choice[0].values == (8, SWAPPED)
        assert choice[1] == SWAPPED
        assert sum(isinstance(s, Swizzle) for s in found.steps) == 2
