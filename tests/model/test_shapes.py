"""Shapes: the hold-out holds, and programs compute what they say."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

import tlm
from tlm.ir.canonical import key
from tlm.ir.interpret import interpret
from tlm.model.shapes import COMMON, PRODUCTS, Shape, draw, held_out, machines, training
from tlm.model.train import imagined_jobs
from tlm.target import Target, host


def test_no_pair_of_extents_is_shared_with_held_out_shapes():
    hidden = frozenset().union(*(s.pairs for s in held_out()))
    assert len(set(held_out())) == 60
    seen = [*training(400, 0), *training(400, 3), *(shape for shape, _ in imagined_jobs(300, 1))]
    assert not any(shape.pairs & hidden for shape in seen)


def test_held_out_shapes_are_of_every_family():
    assert {s.family for s in held_out()} == set(PRODUCTS)


def test_drawing_is_by_seed():
    assert list(islice(draw(3), 50)) == list(islice(draw(3), 50))
    assert list(islice(draw(3), 50)) != list(islice(draw(4), 50))
    assert training(5, 0) == list(COMMON[:5])


@pytest.mark.parametrize(
    "shape",
    [
        Shape("x", 3, 4, 5),
        Shape("x", 3, 4, 5, layout="tn"),
        Shape("x", 3, 4, 5, layout="nt", epilogue="relu"),
        Shape("x", 3, 4, 5, batch=2, layout="nt"),
        Shape("x", 1, 4, 5, epilogue="bias"),
    ],
    ids=str,
)
def test_programs_compute_the_product(shape: Shape):
    program, rng = shape.program(), np.random.default_rng(0)
    arrays, plain = [], []
    for buffer, layout in zip(program.inputs, [*shape.layout, "n"], strict=False):
        made = rng.integers(-4, 5, buffer.shape).astype(np.float32)
        plain.append(made)
        if layout == "t" and buffer.name in "AB":
            made = np.ascontiguousarray(made.swapaxes(-1, -2)).swapaxes(-1, -2)
        arrays.append(made)
    want = plain[0] @ plain[1]
    if shape.epilogue != "none":
        want = want + plain[2]
    if shape.epilogue == "relu":
        want = np.maximum(want, 0)
    np.testing.assert_array_equal(interpret(program, arrays)[0], want)


SAME_AS_OPS = {
    "plain": (Shape("x", 8, 9, 10), lambda: tlm.ops.matmul.program(zeros(8, 9), zeros(9, 10))),
    "right transposed": (
        Shape("x", 8, 9, 10, layout="nt"), lambda: tlm.ops.matmul.program(zeros(8, 9), zeros(10, 9).T)
    ),
    "one row": (Shape("x", 1, 9, 10), lambda: tlm.ops.matmul.program(zeros(1, 9), zeros(9, 10))),
    "batched": (
        Shape("x", 8, 9, 10, batch=3, layout="nt"),
        lambda: tlm.ops.matmul.program(zeros(3, 8, 9), zeros(3, 10, 9).transpose(0, 2, 1)),
    ),
    "gelu": (
        Shape("x", 8, 9, 10, epilogue="gelu"),
        lambda: tlm.ops.linear.program(zeros(8, 9), zeros(9, 10), zeros(10), activation="gelu"),
    ),
    "relu": (
        Shape("x", 8, 9, 10, epilogue="relu"),
        lambda: tlm.ops.linear.program(zeros(8, 9), zeros(9, 10), zeros(10), activation="relu"),
    ),
}  # fmt: skip


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize("name", SAME_AS_OPS)
def test_what_is_learned_is_what_operators_ask_for(name: str):
    shape, program = SAME_AS_OPS[name]
    assert key(shape.program()) == key(program())


def test_machines_share_the_effort():
    shares = machines(host())
    assert sum(share for _, share in shares) == pytest.approx(1.0)
    assert all(target.runs_here() for target, _ in shares)
    assert len({target.key for target, _ in shares}) == len(shares)
    assert shares[0][0].threads == 1
    assert isinstance(shares[0][0], Target)
