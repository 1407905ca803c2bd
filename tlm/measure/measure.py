"""Measures candidates: builds a batch in parallel, then, with the builders idle, checks and times it.

A candidate that crashes, hangs, computes something wrong or wants too much memory ends as a record with
that status.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module

from ..errors import BackendError
from ..ir.canonical import key as workload_key
from ..ir.nodes import Program
from ..ir.serialize import to_json
from ..target import Target, available_threads
from .limits import Going, Limits, Work
from .pool import Built, Pool
from .record import Cache, Record, Values
from .timer import Timer, Timing

Clock = Callable[[Values], float]
Watch = Callable[[int], bool]
Sink = Callable[[list[Record]], object]

BATCH = 32
MOST_BUILDERS = 8
TOOLCHAIN = "tlm.measure.build:LLVM"
_LONGEST_MESSAGE = 500


class Measurer:
    """Measures programs on `target`; BackendError where it cannot run here. For one thread, in a `with`.

    builders: processes that build at the same time, by default one a CPU that this process may use. clock:
    seconds of a candidate by its values, in place of running it (for tests, and for replaying
    measurements). cache: "warm" runs a kernel several times in a row, "cold" empties the caches before each
    run.
    """

    def __init__(
        self,
        target: Target,
        *,
        builders: int | None = None,
        clock: Clock | None = None,
        limits: Limits | None = None,
        cache: Cache = "warm",
        toolchain: str = TOOLCHAIN,
    ) -> None:
        if clock is None and toolchain == TOOLCHAIN and not target.runs_here():
            raise BackendError(
                f"this machine cannot run code for the target {target.name}, so it cannot measure it"
            )
        limits = limits or Limits()
        self.target = target
        self._clock, self._cache, self._toolchain = clock, cache, toolchain
        self._pool = Pool(builders or min(available_threads(), MOST_BUILDERS), limits, toolchain)
        self._timer = Timer(limits, toolchain, cache == "cold")
        self._best: dict[str, float] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The `versions` of its records."""
        module, _, name = self._toolchain.partition(":")
        found: dict[str, str] = getattr(import_module(module), name)().versions()
        return found

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
        """One record a candidate, in order, each value a choice of `space_for(program, target)`.

        best: seconds known to be possible; a candidate that is many times slower is run less often, once if
        it takes more than 20 ms. thorough: more rounds, for all. watch(done) is called at least twice a
        second and returns whether to go on; after a stop only the records so far come back. sink: gets the
        records of each batch as soon as it is measured.
        """
        work = Work(workload_key(program), to_json(program), self.target.to_json())
        records: list[Record] = []
        try:
            for batch in _batches(candidates):
                going = partial(watch, len(records)) if watch is not None else _always
                made = self._batch(work, batch, kind, best, thorough, going)
                records += made
                if sink is not None:
                    sink(made)
                if len(made) < len(batch) or not going():
                    break
        except BaseException:
            self.close()
            raise
        return records

    def _batch(
        self, work: Work, batch: Sequence[Values], kind: str, best: float, thorough: bool, going: Going
    ) -> list[Record]:
        built = self._pool.build(work, batch, going)
        codes = {n: b.code for n, b in enumerate(built) if b is not None and b.status == "ok"}
        best = min(best, self._best.get(work.key, math.inf))
        if self._clock is not None:
            timings = {n: Timing(seconds=[self._clock(batch[n])]) for n in codes}
        else:
            timings = self._timer.time(work, codes, best, thorough, going) if going() else {}
        records = []
        for n, (values, b) in enumerate(zip(batch, built, strict=True)):
            if b is not None and (b.status != "ok" or n in timings):
                records.append(self._record(work, values, b, timings.get(n), kind))
        self._best[work.key] = min([best, *(r.score for r in records)])
        return records

    def _record(self, work: Work, values: Values, built: Built, timing: Timing | None, kind: str) -> Record:
        status = built.status if timing is None else timing.status
        return Record(
            workload=work.key,
            program=work.program,
            target=work.target,
            choices=values,
            status=status,
            seconds=tuple(timing.seconds) if timing is not None and status == "ok" else (),
            message=(built.message if timing is None else timing.message)[:_LONGEST_MESSAGE],
            versions=built.versions,
            kind=kind,
            cache=self._cache,
            steps=built.steps,
        )

    def close(self) -> None:
        """End all workers. They start again when something is measured."""
        self._pool.close()
        self._timer.close()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _always() -> bool:
    return True


def _batches(candidates: Sequence[Values]) -> Iterator[Sequence[Values]]:
    return (candidates[n : n + BATCH] for n in range(0, len(candidates), BATCH))
