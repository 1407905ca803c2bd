"""Pools against numpy's sliding windows in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.values import FEW, LAYOUTS, array, near, normal, wide
from tlm import ops
from tlm.errors import ArgumentError

PLAIN = {"schedule": "default"}


def windows(x: Any, window: tuple[int, int], stride: tuple[int, int], pad: Any, fill: float) -> Any:
    """All windows of x [N, H, W, C]: [N, H', W', C, taps, taps]."""
    padded = np.pad(wide(x), [(0, 0), *pad, (0, 0)], constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(padded, window, (1, 2))
    return seen[:, :: stride[0], :: stride[1]]


@FEW
@given(st.data())
def test_any_pool(data: st.DataObject):
    two = st.tuples(st.integers(1, 3), st.integers(1, 3))
    window, stride = data.draw(two), data.draw(two)
    pad = [(data.draw(st.integers(0, w - 1)), data.draw(st.integers(0, w - 1))) for w in window]
    size = data.draw(st.tuples(st.integers(3, 9), st.integers(3, 9)))
    dtype = data.draw(st.sampled_from(["f32", "f64", "f16", "bf16"]))
    x = normal((2, *size, data.draw(st.integers(1, 5))), dtype, 3, data.draw(st.sampled_from(LAYOUTS)))
    how = dict(stride=stride, padding=pad, **PLAIN)
    best = windows(x, window, stride, pad, -np.inf).max((-1, -2))
    np.testing.assert_array_equal(wide(ops.max_pool2d(x, window, **how)), best)
    near(ops.avg_pool2d(x, window, **how), windows(x, window, stride, pad, 0).mean((-1, -2)), dtype)
    inside = windows(np.ones_like(x), window, stride, pad, 0).sum((-1, -2))
    mean = windows(x, window, stride, pad, 0).sum((-1, -2)) / inside
    near(ops.avg_pool2d(x, window, count_include_pad=False, **how), mean, dtype)


def test_channels_first_and_dilation():
    x = array((2, 3, 8, 9))
    got = ops.max_pool2d(x, 2, stride=1, dilation=(2, 3), layout="NCHW", **PLAIN)
    want = np.maximum.reduce([x[:, :, a : a + 6, b : b + 6] for a in (0, 2) for b in (0, 3)])
    np.testing.assert_array_equal(got, want)
    same = ops.avg_pool2d(x, 2, layout="NCHW", **PLAIN)
    np.testing.assert_allclose(same, x[:, :, :, :8].reshape(2, 3, 4, 2, 4, 2).mean((3, 5)), rtol=1e-6)


@pytest.mark.parametrize(
    ("window", "stride", "padding"), [(2, 1, 3), (2, 3, 2), ((1, 3), 2, (4, 0)), (3, 1, 2)]
)
def test_windows_wholly_in_the_padding_are_of_nothing(window: Any, stride: int, padding: Any):
    """Their mean without the padding is NaN, their maximum -inf; the others are as ever."""
    x = np.arange(16, dtype="f4").reshape(1, 4, 4, 1) - 5
    two = window if isinstance(window, tuple) else (window, window)
    ends = padding if isinstance(padding, tuple) else (padding, padding)
    pad, steps, how = [(n, n) for n in ends], (stride, stride), dict(stride=stride, padding=padding, **PLAIN)
    inside = windows(np.ones_like(x), two, steps, pad, 0).sum((-1, -2))
    with np.errstate(invalid="ignore"):
        mean = windows(x, two, steps, pad, 0).sum((-1, -2)) / inside
    assert (inside == 0).any() == (window != 3)
    got = ops.avg_pool2d(x, window, count_include_pad=False, **how)
    np.testing.assert_array_equal(np.isnan(got), inside == 0)
    np.testing.assert_allclose(got, mean, rtol=1e-6)
    best = windows(x, two, steps, pad, -np.inf).max((-1, -2))
    np.testing.assert_array_equal(ops.max_pool2d(x, window, **how), best)


@pytest.mark.parametrize("window", [7, 41, 49])
def test_the_mean_of_ones_is_one(window: int):
    assert ops.avg_pool2d(np.ones((1, window, window, 1)), window, schedule="default") == 1.0


def test_nan_and_infinity():
    x = np.full((1, 4, 4, 1), -np.inf, "f4")
    x[0, 1, 1] = np.nan
    got = ops.max_pool2d(x, 2, **PLAIN)[0, :, :, 0]
    assert np.isnan(got[0, 0])
    assert (got.reshape(-1)[1:] == -np.inf).all()


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "i64", "bool"])
def test_integers(dtype: str):
    x = array((1, 6, 6, 3), dtype, low=-100)
    np.testing.assert_array_equal(
        ops.max_pool2d(x, 3, padding=1, stride=2, **PLAIN),
        windows(x, (3, 3), (2, 2), [(1, 1)] * 2, -200).max((-1, -2)),
    )
    got = ops.avg_pool2d(x, 2, **PLAIN)
    np.testing.assert_allclose(got, windows(x, (2, 2), (2, 2), [(0, 0)] * 2, 0).mean((-1, -2)), rtol=1e-3)


def test_wrong_calls():
    x = np.ones((1, 4, 4, 2), "f4")
    with pytest.raises(ArgumentError, match="takes x of 4 dimensions"):
        ops.max_pool2d(x[0], 2)
    with pytest.raises(ArgumentError, match="window is an integer of at least 1"):
        ops.max_pool2d(x, (0, 2))
    with pytest.raises(ArgumentError, match="wider than an axis of 4"):
        ops.avg_pool2d(x, 5)
    with pytest.raises(TypeError, match="max_pool2d"):
        ops.max_pool2d(x)
