"""Every sentence of the space of elementwise and layout programs is a legal schedule of the same stages."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import tlm
import tlm.backend
from tests.space.row_programs import MAPS, array, check, decided
from tlm.ir.build import Builder
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Alloc
from tlm.ir.walk import walk
from tlm.schedule import apply
from tlm.schedule.steps import Inline, Parallel
from tlm.search.heuristic import heuristic
from tlm.space.decide import at_random, replay, run
from tlm.space.maps import maps
from tlm.space.spaces import space_for
from tlm.space.vocabulary import CHOICES, FACTS, WORDS
from tlm.target import Target

TOLERANT = ("exp", "gelu of a scalar", "batch_norm", "batch_norm of NCHW")


@pytest.mark.parametrize("name", MAPS)
def test_random_schedules_compute_the_same(name):
    program = MAPS[name]()
    assert maps(program) is not None
    for seed in range(9):
        check(program, seed, name not in TOLERANT)


@pytest.mark.parametrize("name", MAPS)
def test_all_sentences_apply_and_replay(name):
    program = MAPS[name]()
    for seed in range(100, 120):
        target, found = decided(program, seed)
        apply(program, found.steps)
        assert replay(space_for(program, target), found.values) == found
        for choice, _ in found.choices:
            assert choice.name in CHOICES
            assert len(set(choice.values)) == len(choice.values) >= 2
            for option in choice.options:
                assert isinstance(option.value, int) or option.value in WORDS
                assert all(fact in FACTS and quantity >= 0 for fact, quantity in option.facts)


def test_a_transposed_operand_is_turned_in_registers():
    program = tlm.ops.transpose.program(array(70, 50))
    target = Target("avx512", threads=2)
    found = run(space_for(program, target), heuristic)
    assert "tile" in found.values
    assert any(isinstance(s, Parallel) for s in found.steps) or "none" in found.values
    kernel = tlm.backend.compile(apply(program, found.steps), target.with_threads(1), cache=False)
    memories = {n.buffer.memory for n in walk(kernel.lowered.body) if isinstance(n, Alloc)}
    assert memories == {"register"}
    assert "gather" not in kernel.source
    assert "insertelement" not in kernel.source


def test_chains_become_one_stage_or_keep_what_is_read_twice():
    b = Builder("chain")
    x = b.input("x", (5, 18), "f32")
    y = b.compute("y", (5, 18), lambda i, j: x[i, j] * 2.0)
    z = b.compute("z", (5, 18), lambda i, j: y[i, j] + 1.0)
    b.compute("w", (5, 18), lambda i, j: z[i, j] * z[4 - i, 17 - j], output=True)
    program = b.build()
    data = np.arange(90, dtype="f4").reshape(5, 18)
    z_data = data * 2 + 1
    seen = set()
    for seed in range(20):
        found = run(space_for(program, Target("avx2")), at_random(Random(seed)))
        inlined = {s.stage for s in found.steps if isinstance(s, Inline)}
        assert "y" in inlined
        seen.add("z" in inlined)
        got = interpret(apply(program, found.steps), [data])[0]
        np.testing.assert_array_equal(got, z_data * z_data[::-1, ::-1])
    assert seen == {True, False}
