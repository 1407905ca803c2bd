"""Reductions over any axes as numpy, in float64; empty axes, NaN, long sums, half types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.values import FEW, LAYOUTS, array, dtype_of, floats, near, normal, sizes, wide
from tlm import ops
from tlm.errors import ArgumentError
from tlm.ops.settings import Random

PLAIN = {"schedule": "default"}


@st.composite
def reductions(draw: st.DrawFn) -> tuple[Any, Any, bool, str]:
    """An array, axes, keepdims and the dtype."""
    shape = draw(sizes(0, 4, 7))
    dtype = draw(floats)
    axes = [n for n in range(len(shape)) if draw(st.booleans())]
    signed = tuple([n if draw(st.booleans()) else n - len(shape) for n in axes])
    axis = draw(st.sampled_from([None, signed, *signed])) if signed else None
    return normal(shape, dtype, 5, draw(st.sampled_from(LAYOUTS))), axis, draw(st.booleans()), dtype


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "var", "std"])
@FEW
@given(reductions())
def test_over_any_axes(name: str, given_: tuple[Any, Any, bool, str]):
    x, axis, keep, dtype = given_
    got = getattr(ops, name)(x, axis=axis, keepdims=keep, **PLAIN)
    want = getattr(np, name)(wide(x), axis=axis, keepdims=keep)
    assert got.dtype == x.dtype
    near(got, want, dtype)


@pytest.mark.parametrize("name", ["argmax", "argmin", "any", "all"])
@FEW
@given(sizes(1, 4, 7), st.sampled_from(["f32", "f64", "f16", "i8", "i64", "u8", "bool"]), st.data())
def test_positions_and_truths(name: str, shape: tuple[int, ...], dtype: str, data: st.DataObject):
    x = array(shape, dtype, 2, data.draw(st.sampled_from(LAYOUTS)))
    axis = data.draw(st.sampled_from([None, *range(-len(shape), len(shape))]))
    keep = data.draw(st.booleans())
    got = getattr(ops, name)(x, axis=axis, keepdims=keep, **PLAIN)
    want = getattr(np, name)(x, axis=axis, keepdims=keep)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "u8", "bool"])
def test_integers(name: str, dtype: str):
    x = array((5, 33), dtype, low=-100)
    want = getattr(np, name)(x.astype("i8") if name in ("sum", "prod") else x, axis=1)
    got = getattr(ops, name)(x, axis=1, **PLAIN)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    if name == "sum":
        assert ops.sum(x, axis=1, dtype=np.float32, **PLAIN).dtype == np.float32
        np.testing.assert_allclose(ops.mean(x, **PLAIN), x.mean(), rtol=1e-12)


TRUTHS = (
    np.array([0.5, 0.25], "f4"), np.array([1, -1]), np.array([np.nan], "f4"), np.array([0.5, 0.0]),
    np.array([2**31, 2**31]), np.array([65536, 65536]), np.array([0, 0]),
)  # fmt: skip


@pytest.mark.parametrize("x", TRUTHS, ids=str)
def test_totals_as_bools_count_what_is_not_zero(x: np.ndarray):
    for schedule in ("default", "heuristic"):
        for name in ("sum", "prod"):
            want = getattr(np, name)(x, dtype=bool)
            assert getattr(ops, name)(x, dtype=bool, schedule=schedule) == want
        assert ops.matmul(x, x, dtype=bool, schedule=schedule) == (x != 0).any()
        assert ops.einsum("i,i", x, x, dtype=bool, schedule=schedule) == (x != 0).any()


@pytest.mark.parametrize("shape", [(0, 0), (0, 2, 0), (3, 0)])
def test_nothing_at_an_odd_address(shape: tuple[int, ...]):
    """Kind D: an array without elements may begin anywhere."""
    x = np.zeros(9, np.uint8)[1:1].view("f4").reshape(shape)
    for axis in (None, *range(len(shape))):
        np.testing.assert_array_equal(ops.sum(x, axis=axis, **PLAIN), x.sum(axis=axis))


def test_empty_axes():
    """Kind D: nothing to sum is 0, its mean NaN, and there is no largest of nothing."""
    x = np.zeros((3, 4, 0, 5), "f4")
    assert ops.sum(x, axis=1).shape == (3, 0, 5)
    np.testing.assert_array_equal(ops.sum(x, axis=2, **PLAIN), np.zeros((3, 4, 5)))
    np.testing.assert_array_equal(ops.prod(x, axis=(1, 2), **PLAIN), np.ones((3, 5)))
    assert np.isnan(ops.mean(x, axis=2, **PLAIN)).all()
    assert np.isnan(ops.var(x, axis=2, **PLAIN)).all()
    assert (ops.logsumexp(x, axis=2, **PLAIN) == -np.inf).all()
    assert not ops.any(x, axis=2, **PLAIN).any()
    assert ops.all(x, axis=2, **PLAIN).all()
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ArgumentError, match="over an empty axis: it has no identity"):
            getattr(ops, name)(np.zeros((3, 0), "f4"), axis=1)
        assert getattr(ops, name)(np.zeros((0, 3), "f4"), axis=1).shape == (0,)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_nan_at_every_position(dtype: str):
    """Kind G: a NaN comes through wherever it is; its index is the first one's."""
    x = np.ones((33, 33), dtype_of(dtype))
    np.fill_diagonal(x, np.nan)
    for schedule in ("default", "heuristic"):
        for name in ("max", "min"):
            assert np.isnan(wide(getattr(ops, name)(x, axis=1, schedule=schedule))).all()
        assert ops.argmax(x, axis=1, schedule=schedule).tolist() == list(range(33))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("schedule", ["default", "heuristic", "generate", *map(Random, range(4))], ids=str)
def test_long_sums_keep_their_digits(schedule: Any, threads: int):
    """Kind K: a million terms."""
    how = {"schedule": schedule, "threads": threads}
    assert abs(ops.sum(np.full(10**6, 0.1, "f4"), **how) - 100000) < 1
    x = normal((1024, 1024), seed=8) + np.float32(3)
    np.testing.assert_allclose(ops.mean(x, **how), wide(x).mean(), rtol=1e-5)
    np.testing.assert_allclose(ops.var(x, **how), wide(x).var(), rtol=1e-5)
    twice = np.full((1000, 2, 1000), 1 / 255, "f4")
    np.testing.assert_allclose(ops.sum(twice, axis=(0, 2), **how), 3921.57, atol=0.04)


def test_half_types_are_summed_in_f32():
    x = np.full(40000, 10, "f2")
    assert ops.mean(x, **PLAIN) == 10
    assert ops.sum(x[:5000], **PLAIN) == 50000
    assert ops.sum(x, dtype="f4", **PLAIN) == 400000


@FEW
@given(reductions())
def test_logsumexp(given_: tuple[Any, Any, bool, str]):
    x, axis, keep, dtype = given_
    got = ops.logsumexp(x, axis=axis, keepdims=keep, **PLAIN)
    near(got, np.log(np.exp(wide(x)).sum(axis=axis, keepdims=keep)), dtype)


@pytest.mark.parametrize("n", [*range(1, 41, 3), 1023, 1024, 1025])
def test_logsumexp_of_short_and_long_rows(n: int):
    """Kind G: an entry of -inf adds nothing, one of NaN takes its row."""
    x = normal((3, n), seed=n)
    x[0, n // 2] = -np.inf
    x[1, n - 1] = np.nan
    with np.errstate(divide="ignore"):
        want = np.log(np.exp(wide(x)).sum(1))
    got = ops.logsumexp(x, axis=1, **PLAIN)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert abs(ops.logsumexp(np.array([1000, 1000], "f4"), **PLAIN) - 1000.6932) < 1e-3
    assert ops.logsumexp(np.array([np.inf, 1], "f4"), **PLAIN) == np.inf


@pytest.mark.parametrize("schedule", ["default", "heuristic", "generate", Random(1)])
def test_logsumexp_of_nothing(schedule: Any):
    x = np.zeros((3, 0), "f4")
    for axis, keep in ((1, False), (1, True), (None, False), (0, False)):
        got = ops.logsumexp(x, axis, keepdims=keep, schedule=schedule)
        np.testing.assert_array_equal(got, np.full(x.sum(axis, keepdims=keep).shape, -np.inf, "f4"))


def test_wrong_calls():
    x = np.ones((2, 3), "f4")
    with pytest.raises(ArgumentError, match="axis 2 is out of range for 2 dimensions"):
        ops.sum(x, axis=2)
    with pytest.raises(ArgumentError, match="names an axis twice"):
        ops.max(x, axis=(0, -2))
    with pytest.raises(ArgumentError, match=r"axis is an integer, got 1\.5"):
        ops.mean(x, axis=1.5)
    with pytest.raises(ArgumentError, match="axis is an integer or None"):
        ops.argmax(x, axis=(0, 1))
    with pytest.raises(ArgumentError, match="a mean is a float"):
        ops.mean(x, dtype=np.int32)


@FEW
@given(sizes(1, 3, 40), st.sampled_from(["f32", "f64", "f16", "i32", "bool"]), st.data())
def test_cumsum(shape: tuple[int, ...], dtype: str, data: st.DataObject):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = array(shape, dtype, 3, data.draw(st.sampled_from(LAYOUTS)))
    got = ops.cumsum(x, axis=axis, **PLAIN)
    want = np.cumsum(x if dtype != "f16" else wide(x), axis=axis)
    assert got.dtype == np.cumsum(x, axis=axis).dtype
    np.testing.assert_array_equal(wide(got), wide(want))


def test_cumsum_of_a_million():
    x = np.full(10**6, 0.1, "f4")
    got = ops.cumsum(x, **PLAIN)
    np.testing.assert_allclose(got, np.cumsum(x.astype("f8")), rtol=1e-6)
