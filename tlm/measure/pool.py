"""Builds candidates in parallel, in workers that are replaced where one hangs or dies."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from .child import Child, Died, Message, ready
from .limits import POLL_SECONDS, START_SECONDS, Going, Limits, Work
from .record import Json, Status, Values


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate after building: machine code and steps, or how it failed."""

    status: Status
    message: str = ""
    code: bytes = b""
    steps: tuple[Json, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Slot:
    """A place for one worker; `job` is the candidate that it builds."""

    child: Child | None = None
    workload: str = ""
    job: int | None = None
    deadline: float = 0.0


class Pool:
    """`builders` workers; started when first needed, kept until `close`."""

    def __init__(self, builders: int, limits: Limits, toolchain: str) -> None:
        self._slots = [_Slot() for _ in range(builders)]
        self._limits = limits
        self._toolchain = toolchain

    def build(self, work: Work, candidates: Sequence[Values], going: Going) -> list[Built | None]:
        """Build all candidates; None for those not done when `going` asked to stop."""
        results: list[Built | None] = [None] * len(candidates)
        waiting = deque(range(len(candidates)))
        while waiting or any(s.job is not None for s in self._slots):
            for slot in self._slots:
                if slot.job is None and waiting:
                    number = waiting.popleft()
                    self._start(slot, work, number, candidates[number])
            waiting.extendleft(self._collect(results))
            if not going():
                break
        for slot in self._slots:
            if slot.job is not None:
                self._end(slot)
        return results

    def close(self) -> None:
        """End all workers."""
        for slot in self._slots:
            self._end(slot)

    def _start(self, slot: _Slot, work: Work, number: int, values: Values) -> None:
        allowed = self._limits.build
        if slot.child is None or not slot.child.alive:
            self._end(slot)
            slot.child, slot.workload = Child(self._toolchain, self._limits.memory), ""
            allowed = START_SECONDS
        message: Message = {"job": "build", "values": list(values)}
        if slot.workload != work.key:
            message |= work.fields
        slot.workload, slot.job, slot.deadline = work.key, number, time.monotonic() + allowed
        # Where it has died, there is no answer either.
        with suppress(Died):
            slot.child.send(message)

    def _collect(self, results: list[Built | None]) -> list[int]:
        """Take the answers that are there; returns the jobs of workers that had died before they got them."""
        busy = {s.child: s for s in self._slots if s.job is not None and s.child is not None}
        undone: list[int] = []
        if not busy:
            return undone
        now = time.monotonic()
        nearest = min(s.deadline for s in busy.values()) - now
        for child in ready(list(busy), max(0.0, min(POLL_SECONDS, nearest))):
            slot = busy[child]
            assert slot.job is not None
            job = slot.job
            try:
                answer, code = child.receive()
                if answer.get("status") in ("ready", "begun"):
                    slot.deadline = time.monotonic() + self._limits.build
                    continue
                results[job] = _built(answer, code)
                slot.job = None
            except Died:
                if child.idle:
                    self._end(slot)
                    undone.append(job)
                else:
                    results[job] = self._failed(slot, "crash", "builder ")
        now = time.monotonic()
        for slot in busy.values():
            late = slot.job
            if late is not None and now > slot.deadline:
                results[late] = self._failed(slot, "timeout", f"not built in {self._limits.build:g} s; ")
        return undone

    def _failed(self, slot: _Slot, status: Status, why: str) -> Built:
        return Built(status, why + self._end(slot))

    def _end(self, slot: _Slot) -> str:
        child, slot.child, slot.job = slot.child, None, None
        return child.kill() if child is not None else ""


def _built(answer: Message, code: bytes) -> Built:
    if answer.get("status") != "ok":
        return Built("error", str(answer.get("message", "")))
    return Built("ok", "", code, tuple(answer["steps"]), dict(answer["versions"]))
