"""Copies in shared memory: what of them takes registers, and which ways are worth asking for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tlm
from tlm.ir.nodes import Program
from tlm.search.heuristic import heuristic
from tlm.space.choice import Choice, Option
from tlm.space.decide import run
from tlm.space.gpu.banks import SWAPPED
from tlm.space.gpu.staging import apart
from tlm.space.spaces import space_for
from tlm.target import Target


def square(size: int, dtype: str) -> Program:
    operand: Any = SimpleNamespace(shape=(size, size), dtype=np.dtype(dtype))
    return tlm.ops.matmul.program(operand, operand)


def asked(program: Program, target: Target, **answers: Any) -> dict[str, Choice]:
    """The questions of a product of which some are answered so, the others by the closed form. ValueError
    where an answer is not offered."""

    def decide(choice: Choice, picked: Any) -> int:
        if choice.name in answers:
            return choice.values.index(answers[choice.name])
        return heuristic(choice, picked)

    found = run(space_for(program, target), decide)
    return {choice.name: choice for choice, _ in found.choices}


SM_75, SM_80, SM_90 = Target("sm_75"), Target("sm_80"), Target("sm_90")
WIDE_75 = Target("sm_75", l1=SM_90.l1, block_shared=SM_90.block_shared)
TILE = dict(form="tiles", cta_m=128, cta_n=64, thread_m=8, thread_n=8)


def registers(option: Option, target: Target) -> int:
    return round(dict(option.facts)["registers"] * target.thread_registers / 100)


def test_what_waits_in_registers_bounds_the_depth():
    """Of 64 steps each thread would keep 64 elements until they are stored, in two registers each: beside the
    tile's these are more than a thread has. (An int8 product of 1000 cubed spilled.)"""
    deep = {dtype: asked(square(1000, dtype), SM_90, **TILE)["cta_k"].values for dtype in ("i1", "f4")}
    assert max(deep["i1"]) == max(deep["f4"]) == 32


def test_copies_by_the_machine_itself_wait_nowhere():
    """Rows of B, 8 elements for each thread, are copied by sm_80 while the present ones are used; on sm_75
    they wait in registers, and columns of A, which are turned on their way, wait on both."""
    for target, rows, both in ((SM_75, 16, 48), (SM_80, 0, 32)):
        for way, more in (("none", rows), ("shared", both)):
            options = asked(square(1024, "f4"), target, **TILE, cta_k=16, stage_m=way)["stages"].options
            used = [registers(o, target) for o in options]
            assert [n - used[0] for n in used] == [0, more, more, more]


@pytest.mark.parametrize(
    "tile",
    [
        dict(form="tiles", cta_m=64, cta_n=64, thread_m=8, thread_n=8, cta_k=32),
        dict(form="tiles", cta_m=256, cta_n=32, thread_m=8, thread_n=4, cta_k=64),
    ],
    ids=["128 registers beside 128", "72 elements"],
)
def test_nothing_runs_ahead_that_registers_do_not_hold(tile: dict[str, Any]):
    """Of the first tile 64 elements would wait, beside 64 sums; of the second more than ever wait. Where the
    machine copies rows of B, less waits."""
    program = square(1024, "f4")
    assert "stages" not in asked(program, WIDE_75, **tile)
    assert max(asked(program, SM_80, **tile)["stages"].values) > 1


def test_narrow_vectors_are_offered_only_where_wide_ones_leave_threads_idle():
    wide = asked(square(4096, "f4"), SM_90, **TILE, cta_k=16)
    assert "vector" not in wide
    small = asked(
        square(4096, "f4"), SM_90, form="tiles", cta_m=32, cta_n=32, thread_m=1, thread_n=1, cta_k=4
    )
    assert small["vector"].values == (4, 8, 16)


def test_ways_with_more_conflicts_must_save_memory():
    assert apart({0: (200.0, 1000), 4: (100.0, 1100), SWAPPED: (100.0, 1000)}) == [4, SWAPPED]
    assert apart({0: (200.0, 1000), 4: (100.0, 1500)}) == [0, 4]
    assert apart({0: (100.0, 1000), 4: (100.0, 1100)}) == [0, 4]


@pytest.mark.parametrize(("dtype", "elements"), [("f4", 4), ("f2", 8)])
def test_only_ways_without_conflicts_are_offered_for_a_large_product(dtype: str, elements: int):
    """Dense rows would meet on few banks: columns that threads store (f4), and rows that a matrix instruction
    reads (f2)."""
    options = asked(square(4096, dtype), SM_90)["align"].options
    found = {o.value: dict(o.facts)["conflicts"] for o in options}
    assert found == {elements: 100.0, SWAPPED: 100.0}
