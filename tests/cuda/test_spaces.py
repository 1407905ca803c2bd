"""Every sentence of the GPU spaces is a legal schedule of the same program within the limits of its target.

Kind M: configurations over the device limits are never offered. Kind I: grids stay within their limits.
"""

from __future__ import annotations

from random import Random

import ml_dtypes
import numpy as np
import pytest

import tlm
from bench.sentences import product
from tests.cuda import gpu_programs as programs
from tests.space.conv_programs import Image, grouped
from tlm.ir.build import Builder
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Alloc, For
from tlm.ir.walk import statements, walk
from tlm.schedule import apply
from tlm.schedule.steps import from_json, to_json
from tlm.search.heuristic import heuristic
from tlm.space.decide import at_random, replay, run
from tlm.space.gpu.limits import Cost, fits, occupancy, resident
from tlm.space.spaces import space_for
from tlm.space.vocabulary import CHOICES, FACTS, WORDS
from tlm.target import Target

SM_90 = Target("sm_90")


@pytest.mark.parametrize(
    "make", [programs.products, programs.halves, programs.convolutions, programs.stencils]
)
def test_random_schedules_of_products_and_windows_compute_the_same_bit_for_bit(make):
    count = {programs.halves: 4, programs.convolutions: 10}.get(make, 20)
    for seed, program in enumerate(make(count, 3)):
        programs.check(program, seed)


@pytest.mark.parametrize("shape", [(1, 3, 1100, 5), (2, 1, 16500, 1)])
def test_split_sums_compute_the_same(shape):
    """Few blocks and a long k: parts of k by blocks of their own, beside batches too."""
    for seed in range(3):
        programs.check(product(shape, seed), seed)
    long = product(shape, 0)
    for decide in (heuristic, lambda choice, _: len(choice.options) - 1):
        programs.within(apply(long, run(space_for(long, SM_90), decide).steps), SM_90)


@pytest.mark.parametrize("family", programs.TABLES)
def test_random_schedules_of_other_families_compute_the_same(family):
    exact = {"rows": programs.EXACT_ROWS, "maps": programs.EXACT_MAPS, "attention": ("scores",)}[family]
    for name, program in programs.named(programs.TABLES[family]):
        for seed in range(1 if family == "attention" else 2):
            programs.check(program, seed, name in exact)


@pytest.mark.parametrize("family", programs.TABLES)
def test_all_sentences_apply_and_replay_and_survive_json(family):
    for name, program in programs.named(programs.TABLES[family]):
        for seed in range(100, 101 if family == "attention" else 103):
            target, found = programs.decided(program, seed)
            programs.within(apply(program, found.steps), target)
            assert replay(space_for(program, target), found.values) == found, name
            assert from_json(to_json(found.steps)) == found.steps


def test_choices_stay_inside_the_vocabulary():
    for table in programs.TABLES.values():
        for _, program in programs.named(table):
            for seed in range(4):
                _vocabulary_of(program, seed)
    for make in (programs.products, programs.convolutions, programs.stencils):
        for seed, program in enumerate(make(30, 11)):
            _vocabulary_of(program, seed)


def _vocabulary_of(program, seed):
    found = programs.decided(program, seed)[1]
    names = [choice.name for choice, _ in found.choices]
    assert len(set(names)) == len(names), names
    for choice, _ in found.choices:
        assert choice.name in CHOICES
        assert len(set(choice.values)) == len(choice.values) >= 2
        for option in choice.options:
            assert isinstance(option.value, int) or option.value in WORDS
            assert all(fact in FACTS and quantity >= 0 for fact, quantity in option.facts), option


@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_86", "sm_90"])
@pytest.mark.parametrize(
    "shape", [(1, 4096, 4096, 4096), (1, 1021, 4099, 513), (7, 1, 4096, 4096), (1, 64, 65536, 64)]
)
def test_large_products_stay_within_the_limits(shape, name):
    program, target = product(shape, 0), Target(name)
    for decide in (heuristic, *[at_random(Random(seed)) for seed in range(3)]):
        programs.within(apply(program, run(space_for(program, target), decide).steps), target)


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (1000, 77, 515), (130, 16, 8), (64, 20000, 72)])
def test_large_products_of_halves_stay_within_the_limits(shape):
    m, k, n = shape
    a, b = np.empty((m, k), np.float16), np.empty((k, n), np.float16)
    batch = np.empty((2, m, k), np.float16)
    for program in (
        tlm.ops.matmul.program(a, b),
        tlm.ops.matmul.program(batch, np.empty((2, k, n), np.float16)),
    ):
        for decide in (heuristic, *[at_random(Random(seed)) for seed in range(3)]):
            programs.within(apply(program, run(space_for(program, SM_90), decide).steps), SM_90)


@pytest.mark.parametrize("rows", [65535, 65536, 70000])
def test_grids_beyond_the_limit_are_folded(rows):
    programs_of = (
        tlm.ops.exp.program(np.empty((rows, 8, 3), "f4").transpose(0, 2, 1)),
        tlm.ops.softmax.program(np.empty((rows, 2, 8), "f4"), axis=1),
        product((rows, 3, 2, 5), 0),
    )
    for program in programs_of:
        for decide in (heuristic, *[at_random(Random(seed)) for seed in range(4)]):
            programs.within(apply(program, run(space_for(program, SM_90), decide).steps), SM_90)


def test_groups_in_one_index_with_their_channels_are_told_apart():
    """Tiles of channels that do not divide would reach into the next group: they are not offered."""
    program = grouped(Image(2, 4, 5, 1, 3), 3, 2, 5)
    for seed in range(12):
        _, found = programs.decided(program, seed)
        apply(program, found.steps)


def test_programs_without_a_family_run_outer_loops_on_blocks():
    b = Builder("neighbours")
    x = b.input("x", (6, 40), "f32")
    s = b.reduce("s", (6,), {"k": 40}, lambda i, k: x[i, k], axes=("i",))
    b.compute("y", (6, 40), lambda i, j: x[i, j] - s[5 - i], output=True)
    program = b.build()
    data = np.random.default_rng(0).integers(-4, 5, (6, 40)).astype("f4")
    for seed in range(6):
        scheduled = programs.check(program, seed)
        got = interpret(scheduled, [data])[0]
        np.testing.assert_array_equal(got, data - data.sum(1)[::-1, None])


def test_the_heuristic_tiles_a_large_product():
    """At least 512 multiply-adds of a thread between two barriers, and vectors of 16 bytes."""
    program = product((1, 4096, 4096, 4096), 0)
    found = run(space_for(program, SM_90), heuristic)
    wanted = dict(zip([c.name for c, _ in found.choices], found.values, strict=True))
    assert wanted["thread_m"] * wanted["thread_n"] * wanted["cta_k"] >= 512
    assert wanted["stage_m"] == wanted["stage_n"] == "shared"
    assert "vector" not in wanted, "narrower ones are not offered"
    scheduled = apply(program, found.steps)
    loops = [s for s in statements(scheduled.body) if isinstance(s, For)]
    assert sum(f.kind == "vectorize" and f.extent == 4 for f in loops) >= 5
    assert {n.buffer.memory for n in walk(scheduled.body) if isinstance(n, Alloc)} == {"shared", "register"}


def test_matrix_instructions_multiply_halves():
    """Both operands in shared memory, several stages ahead, apart or swizzled against conflicts."""
    a = np.empty((1024, 1024), ml_dtypes.bfloat16)
    program = tlm.ops.matmul.program(a, a)
    found = run(space_for(program, SM_90), heuristic)
    assert "matrix" in found.values
    scheduled = apply(program, found.steps)
    assert sum(isinstance(s, For) and s.kind == "tensor" for s in statements(scheduled.body)) == 3
    shared = [n.buffer for n in walk(scheduled.body) if isinstance(n, Alloc) and n.buffer.memory == "shared"]
    assert len(shared) == 2
    assert all(b.stages >= 2 and (b.strides or b.swizzle) for b in shared)
    programs.within(scheduled, SM_90)
    older = run(space_for(program, Target("sm_75")), heuristic)
    assert "matrix" not in older.values


def test_rows_are_fused_by_the_heuristic():
    program = tlm.ops.softmax.program(np.empty((4096, 1024), "f4"))
    scheduled = apply(program, run(space_for(program, SM_90), heuristic).steps)
    assert len(list(programs.kernels(scheduled.body))) == 1
    assert not [n for n in walk(scheduled.body) if isinstance(n, Alloc) and n.buffer.memory == "heap"]


def test_scores_of_attention_never_exist_as_a_whole():
    q = np.empty((512, 2, 64), "f4")
    program = tlm.ops.dot_product_attention.program(q, q, q, is_causal=True)
    scheduled = apply(program, run(space_for(program, SM_90), heuristic).steps)
    assert len(list(programs.kernels(scheduled.body))) == 1
    programs.within(scheduled, SM_90)


def test_occupancy_is_that_of_the_programming_guide():
    sm_80 = Target("sm_80")
    assert resident(Cost(256, 0, 32), sm_80) == 8
    assert occupancy(Cost(256, 0, 32), sm_80) == 100
    assert resident(Cost(256, 0, 128), sm_80) == 2
    assert resident(Cost(128, 48 << 10, 32), sm_80) == 3
    assert resident(Cost(32, 0, 16), sm_80) == 32
    assert not fits(Cost(2048), sm_80)
    assert not fits(Cost(128, sm_80.block_shared + 1), sm_80)
    assert not fits(Cost(512, 0, 200), sm_80)
    assert fits(Cost(256, 0, 200), sm_80)
