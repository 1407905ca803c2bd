"""A program compiled for a GPU: its text, code and figures anywhere, and its call where there is a GPU."""

from __future__ import annotations

import threading
from itertools import accumulate
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ...ir.dtypes import to_numpy
from ...ir.nodes import Buffer, Program
from ...target import Target
from . import runtime
from .emitter import STATIC_SHARED, Launch, Source, emit
from .stats import Stats

_ALIGNMENT = 16
# Scratch arrays start where allocations of CUDA do.
_SPACING = 256
_Loaded = list[tuple[Launch, Any]]
"""What a device runs in turn: launches with their functions."""


class Kernel:
    """A program as a cubin. Its arguments are GPU arrays: the program's inputs, then its outputs.

    Loading waits for the first call. A call launches on CuPy's current stream and does not wait.
    """

    def __init__(
        self, program: Program, target: Target, source: Source, cubin: bytes, launch_stats: tuple[Stats, ...]
    ) -> None:
        self.program, self.target, self.emitted = program, target, source
        self.cubin, self.launch_stats = cubin, launch_stats
        scratch = source.buffers[len(program.parameters) :]
        sizes = [-(-max(b.size, 1) * b.dtype.bytes // _SPACING) * _SPACING for b in scratch]
        self.workspace: int = sum(sizes)
        """Bytes of memory that a call needs beside its arrays."""
        self.captured: list[Any] = []
        """Memory that captured graphs use, which lives as long as the kernel does."""
        self._offsets = tuple(accumulate(sizes, initial=0))[: len(sizes)]
        self._lock = threading.Lock()
        self._loaded: dict[tuple[int, bool], _Loaded] = {}

    @property
    def source(self) -> str:
        """The CUDA C."""
        return self.emitted.text

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernels in running order."""
        return self.emitted.kernels

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks of the launch that has the most; (0, 0, 0) where nothing is launched."""
        return max([x.grid for x in self.launches], key=_volume, default=(0, 0, 0))

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block of the launch that has the most; (0, 0, 0) where nothing is launched."""
        return max([x.block for x in self.launches], key=_volume, default=(0, 0, 0))

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block of the launch that has the most."""
        return max([x.shared_bytes + x.static_shared for x in self.launches], default=0)

    @property
    def stats(self) -> Stats:
        """The worst of all launches: most registers, spills and shared memory, least occupancy."""
        all_stats = self.launch_stats or (Stats(0, 0, 0, 0, 0, 0.0),)
        return Stats(
            max(s.registers for s in all_stats),
            max(s.spills for s in all_stats),
            max(s.stack for s in all_stats),
            max(s.shared for s in all_stats),
            min(s.blocks for s in all_stats),
            min(s.occupancy for s in all_stats),
        )

    def __call__(self, *arrays: Any) -> None:
        """Launch on GPU arrays (anything with __cuda_array_interface__), on the current stream.

        ArgumentError where shape, dtype or strides differ; BackendError where there is no GPU.
        """
        cupy = runtime.cupy()
        expected = self.program.parameters
        if len(arrays) != len(expected):
            raise ArgumentError(f"{self.program.name} takes {len(expected)} arrays, got {len(arrays)}")
        pairs = list(zip(expected, arrays, strict=True))
        pointers = [_pointer(b, a, n >= len(self.program.inputs)) for n, (b, a) in enumerate(pairs)]
        stream, room = cupy.cuda.get_current_stream(), 0
        if self.workspace:
            # CuPy's pool gives freed memory to later work of the same stream only; graphs keep theirs.
            memory = cupy.cuda.alloc(self.workspace)
            room = int(memory.ptr)
            if runtime.capturing(stream):
                self.captured.append(memory)
        self.call(cupy, int(cupy.cuda.runtime.getDevice()), pointers, stream, room)

    def time(self, *arrays: Any, repeats: int = 5, number: int = 0) -> list[float]:
        """Seconds a call on the GPU, `repeats` times, each the mean of `number` calls (0: 2 ms, at most
        1000)."""
        cupy = runtime.cupy()
        self(*arrays)
        if number < 1:
            number = max(1, min(1000, int(2e-3 / max(self._seconds(cupy, arrays, 1), 1e-7))))
        return [self._seconds(cupy, arrays, number) for _ in range(repeats)]

    def _seconds(self, cupy: Any, arrays: tuple[Any, ...], number: int) -> float:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(number):
            self(*arrays)
        end.record()
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) / 1e3 / number

    def call(self, cupy: Any, device: int, pointers: list[int], stream: Any, room: int) -> None:
        """Launch on the current `device`, on pointers, without checks. `room`: `workspace` bytes of scratch,
        which later work of the same stream may use again."""
        unaligned = self.emitted.aligned and any(p % _ALIGNMENT for p in pointers)
        loaded = self._loaded.get((device, unaligned)) or self._load(cupy, device, unaligned)
        whole = [*pointers, *[room + offset for offset in self._offsets]]
        for launch, function in loaded:
            arguments = tuple([np.uintp(whole[n]) for n in launch.parameters])
            function(launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes, stream=stream)

    def _load(self, cupy: Any, device: int, unaligned: bool) -> _Loaded:
        """What to launch on the current device; code without vectors where arrays need it, which keeps
        its buffers in shared memory in its own way."""
        with self._lock:
            if (device, unaligned) not in self._loaded:
                cubin, launches = self.cubin, self.launches
                if unaligned:
                    from .compiler import binary

                    source = emit(self.program, self.target, vectors=False)
                    cubin, launches = binary(source, self.target)[0], source.kernels
                module = cupy.cuda.function.Module()
                module.load(cubin)
                loaded = [(x, module.get_function(x.name)) for x in launches]
                for launch, function in loaded:
                    if launch.shared_bytes > STATIC_SHARED:
                        function.max_dynamic_shared_size_bytes = launch.shared_bytes
                self._loaded[device, unaligned] = loaded
        return self._loaded[device, unaligned]

    def __repr__(self) -> str:
        return f"<Kernel {self.program.name} for {self.target.name}, {len(self.cubin)} bytes of code>"


def _volume(shape: tuple[int, int, int]) -> int:
    return shape[0] * shape[1] * shape[2]


def _pointer(buffer: Buffer, array: Any, output: bool) -> int:
    """The address of an array; ArgumentError where it is not exactly what the program says of `buffer`."""
    face = getattr(array, "__cuda_array_interface__", None)
    if face is None:
        raise ArgumentError(f"{buffer.name} is an array on the GPU, got {type(array).__name__}")
    wanted, dtype = to_numpy(buffer.dtype), np.dtype(face["typestr"])
    half = buffer.dtype.name == "bf16" and dtype.itemsize == 2 and dtype.kind in "Vu"
    if tuple(face["shape"]) != buffer.shape or not (dtype == wanted or half):
        raise ArgumentError(
            f"{buffer.name} is {buffer.dtype}{list(buffer.shape)}, got {dtype}{list(face['shape'])}"
        )
    strides = tuple([s * wanted.itemsize for s in buffer.element_strides])
    given = face.get("strides")
    plain = Buffer(buffer.name, buffer.shape, buffer.dtype).element_strides
    given = tuple([s * wanted.itemsize for s in plain]) if given is None else tuple(given)
    if buffer.size and any(n > 1 and a != b for n, a, b in zip(buffer.shape, given, strides, strict=True)):
        raise ArgumentError(f"{buffer.name} has strides of {strides} bytes, got {given}")
    pointer, read_only = face["data"]
    if output and read_only:
        raise ArgumentError(f"{buffer.name} is an output, but the array is read-only")
    return int(pointer)
