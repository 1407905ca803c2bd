"""Elementwise operators as numpy: dtypes, broadcasting, numbers beside arrays, every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tlm
from tests.ops.values import FEW, LAYOUTS, array, floats, near, normal, sizes, wide
from tlm import ops
from tlm.errors import ArgumentError, DTypeError
from tlm.ir.interpret import interpret

PLAIN = {"schedule": "default"}
BINARY = (
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "less", "less_equal", "greater",
    "greater_equal", "equal", "not_equal", "floor_divide", "mod", "fmod", "logical_and", "logical_or",
    "logical_xor",
)  # fmt: skip
DTYPES = ("f32", "f64", "f16", "i8", "i16", "i32", "i64", "u8", "bool")


@pytest.mark.parametrize("name", BINARY)
@FEW
@given(st.sampled_from(DTYPES), st.sampled_from(DTYPES), st.sampled_from(LAYOUTS))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_binary_as_numpy(name: str, left: str, right: str, layout: str):
    x, y = array((4, 1, 7), left, 1, layout), array((3, 7), right, 2)
    if name in ("floor_divide", "mod", "fmod") and right != "bool":
        y = np.where(y == 0, np.ones_like(y), y)
    try:
        want = getattr(np, name)(x, y)
    except TypeError:
        with pytest.raises((ArgumentError, DTypeError)):
            getattr(ops, name)(x, y, **PLAIN)
        return
    if left == right == "bool" and name in ("floor_divide", "mod", "fmod"):
        with pytest.raises(ArgumentError, match="not for bools"):
            getattr(ops, name)(x, y, **PLAIN)
        return
    got = getattr(ops, name)(x, y, **PLAIN)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@FEW
@given(sizes(0, 4), sizes(0, 4), st.data())
def test_broadcasting(a: tuple[int, ...], b: tuple[int, ...], data: st.DataObject):
    n = min(len(a), len(b))
    tail = tuple([data.draw(st.sampled_from([s, 1])) for s in a[len(a) - n :]])
    b = (*b[: len(b) - n], *tail)
    x, y = array(a, layout=data.draw(st.sampled_from(LAYOUTS))), array(b, seed=1)
    np.testing.assert_array_equal(ops.add(x, y, **PLAIN), x + y)


def test_numbers_take_the_dtype_of_the_array():
    half = np.ones(3, "f2")
    assert ops.multiply(half, 2.0, **PLAIN).dtype == np.float16
    assert ops.add(np.ones(3, "i1"), 1, **PLAIN).dtype == np.int8
    assert ops.add(np.ones(3, "i1"), 1.5, **PLAIN).dtype == np.float64
    assert ops.divide(np.array([1, 2], "i4"), 2, **PLAIN).tolist() == [0.5, 1]
    assert ops.add(np.array([True]), True, **PLAIN).dtype == np.bool_
    assert ops.add(np.array([True]), 1, **PLAIN).dtype == np.int64
    assert ops.maximum(np.float32(1), 2, **PLAIN).dtype == np.float32
    assert ops.where(np.array([True, False]), 1, 2.5, **PLAIN).tolist() == [1, 2.5]
    with pytest.raises(ArgumentError, match="300 is out of range for int8"):
        ops.add(np.ones(3, "i1"), 300)
    x = np.arange(4, dtype="f4")
    for k in (1, 2, 3):  # the number is an operand, so the remembered kernel must see each value
        np.testing.assert_array_equal(ops.add(x, k, **PLAIN), x + k)


SMALL, LARGE = np.array([0, 1, 2], "i1"), np.array([0.0, 1, 2])


@pytest.mark.parametrize(
    "operands",
    [
        (SMALL.astype("i8"), np.ones(3, "f4"), 0.0), (LARGE, np.ones(3, "f4"), 0),
        (SMALL.astype("i4"), np.ones(3, "f2"), 1.5), (SMALL, 300, 0), (LARGE.astype("f4"), 1, 0),
        (LARGE.astype("f4"), 16777217, 0), (SMALL.astype("u1"), np.ones(3, "f4"), -1), (SMALL, -1, 2.5),
        (1e-9, np.ones(3, "f2"), np.zeros(3, "f2")), (300, np.ones(3, "i1"), 0), (0, 1, SMALL),
        (True, 2, 3),
    ],
    ids=str,
)  # fmt: skip
def test_a_condition_has_no_say_in_the_dtype(operands: tuple[Any, ...]):
    want = np.where(*operands)
    got = ops.where(*operands, **PLAIN)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_a_power_of_numpy_has_a_dtype():
    x = np.linspace(1, 2, 5, dtype="f4")
    for power in (np.float64(0.5), np.float64(2), np.float32(2), np.int64(3), 2.0, 2):
        assert ops.pow(x, power, **PLAIN).dtype == np.power(x, power).dtype


def test_bools_are_no_numbers():
    flags = np.array([True, False])
    with pytest.raises(ArgumentError, match="pow is not for bools"):
        ops.pow(flags, flags)
    for formula in (
        lambda v: v // v, lambda v: v % v, lambda v: v**v, lambda v: tlm.fmod(v, v), lambda v: v - v,
        lambda v: -v,
    ):  # fmt: skip
        made = tlm.operator(lambda x, f=formula: tlm.compute(x.shape, lambda i: f(x[i])))
        with pytest.raises(DTypeError, match="does not take bool"):
            made(flags)


@FEW
@given(st.sampled_from(["floor", "ceil", "round", "trunc", "abs", "negative", "sign", "square"]), st.data())
def test_exact_unary(name: str, data: st.DataObject):
    dtype = data.draw(st.sampled_from(["f32", "f64", "f16", "i8", "i32"]))
    kind = normal if dtype[0] == "f" else array
    x = kind((3, 19), dtype, 1, data.draw(st.sampled_from(LAYOUTS)))
    numpy_name = {"round": "rint"}.get(name, name)
    got = getattr(ops, name)(x, **PLAIN)
    np.testing.assert_array_equal(got, getattr(np, numpy_name)(x))
    assert got.dtype == x.dtype


@FEW
@given(floats, st.sampled_from(LAYOUTS))
def test_gelu_silu_and_their_like(dtype: str, layout: str):
    from scipy.special import erf, expit

    x = normal((5, 23), dtype, 2, layout)
    w = wide(x)
    inner = np.sqrt(2 / np.pi) * (w + 0.044715 * w**3)
    near(ops.gelu(x, **PLAIN), w * 0.5 * (1 + np.tanh(inner)), dtype)
    near(ops.gelu(x, approximate=False, **PLAIN), w * 0.5 * (1 + erf(w / np.sqrt(2))), dtype)
    near(ops.silu(x, **PLAIN), w * expit(w), dtype)
    near(ops.relu(x, **PLAIN), np.maximum(w, 0), dtype)


def test_where_clip_pow_astype():
    x = normal((4, 9))
    c = x > 0
    np.testing.assert_array_equal(ops.where(c, x, 0, **PLAIN), np.where(c, x, np.float32(0)))
    np.testing.assert_array_equal(ops.where(x, 1.0, x, **PLAIN), np.where(x, np.float32(1), x))
    for low, high in ((-0.5, 0.5), (None, 0.25), (0, None), (None, None)):
        want = x if low is high is None else np.clip(x, low, high)
        np.testing.assert_array_equal(ops.clip(x, low, high, **PLAIN), want)
    assert np.isnan(ops.clip(np.array([np.nan], "f4"), -1, 1, **PLAIN)[0])
    near(ops.pow(np.abs(x), 1.7, **PLAIN), np.abs(wide(x)) ** 1.7)
    for power in range(-2, 12):
        near(ops.pow(x + 3, power, **PLAIN), wide(x + 3) ** power, slack=10)
        if power >= 0:
            np.testing.assert_array_equal(ops.pow(x.astype("i4"), power, **PLAIN), x.astype("i4") ** power)
    assert ops.pow(np.array([np.nan], "f4"), 0, **PLAIN) == 1
    assert ops.pow(x.astype("i4"), 2.0, **PLAIN).dtype == np.float64
    near(ops.pow(np.abs(x), x, **PLAIN), np.abs(wide(x)) ** wide(x))
    with pytest.raises(ArgumentError, match="no negative powers"):
        ops.pow(x.astype("i4"), -1)
    ints = np.arange(-4, 5, dtype="i4")
    np.testing.assert_array_equal(ops.pow(ints, 3, **PLAIN), ints**3)
    got = ops.astype(np.array([1.9, -1.9, 300, -300, np.nan], "f4"), np.int8, **PLAIN)
    assert got.tolist() == [1, -1, 127, -128, 0]
    assert ops.astype(ints, bool, **PLAIN).tolist() == (ints != 0).tolist()


def test_integers_to_bf16_round_once():
    """As in the interpreter: just above a tie is above, through f32 or f64 it would fall on the tie."""
    ties = np.array([2**24 + 2**16, 2**62 + 2**54, 2**53, 2**62, 2**60 + 3 * 2**52, 5], "i8")
    x = np.concatenate([ties - 1, ties, ties + 1, -ties - 1, -ties, 1 - ties, [2**63 - 1, -(2**63)]])
    for given_ in (x, x[np.abs(x) < 2**31].astype("i4")):
        (want,) = interpret(ops.astype.program(given_, "bfloat16"), [given_])
        got = ops.astype(given_, "bfloat16", **PLAIN)
        assert got.tolist() == want.tolist()


def test_floor_and_truncating_division():
    """Kind J: // and % round down, fmod toward zero."""
    a, b = np.array([-7, 7, -7, 7], "i4"), np.array([2, -2, -2, 2], "i4")
    assert ops.floor_divide(a, b, **PLAIN).tolist() == [-4, -4, 3, 3]
    assert ops.mod(a, b, **PLAIN).tolist() == [1, -1, -1, 1]
    assert ops.fmod(a, b, **PLAIN).tolist() == [-1, 1, -1, 1]


def test_nan_and_algebra_that_is_false_for_infinity():
    """Kind G."""
    inf, nan = np.inf, np.nan
    x = np.array([inf, nan, 1], "f4")
    np.testing.assert_array_equal(ops.multiply(x, 0, **PLAIN), [nan, nan, 0])
    np.testing.assert_array_equal(ops.subtract(x, x, **PLAIN), [nan, nan, 0])
    two = np.array([0, 2], "f4")
    np.testing.assert_array_equal(ops.divide(two, two, **PLAIN), [nan, 1])
    np.testing.assert_array_equal(ops.maximum([nan, 1.0], [1.0, nan], **PLAIN), [nan, nan])
    np.testing.assert_array_equal(ops.relu(np.array([nan, -1, -inf], "f4"), **PLAIN), [nan, 0, 0])
    zeros = np.array([0.0, -0.0], "f4")
    assert np.signbit(ops.negative(zeros, **PLAIN)).tolist() == [True, False]
    assert np.signbit(ops.abs(zeros, **PLAIN)).tolist() == [False, False]
    np.testing.assert_array_equal(ops.isinf(x, **PLAIN), [True, False, False])
    np.testing.assert_array_equal(ops.isfinite(array((3,), "i32"), **PLAIN), [True] * 3)


def test_views_and_outputs():
    """Kind E: views are read as they are, results are C-contiguous, `out` has any layout and may overlap."""
    x = np.arange(12, dtype="f4").reshape(3, 4)
    view = x[::-1, ::-2]
    got = ops.add(ops.multiply(view, 2, **PLAIN), 1, **PLAIN)
    assert got.tolist() == [[23, 19], [15, 11], [7, 3]]
    for y in (np.asfortranarray(x), x.T, x[::2, 1::3]):
        got = ops.multiply(y, 2, **PLAIN)
        assert got.flags.c_contiguous
        np.testing.assert_array_equal(got, y * 2)
    room = np.zeros((3, 8), "f4")[:, ::2]
    assert ops.multiply(x, 2, out=room, **PLAIN) is room
    np.testing.assert_array_equal(room, x * 2)
    y = x.copy()
    assert ops.add(y[1:], y[:-1], out=y[1:], **PLAIN).tolist() == (x[1:] + x[:-1]).tolist()
    back = x.copy()
    ops.negative(back, out=back[::-1], **PLAIN)
    assert back.tolist() == (-x[::-1]).tolist()


def test_wrong_calls():
    x = np.ones((2, 3), "f4")
    with pytest.raises(ArgumentError, match=r"add of shapes \(2, 3\), \(2,\): they do not broadcast"):
        ops.add(x, np.ones(2, "f4"))
    with pytest.raises(TypeError, match="add"):
        ops.add(x)
    with pytest.raises(TypeError, match="unexpected keyword argument 'shedule'"):
        ops.exp(x, shedule="default")
    with pytest.raises(DTypeError, match="and does not take"):
        ops.bitwise_and(x, x)
    with pytest.raises(DTypeError, match="complex64 is not supported"):
        ops.exp(x.astype("c8"))
    with pytest.raises(ArgumentError, match=r"out= has shape \(3, 2\)"):
        ops.exp(x, out=np.zeros((3, 2), "f4"))
    with pytest.raises(ArgumentError, match="subtract is not for bools"):
        ops.subtract(x > 0, x > 1)
