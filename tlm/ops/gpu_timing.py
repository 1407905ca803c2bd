"""Seconds of calls on a GPU, by its own clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backend.cuda import runtime
from ..errors import ArgumentError
from .arrays import Spec, laid_out, numpy_dtype

# A run that is timed takes so many seconds, at most so many calls.
_SECONDS, _MOST = 2e-3, 1000


def seconds(
    call: Callable[..., Any], operands: Sequence[Any], *, repeats: int = 5, number: int = 0
) -> list[float]:
    """Seconds of one call, `repeats` times, each the mean of `number` calls in a row (0: 2 ms of them)."""
    if repeats < 1 or number < 0:
        raise ArgumentError(f"time: repeats is at least 1 and number at least 0, got {repeats} and {number}")
    out = call(*operands)
    if number < 1:
        number = max(1, min(_MOST, int(_SECONDS / max(_once(call, operands, out, 1), 1e-7))))
    return [_once(call, operands, out, number) for _ in range(repeats)]


def _once(call: Callable[..., Any], operands: Sequence[Any], out: Any, number: int) -> float:
    cuda = runtime.cupy().cuda
    start, end = cuda.Event(), cuda.Event()
    start.record()
    for _ in range(number):
        call(*operands, out=out)
    end.record()
    end.synchronize()
    return float(cuda.get_elapsed_time(start, end)) / 1e3 / number


def random_arrays(specs: Sequence[Spec], seed: int = 0) -> tuple[Any, ...]:
    """CuPy arrays of normal variates (small integers for integer types) in the layout of each spec."""
    cupy, rng = runtime.cupy(), np.random.default_rng(seed)
    made = []
    for spec in specs:
        values = rng.standard_normal(spec.shape) if spec.dtype.is_float else rng.integers(0, 2, spec.shape)
        x = laid_out(values.astype(numpy_dtype(spec.dtype)), spec)
        flat = np.lib.stride_tricks.as_strided(x, (max(spec.span // x.itemsize, 1),), (x.itemsize,))
        made.append(cupy.lib.stride_tricks.as_strided(cupy.asarray(flat), x.shape, x.strides))
    return tuple(made)
