"""Stages after a sum that is blocked run where a block of it is complete, in the threads of the block."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.ir.regions import regions
from tlm.model.shapes import Shape
from tlm.ops.workloads import Sample
from tlm.schedule import apply
from tlm.space.choice import Choice
from tlm.space.decide import Picked, run
from tlm.space.spaces import space_for
from tlm.target import Target

TWO = Target("avx2", threads=2)


def spelled(program: Program, seed: int, **wanted: object) -> Program:
    """The program of a random sentence in which the named choices are answered as wanted, where offered."""
    rng = Random(seed)

    def decide(choice: Choice, _: Picked) -> int:
        answer = wanted.get(choice.name)
        return choice.values.index(answer) if answer in choice.values else rng.randrange(len(choice.options))

    return apply(program, run(space_for(program, TWO), decide).steps)


def integers(program: Program) -> list[np.ndarray]:
    data = np.random.default_rng(1)
    return [data.integers(-4, 5, b.shape).astype(np.float32) for b in program.inputs]


def test_a_product_whose_threads_share_columns_has_one_region():
    program = Shape("x", 24, 96, 80, epilogue="relu").program()
    inputs = integers(program)
    want = np.maximum(inputs[0] @ inputs[1] + inputs[2], 0)
    for seed in range(2):
        new = spelled(program, seed, split_k=1, block_k=32, block_n=1, columns=1, order="nkm", parallel="n",
                      pack_n="none", pack_m="none")  # fmt: skip
        assert regions(new.body) == 1
        np.testing.assert_array_equal(interpret(new, inputs)[0], want)


@pytest.mark.parametrize("order", ["nkm", "mkn", "kmn", "knm", "nmk", "mnk"])
def test_any_order_of_blocks_computes_the_same(order: str):
    program = Shape("x", 7, 70, 21, batch=2, epilogue="bias").program()
    inputs = integers(program)
    want = inputs[0] @ inputs[1] + inputs[2]
    for seed in range(3):
        new = spelled(program, seed, split_k=1, block_k=32, block_n=1, block_m=1, order=order)
        np.testing.assert_array_equal(interpret(new, inputs)[0], want)


@pytest.mark.parametrize("order", ["nkm", "mkn", "nmk", "mnk"])
def test_a_convolution_finishes_its_blocks(order: str):
    shapes, settings = ((1, 7, 6, 40), (3, 3, 40, 24), (24,)), (("padding", "SAME"), ("activation", "relu"))
    program = Sample("conv", "conv2d", shapes, (42, 360, 24), settings, 362_880).program()
    inputs = integers(program)
    want = interpret(program, inputs)[0]
    for seed in range(2):
        new = spelled(program, seed, block_k=10, block_n=1, block_m=1, columns=1, order=order,
                      parallel=order[0], epilogue="separate", pack_n="none", pack_m="none")  # fmt: skip
        assert regions(new.body) == 1
        np.testing.assert_array_equal(interpret(new, inputs)[0], want)
