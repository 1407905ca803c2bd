"""Where arrays lie, the CPU's memory or which GPU, told without importing any library or the CUDA backend."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import ArgumentError, BackendError

# The GPU's own memory, among devices of DLPack. Memory that the CPU reads too counts as the CPU's.
_CUDA = 2
SOME_GPU = -1
"""The place of an array on a GPU that cannot be told."""

FORMS: dict[type, Callable[[Any], Hashable]] = {}
"""How to tell arrays of a class apart at a glance: all that a call depends on but the data. Of the classes
whose arrays calls on a GPU have seen."""


def _torch(x: Any) -> int | None:
    return x.device.index if x.device.type == "cuda" else None


def _jax(x: Any) -> int | None:
    if isinstance(x, sys.modules["jax"].core.Tracer):
        return None
    devices = x.devices()
    if {d.platform for d in devices} == {"cpu"}:
        return None
    if len(devices) > 1:
        raise ArgumentError(f"is spread over {len(devices)} devices; a kernel runs on one")
    return _dlpack(x)


def _dlpack(x: Any) -> int | None:
    kind, number = x.__dlpack_device__()
    return int(number) if int(kind) == _CUDA else None


def _face(x: Any) -> int | None:
    from ..backend.cuda import runtime

    try:
        cupy = runtime.cupy()
    except BackendError:
        return SOME_GPU
    pointer = x.__cuda_array_interface__["data"][0]
    return int(cupy.cuda.runtime.pointerGetAttributes(pointer).device) if pointer else runtime.current()


_PLACES: dict[str, Callable[[Any], int | None]] = {
    "cupy": lambda x: int(x.data.device_id),
    "torch": _torch,
    "jax": _jax,
    "DLPack": _dlpack,
    "interface": _face,
}
"""Library -> the number of the GPU of one of its arrays; None for the CPU's memory."""
_PACKAGES = {"cupy": "cupy", "torch": "torch", "jax": "jax", "jaxlib": "jax"}

_known: WeakKeyDictionary[type, str | None] = WeakKeyDictionary()


def package(kind: type) -> str:
    """The top-level package of a class."""
    return kind.__module__.partition(".")[0]


def library_name(x: Any) -> str | None:
    """The library of an array that may lie on a GPU, or the protocol that it speaks; None for others."""
    kind = x.__class__
    try:
        found = _known[kind]
    except KeyError:
        found = _known[kind] = _find(kind)
    return "interface" if found is None and hasattr(x, "__cuda_array_interface__") else found


def _find(kind: type) -> str | None:
    if issubclass(kind, np.ndarray | np.generic):
        return None
    dlpack = hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__")
    for base in kind.__mro__:
        name = _PACKAGES.get(package(base))
        if name is not None and dlpack:
            return name
    if hasattr(kind, "__cuda_array_interface__"):
        return "interface"
    return "DLPack" if dlpack else None


def place(x: Any) -> int | None:
    """The number of the GPU on which an array lies; None for the CPU's memory, and for what is no array."""
    name = None if x.__class__ is np.ndarray else library_name(x)
    return None if name is None else _PLACES[name](x)


def on_gpu(operands: tuple[Any, ...]) -> bool:
    """Whether any operand lies on a GPU."""
    for n, x in enumerate(operands):
        try:
            if x.__class__ is not np.ndarray and place(x) is not None:
                return True
        except ArgumentError as error:
            raise ArgumentError(f"operand {n} {error}") from None
    return False


def layout(x: Any) -> Hashable:
    """What a call depends on of one operand: not its data. TypeError where that is not known at a glance."""
    kind = x.__class__
    if kind is np.ndarray:
        return x.shape, x.strides, x.dtype
    form = FORMS.get(kind)
    if form is None:
        raise TypeError
    return form(x)
