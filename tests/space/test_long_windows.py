"""Sums over several axes: no running total takes so many terms that it loses its digits."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import tlm
from tlm.ir.interpret import interpret
from tlm.schedule import apply
from tlm.schedule.steps import CacheWrite
from tlm.space import contraction_choices, conv_steps
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

SCHEDULES = ("default", "heuristic", tlm.Random(0), tlm.Random(1), tlm.Random(2))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_equal_numbers_add_up(schedule):
    how = {"schedule": schedule, "threads": 1}
    a, b = np.full((2, 300, 100), 0.1, "f4"), np.ones((1, 100, 300), "f4")
    np.testing.assert_allclose(tlm.ops.einsum("abk,ckb->ac", a, b, **how), 3000.0, rtol=1e-4)
    image = np.full((1, 120, 120, 8), 0.1, "f4")
    np.testing.assert_allclose(tlm.ops.avg_pool2d(image, 120, **how), 0.1, rtol=1e-4)
    image, weights = np.full((1, 5, 5, 512), 0.1, "f4"), np.ones((5, 5, 512, 3), "f4")
    np.testing.assert_allclose(tlm.ops.conv2d(image, weights, padding="VALID", **how), 1280.0, rtol=1e-4)
    signal, weights = np.full((1, 20000, 1), 0.1, "f4"), np.ones((20000, 1, 8), "f4")
    np.testing.assert_allclose(tlm.ops.conv1d(signal, weights, padding="VALID", **how), 2000.0, rtol=1e-4)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_totals_that_are_parts_of_tuples(schedule):
    x = np.full(300_000, np.log(0.1), "f4")
    x[0] = 0
    want = np.log(np.exp(x.astype("f8")).sum())
    assert abs(tlm.ops.logsumexp(x, schedule=schedule, threads=1) - want) < 2e-5
    y = np.random.default_rng(0).normal(100, 1, 300_000).astype("f4")
    assert abs(tlm.ops.var(y, schedule=schedule, threads=1) - y.astype("f8").var()) < 1e-4


PROGRAMS = {
    "conv2d": lambda: tlm.ops.conv2d.program(np.empty((1, 7, 9, 5), "f4"), np.empty((3, 5, 5, 11), "f4")),
    "depthwise": lambda: tlm.ops.conv2d.program(
        np.empty((1, 9, 7, 10), "f4"), np.empty((5, 3, 1, 10), "f4"), groups=10
    ),
    "pool": lambda: tlm.ops.avg_pool2d.program(np.empty((1, 9, 11, 9), "f4"), 5),
    "conv1d": lambda: tlm.ops.conv1d.program(np.empty((1, 40, 3), "f4"), np.empty((29, 3, 9), "f4")),
    "einsum": lambda: tlm.ops.einsum.program(
        "abk,ckb->ac", np.empty((3, 13, 7), "f4"), np.empty((10, 7, 13), "f4")
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_sentences_with_totals_of_their_own_compute_the_same(name: str, monkeypatch):
    """Totals as short as this are made for huge windows only; all else about them is alike."""
    for module in (contraction_choices, conv_steps):
        monkeypatch.setattr(module, "LONG_WINDOW", 12)
    program, target = PROGRAMS[name](), Target("avx2")
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, b.shape).astype("f4") for b in program.inputs]
    want, several = interpret(program, inputs), 0
    for seed in range(12):
        steps = run(space_for(program, target), at_random(Random(seed))).steps
        several += sum(isinstance(s, CacheWrite) for s in steps) > 1
        got = interpret(apply(program, steps), inputs)
        made = [np.empty_like(x) for x in want]
        tlm.backend.compile(apply(program, steps), target, cache=False)(*inputs, *made)
        for a, b, c in zip(want, got, made, strict=True):
            np.testing.assert_array_equal(b, a)
            np.testing.assert_array_equal(c, a)
    assert several
