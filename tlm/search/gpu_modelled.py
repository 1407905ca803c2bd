"""Candidates judged by the analytic model of a GPU where there is no device: a search without measuring."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.canonical import key as workload_key
from ..ir.nodes import Program
from ..ir.serialize import to_json
from ..measure.measure import Watch
from ..measure.record import Record, Values
from ..schedule.steps import apply
from ..space.decide import replay
from ..space.spaces import space_for
from ..target import Target
from .gpu_cost import estimate

KIND = "modelled"
"""The kind of every record made here, whatever kind was asked for: its seconds are an estimate."""

VERSION = {"estimate": "roofline-1"}


class Modelled:
    """Stands in for a Measurer of a GPU that is not here. Its records must not go into a store of
    measurements; each says that it is an estimate in `kind`, `versions` and `message`."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def measure(
        self,
        program: Program,
        candidates: Sequence[Values],
        *,
        kind: str = "search",
        best: float = math.inf,
        thorough: bool = False,
        watch: Watch | None = None,
    ) -> list[Record]:
        """One record a candidate, in order, each value a choice of `space_for(program, target)`."""
        workload, described, machine = workload_key(program), to_json(program), self.target.to_json()
        records: list[Record] = []
        for number, values in enumerate(candidates):
            if watch is not None and not watch(number):
                break
            found = replay(space_for(program, self.target), values)
            seconds = estimate(apply(program, found.steps), self.target).seconds
            records.append(
                Record(
                    workload, described, machine, values, "ok", (seconds,), "an estimate, not measured",
                    VERSION, KIND,
                )
            )  # fmt: skip
        return records
