"""Every sentence of the space of attention is a legal schedule of the same products and softmax."""

from __future__ import annotations

import numpy as np
import pytest

import tlm
import tlm.backend
from tests.space.row_programs import ATTENTION, array, check, decided
from tlm.ir.nodes import Alloc
from tlm.ir.walk import walk
from tlm.schedule import apply
from tlm.search.heuristic import heuristic
from tlm.space.attention import attention
from tlm.space.decide import replay, run
from tlm.space.spaces import space_for
from tlm.space.vocabulary import CHOICES, FACTS, WORDS
from tlm.target import Target


@pytest.mark.parametrize("name", ATTENTION)
def test_random_schedules_compute_the_same(name):
    program = ATTENTION[name]()
    assert attention(program) is not None
    for seed in range(7):
        check(program, seed, exact=name == "scores")


@pytest.mark.parametrize("name", ATTENTION)
def test_all_sentences_apply_and_replay(name):
    program = ATTENTION[name]()
    for seed in range(100, 106):
        target, found = decided(program, seed)
        apply(program, found.steps)
        assert replay(space_for(program, target), found.values) == found
        for choice, _ in found.choices:
            assert choice.name in CHOICES
            assert len(set(choice.values)) == len(choice.values) >= 2
            for option in choice.options:
                assert isinstance(option.value, int) or option.value in WORDS
                assert all(fact in FACTS and quantity >= 0 for fact, quantity in option.facts)


@pytest.mark.parametrize("keys", [512, 8192])
def test_scores_never_exist_as_a_whole(keys):
    program = tlm.ops.dot_product_attention.program(*[array(keys, 2, 64)] * 3, is_causal=True)
    target = Target("avx512", threads=1)
    for decide in (heuristic, lambda choice, _: len(choice.options) - 1):
        scheduled = apply(program, run(space_for(program, target), decide).steps)
        largest = max(n.buffer.size for n in walk(scheduled.body) if isinstance(n, Alloc))
        assert largest <= max(keys * keys // 2, keys * 64)


def test_sums_over_many_keys_are_cut():
    """With equal weights the result is a mean of 20,000 values: it keeps all but the last digits."""
    keys = 20_000
    program = tlm.ops.dot_product_attention.program(array(3, 1, 8), array(keys, 1, 8), array(keys, 1, 8))
    found = run(space_for(program, Target("avx2")), heuristic)
    kernel = tlm.backend.compile(apply(program, found.steps), Target("avx2"), cache=False)
    rng = np.random.default_rng(0)
    q, k = np.zeros(program.inputs[0].shape, "f4"), np.zeros(program.inputs[1].shape, "f4")
    v = rng.uniform(1, 2, program.inputs[2].shape).astype("f4")
    out = np.empty(program.outputs[0].shape, "f4")
    kernel(q, k, v, out)
    exact = v.astype("f8").reshape(keys, 8).mean(0)
    np.testing.assert_allclose(out.reshape(3, 8), np.tile(exact, (3, 1)), rtol=3e-6)
