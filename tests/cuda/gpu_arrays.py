"""Small arrays of whole numbers for calls on a stand-in for a GPU, and the check of what comes back."""

from __future__ import annotations

import numpy as np

HOW = {"schedule": "heuristic"}


def whole(*shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def exact(got, want):
    np.testing.assert_array_equal(got.host.astype("f8"), np.asarray(want).astype("f8"))
    assert got.host.dtype == np.asarray(want).dtype
    assert got.host.flags.c_contiguous


A, B = whole(24, 20), whole(20, 16, seed=1)
