"""Calling machine code on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..ir.nodes import row_major
from .arrays import Shape, Spec, address, contiguous, laid_out, numpy_dtype, shares_memory
from .foreign import Back, empty, writable
from .products import Problem

# Results of so many bytes start on a cache line: then no vector of them lies on two.
_ALIGNED = 1 << 20


class Runner:
    """Pointers in, result out. What a call costs beyond the kernel is here, so it is written to be fast."""

    __slots__ = (
        "_call", "_copies", "_dtype", "_key", "_mask", "_shape", "_span", "_spans", "_specs",
        "_threads",
    )  # fmt: skip

    def __init__(
        self, problem: Problem, call: Callable[..., None], threads: int, copies: Sequence[bool] = ()
    ) -> None:
        self._call = call
        self._threads = threads
        self._copies = tuple(copies) if any(copies) else ()
        self._shape: Shape = problem.shape
        self._dtype = numpy_dtype(problem.dtype)
        item = self._dtype.itemsize
        self._key = (problem.shape, tuple([s * item for s in row_major(problem.shape)]), self._dtype)
        self._mask = max(item, *[s.dtype.bytes for s in problem.operands]) - 1
        self._specs = problem.operands
        self._spans = tuple([s.span for s in problem.operands])
        self._span = Spec(problem.shape, problem.dtype).span

    def __call__(self, arrays: Sequence[np.ndarray], out: np.ndarray | None) -> Any:
        if self._copies:
            arrays = [contiguous(x) if copy else x for x, copy in zip(arrays, self._copies, strict=True)]
        pointers = [address(x) for x in arrays]
        for p in pointers:
            if p & self._mask:
                return self([laid_out(x, s) for x, s in zip(arrays, self._specs, strict=True)], out)
        if out is None:
            large = self._span >= _ALIGNED
            fresh = empty(self._shape, self._dtype) if large else np.empty(self._shape, self._dtype)
            self._call(*pointers, address(fresh), threads=self._threads)
            return fresh if self._shape else fresh[()]
        if (
            out.__class__ is np.ndarray
            and (out.shape, out.strides, out.dtype) == self._key
            and out.flags.writeable
        ):
            start = address(out)
            end = start + self._span
            for p, span in zip(pointers, self._spans, strict=True):
                if start < p + span and p < end:
                    break
            else:
                if not start & self._mask:
                    self._call(*pointers, start, threads=self._threads)
                    return out
        if not isinstance(out, np.ndarray):
            self(arrays, writable(out))
            return out
        check_out(out, self._shape, self._dtype)
        # Strided, misaligned or overlapping an operand: the kernel writes elsewhere first.
        out[...] = self(arrays, None)
        return out

    def like(self, arrays: Sequence[np.ndarray], out: Any, back: Back | None) -> Any:
        """The result in `out`, else as `back` makes it."""
        if out is not None or back is None:
            return self(arrays, out)
        return back(self(arrays, empty(self._shape, self._dtype)))


def check_out(out: Any, shape: Shape, dtype: np.dtype[Any]) -> None:
    """ArgumentError where `out` cannot hold the result."""
    out = writable(out)
    if out.shape != shape:
        raise ArgumentError(f"out= has shape {out.shape}, the result has shape {shape}")
    if out.dtype != dtype:
        raise ArgumentError(f"out= has dtype {out.dtype}, the result has dtype {dtype}")
    if not out.flags.writeable:
        raise ArgumentError("out= is read-only")
    if shares_memory(out.shape, out.strides):
        raise ArgumentError(f"out= has elements that share their memory: its strides are {out.strides}")
