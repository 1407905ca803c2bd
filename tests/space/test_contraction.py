"""Every sentence of the contraction space is a legal schedule of the same product."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from bench.sentences import _laid_out, check_run, product, shapes
from tlm.errors import RecordError
from tlm.ir.interpret import interpret
from tlm.schedule import apply
from tlm.search.heuristic import heuristic
from tlm.space.choice import Choice
from tlm.space.decide import Decided, at_random, repair, replay, run, run_many
from tlm.space.problem import contraction
from tlm.space.spaces import space_for
from tlm.space.vocabulary import CHOICES, FACTS, WORDS
from tlm.target import Target

AVX512 = Target("avx512", threads=2)


def decided(shape: tuple[int, int, int, int], form: int, target: Target, seed: int) -> Decided:
    return run(space_for(product(shape, form), target), at_random(Random(seed)))


def integers(program, seed):
    data = np.random.default_rng(seed)
    return [data.integers(-4, 5, b.shape).astype(np.float32) for b in program.inputs]


@pytest.mark.parametrize("number", range(4))
def test_random_schedules_compute_the_product_bit_for_bit(number):
    for seed, pair in enumerate(shapes(30, 24, Random(number))):
        assert check_run((*pair, number, seed)) == []


@pytest.mark.parametrize("form", [0, 1, 2])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("last", [(), ("pack_n", "pack_m", "block_k")])
def test_split_reductions_compute_the_product(form, batch, last):
    """Few tiles and a long k: partial sums of parts of k, packed or not, are added up at the end."""
    program, target = product((batch, 3, 600, 20), form), Target("avx2", threads=8)
    inputs = [
        _laid_out(x, b.element_strides) for x, b in zip(integers(program, 1), program.inputs, strict=True)
    ]
    want = np.matmul(inputs[0], inputs[1]) + (inputs[2] if form == 2 else 0)
    for parts in (8, 16):

        def decide(choice: Choice, _, parts=parts) -> int:
            if choice.name == "split_k":
                return choice.values.index(parts)
            return len(choice.options) - 1 if choice.name in last else 0

        found = run(space_for(program, target), decide)
        assert parts in found.values
        np.testing.assert_array_equal(interpret(apply(program, found.steps), inputs)[0], want)


@pytest.mark.parametrize(
    "shape", [(1, 1021, 1021, 1021), (1, 1024, 8192, 64), (1, 1, 4096, 4096), (1, 10**6, 3, 3)]
)
def test_awkward_extents_have_schedules_of_every_decider(shape):
    for form in range(3):
        program = product(shape, form)
        for decide in (heuristic, lambda choice, picked: 0, at_random(Random(0))):
            apply(program, run(space_for(program, AVX512), decide).steps)


def test_choices_stay_inside_the_vocabulary():
    for seed, (shape, form) in enumerate(shapes(150, 100_000, Random(5))):
        for choice, index in decided(shape, form, AVX512, seed).choices:
            assert choice.name in CHOICES
            assert len(choice.options) >= 2
            assert len(set(choice.values)) == len(choice.values)
            assert 0 <= index < len(choice.options)
            for option in choice.options:
                assert isinstance(option.value, int) or option.value in WORDS
                assert all(name in FACTS and quantity >= 0 for name, quantity in option.facts)


def test_lockstep_gives_what_one_at_a_time_gives():
    programs = [product(shape, form) for shape, form in shapes(20, 2000, Random(3))]
    alone = [run(space_for(p, AVX512), heuristic) for p in programs]
    together = run_many(
        [space_for(p, AVX512) for p in programs], lambda asked: [heuristic(c, ()) for _, c in asked]
    )
    assert together == alone


def test_replay_gives_the_same_steps_and_refuses_what_is_not_offered():
    program = product((1, 200, 300, 400), 0)
    found = decided((1, 200, 300, 400), 0, AVX512, 4)
    assert replay(space_for(program, AVX512), found.values) == found
    with pytest.raises(RecordError, match="not an option of"):
        replay(space_for(program, AVX512), (10**12, *found.values[1:]))
    with pytest.raises(RecordError, match="ends before choice"):
        replay(space_for(program, AVX512), found.values[:-1])
    with pytest.raises(RecordError, match="asks only"):
        replay(space_for(program, AVX512), (*found.values, 1))


def test_repair_keeps_the_answers_that_are_still_offered():
    source = decided((1, 512, 512, 512), 0, AVX512, 7)
    wanted = [(choice.name, choice.options[index].value) for choice, index in source.choices]
    program = product((1, 60, 70, 80), 0)
    found = repair(space_for(program, AVX512), wanted, Random(0))
    apply(program, found.steps)
    lanes = dict(wanted)["lanes"]
    assert {c.name: c.options[i].value for c, i in found.choices}["lanes"] == lanes


def test_roles_come_from_the_structure():
    batched = contraction(product((3, 4, 5, 6), 0))
    assert batched is not None
    assert (batched.m, batched.n, batched.k, batched.batch) == ("i", "j", "k", ("b",))
    assert batched.a.stride("k") == 1
    assert batched.b.stride("k") == 6
    turned = contraction(product((1, 4, 5, 6), 1))
    assert turned is not None
    assert turned.b.stride("k") == 1
    with_epilogue = contraction(product((1, 4, 5, 6), 2))
    assert with_epilogue is not None
    assert [e.stage for e in with_epilogue.epilogue] == ["Y"]


def test_a_buffer_times_itself_is_no_contraction_of_two_operands():
    from tlm.ir.build import Builder

    b = Builder("square")
    a = b.input("A", (4, 4), "f32")
    b.reduce("C", (4, 4), over={"k": 4}, axes=("i", "j"), fn=lambda i, j, k: a[i, k] * a[k, j], output=True)
    program = b.build()
    assert contraction(program) is None
    x = integers(program, 0)
    for seed in range(4):
        steps = run(space_for(program, AVX512), at_random(Random(seed))).steps
        np.testing.assert_array_equal(interpret(apply(program, steps), x)[0], x[0] @ x[0])
