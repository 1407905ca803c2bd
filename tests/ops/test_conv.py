"""Convolutions of every rank, layout, padding, dilation and grouping against sums over windows in numpy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.values import FEW, LAYOUTS, array, dtype_of, wide
from tlm import ops
from tlm.errors import ArgumentError

PLAIN = {"schedule": "default"}


def pads(size: int, taps: int, stride: int, dilation: int, padding: str) -> tuple[int, int]:
    width = (taps - 1) * dilation + 1
    total = max(0, (-(-size // stride) - 1) * stride + width - size)
    return (total // 2, total - total // 2) if padding == "SAME" else (0, 0)


def reference(
    x: Any,
    w: Any,
    stride: tuple[int, ...],
    pad: list[tuple[int, int]],
    dilation: tuple[int, ...],
    groups: int,
) -> Any:
    """x [N, ..., C], w [..., C / groups, O] in float64: for each tap, one product of all its places."""
    x, w = wide(x), wide(w)
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), *pad, (0, 0)])
    out = [(x.shape[1 + n] - (w.shape[n] - 1) * dilation[n] - 1) // stride[n] + 1 for n in range(rank)]
    each, deep = w.shape[-1] // groups, w.shape[-2]
    y = np.zeros((x.shape[0], *out, w.shape[-1]))
    for tap in product(*[range(n) for n in w.shape[:rank]]):
        cut = tuple(
            [
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, dilation, out, stride, strict=True)
            ]
        )
        seen = x[(slice(None), *cut)]
        for g in range(groups):
            part = seen[..., g * deep : (g + 1) * deep] @ w[tap][:, g * each : (g + 1) * each]
            y[..., g * each : (g + 1) * each] += part
    return y


@FEW
@given(st.data())
def test_any_convolution(data: st.DataObject):
    draw = data.draw
    rank = draw(st.integers(1, 3))
    axes = st.tuples(*[st.integers(1, 3)] * rank)
    taps, stride, dilation = draw(axes), draw(axes), draw(axes)
    least = [(t - 1) * d + 1 for t, d in zip(taps, dilation, strict=True)]
    size = tuple([draw(st.integers(n, n + 5)) for n in least])
    groups, deep, each = draw(st.sampled_from([(1, 3, 4), (2, 2, 3), (4, 1, 1), (3, 1, 2), (1, 1, 5)]))
    padding = draw(st.sampled_from(["SAME", "VALID", "given"]))
    dtype = draw(st.sampled_from(["f32", "f64", "f16", "bf16"]))
    x = array((draw(st.integers(1, 2)), *size, groups * deep), dtype, 1, draw(st.sampled_from(LAYOUTS)))
    w = array((*taps, deep, groups * each), dtype, 2)
    if padding == "given":
        pad = [draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in range(rank)]
    else:
        pad = [pads(n, t, s, d, padding) for n, t, s, d in zip(size, taps, stride, dilation, strict=True)]
    conv = (ops.conv1d, ops.conv2d, ops.conv3d)[rank - 1]
    got = conv(
        x, w, stride=stride, padding=pad if padding == "given" else padding, dilation=dilation, groups=groups,
        **PLAIN,
    )  # fmt: skip
    want = reference(x, w, stride, pad, dilation, groups)
    assert got.dtype == dtype_of(dtype)
    np.testing.assert_array_equal(got, want.astype(got.dtype))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_channels_first(groups: int, bias: bool):
    x, w = array((2, 6, 7, 8)), array((12, 6 // groups, 3, 3), seed=1)
    b = array((12,), seed=2) if bias else None
    got = ops.conv2d(x, w, b, padding=1, groups=groups, layout="NCHW", activation="relu", **PLAIN)
    want = reference(
        x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), (1, 1), [(1, 1)] * 2, (1, 1), groups
    ) + (b if bias else 0)
    np.testing.assert_array_equal(got, np.maximum(want, 0).transpose(0, 3, 1, 2))


def test_same_padding_is_not_symmetric():
    """Kind L: the odd element of padding is at the end."""
    x, w = np.ones((1, 8, 8, 1), "f4"), np.ones((3, 3, 1, 1), "f4")
    got = ops.conv2d(x, w, stride=2, padding="SAME", **PLAIN)[0, :, :, 0]
    assert got.tolist() == [[9, 9, 9, 6]] * 3 + [[6, 6, 6, 4]]
    deep = ops.conv2d(np.repeat(x, 5, 3), np.repeat(w, 5, 3), stride=2, padding="SAME", groups=5, **PLAIN)
    np.testing.assert_array_equal(deep[0], np.repeat(got[:, :, None], 5, 2))
    lower = ops.conv2d(x, w, stride=2, padding="SAME_LOWER", **PLAIN)[0, :, :, 0]
    assert lower.tolist() == got[::-1, ::-1].tolist()
    wide_x, five = np.ones((1, 16, 16, 1), "f4"), np.ones((5, 5, 1, 1), "f4")
    got = ops.conv2d(wide_x, five, stride=2, padding="SAME", **PLAIN)[0, :, :, 0]
    assert got[0].tolist() == [16, 20, 20, 20, 20, 20, 20, 16][:1] + got[0].tolist()[1:]
    np.testing.assert_array_equal(got, reference(wide_x, five, (2, 2), [(1, 2)] * 2, (1, 1), 1)[0, :, :, 0])


def test_groups_and_holes():
    """Kind L: grouped channels, and zeros between the elements of the input."""
    x, w = np.array([1, 2], "f4").reshape(1, 2, 1, 1), np.array([1, 2, 3, 4], "f4").reshape(4, 1, 1, 1)
    got = ops.conv2d(x, w, groups=2, layout="NCHW", **PLAIN)
    assert got.reshape(-1).tolist() == [1, 2, 6, 8]
    ones = np.ones((1, 3, 3, 1), "f4")
    got = ops.conv2d(ones, np.ones((3, 3, 1, 1), "f4"), padding=1, input_dilation=2, **PLAIN)[0, :, :, 0]
    assert got.tolist() == [[1, 2, 1, 2, 1], [2, 4, 2, 4, 2]] * 2 + [[1, 2, 1, 2, 1]]


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_small_integers_sum_as_int32(dtype: str):
    x, w = array((1, 5, 5, 40), dtype, low=-128) * 30, array((3, 3, 40, 3), dtype, 1) * 30
    got = ops.conv2d(x, w, **PLAIN)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, reference(x, w, (1, 1), [(0, 0)] * 2, (1, 1), 1))
    assert ops.conv2d(x, w, dtype=np.float32, **PLAIN).dtype == np.float32


def test_odd_sizes_give_the_same_bits_every_time():
    """Kind L: no uninitialised memory gets in."""
    for width in (46, 80):
        x, w = array((1, 4, 46, width)), array((5, 4, 3, 3), seed=1)
        first = ops.conv2d(x, w, layout="NCHW", padding=1, **PLAIN)
        for _ in range(4):
            np.testing.assert_array_equal(ops.conv2d(x, w, layout="NCHW", padding=1, **PLAIN), first)
        want = reference(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), (1, 1), [(1, 1)] * 2, (1, 1), 1)
        np.testing.assert_array_equal(first, want.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((1, 2), (0, 3))])
@pytest.mark.parametrize("stride", [1, 2, (3, 2)])
def test_transposed_convolution_as_jax(stride: Any, padding: Any):
    from jax import lax

    x, w = array((2, 4, 5, 3)), array((3, 2, 3, 4), seed=1)
    steps = stride if isinstance(stride, tuple) else (stride, stride)
    want = lax.conv_transpose(x, w, steps, padding)
    np.testing.assert_array_equal(ops.conv_transpose(x, w, stride=stride, padding=padding, **PLAIN), want)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x, w: ops.conv2d(x[0], w), "takes x and w of 4 dimensions"),
        (lambda x, w: ops.conv2d(x, w, groups=2), "2 groups: w has 3 input channels a group where x has 3"),
        (lambda x, w: ops.conv2d(x, w, groups=0), "groups is an integer of at least 1"),
        (lambda x, w: ops.conv2d(x, w, np.ones(3, "f4")), r"takes a bias of shape \(4,\), got \(3,\)"),
        (lambda x, w: ops.conv2d(x, w, stride=0), "stride is an integer of at least 1, or 2 of them; got 0"),
        (lambda x, w: ops.conv2d(x, w, stride=(1, 2, 3)), "stride is"),
        (lambda x, w: ops.conv2d(x, w, padding="same!"), "padding is 'SAME'"),
        (lambda x, w: ops.conv2d(x, w, padding=-1), "padding is 'SAME', 'VALID', an integer of at least 0"),
        (lambda x, w: ops.conv2d(x, w, dilation=9), "a window of 3 elements .* is wider than an axis of 5"),
        (lambda x, w: ops.conv2d(x, w, layout="NHCX"), "has the letters NCHW in any order"),
        (lambda x, w: ops.conv2d(x, w, activation="swish"), "unknown activation 'swish'"),
        (lambda x, w: ops.conv2d(x.astype("i4"), w.astype("i4"), activation="gelu"), "is for floats"),
        (lambda x, w: ops.conv_transpose(x[0, 0], w), "takes x of 3 to 5 dimensions"),
    ],
)  # fmt: skip
def test_wrong_calls(make: Any, words: str):
    with pytest.raises(ArgumentError, match=words):
        make(np.ones((1, 5, 5, 3), "f4"), np.ones((3, 3, 3, 4), "f4"))


def test_nothing_in_nothing_out():
    w = np.ones((3, 3, 3, 4), "f4")
    assert ops.conv2d(np.ones((0, 5, 5, 3), "f4"), w).shape == (0, 3, 3, 4)
    nothing = np.ones((1, 0, 8, 3), "f4")
    for holes, columns in ((1, 10), (2, 17)):
        found = ops.conv2d(
            nothing, np.ones((3, 3, 3, 4), "f4"), np.ones(4, "f4"), padding=2, input_dilation=holes, **PLAIN
        )
        np.testing.assert_array_equal(found, np.ones((1, 2, columns, 4), "f4"))
    empty = ops.conv2d(np.ones((2, 5, 5, 0), "f4"), w[:, :, :0], np.ones(4, "f4"), **PLAIN)
    np.testing.assert_array_equal(empty, np.ones((2, 3, 3, 4), "f4"))


def test_weights_changed_in_place_count():
    """Kind F."""
    x, w = array((1, 6, 6, 3)), array((3, 3, 3, 4), seed=1)
    first = ops.conv2d(x, w, **PLAIN)
    w *= 2
    np.testing.assert_array_equal(ops.conv2d(x, w, **PLAIN), 2 * first)
