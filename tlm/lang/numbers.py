"""Numbers as numbers: smooth columns of log2(x), and what divides x."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .vocabulary import NUMBER

_HATS = 10  # at log2(x) = 0, 2, 4, ... 18: piecewise linear, neighbours overlap, the ends saturate
_ZEROS = 6  # trailing zero bits that matter: beyond 64 everything is aligned


def log(values: ArrayLike) -> NDArray[np.float32]:
    """log2(1 + x) / 8 of x >= 0, f32: 0 for 0, about 1 for a few hundred, 3 for millions."""
    return (np.log2(1.0 + np.asarray(values, np.float64)) / 8.0).astype(np.float32)


def share(values: ArrayLike) -> NDArray[np.float32]:
    """x / (1 + x) of x >= 0, f32: tells small quantities apart, which a logarithm of 1 + x does not."""
    x = np.asarray(values, np.float64)
    return (x / (1.0 + x)).astype(np.float32)


def columns(values: ArrayLike) -> NDArray[np.float32]:
    """The columns of quantities x >= 0: shape (n,) to (n, NUMBER), f32.

    [a logarithm, ten hat functions of it, trailing zero bits / 6, (x mod 16) / 16, odd]
    """
    x = np.asarray(values, np.float64).reshape(-1)
    out = np.zeros((len(x), NUMBER), np.float32)
    out[:, 0] = log(x)
    place = np.clip(np.log2(np.maximum(x, 1.0)) / 2.0, 0, _HATS - 1)
    out[:, 1 : 1 + _HATS] = np.maximum(0.0, 1.0 - np.abs(place[:, None] - np.arange(_HATS)))
    whole = np.minimum(x, 2.0**52).astype(np.int64)
    zeros = sum((whole % (1 << bit) == 0).astype(np.float64) for bit in range(1, _ZEROS + 1))
    out[:, 1 + _HATS] = zeros / _ZEROS
    out[:, 2 + _HATS] = whole % 16 / 16.0
    out[:, 3 + _HATS] = whole % 2
    return out
