"""The two libraries that own memory on GPUs here: CuPy and torch, each with its allocator and its stream."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend.cuda import runtime
from ..errors import ArgumentError
from ..ir.dtypes import DType, from_numpy
from .arrays import Shape, Spec, numpy_dtype, seen

Described = tuple[Shape, Shape, DType]
"""(shape, strides in elements, dtype)"""


@dataclass(frozen=True, slots=True)
class Native:
    """What a call needs of a library that allocates.

    `stream(device)`: where its work on a device goes, as a CuPy stream. `empty`, `full` and `packed` (a copy
    in C order) allocate from its pool in the order of that stream; `assign(out, x)` copies into `out`,
    `clear(x)` writes zeros. `frees_captured`: its pool gives memory that was freed under capture to work
    outside of the graph.
    """

    name: str
    describe: Callable[[Any], Described]
    pointer: Callable[[Any], int]
    stream: Callable[[int], Any]
    empty: Callable[[Shape, DType, int], Any]
    full: Callable[[np.ndarray, DType, int], Any]
    packed: Callable[[Any], Any]
    assign: Callable[[Any, Any], None]
    clear: Callable[[Any], None]
    frees_captured: bool


def _cupy_describe(x: Any) -> Described:
    dtype = from_numpy(x.dtype)
    if any(s % dtype.bytes for s in x.strides):
        raise ArgumentError(f"has strides of {x.strides} bytes, which are no multiples of {dtype.bytes}")
    return tuple(x.shape), tuple([s // dtype.bytes for s in x.strides]), dtype


def _cupy_empty(shape: Shape, dtype: DType, device: int) -> Any:
    return runtime.cupy().empty(shape, numpy_dtype(dtype))


def _cupy_full(value: np.ndarray, dtype: DType, device: int) -> Any:
    """By its bits, which every version of CuPy can write."""
    bits = value.view(f"u{dtype.bytes}")
    return runtime.cupy().full((), bits[()], bits.dtype)


def _cupy_assign(out: Any, x: Any) -> None:
    out[...] = x


def _torch_describe(x: Any) -> Described:
    dtype = from_numpy(str(x.dtype).rpartition(".")[2])
    return tuple(x.shape), tuple(x.stride()), dtype


def _torch() -> Any:
    return sys.modules["torch"]


def _torch_empty(shape: Shape, dtype: DType, device: int) -> Any:
    torch = _torch()
    return torch.empty(shape, dtype=getattr(torch, dtype.numpy), device=torch.device("cuda", device))


def _torch_full(value: np.ndarray, dtype: DType, device: int) -> Any:
    torch = _torch()
    kind, where = getattr(torch, dtype.numpy), torch.device("cuda", device)
    return torch.full((), value.item(), dtype=kind, device=where)


CUPY = Native(
    "cupy",
    _cupy_describe,
    lambda x: int(x.data.ptr),
    lambda device: runtime.cupy().cuda.get_current_stream(device),
    _cupy_empty,
    _cupy_full,
    lambda x: runtime.cupy().array(x, order="C"),
    _cupy_assign,
    lambda x: x.fill(0),
    frees_captured=True,
)
TORCH = Native(
    "torch",
    _torch_describe,
    lambda x: int(x.data_ptr()),
    lambda device: runtime.stream(int(_torch().cuda.current_stream(device).cuda_stream)),
    _torch_empty,
    _torch_full,
    lambda x: x.clone(memory_format=_torch().contiguous_format),
    lambda out, x: out.copy_(x),
    lambda x: x.zero_(),
    frees_captured=False,
)


def spec_of(native: Native, x: Any) -> tuple[Spec, bool]:
    """The spec under which a kernel sees an array, and whether it must be copied (to C order) first."""
    shape, steps, dtype = native.describe(x)
    return seen(shape, dtype, steps)
