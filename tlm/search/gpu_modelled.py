"""Candidates judged by the analytic model of a GPU where there is no device: a search without measuring."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any

from ..errors import TlmError
from ..ir.canonical import key as workload_key
from ..ir.nodes import Program
from ..ir.serialize import to_json
from ..measure.measure import Sink, Watch
from ..measure.record import MODELLED, Record, Values
from ..schedule.steps import apply
from ..space.decide import Decided, replay
from ..space.spaces import space_for
from ..target import Target
from .gpu_cost import estimate

KIND = MODELLED
"""The kind of every record made here, whatever kind was asked for: its seconds are an estimate."""

NAME = "roofline-3"
"""The analytic model; another number where its estimates differ."""

VERSION = {"estimate": NAME}

Outcome = float | str
_LONGEST_MESSAGE = 500


def seconds(program: Program, target: Target, decided: Decided) -> float:
    """Seconds that the analytic model expects of a decided schedule of `program`."""
    return estimate(apply(program, decided.steps), target).seconds


class Modelled:
    """Stands in for a Measurer of a GPU that is not here. Its records must not go into a store of
    measurements (which refuses them); each says that it is an estimate in `kind`, `versions` and `message`.

    pool: processes that share the work, and how many they are.
    """

    def __init__(self, target: Target, pool: tuple[Executor, int] | None = None) -> None:
        self.target = target
        self.environment: dict[str, str] | None = None
        self._pool = pool

    def measure(
        self,
        program: Program,
        candidates: Sequence[Values],
        *,
        kind: str = "search",
        best: float = math.inf,
        thorough: bool = False,
        watch: Watch | None = None,
        sink: Sink | None = None,
    ) -> list[Record]:
        """One record a candidate, in order, each value a choice of `space_for(program, target)`. A repeated
        look says nothing new: `kind`, `best` and `thorough` change nothing. sink: gets all records."""
        about = workload_key(program), to_json(program), self.target.to_json()
        found = zip(candidates, self._outcomes(program, candidates, watch), strict=False)
        records = [_record(about, values, outcome) for values, outcome in found]
        if sink is not None:
            sink(records)
        return records

    def _outcomes(
        self, program: Program, candidates: Sequence[Values], watch: Watch | None
    ) -> Iterator[Outcome]:
        if self._pool is None:
            for number, values in enumerate(candidates):
                if watch is not None and not watch(number):
                    return
                yield from outcomes(program, self.target, [values])
            return
        executor, processes = self._pool
        part = max(1, -(-len(candidates) // processes))
        parts = [candidates[n : n + part] for n in range(0, len(candidates), part)]
        for made in executor.map(partial(outcomes, program, self.target), parts):
            yield from made

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Modelled:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _record(about: tuple[str, Any, Any], values: Values, outcome: Outcome) -> Record:
    if isinstance(outcome, str):
        return Record(*about, values, "error", (), outcome, VERSION, KIND)
    return Record(*about, values, "ok", (outcome,), "an estimate, not measured", VERSION, KIND)


def outcomes(program: Program, target: Target, candidates: Sequence[Values]) -> list[Outcome]:
    """The estimated seconds of each candidate, or why it has none."""
    found: list[Outcome] = []
    for values in candidates:
        try:
            found.append(seconds(program, target, replay(space_for(program, target), values)))
        except TlmError as error:
            found.append(f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE])
    return found


@contextmanager
def modelled_in(processes: int) -> Iterator[Callable[[Target], Modelled]]:
    """What makes a `Modelled` of a target; all of them share spawned processes."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as executor:
        yield lambda target: Modelled(target, (executor, processes))
