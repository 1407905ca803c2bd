"""Copies in shared memory: what of them takes registers, and which ways are worth asking for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tlm
from tlm.ir.nodes import Program
from tlm.search.heuristic import heuristic
from tlm.space.choice import Choice
from tlm.space.decide import run
from tlm.space.gpu.banks import SWAPPED
from tlm.space.gpu.staging import apart
from tlm.space.spaces import space_for
from tlm.target import Target


def square(size: int, dtype: str) -> Program:
    operand: Any = SimpleNamespace(shape=(size, size), dtype=np.dtype(dtype))
    return tlm.ops.matmul.program(operand, operand)


def asked(program: Program, target: str, **answers: Any) -> dict[str, Choice]:
    """The questions of a product of which some are answered so, the others by the closed form."""

    def decide(choice: Choice, picked: Any) -> int:
        value = answers.get(choice.name)
        return choice.values.index(value) if value in choice.values else heuristic(choice, picked)

    found = run(space_for(program, Target(target)), decide)
    return {choice.name: choice for choice, _ in found.choices}


TILE = dict(form="tiles", cta_m=128, cta_n=64, thread_m=8, thread_n=8)


def test_what_waits_in_registers_bounds_the_depth():
    """Of 64 steps each thread would keep 64 elements until they are stored, in two registers each: beside the
    tile's these are more than a thread has. (An int8 product of 1000 cubed spilled.)"""
    deep = {dtype: asked(square(1000, dtype), "sm_90", **TILE)["cta_k"].values for dtype in ("i1", "f4")}
    assert max(deep["i1"]) == max(deep["f4"]) == 32


def test_copies_by_the_machine_itself_wait_nowhere():
    """On sm_80 a column is copied while the present one is used; on sm_75 it passes through registers."""
    program = square(1024, "f4")
    for target, most in (("sm_75", 1), ("sm_80", 4)):
        stages = asked(program, target, **TILE, cta_k=32, stage_m="none")["stages"].values
        assert max(stages) >= most
    registers = {}
    for target in ("sm_75", "sm_80"):
        option = asked(program, target, **TILE, cta_k=16, stage_m="none")["stages"].options[1]
        registers[target] = dict(option.facts)["registers"]
    assert registers["sm_75"] > registers["sm_80"]


def test_narrow_vectors_are_offered_only_where_wide_ones_leave_threads_idle():
    wide = asked(square(4096, "f4"), "sm_90", **TILE, cta_k=16)
    assert "vector" not in wide
    small = asked(
        square(4096, "f4"), "sm_90", form="tiles", cta_m=32, cta_n=32, thread_m=1, thread_n=1, cta_k=4
    )
    assert small["vector"].values == (4, 8, 16)


def test_ways_with_more_conflicts_must_save_memory():
    assert apart({0: (200.0, 1000), 4: (100.0, 1100), SWAPPED: (100.0, 1000)}) == [4, SWAPPED]
    assert apart({0: (200.0, 1000), 4: (100.0, 1500)}) == [0, 4]
    assert apart({0: (100.0, 1000), 4: (100.0, 1100)}) == [0, 4]


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_no_conflict_is_offered_for_a_large_product(dtype: str):
    found = asked(square(4096, dtype), "sm_90")
    if "align" in found:
        assert {dict(o.facts)["conflicts"] for o in found["align"].options} == {100.0}
