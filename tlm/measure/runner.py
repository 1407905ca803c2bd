"""Checks and times kernels inside a worker: inputs and reference are made once a workload."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np

from ..ir.nodes import Program
from ..target import Target
from . import arrays
from .build import Toolchain
from .child import Message
from .reference import Expected, reference, worst

SAMPLE_SECONDS = 1.5e-3
MOST_CALLS = 1000
LONG_SECONDS = 0.05
_GROUPS = 3
_LARGEST_COPY_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class _Loaded:
    call: Callable[[], None]
    first: float
    outputs: tuple[np.ndarray, ...]


class Runner:
    """Kernels of one workload. `workload` comes first, then `load`, `sample` and `finish` of each by id."""

    def __init__(self, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        self._loaded: dict[int, _Loaded] = {}
        self._parameters: list[arrays.Guarded] = []
        self._digests: list[int] = []
        self._expected: list[Expected] | None = None
        self._trash: np.ndarray | None = None
        self.program: Program
        self.target: Target

    def workload(self, program: Program, target: Target) -> None:
        """Change to another program or target; what was loaded is dropped."""
        self.program, self.target = program, target
        self._loaded.clear()
        self._parameters, self._expected = [], None

    def prepare(self) -> list[Expected]:
        """Make inputs and reference; the other methods do it too where it has not been done."""
        if self._expected is None:
            made = arrays.inputs(self.program)
            self._expected = [Expected(w) for w in reference(self.program, [g.array for g in made])]
            self._digests = [g.digest() for g in made]
            self._parameters = made + [arrays.allocate(b) for b in self.program.outputs]
        return self._expected

    @property
    def _outputs(self) -> list[arrays.Guarded]:
        return self._parameters[len(self.program.inputs) :]

    def load(self, number: int, code: bytes) -> Message:
        """Load machine code, run it once and check it: "ok" with the seconds of that run, or "wrong"."""
        self.prepare()
        pointers = tuple(p.pointer for p in self._parameters)
        call = self._toolchain.load(self.program, self.target, code, pointers)
        for output in self._outputs:
            output.poison()
        start = time.perf_counter()
        call()
        first = time.perf_counter() - start
        answer = self._checked()
        if answer is None:
            small = sum(o.size for o in self._outputs) <= _LARGEST_COPY_BYTES
            kept = tuple([o.array.copy() for o in self._outputs]) if small else ()
            self._loaded[number] = _Loaded(call, first, kept)
        return answer or {"status": "ok", "seconds": first}

    def _checked(self) -> Message | None:
        """None where every output is right and nothing else was written; else what is wrong, as an answer."""
        for buffer, guarded, want in zip(self.program.outputs, self._outputs, self.prepare(), strict=True):
            if not want.met_by(guarded.array):
                return {"status": "wrong", "message": f"{buffer.name}: {worst(guarded.array, want.want)}"}
        for buffer, guarded in zip(self.program.parameters, self._parameters, strict=True):
            if not guarded.intact():
                return {"status": "wrong", "message": f"wrote outside {buffer.name}"}
        for buffer, guarded, digest in zip(
            self.program.inputs, self._parameters, self._digests, strict=False
        ):
            if guarded.digest() != digest:
                return {"status": "wrong", "message": f"wrote into the input {buffer.name}"}
        return None

    def sample(self, number: int, cold: bool) -> float:
        """Seconds of one run: the median of a few means, over a bounded number of runs."""
        kernel = self._loaded[number]
        gc.disable()
        try:
            return self._cold(kernel) if cold else _warm(kernel)
        finally:
            gc.enable()

    def _cold(self, kernel: _Loaded) -> float:
        if self._trash is None:
            size = 2 * self.target.l2 + self.target.l3
            self._trash = np.zeros(min(size, 1 << 28) // 8)
        self._trash += 1.0
        return _timed(kernel.call, 1)

    def finish(self, number: int, check: bool) -> Message:
        """Drop the kernel; with `check` look at its outputs once more, as races show only sometimes."""
        kernel = self._loaded.pop(number)
        if not check:
            return {"status": "ok"}
        for output in self._outputs:
            output.poison()
        kernel.call()
        same = bool(kernel.outputs) and all(
            np.array_equal(o.array, k) and o.intact()
            for o, k in zip(self._outputs, kernel.outputs, strict=True)
        )
        return (None if same else self._checked()) or {"status": "ok"}


def _timed(call: Callable[[], None], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def _warm(kernel: _Loaded) -> float:
    # The first run after another kernel finds foreign code and data in the caches; it is not counted.
    if kernel.first > LONG_SECONDS:
        return _timed(kernel.call, 1)
    once = min(kernel.first, _timed(kernel.call, 1))
    calls = min(MOST_CALLS, int(SAMPLE_SECONDS / max(once, 1e-7)))
    if calls <= 1:
        return _timed(kernel.call, 1)
    return median(_timed(kernel.call, max(1, calls // _GROUPS)) for _ in range(_GROUPS))
