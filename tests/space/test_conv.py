"""Every sentence of the space of convolutions, depthwise ones and pools is a legal schedule of the same."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tests.space.conv_programs import Image, conv, depthwise, grouped, pool, random_program
from tlm.backend import compile as compile_program
from tlm.ir.build import Builder
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.schedule import apply
from tlm.search.heuristic import heuristic
from tlm.space.choice import Choice
from tlm.space.conv_problem import convolution
from tlm.space.decide import Decide, at_random, run
from tlm.space.problem import contraction
from tlm.space.spaces import space_for
from tlm.space.vocabulary import CHOICES, FACTS, WORDS
from tlm.target import Target

TARGETS = [Target("avx512", threads=2), Target("avx2"), Target("sse", threads=2), Target("avx512")]
SAME = Image(1, 9, 11, 3, 3)


def integers(program: Program, seed: int) -> list[np.ndarray]:
    data = np.random.default_rng(seed)
    return [data.integers(-4, 5, b.shape).astype(np.float32) for b in program.inputs]


def picking(**wanted: int | str) -> Decide:
    """A decider that gives the answers in `wanted`, which must be offered, and else the first."""

    def decide(choice: Choice, _: object) -> int:
        return choice.values.index(wanted[choice.name]) if choice.name in wanted else 0

    return decide


def check(program: Program, target: Target, decide: Decide, seed: int, kernel: bool = True) -> None:
    scheduled = apply(program, run(space_for(program, target), decide).steps)
    inputs = integers(program, seed)
    want = interpret(program, inputs)[0]
    np.testing.assert_array_equal(interpret(scheduled, inputs)[0], want)
    if kernel:
        out = np.full(want.shape, np.nan, np.float32)
        compile_program(scheduled, target, cache=False)(*inputs, out)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("number", range(4))
def test_random_sentences_compute_the_same_bit_for_bit(number: int):
    for seed in range(number, 160, 4):
        rng = Random(seed)
        check(random_program(rng), TARGETS[number], at_random(rng), seed, kernel=seed % 3 == 0)


@pytest.mark.parametrize("seed", range(12))
def test_the_heuristic_answers_every_choice(seed: int):
    check(random_program(Random(1000 + seed)), TARGETS[seed % 4], heuristic, seed)


@pytest.mark.parametrize("window", ["none", "last"])
@pytest.mark.parametrize("pack", ["none", "block"])
def test_edges_under_guards_and_in_padded_copies(window: str, pack: str):
    """Tiles of 4 pixels and 2 rows: whole ones, and those that a window of 3 leaves at every side."""
    program = conv(SAME, 5, 32, activation=True)
    check(program, TARGETS[3], picking(rows=4, height=2, window=window, pack_m=pack, block_m=2), 1)


def test_a_condition_on_the_product_is_never_answered_by_zeros():
    """0 times an infinite weight would be NaN."""
    program = conv(SAME, 2, 16, whole=True)
    asked = [c.name for c, _ in run(space_for(program, TARGETS[3]), at_random(Random(0))).choices]
    assert "pack_m" not in asked
    inputs = integers(program, 0)
    inputs[1][0] = np.inf
    scheduled = apply(program, run(space_for(program, TARGETS[3]), picking(rows=4)).steps)
    out = np.zeros((1, 9, 11, 16), np.float32)
    compile_program(scheduled, TARGETS[3], cache=False)(*inputs, out)
    np.testing.assert_array_equal(out, interpret(program, inputs)[0])
    assert np.isfinite(out[:, 0]).all()


def test_a_padded_read_times_an_infinite_weight_is_nan():
    program = conv(SAME, 2, 16)
    inputs = integers(program, 0)
    inputs[1][0] = np.inf
    for pack in ("none", "block"):
        scheduled = apply(program, run(space_for(program, TARGETS[3]), picking(rows=4, pack_m=pack)).steps)
        out = np.zeros((1, 9, 11, 16), np.float32)
        compile_program(scheduled, TARGETS[3], cache=False)(*inputs, out)
        np.testing.assert_array_equal(out, interpret(program, inputs)[0])
        assert np.isnan(out[:, 0]).all()


def test_choices_stay_inside_the_vocabulary():
    for seed in range(200):
        rng = Random(seed)
        program = random_program(rng)
        for choice, index in run(space_for(program, TARGETS[seed % 4]), at_random(rng)).choices:
            assert choice.name in CHOICES
            assert len(set(choice.values)) == len(choice.values) >= 2
            assert 0 <= index < len(choice.options)
            for option in choice.options:
                assert isinstance(option.value, int) or option.value in WORDS
                assert all(name in FACTS and quantity >= 0 for name, quantity in option.facts)


def test_roles_come_from_the_structure():
    found = convolution(conv(SAME, 5, 7))
    assert found is not None
    assert (found.rows.loops, found.columns.loops, found.k) == (("y", "x"), ("o",), "c")
    assert (found.windows, found.batch, found.guarded, found.stencil) == (("r", "s"), ("n",), True, False)
    first = convolution(conv(Image(2, 9, 11, 3, 3, first=True), 5, 7))
    assert first is not None
    assert first.rows.loops == ("n", "y", "x")
    assert first.out.stride("x") == 1
    valid = convolution(conv(Image(1, 9, 11, 3, 3, pads=((0, 0), (0, 0))), 5, 7))
    assert valid is not None
    assert not valid.guarded


def test_stencils_have_a_column_axis_where_the_result_is_contiguous():
    for program, lane in (
        (depthwise(SAME, 6), "c"),
        (pool(SAME, 6, "max"), "c"),
        (depthwise(Image(1, 9, 11, 3, 3, first=True), 6), "x"),
    ):
        found = convolution(program)
        assert found is not None
        assert found.stencil
        assert found.columns.loops == (lane,)
        assert found.k == "s"


def test_groups_of_few_channels_may_be_one_axis():
    found = convolution(grouped(SAME, 8, 4, 4))
    assert found is not None
    assert found.batch == ("n", "g")
    merged = found.merged()
    assert merged is not None
    assert merged.columns.loops == ("g*o",)
    assert merged.epilogue[0].loops[-1] == ("Y_g*Y_o", 32)


@pytest.mark.parametrize(
    ("c", "o", "lanes"), [(4, 4, 16), (2, 4, 16), (4, 2, 16), (3, 5, 16), (1, 2, 8), (4, 4, 8)]
)
def test_lanes_of_several_groups(c: int, o: int, lanes: int):
    program = grouped(SAME, 8, c, o)
    check(program, TARGETS[3], picking(style="groups", lanes=lanes, epilogue="fused"), 3)


def test_a_sum_over_two_axes_of_a_product_is_one_of_these():
    b = Builder("einsum")
    x, w = b.input("X", (3, 5, 4, 6), "f32"), b.input("W", (4, 6, 17), "f32")
    b.reduce(
        "Y", (3, 5, 17), {"c": 4, "d": 6}, lambda i, j, o, c, d: x[i, j, c, d] * w[c, d, o],
        axes=("i", "j", "o"), output=True,
    )  # fmt: skip
    program = b.build()
    assert contraction(program) is None
    for seed in range(12):
        check(program, TARGETS[seed % 4], at_random(Random(seed)), seed, kernel=seed % 4 == 3)


def test_vectors_of_every_second_pixel():
    """Channels first under a stride of 2: neighbours in a vector are two elements apart."""
    program = conv(Image(1, 8, 70, 3, 3, stride=2, first=True), 3, 4)
    check(program, TARGETS[3], picking(lanes=16, pack_n="none"), 5)


@pytest.mark.parametrize("seed", range(6))
def test_a_product_with_rows_along_two_axes_is_blocked_over_both(seed: int):
    """Every second pixel of every second row: no one stride leads through them."""
    b = Builder("strided")
    x, w = b.input("X", (14, 10, 9), "f32"), b.input("W", (9, 33), "f32")
    b.reduce(
        "Y", (7, 5, 33), over={"c": 9}, axes=("y", "x", "o"), output=True,
        fn=lambda y, i, o, c: x[y * 2, i * 2, c] * w[c, o],
    )  # fmt: skip
    program = b.build()
    assert contraction(program) is None
    problem = convolution(program)
    assert problem is not None
    assert (problem.rows.loops, problem.batch, problem.windows) == (("y", "x"), (), ())
    rng = Random(seed)
    check(program, TARGETS[seed % 4], at_random(rng), seed)
