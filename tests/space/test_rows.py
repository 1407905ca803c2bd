"""Every sentence of the space of rows is a legal schedule of the same chain of stages."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import tlm
import tlm.backend
import tlm.ir.build
from tests.space.row_programs import ROWS, array, check, decided
from tlm.ir.interpret import interpret
from tlm.schedule import apply
from tlm.schedule.steps import Merge, Parallel, RFactor
from tlm.search.heuristic import heuristic
from tlm.space.decide import at_random, replay, run
from tlm.space.rows import rows
from tlm.space.spaces import space_for
from tlm.space.vocabulary import CHOICES, FACTS, WORDS
from tlm.target import Target

EXACT = [
    n for n in ROWS if n.split()[0] in ("sum", "max", "min", "argmax", "argmin", "any", "cumsum", "prod")
]


@pytest.mark.parametrize("name", ROWS)
def test_random_schedules_compute_the_same(name):
    program = ROWS[name]()
    assert rows(program) is not None
    asked = set()
    for seed in range(7):
        asked.update(check(program, seed, name in EXACT))
    assert asked or name == "prod of scalars"


@pytest.mark.parametrize("name", ROWS)
def test_all_sentences_apply(name):
    program = ROWS[name]()
    for seed in range(100, 108):
        apply(program, decided(program, seed)[1].steps)


def test_choices_stay_inside_the_vocabulary_and_replay():
    for name, make in ROWS.items():
        program = make()
        for seed in range(12):
            target, found = decided(program, seed)
            assert replay(space_for(program, target), found.values) == found, name
            for choice, _ in found.choices:
                assert choice.name in CHOICES
                assert len(set(choice.values)) == len(choice.values) >= 2
                for option in choice.options:
                    assert isinstance(option.value, int) or option.value in WORDS
                    assert all(fact in FACTS and quantity >= 0 for fact, quantity in option.facts)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_heuristic_fuses_the_stages_of_a_row(threads):
    target = Target("avx512", threads=threads)
    program = tlm.ops.softmax.program(array(512, 512))
    found = run(space_for(program, target), heuristic)
    assert any(isinstance(s, Merge) for s in found.steps)
    assert any(isinstance(s, Parallel) for s in found.steps) == (threads > 1)
    text = str(apply(program, found.steps))
    assert "[512, 512] heap" not in text


def test_long_sums_are_cut_and_few_rows_split():
    """No running total takes more than a few thousand terms; with threads a total is one of each part."""
    target = Target("avx512", threads=4)
    program = tlm.ops.sum.program(array(1 << 22))

    def decide(choice, _):
        return choice.values.index("split") if "split" in choice.values else 0

    found = run(space_for(program, target), decide)
    assert "split" in found.values
    assert any(isinstance(s, RFactor) for s in found.steps)
    x = np.ones(1 << 22, np.float32)
    x[1:] = 1e-4
    kernel = tlm.backend.compile(apply(program, found.steps), Target("avx2", threads=2), cache=False)
    out = np.zeros((), np.float32)
    kernel(x, out, threads=2)
    exact = x.astype("f8").sum()
    assert abs(out - exact) < 2e-6 * exact


def test_stages_that_read_other_rows_stay_apart():
    b = tlm.ir.build.Builder("neighbours")
    x = b.input("x", (6, 9), "f32")
    s = b.reduce("s", (6,), {"k": 9}, lambda i, k: x[i, k], axes=("i",))
    b.compute("y", (6, 9), lambda i, j: x[i, j] - s[5 - i], output=True)
    program = b.build()
    found = rows(program)
    assert found is not None
    assert not found.together
    data = np.random.default_rng(0).integers(-4, 5, (6, 9)).astype("f4")
    for seed in range(12):
        steps = run(space_for(program, Target("avx2", threads=2)), at_random(Random(seed))).steps
        np.testing.assert_array_equal(
            interpret(apply(program, steps), [data])[0], data - data.sum(1)[::-1, None]
        )


def test_several_outputs_of_one_row():
    """A result that later stages read too is no temporary, but runs with its row all the same."""
    b = tlm.ir.build.Builder("two")
    x = b.input("x", (7, 21), "f32")
    m = b.reduce("m", (7,), {"k": 21}, lambda i, k: x[i, k], combiner="max", axes=("i",), output=True)
    b.compute("y", (7, 21), lambda i, j: x[i, j] - m[i], output=True)
    program = b.build()
    for seed in range(10):
        check(program, seed, exact=True)
