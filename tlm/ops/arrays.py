"""Arrays of the caller: how their memory is laid out, and where it lies."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..ir.dtypes import DType, from_numpy, to_numpy
from ..ir.nodes import row_major

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """An operand without its data. `strides` are in elements; None means C-contiguous."""

    shape: Shape
    dtype: DType
    strides: Shape | None = None

    @property
    def element_strides(self) -> Shape:
        """Strides in elements, row-major where none are given."""
        return row_major(self.shape) if self.strides is None else self.strides

    @property
    def span(self) -> int:
        """Bytes from the first element's address to the end of the last one's."""
        if 0 in self.shape:
            return 0
        last = sum((n - 1) * s for n, s in zip(self.shape, self.element_strides, strict=True))
        return (last + 1) * self.dtype.bytes


def canonical_strides(shape: Shape, strides: Shape) -> Shape | None:
    """`strides`, as if packed along axes of one element (theirs mean nothing); None where C-contiguous."""
    out: list[int] = []
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        out.append(step if extent == 1 else stride)
        step = out[-1] * max(extent, 1)
    found = tuple(reversed(out))
    return None if found == row_major(shape) else found


@lru_cache(maxsize=4096)
def shares_memory(shape: Shape, strides: Shape) -> bool:
    """Whether two elements of an array lie at the same address, as those of a repeated row do.

    `strides` are steps from one element's start to the next one's, in any unit.
    """
    axes = sorted((abs(step), n) for n, step in zip(shape, strides, strict=True) if n > 1)
    if 0 in shape or not axes:
        return False
    reach = 0
    for step, n in axes:
        if step <= reach:
            break
        reach += step * (n - 1)
    else:
        return False
    if axes[0][0] == 0:
        return True
    # Rows that begin within others may still lie between their elements.
    starts = np.zeros(1, np.int64)
    for step, n in axes:
        starts = np.unique(np.add.outer(starts, step * np.arange(n)))
    return starts.size < math.prod(shape)


def same_layout(x: np.ndarray, spec: Spec) -> bool:
    """Whether the elements of `x`, of the shape and dtype of `spec`, lie as `spec` says."""
    wanted = [s * spec.dtype.bytes for s in spec.element_strides]
    return all(n < 2 or a == b for n, a, b in zip(x.shape, x.strides, wanted, strict=True))


def from_numbers(name: str, x: Any) -> np.ndarray:
    """A number, or a nested list of them, as an array; ArgumentError where its parts differ in length."""
    try:
        return np.asarray(x)
    except ValueError as error:
        raise ArgumentError(f"{name}: {x!r} cannot be read as an array: {error}") from None


def read(x: Any) -> tuple[Spec, bool]:
    """The spec under which a kernel sees `x`, and whether `x` must be copied (to C order) first.

    `x` is a numpy array, or anything with `.shape` and `.dtype`, taken as contiguous.
    """
    if not isinstance(x, np.ndarray):
        if not hasattr(x, "shape") or not hasattr(x, "dtype"):
            raise ArgumentError(f"an operand is an array, or has .shape and .dtype; got {type(x).__name__}")
        # torch's dtypes have no name, and print as torch.float32.
        name = getattr(x.dtype, "name", None) or str(x.dtype).rpartition(".")[2]
        return Spec(tuple(int(n) for n in x.shape), from_numpy(name)), False
    shape, dtype = x.shape, from_numpy(x.dtype)
    if not x.flags.aligned or not x.dtype.isnative or any(s % dtype.bytes for s in x.strides):
        return Spec(shape, dtype), True
    return seen(shape, dtype, tuple([s // dtype.bytes for s in x.strides]))


def seen(shape: Shape, dtype: DType, steps: Shape) -> tuple[Spec, bool]:
    """The spec of an array with strides of `steps` elements, and whether it must be copied first."""
    strides = canonical_strides(shape, steps)
    usable = strides is None or 0 in shape or _usable(shape, strides)
    return Spec(shape, dtype, strides if usable else None), not usable


def _usable(shape: Shape, strides: Shape) -> bool:
    """Whether kernels read this layout in place: forward, one of the last two axes dense, no overlap.

    Leading axes may have stride 0 (a broadcast view): then they simply do not index the operand.
    """
    if min(strides) < 0 or len(shape) == 1:
        return False
    (rows, columns), (down, across) = shape[-2:], strides[-2:]
    return (across == 1 and down >= columns) or (down == 1 and across >= rows)


def contiguous(x: Any) -> np.ndarray:
    """`x` as an aligned C-contiguous array of native byte order, copied only where it is not one."""
    return np.require(x, dtype=np.asarray(x).dtype.newbyteorder("="), requirements=["C", "A"])


def laid_out(x: np.ndarray, spec: Spec) -> np.ndarray:
    """A copy of `x` in the layout of `spec`; of elements that share memory in it the last one stays."""
    dtype = numpy_dtype(spec.dtype)
    room = np.empty(spec.span // dtype.itemsize, dtype)
    steps = [s * dtype.itemsize for s in spec.element_strides]
    made = np.lib.stride_tricks.as_strided(room, spec.shape, steps)
    made[...] = x
    return made


_word = ctypes.c_size_t.from_address
# The first field of numpy's array object after Python's header is the data pointer (PyArrayObject_fields).
_HEADER = object.__basicsize__


def _address_from_object(x: np.ndarray) -> int:
    return _word(id(x) + _HEADER).value


def _address_from_interface(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])


def _layout_is_known() -> bool:
    probes: list[np.ndarray] = [
        np.zeros((3, 4), np.float32),
        np.zeros(7, np.int8)[2:],
        np.zeros((2, 5))[:, ::2],
    ]
    return all(_address_from_object(x) == _address_from_interface(x) for x in probes)


# Ten times faster than the array interface, which alone would take most of the time of a small call.
address: Callable[[np.ndarray], int] = _address_from_object if _layout_is_known() else _address_from_interface


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype of an element type."""
    found: np.dtype[Any] = to_numpy(dtype)
    return found
