"""What parallel regions are held to cost when a model is taught."""

from __future__ import annotations

from random import Random

import numpy as np

from tlm.ir.regions import regions
from tlm.model.measured import JOIN_SECONDS, joining
from tlm.model.shapes import Shape
from tlm.schedule.steps import apply
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

PROGRAM = Shape("x", 128, 512, 192, epilogue="bias").program()


def decided(target: Target, count: int = 12) -> list:
    return [run(space_for(PROGRAM, target), at_random(Random(seed))) for seed in range(count)]


def test_regions_cost_and_slow_programs_are_never_better_for_it():
    target = Target("avx2", threads=2)
    programs = decided(target)
    counts = np.array([regions(apply(PROGRAM, d.steps).body) for d in programs])
    assert len(set(counts.tolist())) > 2
    alike = joining(PROGRAM, target, programs, [1e-5] * len(programs))
    np.testing.assert_allclose(alike, JOIN_SECONDS * counts)
    times = 1e-5 * np.arange(1, len(programs) + 1)
    cost = joining(PROGRAM, target, programs, times.tolist())
    np.testing.assert_allclose(cost[0], JOIN_SECONDS * counts[0])
    np.testing.assert_allclose(cost[1:], cost[0])


def test_one_thread_meets_nobody():
    for target in (Target("avx2"), Target("sm_80")):
        programs = decided(target, 3)
        assert not joining(PROGRAM, target, programs, [1.0] * 3).any()
