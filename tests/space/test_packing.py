"""Packing copies: in the order of their source, with the same panels, whatever does not divide."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from bench.sentences import product
from tests.space.conv_programs import Image, conv
from tlm.backend import compile as compile_program
from tlm.ir.interpret import interpret
from tlm.ir.nodes import For, Program
from tlm.ir.walk import statements
from tlm.schedule import apply
from tlm.space.decide import repair
from tlm.space.packing import ROWS
from tlm.space.spaces import space_for
from tlm.target import Target

AVX2 = Target("avx2", threads=2)
PACKED = {
    "style": "outer", "lanes": 8, "columns": 2, "rows": 3, "parallel": "none", "block_k": 1000,
    "block_m": 1000, "block_n": 1000, "order": "none", "pack_n": "block", "pack_m": "none",
}  # fmt: skip


def scheduled(program: Program, target: Target, **answers: int | str) -> Program:
    wanted = {**PACKED, **answers}
    return apply(program, repair(space_for(program, target), list(wanted.items()), Random(0)).steps)


def copies(program: Program, name: str) -> list[str]:
    """The loops of the copy `name`, outermost first."""
    loops = [s.var for s in statements(program.body) if isinstance(s, For)]
    return [loop for loop in loops if loop.endswith(f"@{name}") or f"@{name}." in loop]


def same(program: Program, schedule: Program, target: Target = AVX2) -> None:
    """Both the interpreter and the machine code compute what the program computes, bit for bit."""
    data = np.random.default_rng(3)
    inputs = []
    for b in program.inputs:
        room = np.zeros(b.size, np.float32)
        x = np.lib.stride_tricks.as_strided(room, b.shape, [s * 4 for s in b.element_strides])
        x[...] = data.integers(-4, 5, b.shape)
        inputs.append(x)
    want = interpret(program, inputs)[0]
    np.testing.assert_array_equal(interpret(schedule, inputs)[0], want)
    got = np.full(program.outputs[0].shape, np.nan, np.float32)
    compile_program(schedule, target)(*inputs, got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("k", [1, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS, 3 * ROWS + 5])
@pytest.mark.parametrize("n", [16, 32, 41])
def test_rows_of_a_product_are_packed_some_at_a_time(k, n):
    program = product((1, 7, k, n), 0)
    schedule = scheduled(program, AVX2)
    loops = copies(schedule, "B_pack")
    if k > ROWS and n > 16:
        assert loops[:3] == ["k@B_pack.0", "j.0@B_pack", "k@B_pack.1"]
    elif loops:
        assert loops[0] == "j.0@B_pack"
    same(program, schedule)


def test_the_rows_of_one_panel_stay_in_order():
    schedule = scheduled(product((1, 7, 50, 48), 0), AVX2, block_n=1)
    assert copies(schedule, "B_pack")[:2] == ["j.0.1@B_pack", "k@B_pack"]


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_rows_of_a_copy_outside_of_their_loop(threads):
    program, target = product((1, 31, 45, 50), 0), Target("avx2", threads=threads)
    schedule = scheduled(program, target, parallel="m", block_m=2)
    shared = [s.var for s in statements(schedule.body) if isinstance(s, For) and s.kind == "parallel"]
    assert "k@B_pack.0" in shared
    same(program, schedule, target)


@pytest.mark.parametrize("order", ["k", "nk", "kn"])
def test_blocks_of_a_long_sum_are_packed_by_rows(order):
    program = product((2, 5, 70, 67), 0)
    same(program, scheduled(program, AVX2, block_k=32, block_n=2, order=order, pack_m="block"))


@pytest.mark.parametrize("k", [1, 7, 8, 9, 20])
@pytest.mark.parametrize("n", [8, 16, 33])
@pytest.mark.parametrize("columns", [1, 2])
def test_an_operand_that_lies_along_the_sum_is_turned(k, n, columns):
    program = product((2, 5, k, n), 1)
    schedule = scheduled(program, AVX2, columns=columns)
    if "B_pack" in str(schedule) and k > 1:
        assert "B_pack_turn" in str(schedule)
    same(program, schedule)


@pytest.mark.parametrize("channels", [4, 9, 19])
@pytest.mark.parametrize("out", [16, 40])
@pytest.mark.parametrize("threads", [1, 2])
def test_weights_of_a_convolution_are_packed_by_rows(channels, out, threads):
    target = Target("avx2", threads=threads)
    program = conv(Image(1, 6, 7, 3, 3), channels, out)
    schedule = scheduled(program, target, parallel="m", pack_m="none")
    rows = ["c@W_pack.0", "r@W_pack", "s@W_pack", "o.0@W_pack", "c@W_pack.1"]
    assert (copies(schedule, "W_pack")[:5] == rows) == (channels > ROWS and out > 16)
    same(program, schedule, target)
