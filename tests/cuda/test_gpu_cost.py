"""The analytic model ranks schedules as their memory traffic, conflicts and idle processors would."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import tlm
from bench.sentences import product
from tlm.ir.nodes import Program
from tlm.schedule import apply
from tlm.search.evolve import search
from tlm.search.gpu_cost import Estimate, estimate
from tlm.search.gpu_modelled import KIND, Modelled
from tlm.search.heuristic import heuristic
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

SM_90 = Target("sm_90")


def decided(program: Program, decide=heuristic, target: Target = SM_90) -> Estimate:
    return estimate(apply(program, run(space_for(program, target), decide).steps), target)


def wanted(**answers):
    """A decider that gives these answers, and the heuristic's to all other questions."""

    def decide(choice, picked):
        value = answers.get(choice.name)
        return choice.values.index(value) if value in choice.values else heuristic(choice, picked)

    return decide


def test_a_large_product_is_bound_by_multiply_adds_and_a_copy_by_memory():
    big = decided(product((1, 4096, 4096, 4096), 0)).kernels
    assert [k.limit in ("multiply-adds", "issue") for k in big] == [True]
    assert big[0].flops == pytest.approx(2 * 4096**3, rel=0.01)
    peak = 2 * SM_90.fma_rate * SM_90.threads * SM_90.clock * 1e6
    assert 0.3 < big[0].flops / big[0].seconds / peak < 1
    copy = decided(tlm.ops.add.program(np.empty(1 << 26, "f4"), np.empty(1 << 26, "f4"))).kernels[0]
    assert copy.limit == "memory"
    assert copy.memory_bytes == 3 * 4 << 26
    assert 0.5 < copy.memory_bytes / copy.seconds / (SM_90.bandwidth * 1e9) < 1


def test_what_is_slow_costs_more():
    square = product((1, 2048, 2048, 2048), 0)
    best = decided(square).seconds
    assert decided(square, wanted(stage_m="none", stage_n="none")).seconds > best
    assert decided(square, wanted(cta_m=32, cta_n=32, thread_m=1, thread_n=1)).seconds > 1.5 * best
    assert decided(square, wanted(cta_m=256, cta_n=1)).seconds > 2 * best
    turned = tlm.ops.transpose.program(np.empty((4096, 4096), "f4"))
    ways = {word: decided(turned, wanted(form=word)).seconds for word in ("last", "tile")}
    assert ways["last"] > 1.3 * ways["tile"]


def bounds(program: Program, target: Target = SM_90, **answers) -> dict[str, float]:
    """Seconds of the first kernel under each ceiling."""
    return dict(decided(program, wanted(**answers), target).kernels[0].bounds)


def test_copies_that_run_ahead_hide_what_they_wait_for():
    """A block that copies while it needs it waits each time for memory, then works; one that copied before
    only works."""
    square = product((1, 2048, 2048, 2048), 0)
    waiting, ahead = (bounds(square, stages=n)["latency"] for n in (1, 3))
    assert waiting > 1.2 * ahead
    deeper = bounds(square, stages=1, cta_k=32)["latency"]
    assert ahead < deeper < waiting


def test_loops_that_are_not_written_out_take_instructions():
    square = product((1, 2048, 2048, 2048), 0)
    rolled, some, whole = (bounds(square, turns=n)["issue"] for n in (1, 4, 16))
    assert rolled > 1.05 * some > 1.05 * whole


def test_narrow_types_are_converted():
    plain, narrow = (
        bounds(tlm.ops.matmul.program(x, x), form="tiles", group=4, cta_k=16)["issue"]
        for x in (np.empty((1024, 1024), "f4"), np.empty((1024, 1024), "f2"))
    )
    assert narrow > 1.1 * plain


def test_one_warp_alone_does_not_reach_the_tensor_rate_of_groups():
    a = np.empty((4096, 4096), "f2")
    program, own = tlm.ops.matmul.program(a, a), Target("sm_90a")
    warps, groups = (bounds(program, own, form=form)["multiply-adds"] for form in ("matrix", "groups"))
    assert 1.3 * groups < warps < 1.8 * groups


def test_few_blocks_cost_what_idle_processors_cost():
    thin = product((1, 64, 16384, 64), 0)
    assert decided(thin, wanted(slices=1)).seconds > 1.5 * decided(thin).seconds


def test_random_schedules_have_finite_estimates_on_every_target():
    for name in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100"):
        for seed in range(3):
            program = tlm.ops.softmax.program(np.empty((64, 1000), "f4"))
            found = decided(program, at_random(Random(seed)), Target(name))
            assert all(0 < k.seconds < 1 and 0 < k.occupancy <= 100 for k in found.kernels)


def test_search_runs_on_estimates_and_says_so():
    program = product((1, 256, 256, 256), 0)
    modelled = Modelled(SM_90)
    found = search(program, SM_90, modelled, trials=24, seed=1)
    assert found.seconds <= decided(program).seconds * 1.0001
    (record,) = modelled.measure(program, [found.best])
    assert (record.kind, record.status) == (KIND, "ok")
    assert "estimate" in record.versions
    assert "not measured" in record.message
