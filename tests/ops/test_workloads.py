"""Workloads of every family: drawn by seed, sent between processes, decided, kept apart from the held-out."""

from __future__ import annotations

import pickle
from itertools import islice
from random import Random

import pytest

from tlm.ir.canonical import key
from tlm.lang.encode import prompt
from tlm.model.shapes import HELD_OUT_EACH, LEARNED, all_held_out, draw, held_out, hidden_pairs, training
from tlm.ops.gpu_workloads import GPU_TAUGHT
from tlm.ops.networks import NETWORKS
from tlm.ops.workloads import FAMILIES, OTHERS, TAUGHT
from tlm.schedule import apply
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

TARGET = Target("avx512", threads=2)


@pytest.mark.parametrize("family", OTHERS)
def test_programs_of_a_family_are_decided_and_scheduled(family: str):
    rng = Random(0)
    for work in islice(draw(5, {family: OTHERS[family]}), 3):
        program = work.program()
        assert work.family == family
        assert prompt(program, TARGET).stages
        decided = run(space_for(program, TARGET), at_random(rng))
        assert decided.choices
        apply(program, decided.steps)


def test_the_same_seed_draws_the_same_and_no_two_are_equal():
    a, b = (list(islice(draw(3, FAMILIES), 60)) for _ in range(2))
    assert a == b
    assert len(set(a)) == len({str(w) for w in a}) == 60
    assert {w.family for w in a} >= set(OTHERS)


def test_a_workload_survives_the_way_to_another_process():
    for work in islice(draw(4, OTHERS), 16):
        again = pickle.loads(pickle.dumps(work))
        assert again == work
        assert key(again.program()) == key(work.program())


def test_what_is_held_out_shares_no_pair_of_extents_with_what_is_trained_on():
    outside = all_held_out(FAMILIES)
    assert outside[: len(held_out())] == held_out()
    assert len(set(outside)) == len(held_out()) + HELD_OUT_EACH * len(OTHERS)
    hidden = hidden_pairs(FAMILIES)
    drawn = training(200, 1, FAMILIES)
    assert not any(work.pairs & hidden for work in drawn)
    assert len({w.family for w in drawn} & set(OTHERS)) == len(OTHERS)
    assert LEARNED.items() <= FAMILIES.items() <= TAUGHT.items()
    assert hidden_pairs(TAUGHT) == hidden


def test_operators_of_networks_are_trained_on_unless_they_are_held_out():
    hidden = hidden_pairs(FAMILIES)
    assert len({key(work.program()) for work in NETWORKS}) == len(NETWORKS)
    free = [work for work in NETWORKS if not work.pairs & hidden]
    assert len(free) > 0.8 * len(NETWORKS)
    assert training(len(free) + 5, 1, FAMILIES, NETWORKS)[: len(free)] == free
    first = NETWORKS[0]
    assert str(first) == "conv2d 1x224x224x3 7x7x3x64 64 stride=2 padding=SAME activation=relu"
    assert first.work == 112 * 112 * 49 * 3 * 64


@pytest.mark.parametrize("family", GPU_TAUGHT)
def test_programs_taught_for_gpus_can_be_built(family: str):
    rng = Random(f"built {family}")
    for _ in range(60 if family == "bytes" else 8):
        assert GPU_TAUGHT[family](rng).program().outputs
