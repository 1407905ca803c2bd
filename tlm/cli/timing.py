"""Paired timing: two callables in turn, so that whatever slows the machine slows both."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Paired:
    """Median seconds of one call of each, and the median of the ratios theirs / ours of the pairs."""

    ours: float
    theirs: float
    ratio: float


def paired(
    ours: Callable[[], Any], theirs: Callable[[], Any], *, seconds: float = 0.5, least: int = 5
) -> Paired:
    """Time both A B A B ... for about `seconds`, at least `least` pairs, each long enough to be read."""
    for f in (ours, theirs):
        f()
    once = max(_seconds(ours, 1), _seconds(theirs, 1), 1e-7)
    inner = max(1, int(2e-3 / once))
    pairs: list[tuple[float, float]] = []
    enabled = gc.isenabled()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(pairs) < least:
            pairs.append((_seconds(ours, inner), _seconds(theirs, inner)))
    finally:
        if enabled:
            gc.enable()
    return Paired(
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(b / a for a, b in pairs),
    )


def _seconds(f: Callable[[], Any], n: int) -> float:
    start = time.perf_counter()
    for _ in range(n):
        f()
    return (time.perf_counter() - start) / n


def relative_error(got: Any, want: Any) -> float:
    """The largest |got - want| over the largest |want|; inf where shapes differ or only one has a NaN."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.shape != want.shape or (np.isnan(got) != np.isnan(want)).any():
        return float("inf")
    if not want.size:
        return 0.0
    scale = float(np.nanmax(np.abs(want))) or 1.0
    return float(np.nanmax(np.abs(got - want))) / scale
