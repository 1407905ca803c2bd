"""From a store to a schedule: the fastest measured choices of a workload, or why there are none."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import RecordError, TlmWarning
from ..ir.canonical import key as workload_key
from ..ir.nodes import Program
from ..target import Target
from .record import Record
from .store import Store


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a look-up: `record`, or None and the reason."""

    record: Record | None
    reason: str = ""


def look_up(store: Store, program: Program, target: Target) -> Found:
    """The fastest record of `program` on `target`; without one, `reason` tells why, with counts."""
    key = workload_key(program)
    best = store.best(key, target.key)
    if best is not None:
        return Found(best)
    counts = store.counts(key, target.key)
    failed = counts.statuses.total()
    if failed:
        by_status = ", ".join(f"{n} {status}" for status, n in sorted(counts.statuses.items()))
        return Found(None, f"all {failed} records of {program.name} in {store.path} failed ({by_status})")
    if counts.others:
        names = "; ".join(counts.other_names)
        return Found(
            None,
            f"{store.path} holds {counts.others} records, but none of {program.name} on this target: {names}",
        )
    return Found(None, f"{store.path} is empty")


def best_choices(store: Store, program: Program, target: Target) -> tuple[int | str, ...] | None:
    """The values of the fastest measured schedule; None after one warning: use the default schedule."""
    try:
        found = look_up(store, program, target)
    except RecordError as e:
        found = Found(None, str(e))
    if found.record is not None:
        return found.record.choices
    warnings.warn(
        f"no measured schedule for {program.name}: {found.reason}; the default schedule is used",
        TlmWarning,
        stacklevel=2,
    )
    return None


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which workloads of a model a store knows. Prints as "k of n workloads found", and the ones missed."""

    found: tuple[str, ...]
    missed: tuple[str, ...]

    def __str__(self) -> str:
        total = len(self.found) + len(self.missed)
        text = f"{len(self.found)} of {total} workloads found"
        return f"{text}; missed: {', '.join(self.missed)}" if self.missed else text


def coverage(store: Store, programs: Sequence[Program], target: Target) -> Coverage:
    """How many of `programs` have a measured schedule for `target`, and the names of those that have none."""
    found: list[str] = []
    missed: list[str] = []
    for program in programs:
        hit = look_up(store, program, target).record is not None
        (found if hit else missed).append(f"{program.name} {workload_key(program)[:8]}")
    return Coverage(tuple(found), tuple(missed))
