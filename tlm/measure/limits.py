"""How much time and memory a candidate may take, and what is asked of the workers about one workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .child import Message

Going = Callable[[], bool]
"""Called at least twice a second; False asks to stop."""

POLL_SECONDS = 0.5
START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one candidate: seconds to build it, seconds to run it, bytes of memory beyond the worker's own.

    A candidate that needs `patience` times the best known time of its workload (and more than two seconds) is
    ended.
    """

    build: float = 10.0
    run: float = 10.0
    memory: int = 8 << 30
    patience: float = 50.0

    def first_run(self, best: float) -> float:
        """Seconds that a first run may take where `best` seconds are known to be enough."""
        return min(self.run, max(2.0, self.patience * best))


@dataclass(frozen=True, slots=True)
class Work:
    """A workload as workers get it."""

    key: str
    program: Message
    target: Message

    @property
    def fields(self) -> Message:
        return {"program": self.program, "target": self.target}
