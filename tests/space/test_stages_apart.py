"""Stages after a product or a convolution that are not one elementwise chain run in nests of their own."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

import tlm
from tlm import ops
from tlm.ir.build import Builder, Tensor
from tlm.ir.exprs import Expr, op
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.ops.operator import FormulaOperator
from tlm.schedule import apply
from tlm.search.heuristic import heuristic
from tlm.space.choice import Choice
from tlm.space.decide import Decide, Picked, at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

SIDE, DEPTH = 21, 70
TARGETS = (Target("avx2", threads=2), Target("sm_80"))

Stages = Callable[[Builder, Tensor, Tensor], None]


def _turned(b: Builder, s: Tensor, x: Tensor) -> None:
    b.compute("C", s.shape, lambda i, j: s[i, j] + s[j, i], output=True)


def _column(b: Builder, s: Tensor, x: Tensor) -> None:
    b.compute("C", s.shape, lambda i, j: s[i, j] - s[i, 0], output=True)


def _diagonal(b: Builder, s: Tensor, x: Tensor) -> None:
    b.compute("C", (SIDE,), lambda i: s[i, i], output=True)


def _another(b: Builder, s: Tensor, x: Tensor) -> None:
    t = b.compute("t", (SIDE,), lambda i: op("abs", x[i, 0]))
    b.compute("C", s.shape, lambda i, j: s[i, j] * t[i], output=True)


def _flat(b: Builder, s: Tensor, x: Tensor) -> None:
    b.compute("C", (SIDE * SIDE,), lambda i: s[i // SIDE, i % SIDE], output=True)


def _twice(b: Builder, s: Tensor, x: Tensor) -> None:
    t = b.compute("t", s.shape, lambda i, j: op("abs", s[i, j]))
    u = b.compute("u", s.shape, lambda i, j: t[i, j] * s[i, j])
    b.compute("C", s.shape, lambda i, j: u[i, j] + t[i, j], output=True)


def _chain(b: Builder, s: Tensor, x: Tensor) -> None:
    t = b.compute("t", s.shape, lambda i, j: s[i, j] * x[i, 0])
    b.compute("C", s.shape, lambda i, j: t[i, j] * t[i, j] + t[i, j], output=True)


def program(stages: Stages) -> Program:
    b = Builder("mine")
    x, y = b.input("X", (SIDE, DEPTH), "f32"), b.input("Y", (DEPTH, SIDE), "f32")

    def term(i: Expr, j: Expr, k: Expr) -> Expr:
        return x[i, k] * y[k, j]

    s = b.reduce("s", (SIDE, SIDE), over={"k": DEPTH}, fn=term, axes=("i", "j"))
    assert isinstance(s, Tensor)
    stages(b, s, x)
    return b.build()


@pytest.mark.parametrize("stages", [_turned, _column, _diagonal, _another, _flat, _twice, _chain])
def test_every_sentence_is_legal(stages: Stages):
    plain = program(stages)
    for target in TARGETS:
        deciders: list[Decide] = [heuristic, *(at_random(Random(seed)) for seed in range(24))]
        for decide in deciders:
            apply(plain, run(space_for(plain, target), decide).steps)


@pytest.mark.parametrize("stages", [_turned, _another, _chain])
def test_the_schedules_compute_the_same(stages: Stages):
    plain = program(stages)
    data = np.random.default_rng(0)
    inputs = [data.integers(-3, 4, b.shape).astype(np.float32) for b in plain.inputs]
    want = interpret(plain, inputs)[0]
    for seed in range(2):
        steps = run(space_for(plain, TARGETS[0]), at_random(Random(seed))).steps
        np.testing.assert_array_equal(interpret(apply(plain, steps), inputs)[0], want)


GROUPED = (
    ops.conv1d.program(np.ones((2, 5, 16)), np.ones((5, 1, 32)), np.ones(32), groups=16),
    ops.conv1d.program(np.ones((7, 1, 9), np.float16), np.ones((1, 3, 48), np.float16), groups=3),
    ops.conv2d.program(np.ones((1, 4, 4, 6), "f4"), np.ones((1, 1, 2, 9), "f4"), groups=3, activation="silu"),
    # One channel a group: its sum of one term indexes the weights only.
    ops.conv1d.program(np.ones((1, 4, 2), "f4"), np.ones((1, 1, 10), "f4"), groups=2),
    ops.conv1d.program(np.ones((1, 14, 5), "f4"), np.ones((1, 1, 25), "f4"), np.ones(25, "f4"), groups=5),
    ops.conv2d.program(np.ones((1, 1, 8, 2), np.int8), np.ones((1, 1, 1, 10), np.int8), groups=2),
)


def test_a_sum_that_one_factor_does_not_index_is_legal():
    rows = tlm.operator(
        lambda x, y: tlm.sum(
            (x.shape[0], y.shape[1]), lambda i, j, k: x[i, 0] * y[k, j], over={"k": y.shape[0]}
        )
    )
    plain = rows.program(np.ones((9, 1), "f4"), np.ones((40, 17), "f4"))
    for target in TARGETS:
        for seed in range(40):
            apply(plain, run(space_for(plain, target), at_random(Random(seed))).steps)


@pytest.mark.parametrize("plain", GROUPED)
@pytest.mark.parametrize("target", [Target("avx2", threads=2), Target("sse"), Target("sm_80")])
def test_stages_after_groups_are_legal(plain: Program, target: Target):
    """Products of groups whose results are one dimension: a stage reads them at g * width + o, no loop of its
    own."""
    deciders: list[Decide] = [heuristic, *(at_random(Random(seed)) for seed in range(40))]
    for decide in deciders:
        apply(plain, run(space_for(plain, target), decide).steps)


@tlm.operator
def gated(x, w):
    """x * sigmoid(x @ w): what is packed for the product is read again after it."""
    m, k = x.shape
    p = tlm.sum((m, w.shape[1]), lambda i, j, k: x[i, k] * w[k, j], over={"k": k})
    return tlm.compute((m, w.shape[1]), lambda i, j: x[i, j] * tlm.sigmoid(p[i, j]))


@tlm.operator
def recall(q, z):
    """softmax(q @ z.T) @ z: keys and values are one array."""
    m, d = q.shape
    n = z.shape[0]
    s = tlm.sum((m, n), lambda i, j, k: q[i, k] * z[j, k], over={"k": d})
    t = tlm.max((m,), lambda i, j: s[i, j], over={"j": n})
    e = tlm.compute((m, n), lambda i, j: tlm.exp(s[i, j] - t[i]))
    u = tlm.sum((m,), lambda i, j: e[i, j], over={"j": n})
    return tlm.sum((m, d), lambda i, c, j: e[i, j] / u[i] * z[j, c], over={"j": n})


def _packed(choice: Choice, _: Picked) -> int:
    """Whole blocks, so that copies are made outside of all loops."""
    values = list(choice.values)
    if choice.name in ("block_k", "block_m", "block_n"):
        return values.index(max(values))
    wanted = {"style": "outer", "pack_m": "block", "pack_n": "block", "parallel": "none"}.get(choice.name)
    return values.index(wanted) if wanted in values else 0


@pytest.mark.parametrize("dtype", ["f2", "f4"])
@pytest.mark.parametrize("made", [gated, recall])
def test_an_operand_that_other_stages_read_too_is_packed_for_one(made: FormulaOperator, dtype: str):
    rng = np.random.default_rng(0)
    shapes = ((8, 32), (32, 32)) if made is gated else ((8, 16), (24, 16))
    given = [rng.standard_normal(s).astype(dtype) for s in shapes]
    turned = [np.asfortranarray(x) for x in given]
    for operands in (given, turned):
        unscheduled = made.program(*operands)
        want = interpret(unscheduled, operands)[0]
        for decide in (_packed, heuristic, *[at_random(Random(n)) for n in range(30)]):
            sentence = run(space_for(unscheduled, TARGETS[0]), decide)
            scheduled = apply(unscheduled, sentence.steps)
            if decide in (_packed, heuristic):
                got = interpret(scheduled, operands)[0]
                np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=4e-3, atol=1e-3)
