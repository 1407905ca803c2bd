"""Several ways of computing the same, timed in turn on the GPU's own clock, with caches warm or cold.

Each round times every call once, in an order that rotates, so that whatever slows the GPU slows all. A ratio
is the median of the ratios of the rounds. Work is queued behind a filler, so that the CPU's time for
launching does not count. Cold: before each call a buffer larger than the L2 cache is written.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

Call = Callable[[], Any]

OURS = "tlm"
# Seconds of calls in one measurement of a warm round, and the most calls.
_BATCH, _MOST = 2e-3, 50


class Clock(Protocol):
    """Seconds of one call: the mean of `number` calls in a row, or of cold calls one by one."""

    def warm(self, call: Call, number: int) -> float: ...

    def cold(self, call: Call, number: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Times:
    """Medians in seconds by name, and the medians of the ratios name / tlm of the rounds.

    `failures`: name -> why there are no times of it.
    """

    seconds: dict[str, float]
    ratios: dict[str, float]
    rounds: int
    failures: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "ratios": self.ratios,
            "rounds": self.rounds,
            "failures": self.failures,
        }


def reason(error: BaseException) -> str:
    """One line of an exception."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no reason given'}"[:300]


def measure(calls: dict[str, Call], clock: Clock, *, rounds: int, cold: bool) -> Times:
    """Time the calls in turn for `rounds` rounds; what raises is left out, with its reason."""
    alive, failures = dict(calls), {}
    numbers: dict[str, int] = {}
    taken: list[dict[str, float]] = []
    timed = clock.cold if cold else clock.warm
    for name, call in calls.items():
        try:
            call()
            once = max(clock.warm(call, 1), 1e-7)
            numbers[name] = 2 if cold else max(1, min(_MOST, int(_BATCH / once)))
        except Exception as error:
            failures[name] = reason(error)
            del alive[name]
    for n in range(rounds):
        row: dict[str, float] = {}
        names = list(alive)
        for name in names[n % max(len(names), 1) :] + names[: n % max(len(names), 1)]:
            try:
                row[name] = timed(alive[name], numbers[name])
            except Exception as error:
                failures[name] = reason(error)
                del alive[name]
        taken.append(row)
    seconds = {name: statistics.median([row[name] for row in taken]) for name in alive if taken}
    ratios = {
        name: statistics.median([row[name] / row[OURS] for row in taken])
        for name in seconds
        if name != OURS and OURS in seconds
    }
    return Times(seconds, ratios, len(taken), failures)


class GpuClock:
    """CUDA events on CuPy's current stream. `flush`: bytes that are written before a cold call."""

    def __init__(self, cupy: Any, flush: int) -> None:
        self._cuda = cupy.cuda
        self._room = cupy.empty(flush, "u1")
        self._fill()

    def _fill(self) -> None:
        self._room.fill(0)

    def warm(self, call: Call, number: int) -> float:
        start, end = self._cuda.Event(), self._cuda.Event()
        # Long enough for the CPU to queue all calls: launches take it a few microseconds each.
        for _ in range(1 + number // 8):
            self._fill()
        call()
        start.record()
        for _ in range(number):
            call()
        end.record()
        end.synchronize()
        return float(self._cuda.get_elapsed_time(start, end)) / 1e3 / number

    def cold(self, call: Call, number: int) -> float:
        total = 0.0
        for _ in range(number):
            start, end = self._cuda.Event(), self._cuda.Event()
            self._fill()
            start.record()
            call()
            end.record()
            end.synchronize()
            total += float(self._cuda.get_elapsed_time(start, end)) / 1e3
        return total / number
