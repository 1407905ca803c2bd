"""What a model is trained for: targets of one kind, workloads to learn from, and how programs are judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..ir.nodes import Program
from ..measure.measure import Measurer
from ..space.decide import Decided
from ..target import Target, host
from .shapes import LEARNED, MOST_WORK, Families, Pair, Work, all_held_out, machines

Judge = Callable[[Program, Target, Decided], float]
"""Seconds that an analytic model expects of a program; it can be sent to another process."""

MOST_IMAGINED = 6_000_000_000


@dataclass(frozen=True, slots=True)
class Fleet:
    """`shares`: the targets, with the share of the effort that each one gets. `families`: of workloads to
    learn from, `held_out` those never learned from. `measurer` makes what times candidates of a target.

    estimates: the name of the analytic model that stands in for a clock, empty where programs are measured;
    then `judge` is that model. most_work, most_imagined: multiply-adds of workloads that are measured, and of
    imagined ones.
    """

    kind: str
    shares: tuple[tuple[Target, float], ...]
    families: Families
    held_out: tuple[Work, ...]
    measurer: Callable[[Target], Any]
    estimates: str = ""
    judge: Judge | None = None
    most_work: int = MOST_WORK
    most_imagined: int = MOST_IMAGINED
    hidden: frozenset[Pair] = field(init=False)
    """Pairs of extents of everything that is held out."""

    def __post_init__(self) -> None:
        pairs = frozenset[Pair]().union(*(work.pairs for work in self.held_out))
        object.__setattr__(self, "hidden", pairs)

    @property
    def about(self) -> dict[str, Any]:
        """What tells a run of this fleet from one of another; of this machine nothing more needs to be
        said."""
        if self.kind == "cpu":
            return {}
        return {"kind": self.kind, "estimates": self.estimates, "targets": [t.key for t, _ in self.shares]}


def of_host(families: Families = LEARNED, measurer: Callable[[Target], Any] = Measurer) -> Fleet:
    """The CPU targets that this machine can time."""
    return Fleet("cpu", tuple(machines(host())), families, all_held_out(families), measurer)
