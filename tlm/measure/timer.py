"""Times built candidates in one worker, alone: in rounds over all of them, so that noise is shared."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from .child import Child, Died, Message, ready
from .limits import POLL_SECONDS, START_SECONDS, Going, Limits, Work
from .record import Status

PREPARE_SECONDS = 300.0
# A candidate this many times slower than the best, after so many rounds, is not run again.
KEEP = (2.0, 1.25)
ROUNDS, MORE_ROUNDS = 3, 6
THOROUGH_ROUNDS, THOROUGH_SECONDS = 15, 2.0
FAR_SLOWER = 4.0
# Of runs shorter than this the first one says little: it has page faults and cache misses, and with several
# threads it may wait for one that the system has not woken, or has put beside another, for some ticks.
FIRST_RUN_COUNTS_SECONDS = 20e-3
# The machine is faster and slower by turns: only many rounds tell programs apart that are this close.
CLOSE = 1.12


@dataclass(slots=True)
class Timing:
    """What timing gave: `seconds` of each round; the status changes where something fails."""

    status: Status = "ok"
    message: str = ""
    seconds: list[float] = field(default_factory=list)
    first: float = math.inf

    @property
    def best(self) -> float:
        return min(self.seconds, default=self.first)


class Stopped(Exception):
    """The caller asked to stop."""


class Timer:
    """One worker; started when first needed, replaced when a candidate hangs or crashes it."""

    def __init__(self, limits: Limits, toolchain: str, cold: bool) -> None:
        self._limits, self._toolchain, self._cold = limits, toolchain, cold
        self._child: Child | None = None
        self._workload = ""
        self._loaded: set[int] = set()

    def time(
        self, work: Work, codes: Mapping[int, bytes], best: float, thorough: bool, going: Going
    ) -> dict[int, Timing]:
        """Check and time candidates by number. Stopped early, those without a single round are left out."""
        batch = _Batch(self, work, codes, best, going)
        try:
            batch.load_all()
            batch.rounds(thorough)
            batch.finish_all()
        except Stopped:
            self.close()
        self._loaded.clear()
        return {n: t for n, t in batch.timings.items() if t.status != "ok" or t.seconds}

    def close(self) -> str:
        """End the worker; returns how it ended."""
        child, self._child = self._child, None
        self._workload, self._loaded = "", set()
        return child.kill() if child is not None else ""

    def ask(self, work: Work, message: Message, blob: bytes, seconds: float, going: Going) -> Message:
        """One request; TimeoutError where there is no answer in time, Died where the worker has died."""
        assert self._child is not None
        if self._workload != work.key:
            self._workload, self._loaded = work.key, set()
            message = message | work.fields
        self._child.send(message, blob)
        self._next(self._child, seconds, going)
        return self._next(self._child, seconds, going)

    def _next(self, child: Child, seconds: float, going: Going) -> Message:
        end = time.monotonic() + seconds
        while not ready([child], max(0.0, min(POLL_SECONDS, end - time.monotonic()))):
            if not going():
                raise Stopped
            if time.monotonic() > end:
                raise TimeoutError
        return child.receive()[0]

    def ensure_loaded(self, work: Work, number: int, code: bytes, limit: float, going: Going) -> Message:
        """Load a candidate unless the present worker has it."""
        if self._child is None or not self._child.alive:
            self.close()
            self._child = Child(self._toolchain, self._limits.memory)
            self._next(self._child, START_SECONDS, going)
        if self._workload != work.key:
            answer = self.ask(work, {"job": "prepare"}, b"", PREPARE_SECONDS, going)
            if answer["status"] != "ok":
                return answer
        if number in self._loaded:
            return {"status": "ok"}
        answer = self.ask(work, {"job": "load", "id": number}, code, limit, going)
        if answer["status"] == "ok":
            self._loaded.add(number)
        return answer

    @property
    def idle(self) -> bool:
        """Whether the worker has not begun the last request, and had no reason in it to die."""
        return self._child is not None and self._child.idle

    @property
    def cold(self) -> bool:
        return self._cold

    @property
    def limits(self) -> Limits:
        return self._limits


class _Batch:
    """The candidates of one call, and what is known of them so far."""

    def __init__(
        self, timer: Timer, work: Work, codes: Mapping[int, bytes], best: float, going: Going
    ) -> None:
        self._timer, self._work, self._codes, self._going = timer, work, codes, going
        self._best = best
        self.timings = {n: Timing() for n in codes}

    def _alive(self) -> list[int]:
        return [n for n, t in self.timings.items() if t.status == "ok"]

    def _request(self, number: int, message: Message | None, again: bool = True) -> Message | None:
        """Have a candidate loaded, then send a message about it; None where it fails in any way.

        again: whether another worker may be asked where this one turns out to have died before.
        """
        timing, limit = self.timings[number], self._timer.limits.first_run(self._best)
        try:
            answer = self._timer.ensure_loaded(self._work, number, self._codes[number], limit, self._going)
            if answer["status"] == "ok" and message is not None:
                # It has run once in time, so that only a hang or a very busy machine can make it late now.
                limit = self._timer.limits.run
                answer = self._timer.ask(self._work, message | {"id": number}, b"", limit, self._going)
        except TimeoutError:
            timing.status, timing.message = "timeout", f"no end after {limit:.3g} s; {self._timer.close()}"
            return None
        except Died:
            idle, how = self._timer.idle, self._timer.close()
            if idle and again:
                return self._request(number, message, again=False)
            timing.status, timing.message = "crash", how
            return None
        if answer["status"] != "ok":
            timing.status, timing.message = answer["status"], str(answer.get("message", ""))
            if timing.status == "wrong":
                # It may have written where the inputs or the code of others are: the rest gets a new process.
                self._timer.close()
            return None
        return answer

    def load_all(self) -> None:
        for number, timing in self.timings.items():
            answer = self._request(number, None)
            if answer is not None:
                timing.first = float(answer["seconds"])
                self._best = min(self._best, timing.first)

    def rounds(self, thorough: bool) -> None:
        running = []
        for number in self._alive():
            timing = self.timings[number]
            if not thorough and timing.first > max(FIRST_RUN_COUNTS_SECONDS, FAR_SLOWER * self._best):
                timing.seconds.append(timing.first)
            else:
                running.append(number)
        for done in range(1, (THOROUGH_ROUNDS if thorough else ROUNDS + MORE_ROUNDS) + 1):
            for number in running:
                self._sample(number)
            running = [
                n for n in running if self.timings[n].status == "ok" and self._again(n, done, thorough)
            ]

    def _again(self, number: int, done: int, thorough: bool) -> bool:
        timing = self.timings[number]
        if thorough:
            return done < ROUNDS or done * timing.best < THOROUGH_SECONDS
        if done < ROUNDS:
            return timing.best <= KEEP[done - 1] * self._best
        return timing.best <= CLOSE * self._best

    def _sample(self, number: int) -> None:
        answer = self._request(number, {"job": "time", "cold": self._timer.cold})
        if answer is not None:
            self.timings[number].seconds.append(float(answer["seconds"]))
            self._best = min(self._best, self.timings[number].best)

    def finish_all(self) -> None:
        for number in self._alive():
            # Kernels far from the best are not worth another run.
            check = self.timings[number].best <= FAR_SLOWER * self._best
            self._request(number, {"job": "finish", "check": check})
