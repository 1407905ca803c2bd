"""The present GPU as measuring needs it: bytes of its memory, kernels to launch, and its clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .emitter import STATIC_SHARED
from .packed import unpack
from .runtime import cupy

Bytes = NDArray[np.uint8]
Launches = Callable[[Sequence[int]], None]
"""Launch on the addresses of a program's parameters; does not wait."""


class Memory:
    """Bytes on the device, at `pointer`, which is a multiple of 256."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.pointer = int(array.data.ptr)

    def fill(self, start: int, size: int, byte: int) -> None:
        self._array[start : start + size] = byte

    def write(self, start: int, data: Bytes) -> None:
        self._array[start : start + len(data)].set(data)

    def read(self, start: int, size: int) -> Bytes:
        return np.asarray(self._array[start : start + size].get())


class Device:
    """BackendError where there is no GPU. All work is on the default stream."""

    def __init__(self) -> None:
        self._cupy = cupy()

    def allocate(self, size: int) -> Memory:
        return Memory(self._cupy.empty(max(size, 1), np.uint8))

    def load(self, code: bytes) -> Launches:
        """The launches that `packed.pack` made, with scratch of their own."""
        packed = unpack(code)
        module = self._cupy.cuda.function.Module()
        module.load(packed.cubin)
        functions = []
        for launch in packed.launches:
            function = module.get_function(launch.name)
            if launch.shared_bytes > STATIC_SHARED:
                function.max_dynamic_shared_size_bytes = launch.shared_bytes
            functions.append(function)
        scratch = [self.allocate(n) for n in packed.scratch]

        def call(pointers: Sequence[int]) -> None:
            whole = [*pointers, *(m.pointer for m in scratch)]
            for launch, function in zip(packed.launches, functions, strict=True):
                arguments = tuple([np.uintp(whole[n]) for n in launch.parameters])
                function(launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes)

        return call

    def seconds(self, call: Callable[[], None], times: int) -> float:
        """Seconds of one of `times` calls in a row, by events on the device."""
        start, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        start.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(start, end)) / 1e3 / times
