"""Arrays on GPUs: CuPy's and torch's read as they are, jax's and others' seen by CuPy as the same memory.

jax's and what only speaks DLPack come in through DLPack, which carries bf16 and makes the current stream wait
for the producer's; other objects come in through `__cuda_array_interface__` (version 3), whose stream is
waited for by the current one. The CPU waits for nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend.cuda import runtime
from ..errors import ArgumentError
from ..ir.nodes import row_major
from .gpu_native import CUPY, TORCH, Native
from .gpu_places import FORMS, SOME_GPU, library_name, package, place


@dataclass(frozen=True, slots=True)
class Library:
    """A library's arrays. `take(x)` is an array of `native` over the memory of x, `back(result, x)` makes
    one of `native` the kind of x.

    `form(x)`: all that a call depends on but the data, where that can be had without taking x.
    `fixed`: arrays never change. `lent`: their memory is not CuPy's or torch's, and must be kept until
    kernels that use it are done.
    """

    name: str
    native: Native
    take: Callable[[Any], Any]
    back: Callable[[Any, Any], Any]
    form: Callable[[Any], Hashable] | None = None
    fixed: bool = False
    lent: bool = False


def _same(result: Any, _: Any) -> Any:
    return result


def _cupy_form(x: Any) -> Hashable:
    return x.__class__, x.shape, x.strides, x.dtype, x.data.device_id


def _torch_form(x: Any) -> Hashable:
    return x.__class__, x.shape, x.stride(), x.dtype, x.device


def _torch_take(x: Any) -> Any:
    if x.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise ArgumentError("requires grad, and tlm computes no gradients; pass x.detach()")
    return x.resolve_neg()


def _jax_form(x: Any) -> Hashable:
    return x.__class__, x.shape, x.dtype, x.device


def _jax_back(result: Any, _: Any) -> Any:
    return sys.modules["jax"].dlpack.from_dlpack(result)


def _dlpack_take(x: Any) -> Any:
    return runtime.cupy().from_dlpack(x)


def _dlpack_back(result: Any, x: Any) -> Any:
    kind = type(x)
    space = (
        x.__array_namespace__() if hasattr(kind, "__array_namespace__") else sys.modules.get(package(kind))
    )
    make = getattr(space, "from_dlpack", None)
    return make(result) if callable(make) else result


def _interface_take(x: Any) -> Any:
    """A CuPy array over the memory that `__cuda_array_interface__` shows."""
    cupy, face = runtime.cupy(), x.__cuda_array_interface__
    if face.get("mask") is not None:
        raise ArgumentError("is a masked array")
    dtype = np.dtype(face["typestr"])
    if dtype.kind == "V" and dtype.itemsize == 2:
        import ml_dtypes

        dtype = np.dtype(ml_dtypes.bfloat16)
    shape, strides, pointer = tuple(face["shape"]), face.get("strides"), int(face["data"][0])
    ready = face.get("stream")
    if ready is not None:
        runtime.join(cupy.cuda.get_current_stream(), runtime.stream(int(ready)))
    steps = tuple([s * dtype.itemsize for s in row_major(shape)]) if strides is None else tuple(strides)
    reach = [0 if 0 in shape else (n - 1) * s for n, s in zip(shape, steps, strict=True)]
    low = sum([r for r in reach if r < 0])
    size = 0 if 0 in shape else sum(map(abs, reach)) + dtype.itemsize
    memory = cupy.cuda.UnownedMemory(pointer + low, size, x, place(x))
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, -low), steps)


_LIBRARIES = {
    "cupy": Library("cupy", CUPY, lambda x: x, _same, _cupy_form),
    "torch": Library("torch", TORCH, _torch_take, _same, _torch_form),
    "jax": Library("jax", CUPY, _dlpack_take, _jax_back, _jax_form, fixed=True, lent=True),
    "DLPack": Library("DLPack", CUPY, _dlpack_take, _dlpack_back, lent=True),
    "interface": Library("interface", CUPY, _interface_take, _same, lent=True),
}


def library(x: Any) -> Library | None:
    """The library of an array that may lie on a GPU; None for what cannot."""
    name = library_name(x)
    return None if name is None else _LIBRARIES[name]


def is_number(x: Any) -> bool:
    """Whether an operand of a call on a GPU is a number, which kernels get wherever it comes from."""
    return isinstance(x, np.ndarray | np.generic | int | float) and np.ndim(x) == 0


def one_device(name: str, operands: tuple[Any, ...]) -> int:
    """The GPU of all operands of the operator `name`; ArgumentError where they lie in several places."""
    places = {n: place(x) for n, x in enumerate(operands) if not is_number(x)}
    if len(set(places.values())) > 1:
        told = ", ".join([f"operand {n} ({_kind(operands[n])}) lies {_where(p)}" for n, p in places.items()])
        raise ArgumentError(
            f"{name}: {told}; bring them to one place (cupy.asarray(x) to the current GPU, cupy.asnumpy(x) "
            "to the CPU)"
        )
    number = next(iter(places.values()), None)
    return runtime.current() if number is None or number == SOME_GPU else number


def _where(number: int | None) -> str:
    if number is None:
        return "in the CPU's memory"
    return "on a GPU" if number == SOME_GPU else f"on GPU {number}"


def _kind(x: Any) -> str:
    of, name = package(type(x)), type(x).__name__
    return name if of == "builtins" else f"{of}.{name}"


def writable(name: str, out: Any, device: int) -> tuple[Library, Any]:
    """The library of `out`, and `out` as an array of its native one; ArgumentError where it can't be written.

    `name` is the operator's.
    """
    found, there = library(out), place(out)
    if found is None or there is None:
        raise ArgumentError(
            f"{name}: out= ({_kind(out)}) lies in the CPU's memory, the operands on GPU {device}; give an "
            "array of that GPU"
        )
    if there not in (device, SOME_GPU):
        raise ArgumentError(f"{name}: out= lies on GPU {there}, the operands on GPU {device}")
    if found.fixed:
        raise ArgumentError(f"out= cannot be an array of {found.name}, which never changes; leave it away")
    if found.name == "interface" and out.__cuda_array_interface__["data"][1]:
        raise ArgumentError("out= is read-only")
    return found, taken(found, out, "out=")


def taken(found: Library, x: Any, label: str) -> Any:
    """`x` as an array of the native library; errors begin with `label`, its name in the call."""
    try:
        return found.take(x)
    except ArgumentError as error:
        raise ArgumentError(f"{label} {error}") from None


def remember(operands: tuple[Any, ...]) -> None:
    """Let later calls on arrays of these classes be told apart at a glance."""
    for x in operands:
        found = library(x)
        if found is not None and found.form is not None:
            FORMS[x.__class__] = found.form
