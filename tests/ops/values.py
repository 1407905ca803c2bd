"""Arrays for tests of operators: random shapes, dtypes and layouts, and how near a result must be."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tlm.ir.dtypes import DTYPES, to_numpy

FEW = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
"""Each example compiles kernels."""

FLOATS = ("f32", "f64", "bf16", "f16")
TOLERANCE = {"f32": 4e-6, "f64": 1e-13, "bf16": 2e-2, "f16": 2e-3}
"""Largest error as a share of the largest magnitude."""

floats = st.sampled_from(FLOATS)
seeds = st.integers(0, 2**31)


def sizes(low: int, high: int, most: int = 9) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of `low` to `high` dimensions with up to `most` elements each."""
    return st.lists(st.integers(1, most), min_size=low, max_size=high).map(tuple)


LAYOUTS = ("c", "f", "reversed", "strided", "offset", "broadcast")
layouts = st.sampled_from(LAYOUTS)


def array(shape: tuple[int, ...], dtype: str = "f32", seed: int = 0, layout: str = "c", low: int = -3) -> Any:
    """Small whole numbers (so that sums are exact in any order) in a layout of memory."""
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    high = 2 if kind.kind == "bool" else 4
    return laid(rng.integers(0 if kind.kind in ("uint", "bool") else low, high, shape), dtype, layout)


def normal(shape: tuple[int, ...], dtype: str = "f32", seed: int = 0, layout: str = "c") -> Any:
    """Normal variates."""
    return laid(np.random.default_rng(seed).standard_normal(shape), dtype, layout)


def laid(values: Any, dtype: str, layout: str) -> Any:
    """`values` as `dtype` in memory of a layout."""
    x = np.asarray(values).astype(to_numpy(DTYPES[dtype]))
    if not x.ndim:
        return x
    if layout == "f":
        return np.asfortranarray(x)
    if layout == "reversed":
        return np.ascontiguousarray(x[(slice(None, None, -1),) * x.ndim])[(slice(None, None, -1),) * x.ndim]
    if layout == "strided":
        room = np.zeros(tuple([2 * n + 1 for n in x.shape]), x.dtype)
        inner = room[(slice(1, None, 2),) * x.ndim]
        inner[...] = x
        return inner
    if layout == "offset":
        room = np.zeros(x.size + 3, x.dtype)
        room[3:] = x.reshape(-1)
        return room[3:].reshape(x.shape)
    if layout == "broadcast":
        return np.broadcast_to(x[:1], x.shape)
    return x


def wide(x: Any) -> Any:
    """The exact values of `x`, as float64."""
    return np.asarray(x).astype(np.float64)


def near(got: Any, want: Any, dtype: str = "f32", slack: float = 1.0) -> None:
    """`got` has the shape and, within the tolerance of a dtype, the values of `want`; NaN where that has."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    g, w = wide(got), wide(want)
    special = ~np.isfinite(w)
    np.testing.assert_array_equal(g[special], w[special])
    scale = 1 + np.abs(w[~special]).max(initial=0)
    np.testing.assert_allclose(g[~special], w[~special], rtol=0, atol=slack * TOLERANCE[dtype] * scale)


def dtype_of(name: str) -> Any:
    """The numpy dtype of a tlm dtype."""
    return to_numpy(DTYPES[name])
