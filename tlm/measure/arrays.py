"""Arrays to run a kernel on: they lie as numpy's do, sums are exact, guards on both sides betray writes."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.dtypes import to_numpy
from ..ir.nodes import Buffer, Program, Update
from ..ir.paths import loops_on, paths

# Where numpy's arrays lie in the pages that malloc took for them. A vector of 64 bytes always crosses lines
# there, which decides whether an operand is better copied: aligned arrays would hide it.
_OFFSET, _PAGE = 16, 4096
_GUARD_BYTES = 256
_GUARD = 0xA5


@dataclass(frozen=True, slots=True)
class Guarded:
    """`array` is a view with the shape and strides of a buffer, inside `raw` bytes of a known pattern."""

    array: np.ndarray
    raw: np.ndarray
    start: int
    size: int

    @property
    def pointer(self) -> int:
        return int(self.raw.ctypes.data) + self.start

    def intact(self) -> bool:
        """Whether nothing was written before or behind the array."""
        end = self.start + self.size
        before, behind = self.raw[self.start - _GUARD_BYTES : self.start], self.raw[end : end + _GUARD_BYTES]
        return bool((before == _GUARD).all() and (behind == _GUARD).all())

    def digest(self) -> int:
        """A number that tells whether the array was written."""
        return zlib.adler32(self.raw[self.start : self.start + self.size].data)

    def poison(self) -> None:
        """Fill with NaN or a marker, so that an element that is never written shows."""
        self.array[...] = (
            np.nan if self.array.dtype.kind not in "iub" else 1 if self.array.dtype.kind == "b" else 113
        )


def allocate(buffer: Buffer) -> Guarded:
    """Zeroed memory for a buffer, 16 bytes into a page."""
    dtype = to_numpy(buffer.dtype)
    extent = 1 + sum((n - 1) * s for n, s in zip(buffer.shape, buffer.element_strides, strict=True))
    size = dtype.itemsize * (extent if buffer.size else 0)
    raw = np.full(size + 2 * _GUARD_BYTES + _PAGE, _GUARD, np.uint8)
    start = _GUARD_BYTES + (_OFFSET - int(raw.ctypes.data) - _GUARD_BYTES) % _PAGE
    raw[start : start + size] = 0
    strides = [s * dtype.itemsize for s in buffer.element_strides]
    array: Any = np.ndarray(buffer.shape, dtype, raw.data, start, strides)
    return Guarded(array, raw, start, size)


def inputs(program: Program, seed: int = 0) -> list[Guarded]:
    """Random inputs. Floats are multiples of 1/8 up to 2: every dtype holds them, and f32 sums their products
    exactly in any order up to 2**16 terms; for longer sums they are -1, 0 and 1. Integers are small."""
    rng = np.random.default_rng([seed, len(program.inputs), *(b.size for b in program.inputs)])
    most, parts = (16, 8) if _longest_sum(program) <= 1 << 16 else (1, 1)
    made = []
    for buffer in program.inputs:
        guarded = allocate(buffer)
        if buffer.dtype.is_float:
            values = rng.integers(-most, most + 1, buffer.shape, dtype=np.int8) / np.float32(parts)
            guarded.array[...] = values.astype(guarded.array.dtype)
        elif buffer.dtype.kind == "bool":
            guarded.array[...] = rng.integers(0, 2, buffer.shape)
        else:
            guarded.array[...] = rng.integers(0 if buffer.dtype.kind == "uint" else -4, 5, buffer.shape)
        made.append(guarded)
    return made


def _longest_sum(program: Program) -> int:
    """Terms of the longest sum."""
    found = [
        math.prod([loop.extent for loop in loops_on(path) if loop.var in path[-1].axes])
        for path in paths(program.body, lambda s: isinstance(s, Update))
        if isinstance(path[-1], Update) and path[-1].combiner == "sum"
    ]
    return max(found, default=1)


def memory(program: Program) -> int:
    """Bytes of all parameters."""
    return sum(math.prod(b.shape) * b.dtype.bytes for b in program.parameters)
