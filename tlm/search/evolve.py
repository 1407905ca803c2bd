"""Evolutionary search with a learned cost model, in the manner of Ansor (Zheng et al., OSDI 2020).

Each batch is what the model likes best of some generations of changed and crossed sentences, and a part by
dice. At the end the fastest few are timed again, one at a time, so that a lucky first timing does not win.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from ..errors import RecordError, TlmWarning
from ..ir.canonical import key as workload_key
from ..ir.nodes import Program
from ..lang.encode import prompt as encode
from ..lang.features import matrix
from ..measure.measure import Watch
from ..measure.record import Record, Values
from ..measure.standing import fastest, times
from ..measure.store import Store
from ..space.choice import Space
from ..space.decide import Decided, run
from ..space.spaces import space_for
from ..target import Target
from . import cost
from .heuristic import heuristic
from .progress import Progress, Report, Result, interruption
from .propose import Proposer

BATCH = 32
FIRST_BATCH = 24
LEAST_TO_FIT = 12
DICE = 0.15
TOP = 8
REPORT_SECONDS = 2.0
# What timing the fastest again may take beyond a limit of seconds: a part of it, or so many seconds.
AGAIN_PART, AGAIN_SECONDS = 0.25, 5.0


class Measures(Protocol):
    """What a search needs of a Measurer."""

    @property
    def environment(self) -> Mapping[str, str] | None:
        """The `versions` of records whose times can be compared; None: of all."""

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
        """See `Measurer.measure`."""


def search(
    program: Program,
    target: Target,
    measurer: Measures,
    *,
    trials: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    progress: Report | None = None,
    store: Store | None = None,
    resume: bool = True,
    first: Sequence[Values] = (),
    model: str | Path | None = None,
    space: Callable[[], Space] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Result:
    """The fastest schedule of `program` (unscheduled) that measuring finds.

    Ends after `trials` candidates (those of the store count, where `resume`), after `seconds` and at most a
    quarter more (or five) to time the fastest again, when the space is exhausted, or at Ctrl-C, which gives
    the best so far. With neither limit 200 are tried. `first` are candidates to begin with, beside the
    heuristic's. New records go to `store` after each batch. Of those that another version or machine made,
    the fastest are measured among the first; their times count for nothing.
    `progress` is called every few seconds. `model` is a file from which a cost model is read and to which
    it is written. The same seed and the same timings give the same search.
    """
    if trials is None and seconds is None:
        trials = 200
    queue = list(first)
    if space is None:
        queue.append(run(space_for(program, target), heuristic).values)
    proposer = Proposer(space or (lambda: space_for(program, target)), Random(seed))
    searching = _Search(program, target, measurer, proposer, _Limits(trials, seconds, now), progress, store)
    with interruption() as asked:
        searching.interrupted = asked
        if resume:
            searching.resume()
        searching.begin([*searching.elsewhere, *queue], None if model is None else _load_model(model))
        while searching.batch():
            pass
        searching.finish()
    if model is not None and searching.model is not None:
        cost.save(searching.model, model)
    return searching.result


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a search may spend, and the clock that tells."""

    trials: int | None
    seconds: float | None
    now: Callable[[], float]


class _Search:
    """One search: everything known of the workload, and the clock."""

    def __init__(
        self,
        program: Program,
        target: Target,
        measurer: Measures,
        proposer: Proposer,
        limits: _Limits,
        progress: Report | None,
        store: Store | None,
    ) -> None:
        self.program, self.target, self.measurer, self.proposer = program, target, measurer, proposer
        self.trials, self.seconds, self.now = limits.trials, limits.seconds, limits.now
        self.progress, self.store = progress, store
        self.prompt = encode(program, target)
        self.key = workload_key(program)
        self.known: dict[Values, Decided] = {}
        self.scores: dict[Values, float] = {}
        self.finals: set[Values] = set()
        self.disproved: set[Values] = set()
        self.records: list[Record] = []
        self.elsewhere: list[Values] = []
        self.waiting: list[Decided] = []
        self.result = Result()
        self.interrupted: Callable[[], bool] = lambda: False
        self.model: cost.CostModel | None = None
        self.start = self.now()
        self.reported = self.start

    def begin(self, first: Sequence[Values], model: cost.CostModel | None) -> None:
        """Queue the candidates to begin with, of those that the space offers."""
        queue = {v: d for v in first if (d := self.proposer.replayed(v)) is not None}
        self.waiting = [d for v, d in queue.items() if v not in self.scores]
        self.model = model

    def resume(self) -> None:
        """Take over what the store knows of the workload."""
        lost, others = 0, list[Record]()
        found = [] if self.store is None else self.store.records(self.key, self.target.key)
        environment = self.measurer.environment if found else None
        for record in found:
            if record.cache != "warm":
                continue
            decided = self.known.get(record.choices) or self.proposer.replayed(record.choices)
            if decided is None:
                lost += 1
                continue
            # A build that failed left no word of its versions; it is not tried again.
            if environment is None or not record.versions or record.versions == environment:
                self._learn(record, decided)
            else:
                others.append(record)
        self.result.reused = len(self.scores)
        seconds = times(others)
        self.elsewhere = sorted(seconds, key=lambda values: seconds[values])[:TOP]
        if lost:
            warnings.warn(
                f"{lost} records of {self.program.name} are of another version of its space and"
                " cannot be used",
                TlmWarning,
                stacklevel=4,
            )

    def _learn(self, record: Record, decided: Decided) -> None:
        values = record.choices
        self.known[values] = decided
        self.records.append(record)
        self.scores[values] = min(record.score, self.scores.get(values, math.inf))
        if record.status == "wrong":
            self.disproved.add(values)
        if values in self.disproved:
            self.scores[values] = math.inf
        if record.kind == "final":
            self.finals.add(values)

    @property
    def best(self) -> float:
        return min(self.scores.values(), default=math.inf)

    def batch(self) -> bool:
        """Propose, measure and learn from one batch; False where the search is over."""
        size = self._size()
        if size <= 0:
            return False
        if len(self.scores) >= LEAST_TO_FIT:
            self._fit()
        with self._timed("propose"):
            chosen = self._choose(size)
        if not chosen:
            self.result.stopped = "exhausted"
            return False
        with self._timed("measure"):
            records = self.measurer.measure(
                self.program, [d.values for d in chosen], best=self.best, watch=self._watch(len(self.scores))
            )
        self._keep(records, chosen)
        self.result.history.append((self.result.measured, self.now() - self.start, self.best))
        self._report(len(self.scores))
        if not records:
            self._size()
        return bool(records)

    def _size(self) -> int:
        """Candidates of the next batch; 0 where a limit is reached."""
        if self.interrupted():
            self.result.stopped = "interrupted"
            return 0
        if self._late():
            self.result.stopped = "seconds"
            return 0
        size = BATCH if self.scores else FIRST_BATCH
        if self.trials is None:
            return size
        # Few trials are better spent in more, smaller batches.
        return min(size, max(8, self.trials // 8), self.trials - len(self.scores))

    def _choose(self, size: int) -> list[Decided]:
        chosen, self.waiting = self.waiting[:size], self.waiting[size:]
        seen = {*self.scores, *(d.values for d in chosen)}
        if self.model is not None:
            ranked = sorted(self.scores, key=lambda v: self.scores[v])
            parents = [self.known[v] for v in ranked if math.isfinite(self.scores[v])]
            count = size - len(chosen) - round(DICE * size)
            chosen += self.proposer.evolved(count, parents, self.model, self.prompt, seen)
            seen.update(d.values for d in chosen)
        return chosen + self.proposer.fresh(size - len(chosen), seen)

    def _fit(self) -> None:
        with self._timed("fit"):
            values = list(self.scores)
            x = matrix(self.prompt, [self.known[v].choices for v in values])
            times = [self.scores[v] for v in values]
            self.model = cost.fit(x, cost.labels(times, [self.key] * len(times)))

    def _keep(self, records: Sequence[Record], decided: Sequence[Decided]) -> None:
        by_values = {d.values: d for d in decided}
        for record in records:
            self._learn(record, by_values[record.choices])
        self.result.records += records
        if self.store is not None:
            self.store.add(records)

    def finish(self) -> None:
        """Time the fastest again, and say which one is best."""
        ranked = sorted(self.scores, key=lambda v: self.scores[v])
        top = [v for v in ranked[:TOP] if math.isfinite(self.scores[v])]
        again = [v for v in top if v not in self.finals]
        if again and not self.interrupted():
            # The best of earlier finals runs along, as times of different sessions differ by a little.
            again += [v for v in top if v in self.finals][:1]
            with self._timed("final"):
                records = self.measurer.measure(
                    self.program, again, kind="final", thorough=True, watch=self._watch_again
                )
            self._keep(records, [self.known[v] for v in again])
        best = fastest(self.records)
        if best is not None:
            self.result.best, self.result.seconds = best.choices, best.score

    def _late(self, more: float = 0.0) -> bool:
        return self.seconds is not None and self.now() - self.start >= self.seconds + more

    def _watch(self, before: int) -> Watch:
        def watch(done: int) -> bool:
            if self.now() - self.reported >= REPORT_SECONDS:
                self._report(before + done)
            return not self.interrupted() and not self._late()

        return watch

    def _watch_again(self, done: int) -> bool:
        if self.now() - self.reported >= REPORT_SECONDS:
            self._report(len(self.scores), again=True)
        more = 0.0 if self.seconds is None else max(AGAIN_SECONDS, AGAIN_PART * self.seconds)
        return not self.interrupted() and not self._late(more)

    def _report(self, done: int, again: bool = False) -> None:
        self.reported = self.now()
        if self.progress is None:
            return
        elapsed = self.reported - self.start
        new = done - self.result.reused
        lefts = [] if self.seconds is None else [self.seconds - elapsed]
        if self.trials is not None and new > 0:
            lefts.append(elapsed / new * (self.trials - done))
        failed = sum(not math.isfinite(s) for s in self.scores.values())
        left = max(0.0, min(lefts)) if lefts else None
        self.progress(Progress(done, self.trials, failed, self.best, elapsed, left, again))

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = self.now()
        yield
        self.result.spent[part] = self.result.spent.get(part, 0.0) + self.now() - start


def _load_model(path: str | Path) -> cost.CostModel | None:
    if not Path(path).exists():
        return None
    try:
        return cost.load(path)
    except RecordError as e:
        warnings.warn(f"{e}; the search fits a new one", TlmWarning, stacklevel=4)
        return None
