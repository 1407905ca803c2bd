"""Small products in one thread."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ALONE, ALONE_VECTOR = 1 << 18, 9 << 10
"""Multiply-adds below which OpenBLAS computes a product in the calling thread: of matrices, and of a vector
with a matrix. The threads that it would start spin for tens of milliseconds afterwards, on the CPU that the
generated kernel needs."""


def alone(x: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
    """x (..., K) times w (K, N), by blocks of columns so small that one thread computes each, as long as a
    column is no more than that."""
    rows = x.reshape(-1, x.shape[-1])
    most = ALONE_VECTOR - 1 if len(rows) == 1 else ALONE
    columns = max(1, most // max(1, rows.size))
    out = np.empty((len(rows), w.shape[1]), w.dtype)
    for at in range(0, w.shape[1], columns):
        np.matmul(rows, w[:, at : at + columns], out=out[:, at : at + columns])
    return out.reshape(*x.shape[:-1], w.shape[1])
