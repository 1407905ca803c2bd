"""Stand-ins for torch and jax with arrays on a GPU, over the memory of `fake_cupy`."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from tests.cuda.fake_cupy import Machine, Memory, MemoryPointer, Stream

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool")


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


class TorchDtype:
    def __init__(self, name: str) -> None:
        self.name_of = name

    def __repr__(self) -> str:
        return f"torch.{self.name_of}"


class Tensor:
    """A torch tensor: no `.strides`, no CUDA array interface, an allocator and streams of its own."""

    __module__ = "torch"
    torch: Any

    def __init__(self, own: Any, kind: str = "cuda") -> None:
        self.own, self.requires_grad, self.negative = own, False, False
        self.shape, self.ndim = own.shape, len(own.shape)
        self.dtype = getattr(self.torch, own.dtype.name)
        self.device = SimpleDevice(kind, own.data.device_id if kind == "cuda" else None)

    @property
    def host(self) -> np.ndarray:
        return self.own.host

    def stride(self) -> tuple[int, ...]:
        return tuple([s // self.own.dtype.itemsize for s in self.own.strides])

    def data_ptr(self) -> int:
        return self.own.data.ptr

    def resolve_neg(self) -> Tensor:
        return self

    def clone(self, memory_format: Any = None) -> Tensor:
        assert memory_format == self.torch.contiguous_format
        made = self.torch.empty(self.shape, dtype=self.dtype, device=self.device)
        return made.copy_(self)

    def copy_(self, x: Tensor) -> Tensor:
        self.torch.machine.log.append(("torch copy", self.torch.stream))
        self.host[...] = x.host
        return self

    def zero_(self) -> Tensor:
        self.host[...] = 0
        return self

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("torch tensors are read as they are")

    def __dlpack_device__(self) -> tuple[int, int]:
        raise AssertionError("torch tensors are read as they are")


class SimpleDevice:
    def __init__(self, kind: str, index: int | None = None) -> None:
        self.type, self.index = kind, index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimpleDevice) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))


def install_torch(monkeypatch: Any, machine: Machine) -> Any:
    """A module `torch`. `torch.stream` is the pointer of its current stream."""
    torch = ModuleType("torch")
    kind = type("Tensor", (Tensor,), {"torch": torch, "__module__": "torch"})

    def empty(shape: Any, *, dtype: Any, device: Any) -> Any:
        found = numpy_dtype(dtype.name_of)
        size = int(np.prod(shape)) * found.itemsize
        block = machine.allocate(size, device.index, torch.stream)
        return kind(machine.cupy.ndarray(shape, found, MemoryPointer(Memory(block), 0)))

    def full(shape: Any, value: Any, *, dtype: Any, device: Any) -> Any:
        made = empty(shape, dtype=dtype, device=device)
        made.host[...] = value
        return made

    torch.__dict__.update(
        Tensor=kind, empty=empty, full=full, stream=0, machine=machine, contiguous_format="rows",
        device=SimpleDevice, is_grad_enabled=lambda: True,
        cuda=SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=torch.stream)),
        **{name: TorchDtype(name) for name in DTYPES},
    )  # fmt: skip
    torch.of = lambda x, device=0, offset=0: kind(machine.array(x, device, offset))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


class JaxArray:
    """A jax array on a GPU: DLPack only; `exports` counts the streams that waited for it."""

    __module__ = "jaxlib._jax"
    ndim = property(lambda self: len(self.shape))

    def __init__(self, own: Any) -> None:
        self.own, self.shape, self.dtype = own, own.shape, own.dtype
        self.exports: list[int] = []

    @property
    def host(self) -> np.ndarray:
        return self.own.host

    @property
    def device(self) -> Any:
        return ("gpu", self.own.data.device_id)

    def devices(self) -> set[Any]:
        return {JaxDevice("gpu")}

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        self.exports.append(stream)
        return SimpleNamespace(array=self.own)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.own.data.device_id


class JaxDevice:
    def __init__(self, platform: str) -> None:
        self.platform = platform


class Tracer:
    pass


def install_jax(monkeypatch: Any, machine: Machine) -> Any:
    """A module `jax`; its `from_dlpack` asks the producer for its own stream, 77."""
    jax = ModuleType("jax")

    kind = type("ArrayImpl", (JaxArray,), {"__module__": JaxArray.__module__})

    def from_dlpack(x: Any) -> JaxArray:
        return kind(x.__dlpack__(stream=77).array)

    jax.core = SimpleNamespace(Tracer=Tracer)
    jax.dlpack = SimpleNamespace(from_dlpack=from_dlpack)
    jax.of = lambda x, device=0: kind(machine.array(x, device))
    monkeypatch.setitem(sys.modules, "jax", jax)
    return jax


def stream(machine: Machine, ptr: int) -> Stream:
    return Stream(machine, ptr)
