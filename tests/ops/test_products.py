"""Matrix products as programs: rank rules (kind D), layouts (kind E), promotion, and the fewest loops."""

from __future__ import annotations

import numpy as np
import pytest

from tlm.errors import ArgumentError, DTypeError
from tlm.ir.dtypes import from_numpy
from tlm.ir.interpret import interpret
from tlm.ir.verify import verify
from tlm.ir.walk import loops
from tlm.ops.arrays import laid_out, read
from tlm.ops.products import Problem, product

RNG = np.random.default_rng(0)


def problem(a: np.ndarray, b: np.ndarray) -> Problem:
    return product("matmul", read(a)[0], read(b)[0])


def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    made = problem(a, b)
    verify(made.program)
    inputs = []
    for x, spec, buffer in zip((a, b), made.operands, made.program.inputs, strict=True):
        # The interpreter takes the program's own shape of each operand: fewer axes, same memory.
        x = laid_out(x, spec) if read(x)[1] else x
        steps = [s * x.itemsize for s in buffer.element_strides]
        inputs.append(np.lib.stride_tricks.as_strided(x, buffer.shape, steps))
    return interpret(made.program, inputs)[0].reshape(made.shape)


def integers(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (3,)), ((3,), (5, 3, 4)), ((2, 3), (3,)), ((2, 1, 3, 4), (5, 4, 6)), ((7, 3, 4), (4, 5)),
        ((7, 1, 4), (4, 5)), ((7, 1, 4), (7, 4, 5)), ((2, 3, 4, 5), (2, 3, 5, 6)), ((1, 1), (1, 1)),
        ((4, 3, 2), (1, 2, 3)), ((3, 1, 2, 2), (1, 4, 2, 2)),
    ],
)  # fmt: skip
def test_rank_rules_as_numpy(left: tuple[int, ...], right: tuple[int, ...]):
    a, b = integers(*left), integers(*right)
    np.testing.assert_array_equal(run(a, b), a @ b)


@pytest.mark.parametrize("left", ["c", "f", "rows", "padded", "batch"])
@pytest.mark.parametrize("right", ["c", "f", "rows", "padded", "batch"])
def test_layouts(left: str, right: str):
    made = {
        "c": lambda: integers(2, 3, 3),
        "f": lambda: integers(2, 3, 3).transpose(0, 2, 1),
        "rows": lambda: integers(2, 6, 3)[:, ::2],
        "padded": lambda: integers(2, 3, 8)[:, :, 2:5],
        "batch": lambda: np.broadcast_to(integers(3, 3), (2, 3, 3)),
    }
    a, b = made[left](), made[right]()
    assert not read(a)[1]
    np.testing.assert_array_equal(run(a, b), a @ b)


@pytest.mark.parametrize(
    "x",
    [
        integers(3, 4)[::-1], integers(3, 4)[:, ::-2], integers(6, 8)[::2, ::2],
        np.broadcast_to(integers(1, 4), (3, 4)), np.broadcast_to(integers(3, 1), (3, 4)),
        integers(3, 4).astype(">f4"), integers(8)[::2],
        np.frombuffer(bytes(49), np.uint8)[1:].view("f4").reshape(3, 4),
        np.lib.stride_tricks.as_strided(integers(6), (3, 4), (4, 4)),
    ],
)  # fmt: skip
def test_other_layouts_are_copied(x: np.ndarray):
    spec, copy = read(x)
    assert copy
    assert spec.strides is None


def test_equal_computations_share_a_program():
    flat = problem(integers(6, 4), integers(4, 5)).program
    assert problem(integers(2, 3, 4), integers(4, 5)).program == flat
    assert problem(integers(6, 1, 4), integers(4, 5)).program == flat
    assert problem(integers(1, 6, 4), integers(1, 4, 5)).program == flat
    assert len(list(loops(problem(integers(2, 3, 4, 5), integers(2, 3, 5, 6)).program.body))) == 4


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ((2, 3), (4, 5), r"\(2, 3\) and \(4, 5\)"),
        ((), (2, 2), "at least 1 dimension"),
        ((2, 2), (), "at least 1 dimension"),
        ((2, 3, 4), (3, 4, 5), "do not broadcast"),
        ((3,), (4,), "differ"),
    ],
)
def test_shapes_that_do_not_match(left: tuple[int, ...], right: tuple[int, ...], words: str):
    with pytest.raises(ArgumentError, match=words):
        problem(np.zeros(left, "f4"), np.zeros(right, "f4"))


@pytest.mark.parametrize("left", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "?"])
@pytest.mark.parametrize("right", ["f2", "f4", "i1", "i4", "u1", "?"])
def test_dtypes_as_numpy(left: str, right: str):
    a, b = integers(2, 3).astype(left), integers(3, 2).astype(right)
    want = a @ b
    assert from_numpy(want.dtype) == problem(a, b).dtype
    np.testing.assert_array_equal(run(a, b), want)


def test_small_integers_wrap_as_numpy():
    a, b = np.full((1, 3), 100, np.int8), np.full((3, 1), 2, np.int8)
    np.testing.assert_array_equal(run(a, b), a @ b)


def test_half_sums_in_single():
    a, b = np.ones((1, 4096), np.float16), np.ones((4096, 1), np.float16)
    assert run(a, b)[0, 0] == 4096


def test_types_without_a_place():
    with pytest.raises(DTypeError, match="complex64"):
        problem(np.zeros((2, 2), np.complex64), np.zeros((2, 2), "f4"))
    with pytest.raises(DTypeError, match="uint16"):
        problem(np.zeros((2, 2), np.uint16), np.zeros((2, 2), np.uint16))
