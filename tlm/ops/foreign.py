"""Arrays of other libraries: seen as numpy arrays of the same memory, and results made the kind they came in.

jax and torch are known by name, since neither DLPack nor the array interface carries bf16 from them. Anything
else comes in through `__array_interface__`, the buffer protocol, DLPack or `__array__`, and goes out through
the `from_dlpack` of its array namespace (Python array API standard, 2023.12) or of its package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import ArgumentError

Back = Callable[[np.ndarray], Any]
"""A result in numpy's memory as another library's array of the same memory."""

# Devices of DLPack that a CPU reads: its own memory, and memory that CUDA or ROCm pinned or share with it.
_READABLE = (1, 3, 11, 13)
# jax takes only memory on cache lines without copying it.
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Library:
    """`view(x)` is x as a numpy array; `back(x)` makes results x's kind; `fixed`: arrays never change."""

    name: str
    view: Callable[[Any], np.ndarray]
    back: Callable[[Any], Back]
    fixed: bool = False


def _jax_view(x: Any) -> np.ndarray:
    if isinstance(x, sys.modules["jax"].core.Tracer):
        raise ArgumentError("is traced by jax (inside jit, grad or vmap); tlm computes on arrays with values")
    _need_cpu({d.platform for d in x.devices()})
    return np.asarray(x)


def _jax_back(x: Any) -> Back:
    devices = x.devices()
    where = next(iter(devices)) if len(devices) == 1 else None
    return lambda result: sys.modules["jax"].device_put(result, where)


def _torch_view(x: Any) -> np.ndarray:
    torch = sys.modules["torch"]
    _need_cpu({x.device.type})
    if x.requires_grad:
        if torch.is_grad_enabled():
            raise ArgumentError("requires grad, and tlm computes no gradients; pass x.detach()")
        x = x.detach()
    if x.dtype == torch.bfloat16:
        return _as_bf16(x.view(torch.int16).numpy())
    return np.asarray(x.numpy())


def _torch_back(x: Any) -> Back:
    torch = sys.modules["torch"]

    def back(result: np.ndarray) -> Any:
        if result.dtype.name == "bfloat16":
            return torch.from_numpy(result.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(result)

    return back


def _as_bf16(x: np.ndarray) -> np.ndarray:
    import ml_dtypes

    return x.view(ml_dtypes.bfloat16)


def _need_cpu(places: set[str]) -> None:
    if places != {"cpu"}:
        raise ArgumentError(
            f"lies on {', '.join(sorted(places))}, and kernels for a CPU read the CPU's memory; copy it there"
        )


def _other_view(x: Any) -> np.ndarray:
    if hasattr(x, "__cuda_array_interface__"):
        _need_cpu({"a GPU"})
    if hasattr(x, "__dlpack_device__") and not hasattr(x, "__array_interface__"):
        kind, number = x.__dlpack_device__()
        if int(kind) not in _READABLE:
            _need_cpu({f"device {number} of DLPack's kind {int(kind)}"})
        return np.from_dlpack(x)
    found = np.asarray(x)
    if found.dtype == object:
        raise ArgumentError(f"is no array: got {type(x).__name__}")
    return found


def _other_back(x: Any) -> Back:
    space = (
        x.__array_namespace__() if hasattr(x, "__array_namespace__") else sys.modules.get(_package(type(x)))
    )
    make = getattr(space, "from_dlpack", None)
    return make if callable(make) else lambda result: result


_JAX = Library("jax", _jax_view, _jax_back, fixed=True)
_KNOWN = {"jax": _JAX, "jaxlib": _JAX, "torch": Library("torch", _torch_view, _torch_back)}


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


_seen: WeakKeyDictionary[type, Library | None] = WeakKeyDictionary()


def library(kind: type) -> Library | None:
    """The library whose arrays have the class `kind`; None for numpy's, and for what is no array."""
    try:
        return _seen[kind]
    except KeyError:
        found = _seen[kind] = _find(kind)
        return found


def _find(kind: type) -> Library | None:
    if issubclass(kind, np.ndarray | np.generic):
        return None
    for base in kind.__mro__:
        found = _KNOWN.get(_package(base))
        if found is not None:
            return found
    if hasattr(kind, "__dlpack__"):
        return Library(_package(kind), _other_view, _other_back)
    return None


def view(x: Any, name: str) -> np.ndarray:
    """`x` as a numpy array, of the same memory where `x` is an array; ArgumentError where it cannot be one.

    `name` is what to call it in the message: "operand 0".
    """
    found = library(type(x))
    try:
        if found is not None:
            return found.view(x)
        if isinstance(x, np.ma.MaskedArray):
            raise ArgumentError("is a masked array; give its .data, or fill it")
        return np.asarray(x) if isinstance(x, np.ndarray) else _other_view(x)
    except ArgumentError as error:
        raise ArgumentError(f"{name} {error}") from None
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise ArgumentError(f"{name} ({type(x).__name__}) cannot be read as an array: {error}") from error


def to_arrays(operands: tuple[Any, ...]) -> tuple[tuple[np.ndarray, ...], Back | None]:
    """The operands as numpy arrays, and what makes a result the kind of the first foreign one.

    None where all are numpy's, numbers or lists: then results are numpy's.
    """
    back = None
    arrays = []
    for n, x in enumerate(operands):
        arrays.append(view(x, f"operand {n}"))
        if back is None:
            found = library(type(x))
            back = None if found is None else found.back(x)
    return tuple(arrays), back


def writable(out: Any) -> np.ndarray:
    """`out` as a numpy array of the same memory, to write to; ArgumentError where there is no such thing."""
    if isinstance(out, np.ndarray):
        return out
    if isinstance(out, np.generic):
        raise ArgumentError(f"out= is an array; a number of type {type(out).__name__} cannot be written to")
    found = library(type(out))
    if found is None and not hasattr(out, "__array_interface__"):
        raise ArgumentError(f"out= is a numpy array, or shares memory with one; got {type(out).__name__}")
    if found is None and out.__array_interface__["data"][0] != out.__array_interface__["data"][0]:
        raise ArgumentError(
            f"out= of {type(out).__name__} shows another copy at every look, and would stay empty"
        )
    if found is not None and found.fixed:
        raise ArgumentError(f"out= cannot be an array of {found.name}, which never changes; leave it away")
    return view(out, "out=")


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """A new array that every library takes without a copy."""
    size = dtype.itemsize * prod(shape)
    room = np.empty(size + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)
