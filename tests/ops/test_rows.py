"""softmax and the normalisations in float64: any axes, short rows, large means, half types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.values import FEW, LAYOUTS, array, dtype_of, floats, near, normal, sizes, wide
from tlm import ops
from tlm.errors import ArgumentError

PLAIN = {"schedule": "default"}


def exact_softmax(x: Any, axis: Any = -1) -> Any:
    e = np.exp(wide(x) - wide(x).max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def exact_norm(x: Any, axis: Any, eps: float = 1e-5) -> Any:
    x = wide(x)
    return (x - x.mean(axis=axis, keepdims=True)) / np.sqrt(x.var(axis=axis, keepdims=True) + eps)


@FEW
@given(sizes(1, 4), floats, st.data())
def test_softmax(shape: tuple[int, ...], dtype: str, data: st.DataObject):
    x = normal(shape, dtype, 4, data.draw(st.sampled_from(LAYOUTS)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    got = ops.softmax(x, axis=axis, **PLAIN)
    assert got.dtype == x.dtype
    near(got, exact_softmax(x, axis), dtype)
    near(ops.log_softmax(x, axis=axis, **PLAIN), np.log(exact_softmax(x, axis)), dtype)


@pytest.mark.parametrize("n", [*range(1, 41, 3), 1023, 1024, 1025])
def test_short_and_long_rows(n: int):
    """Kind G: an entry of -inf has no share, one of NaN takes its whole row."""
    x = normal((3, n), seed=n)
    if n > 1:
        x[0, n // 2] = -np.inf
    x[1, n - 1] = np.nan
    got = ops.log_softmax(x, **PLAIN)
    with np.errstate(divide="ignore"):
        want = np.log(exact_softmax(x))
    assert np.isnan(got[1]).all()
    np.testing.assert_allclose(got[[0, 2]], want[[0, 2]], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ops.softmax(x, **PLAIN)[[0, 2]], np.exp(want)[[0, 2]], rtol=1e-5, atol=1e-7)


def test_softmax_does_not_overflow():
    np.testing.assert_allclose(ops.softmax(np.array([1e4, 1e4, -1e4], "f4"), **PLAIN), [0.5, 0.5, 0])
    assert ops.softmax(np.zeros(0, "f4")).shape == (0,)
    assert ops.softmax(np.zeros((0, 3), "f4")).shape == (0, 3)
    assert ops.softmax(array((2, 3), "i32"), **PLAIN).dtype == np.float64


@FEW
@given(sizes(1, 4), floats, st.data())
def test_layer_norm_and_rms_norm(shape: tuple[int, ...], dtype: str, data: st.DataObject):
    x = normal(shape, dtype, 6, data.draw(st.sampled_from(LAYOUTS)))
    count = data.draw(st.integers(1, len(shape)))
    axis: Any = tuple(range(len(shape) - count, len(shape)))
    scale = normal(shape[-count:], dtype, 7)
    bias = data.draw(st.sampled_from([None, normal(shape[-count:], dtype, 8)]))
    got = ops.layer_norm(x, scale, bias, axis=axis, eps=1e-3, **PLAIN)
    assert got.dtype == x.dtype
    near(got, exact_norm(x, axis, 1e-3) * wide(scale) + (0 if bias is None else wide(bias)), dtype)
    root = np.sqrt((wide(x) ** 2).mean(axis=axis, keepdims=True) + 1e-3)
    near(ops.rms_norm(x, scale, axis=axis, eps=1e-3, **PLAIN), wide(x) / root * wide(scale), dtype)


@FEW
@given(sizes(2, 4), floats, st.data())
def test_batch_norm(shape: tuple[int, ...], dtype: str, data: st.DataObject):
    x = normal(shape, dtype, 6, data.draw(st.sampled_from(LAYOUTS)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    mean, var, scale, bias = [normal((shape[axis],), dtype, n) for n in range(4)]
    var = np.abs(var)
    spread = tuple([-1 if n == axis % len(shape) else 1 for n in range(len(shape))])
    m, v, s, b = [wide(a).reshape(spread) for a in (mean, var, scale, bias)]
    got = ops.batch_norm(x, mean, var, scale, bias, axis=axis, eps=1e-2, **PLAIN)
    near(got, (wide(x) - m) / np.sqrt(v + 1e-2) * s + b, dtype)
    near(ops.batch_norm(x, mean, var, axis=axis, eps=1e-2, **PLAIN), (wide(x) - m) / np.sqrt(v + 1e-2), dtype)


def test_a_large_mean_costs_no_digits():
    """Kind K: the variance is that of the differences to the mean."""
    got = ops.layer_norm(np.array([[10000, 10001, 10002, 10003]], "f4"), **PLAIN)
    np.testing.assert_allclose(got[0], [-1.3416, -0.4472, 0.4472, 1.3416], atol=2e-3)
    x = (1449 + np.random.default_rng(0).normal(size=(8, 16)) * 1e-3).astype("f4")
    got = ops.layer_norm(x, **PLAIN)
    # Half a digit of 1449 in f32 is a fiftieth of the spread.
    np.testing.assert_allclose(got, exact_norm(x, -1), atol=0.05)
    same = ops.layer_norm(np.full((3, 3), 100, "f4"), **PLAIN)
    np.testing.assert_allclose(same, 0, atol=1e-3)
    assert (ops.var(np.full((5, 7), 1e4, "f4"), axis=1, **PLAIN) >= 0).all()


def test_half_precision_does_not_overflow():
    """Kind K: squares above the largest half."""
    got = ops.rms_norm(np.full((1, 64), 8000, "f2"), eps=1e-6, **PLAIN)
    np.testing.assert_allclose(wide(got), 1, atol=1e-3)
    turns = np.where(np.arange(64) % 2, 300, -300).astype("f2")[None]
    np.testing.assert_allclose(wide(ops.layer_norm(turns, **PLAIN)), wide(turns) / 300, atol=1e-3)


def test_rows_of_nothing():
    assert ops.layer_norm(np.zeros((0, 4), "f4")).shape == (0, 4)
    assert ops.layer_norm(np.zeros((4, 0), "f4")).shape == (4, 0)
    assert ops.layer_norm(array((2, 3), "i8"), **PLAIN).dtype == dtype_of("f64")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: ops.softmax(x, axis=2), "softmax: axis 2 is out of range for 2 dimensions"),
        (lambda x: ops.layer_norm(x, np.ones(4, "f4")), r"takes a scale of shape \(3,\), got \(4,\)"),
        (lambda x: ops.layer_norm(x, None, np.ones((2, 3), "f4")), r"takes a bias of shape \(3,\)"),
        (lambda x: ops.rms_norm(x, eps=-1), "eps is a number of at least 0, got -1"),
        (lambda x: ops.batch_norm(x, np.ones(2, "f4"), np.ones(3, "f4")), r"takes a mean of shape \(3,\)"),
    ],
)
def test_wrong_calls(make: Any, words: str):
    with pytest.raises(ArgumentError, match=words):
        make(np.ones((2, 3), "f4"))
