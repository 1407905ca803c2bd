"""Checks and times GPU kernels inside a worker: as `runner`, with arrays on the device and its clock."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from ..ir.nodes import Buffer, Program
from ..target import Target
from . import arrays
from .child import Message
from .reference import Expected, reference, worst

SAMPLE_SECONDS, MOST_CALLS, LONG_SECONDS = 1.5e-3, 1000, 0.05
_GROUPS = 3
_GUARD_BYTES, _GUARD = 512, 0xA5
_NAN, _MARK = 0xFF, 113  # bytes that fill outputs before a run: NaN in every float type, a number, true

Bytes = NDArray[np.uint8]


class Memory(Protocol):
    """Bytes of a device."""

    pointer: int

    def fill(self, start: int, size: int, byte: int) -> None: ...
    def write(self, start: int, data: Bytes) -> None: ...
    def read(self, start: int, size: int) -> Bytes: ...


class Device(Protocol):
    """What runs kernels: see `tlm.backend.cuda.device_memory.Device`."""

    def allocate(self, size: int) -> Memory: ...
    def load(self, code: bytes) -> Callable[[Sequence[int]], None]: ...
    def seconds(self, call: Callable[[], None], times: int) -> float: ...


@dataclass(frozen=True, slots=True)
class _Parameter:
    """An array of the program on the host, and its copy on the device between two guards."""

    buffer: Buffer
    host: arrays.Guarded
    there: Memory

    @property
    def pointer(self) -> int:
        return self.there.pointer + _GUARD_BYTES

    def send(self) -> None:
        end = self.host.start + self.host.size
        self.there.fill(0, self.host.size + 2 * _GUARD_BYTES, _GUARD)
        self.there.write(_GUARD_BYTES, self.host.raw[self.host.start : end])

    def poison(self) -> None:
        byte = _NAN if self.buffer.dtype.is_float else 1 if self.buffer.dtype.kind == "bool" else _MARK
        self.there.fill(_GUARD_BYTES, self.host.size, byte)

    def fetch(self) -> None:
        end = self.host.start + self.host.size
        self.host.raw[self.host.start : end] = self.there.read(_GUARD_BYTES, self.host.size)

    def intact(self) -> bool:
        before = self.there.read(0, _GUARD_BYTES)
        behind = self.there.read(_GUARD_BYTES + self.host.size, _GUARD_BYTES)
        return bool((before == _GUARD).all() and (behind == _GUARD).all())


class GpuRunner:
    """Kernels of one workload, as `runner.Runner`. The device is opened when the first one is prepared, so
    that processes that only build hold none."""

    def __init__(self, device: Callable[[], Device]) -> None:
        self._open = device
        self._device: Device | None = None
        self._loaded: dict[int, tuple[Callable[[], None], float]] = {}
        self._parameters: list[_Parameter] = []
        self._digests: list[int] = []
        self._expected: list[Expected] | None = None
        self._trash: Memory | None = None
        self.program: Program
        self.target: Target

    def workload(self, program: Program, target: Target) -> None:
        """Change to another program or target; what was loaded is dropped."""
        self.program, self.target = program, target
        self._loaded.clear()
        self._parameters, self._expected = [], None

    @property
    def device(self) -> Device:
        if self._device is None:
            self._device = self._open()
        return self._device

    def prepare(self) -> list[Expected]:
        """Make inputs and reference, and send the inputs."""
        if self._expected is None:
            made = arrays.inputs(self.program)
            self._expected = [Expected(w) for w in reference(self.program, [g.array for g in made])]
            self._digests = [g.digest() for g in made]
            made += [arrays.allocate(b) for b in self.program.outputs]
            self._parameters = [
                _Parameter(b, g, self.device.allocate(g.size + 2 * _GUARD_BYTES))
                for b, g in zip(self.program.parameters, made, strict=True)
            ]
            for p in self._parameters:
                p.send()
        return self._expected

    @property
    def _outputs(self) -> list[_Parameter]:
        return self._parameters[len(self.program.inputs) :]

    def load(self, number: int, code: bytes) -> Message:
        """Load a cubin, run it once and check it: "ok" with the seconds of that run, or "wrong"."""
        self.prepare()
        try:
            launch = self.device.load(code)
        except Exception as error:
            _leave(error)
        call = partial(launch, [p.pointer for p in self._parameters])
        for output in self._outputs:
            output.poison()
        first = self._seconds(call, 1)
        wrong = self._checked()
        if wrong is None:
            self._loaded[number] = (call, first)
        return wrong or {"status": "ok", "seconds": first}

    def _checked(self) -> Message | None:
        """None where every output is right and nothing else was written; else what is wrong."""
        for output, want in zip(self._outputs, self.prepare(), strict=True):
            output.fetch()
            if not want.met_by(output.host.array):
                told = f"{output.buffer.name}: {worst(output.host.array, want.want)}"
                return {"status": "wrong", "message": told}
        for p in self._parameters:
            if not p.intact():
                return {"status": "wrong", "message": f"wrote outside {p.buffer.name}"}
        for p, digest in zip(self._parameters, self._digests, strict=False):
            p.fetch()
            if p.host.digest() != digest:
                return {"status": "wrong", "message": f"wrote into the input {p.buffer.name}"}
        return None

    def sample(self, number: int, cold: bool) -> float:
        """Seconds of one run: the median of a few means over many launches in a row, or with cold caches one
        launch after twice the L2 was written."""
        call, first = self._loaded[number]
        if cold:
            self._trash = self._trash or self.device.allocate(2 * self.target.l2)
            self._trash.fill(0, 2 * self.target.l2, 0)
            return self._seconds(call, 1)
        if first > LONG_SECONDS:
            return self._seconds(call, 1)
        once = min(first, self._seconds(call, 1))
        calls = max(1, min(MOST_CALLS, int(SAMPLE_SECONDS / max(once, 1e-7))) // _GROUPS)
        return median(self._seconds(call, calls) for _ in range(_GROUPS))

    def finish(self, number: int, check: bool) -> Message:
        """Drop the kernel; with `check` look at its outputs once more, as races show only sometimes."""
        call, _ = self._loaded.pop(number)
        if not check:
            return {"status": "ok"}
        for output in self._outputs:
            output.poison()
        self._seconds(call, 1)
        return self._checked() or {"status": "ok"}

    def _seconds(self, call: Callable[[], None], times: int) -> float:
        try:
            return self.device.seconds(call, times)
        except Exception as error:
            _leave(error)


def _leave(error: Exception) -> NoReturn:
    """After a fault of the device its context is of no use to any kernel: only a new process has another."""
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)
