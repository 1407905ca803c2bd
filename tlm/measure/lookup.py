"""From a store to a schedule: the fastest measured choices of a workload, or why there are none."""

from __future__ import annotations

from dataclasses import dataclass

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
