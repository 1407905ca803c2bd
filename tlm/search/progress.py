"""What a search says while it runs, and what it gives back; and how it is stopped from the keyboard."""

from __future__ import annotations

import math
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from ..measure.record import Record, Values

Report = Callable[["Progress"], None]


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a search. `total` and `left` (seconds) are None where only the other limit is known.

    `again`: all candidates are measured, and the fastest of them are timed once more.
    """

    done: int
    total: int | None
    failed: int
    best: float
    elapsed: float
    left: float | None
    again: bool = False

    def __str__(self) -> str:
        # A store may hold more of them than were asked for.
        total = "" if self.total is None or self.total < self.done else f"/{self.total}"
        best = f"{1e3 * self.best:.4g} ms" if math.isfinite(self.best) else "none yet"
        left = "" if self.left is None else f", {self.left:.0f} s left"
        if self.again:
            left = ", timing the fastest again"
        return f"{self.done}{total} measured, {self.failed} failed, best {best}, {self.elapsed:.0f} s{left}"


@dataclass(slots=True)
class Result:
    """The outcome of a search.

    `best` are the choice values of the fastest schedule and `seconds` its time, None and inf where all
    failed. `records` are the measurements of this call, final re-timings last; `history` holds (measured,
    seconds since the start, best time) after each batch. `spent` are the seconds of each part; `stopped`
    says what ended the search: "trials", "seconds", "exhausted" (nothing new in the space) or
    "interrupted".
    """

    best: Values | None = None
    seconds: float = math.inf
    records: list[Record] = field(default_factory=list)
    history: list[tuple[int, float, float]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)
    stopped: str = "trials"
    reused: int = 0

    @property
    def measured(self) -> int:
        """Candidates measured by this call, without the final re-timings."""
        return sum(r.kind != "final" for r in self.records)

    @property
    def summary(self) -> str:
        """One line: how many were measured and reused, how they ended, and what ended the search."""
        counts = Counter(r.status for r in self.records if r.kind != "final")
        outcome = ", ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "nothing new"
        return f"{self.measured} measured ({outcome}), {self.reused} from the store, ended by {self.stopped}"

    @property
    def failures(self) -> str:
        """The summary, and the commonest message of each way to fail, those of most candidates first."""
        by_status: dict[str, Counter[str]] = {}
        for r in self.records:
            if r.status != "ok":
                by_status.setdefault(r.status, Counter())[r.message] += 1
        ordered = sorted(by_status.items(), key=lambda item: -item[1].total())
        told = [f"{status}: {messages.most_common(1)[0][0][:200]}" for status, messages in ordered]
        return "; ".join([self.summary, *told])


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a flag that the yielded function reads; a second one raises as usual.

    Elsewhere than in the main thread, or where the program handles SIGINT itself, nothing is changed.
    """
    asked = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    mine = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if mine:
        signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: asked
    finally:
        if mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)
