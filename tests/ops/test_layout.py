"""Operators that move elements, bit for bit as numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.values import FEW, LAYOUTS, array, sizes
from tlm import ops
from tlm.errors import ArgumentError

PLAIN = {"schedule": "default"}
DTYPES = st.sampled_from(["f32", "f64", "bf16", "f16", "i8", "i64", "bool"])


@st.composite
def arrays(draw: st.DrawFn, low: int = 1, high: int = 4) -> Any:
    return array(
        draw(sizes(low, high)), draw(DTYPES), draw(st.integers(0, 99)), draw(st.sampled_from(LAYOUTS))
    )


def same(got: Any, want: Any) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert np.asarray(got).flags.c_contiguous
    np.testing.assert_array_equal(got, want)


@FEW
@given(arrays(0), st.data())
def test_transpose(x: Any, data: st.DataObject):
    axes = data.draw(st.permutations(range(x.ndim)))
    signed = [a - x.ndim if data.draw(st.booleans()) else a for a in axes]
    same(ops.transpose(x, signed, **PLAIN), x.transpose(axes))
    same(ops.transpose(x, **PLAIN), x.T)


@FEW
@given(arrays(), st.data())
def test_concatenate(x: Any, data: st.DataObject):
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    parts = []
    for extent in data.draw(st.lists(st.integers(0, 5), max_size=3)):
        shape = list(x.shape)
        shape[axis] = extent
        parts.append(array(tuple(shape), "f32"))
    same(ops.concatenate([x, *parts], axis=axis, **PLAIN), np.concatenate([x, *parts], axis=axis))


@pytest.mark.parametrize("count", [63, 64, 65, 130, 500])
def test_concatenate_many(count: int):
    """Of different lengths, some of none."""
    parts = [np.arange(2 * (n % 3), dtype="f4").reshape(2, -1) + n for n in range(count)]
    for schedule in ("default", "heuristic"):
        same(ops.concatenate(parts, axis=1, schedule=schedule), np.concatenate(parts, axis=1))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
@FEW
@given(x=arrays(1, 3), data=st.data())
def test_pad(mode: str, x: Any, data: st.DataObject):
    widths = [(data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))) for _ in x.shape]
    same(ops.pad(x, widths, mode, **PLAIN), np.pad(x, widths, mode))


def test_pad_widths_as_numpy():
    x = array((2, 3))
    for width in (1, (1, 2), ((1, 2),), ((1, 2), (0, 1)), [[1, 1], [2, 2]]):
        same(ops.pad(x, width, constant_values=7, **PLAIN), np.pad(x, width, constant_values=7))
    with pytest.raises(ArgumentError, match="pad_width is an integer, a pair"):
        ops.pad(x, (1, 2, 3))
    with pytest.raises(ArgumentError, match="at least 0"):
        ops.pad(x, -1)
    for wrong in ("x", True, 1.5, ((1, 2), ("x", 1)), ((True, 1),)):
        with pytest.raises(
            ArgumentError, match=r"pad: pad_width is integers of at least 0, got ('x'|True|1\.5)"
        ):
            ops.pad(x, wrong)
    with pytest.raises(ArgumentError, match="mode is 'constant'"):
        ops.pad(x, 1, "mirror")
    with pytest.raises(ArgumentError, match="only be padded with a constant"):
        ops.pad(np.zeros((0, 3), "f4"), 1, "edge")
    np.testing.assert_array_equal(
        ops.pad(np.zeros((0, 2), "f4"), 1, constant_values=2, **PLAIN), np.full((2, 4), 2)
    )


@FEW
@given(arrays(), st.data())
def test_take(x: Any, data: st.DataObject):
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    n = x.shape[axis]
    kind = data.draw(st.sampled_from(["i1", "i4", "i8"]))
    at = np.array(data.draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=6))).astype(kind)
    shape = data.draw(st.sampled_from([at.shape, (1, *at.shape), (*at.shape, 1)]))
    same(ops.take(x, at.reshape(shape), axis=axis, **PLAIN), np.take(x, at.reshape(shape), axis=axis))
    for mode in ("wrap", "clip"):
        far = at.reshape(shape).astype("i8") * 7
        same(ops.take(x, far, axis=axis, mode=mode, **PLAIN), np.take(x, far, axis=axis, mode=mode))


def test_take_looks_at_every_call():
    x, at = array((5, 3)), np.array([0, 4])
    same(ops.take(x, at, axis=0, **PLAIN), x[[0, 4]])
    same(ops.take(x, 2, axis=0, **PLAIN), x[2])
    at[1] = 5
    with pytest.raises(ArgumentError, match="index 5 is out of range for an axis of 5 elements"):
        ops.take(x, at, axis=0, **PLAIN)
    with pytest.raises(ArgumentError, match="index -6 is out of range"):
        ops.take(x, np.array([-6]), axis=0, **PLAIN)
    with pytest.raises(ArgumentError, match="indices are integers, got f32"):
        ops.take(x, np.ones(2, "f4"), axis=0)
    with pytest.raises(ArgumentError, match="needs axis="):
        ops.take(x, at)
    with pytest.raises(ArgumentError, match="empty axis"):
        ops.take(np.zeros((0, 3), "f4"), np.array([0]), axis=0, mode="clip")
    same(ops.take(np.zeros((0, 3), "f4"), np.zeros(0, "i8"), axis=0), np.zeros((0, 3), "f4"))


@FEW
@given(arrays(), st.data())
def test_flip_and_broadcast(x: Any, data: st.DataObject):
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    same(ops.flip(x, axis, **PLAIN), np.flip(x, axis))
    same(ops.broadcast_to(x, (2, *x.shape), **PLAIN), np.broadcast_to(x, (2, *x.shape)))


def test_large_results_start_on_a_cache_line():
    """A transpose writes a few rows at a time: vectors that lie on two lines take both of them twice."""
    for _ in range(4):
        x = np.arange(600 * 512, dtype=np.float32).reshape(600, 512)
        y = ops.transpose(x, schedule="default")
        assert y.ctypes.data % 64 == 0
        assert y.flags.writeable
        np.testing.assert_array_equal(y, x.T)


def test_wrong_calls():
    x = np.ones((2, 3), "f4")
    with pytest.raises(ArgumentError, match=r"axes \(0, 0\) are not a permutation"):
        ops.transpose(x, (0, 0))
    with pytest.raises(ArgumentError, match="axis 2 is out of range"):
        ops.transpose(x, (0, 2))
    with pytest.raises(ArgumentError, match="differ in another axis"):
        ops.concatenate([x, np.ones((2, 4), "f4")])
    with pytest.raises(ArgumentError, match="at least one array"):
        ops.concatenate([])
    with pytest.raises(ArgumentError, match="arrays is a sequence of arrays"):
        ops.concatenate(x)
    with pytest.raises(ArgumentError, match="do not broadcast"):
        ops.broadcast_to(x, (3, 2))
