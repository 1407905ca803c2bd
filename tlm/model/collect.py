"""Measuring many shapes a little: the data that everything is learned from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from ..errors import RecordError
from ..ir import canonical
from ..ir.nodes import Program
from ..measure.measure import Measurer
from ..measure.record import MODELLED, Record, Values
from ..measure.standing import counting, fastest
from ..measure.store import Store
from ..space.decide import Decide, Decided, at_random, changed, replay, run
from ..space.spaces import space_for
from ..target import Target, host
from .fleet import Fleet
from .progress import Progress, silent
from .shapes import COMMON, PRODUCTS, Families, Work, machines, training

Job = tuple[Work, Target]

TRIALS = 48
"""Programs of one shape: more shapes teach more than more programs of a shape."""

_RANDOM = 0.55  # share of the programs that are measured before any is changed
_NEIGHBOURS, _PARENTS = 6, 6
_BLOCK = 48  # jobs that are sorted by target, as workers are started anew for each target
_SLOWEST_SECONDS = 0.05  # of one run at a tenth of the peak: shapes that take longer cost too much


@dataclass(frozen=True, slots=True)
class Summary:
    """What `collect` did: jobs measured and skipped (already in the store), programs, failures, seconds."""

    measured: int
    skipped: int
    programs: int
    failures: int
    seconds: float


def jobs(shapes: Sequence[Work], shares: Sequence[tuple[Target, float]], seed: int) -> list[Job]:
    """Each shape with one target, dealt by the shares; those too slow on their target get the fastest one."""
    rng, dealt = Random(f"jobs {seed}"), []
    for shape in shapes:
        target = rng.choices([t for t, _ in shares], [share for _, share in shares])[0]
        dealt.append((shape, target if _seconds(shape, target) < _SLOWEST_SECONDS else shares[0][0]))
    blocks = [dealt[n : n + _BLOCK] for n in range(0, len(dealt), _BLOCK)]
    order = [t.key for t, _ in shares]
    return [job for block in blocks for job in sorted(block, key=lambda job: order.index(job[1].key))]


def _seconds(shape: Work, target: Target) -> float:
    """Seconds of one run at a tenth of the peak: of a GPU, or of a core at 3 GHz with two vector units."""
    if target.kind == "cuda":
        return shape.work / (0.1 * target.threads * target.fma_rate * target.clock * 1e6)
    return shape.work / (0.1 * 3e9 * 2 * (target.vector_bytes / 4) * (1.0 if target.fma else 0.5))


def collect(
    store_path: str | Path,
    *,
    shapes: int | Sequence[Work] = 300,
    trials: int = TRIALS,
    seconds: float | None = None,
    targets: Sequence[Target] | None = None,
    seed: int = 0,
    families: Families = PRODUCTS,
    common: Sequence[Work] = COMMON,
    heuristic: Decide | None = None,
    progress: Progress = silent,
    measurer: Callable[[Target], Any] = Measurer,
    fleet: Fleet | None = None,
) -> Summary:
    """Measure `trials` programs of each shape on one of the targets, and keep every record.

    shapes: how many of `shapes.training` over `families` with `common`, or the workloads themselves. seconds:
    end after the shape that is running by then. targets: by default those that this machine can run, at one
    thread and at all of them.
    heuristic: a decider whose programs, and neighbours of them, are among the first. Shapes that the store
    has are skipped, so a killed run goes on where it was. fleet: takes the place of targets, families and
    measurer; one whose programs are estimated needs a store of its own.
    """
    if fleet is not None:
        shares, measurer = list(fleet.shares), fleet.measurer
        if isinstance(shapes, int):
            hidden, most = fleet.hidden, fleet.most_work
            shapes = training(shapes, seed, fleet.families, common, hidden=hidden, most_work=most)
    else:
        shares = machines(host()) if targets is None else [(t, 1.0 / len(targets)) for t in targets]
    if isinstance(shapes, int):
        shapes = training(shapes, seed, families, common)
    todo = jobs(shapes, shares, seed)
    began, measured, skipped, programs, failures = time.monotonic(), 0, 0, 0, 0
    with Store(store_path, estimates=fleet is not None and bool(fleet.estimates)) as store:
        active: Measurer | None = None
        try:
            for number, (shape, target) in enumerate(todo):
                if seconds is not None and time.monotonic() - began > seconds:
                    break
                if _tried(store, shape.program(), target) >= 0.8 * trials:
                    skipped += 1
                    continue
                if active is None or active.target != target:
                    if active is not None:
                        active.close()
                    active = measurer(target)
                records = _measure(
                    shape, active, store, trials, heuristic, Random(f"{seed} {shape} {target.key}")
                )
                if not records:
                    skipped += 1
                    continue
                measured += 1
                programs += len(records)
                failures += sum(r.status != "ok" for r in records)
                progress("collect", number + 1, len(todo), _line(shape, target, records))
        finally:
            if active is not None:
                active.close()
    return Summary(measured, skipped, programs, failures, time.monotonic() - began)


def _tried(store: Store, program: Program, target: Target) -> int:
    """Different candidates of a workload that the store knows and that its space offers today."""
    return len(_replayed(program, target, store.records(canonical.key(program), target.key)))


def _line(shape: Work, target: Target, records: Sequence[Record]) -> str:
    best = fastest(records)
    rate = "no good program" if best is None else f"{2e-9 * shape.work / best.score:.1f} GFLOP/s"
    if best is not None and best.kind == MODELLED:
        rate += " by estimate"
    failed = sum(r.status != "ok" for r in records)
    threads = f", {target.threads} thread{'s' * (target.threads > 1)}"
    where = target.isa + (threads if target.kind == "cpu" else "")
    return f"{shape} on {where}: {len(records)} programs, {failed} failed, best {rate}"


def _measure(
    shape: Work, measurer: Measurer, store: Store, trials: int, heuristic: Decide | None, rng: Random
) -> list[Record]:
    """Random programs and the heuristic's neighbourhood, then twice changes of the fastest so far; the new
    records. What the store has, as of a run that was killed, is not measured again."""
    program, target = shape.program(), measurer.target
    records = store.records(canonical.key(program), target.key)
    known, before = _replayed(program, target, records), len(records)
    for share in (_RANDOM, (1 + _RANDOM) / 2, 1.0):
        source = (
            _first(program, target, heuristic, rng)
            if share == _RANDOM
            else _changed(program, target, known, records, rng)
        )
        new = _different(source, known, int(trials * share) - len(known))
        if new:
            records += measurer.measure(program, list(new), kind="collect", sink=store.add)
            known |= new
    return records[before:]


def _replayed(program: Program, target: Target, records: Sequence[Record]) -> dict[Values, Decided]:
    """The sentences of records, but for those of another version's space."""
    known: dict[Values, Decided] = {}
    for record in records:
        if record.choices not in known:
            with suppress(RecordError):
                known[record.choices] = replay(space_for(program, target), record.choices)
    return known


def _different(
    source: Iterator[Decided], known: Mapping[Values, Decided], room: int
) -> dict[Values, Decided]:
    """Up to `room` sentences that are not known; a small space may have fewer, so that the tries are
    bounded."""
    new: dict[Values, Decided] = {}
    for decided in islice(source, 10 * max(room, 0)):
        if decided.values not in known:
            new[decided.values] = decided
            if len(new) == room:
                break
    return new


def _first(program: Program, target: Target, heuristic: Decide | None, rng: Random) -> Iterator[Decided]:
    if heuristic is not None:
        centre = run(space_for(program, target), heuristic)
        yield centre
        for _ in range(_NEIGHBOURS if centre.choices else 0):
            yield changed(space_for(program, target), centre, rng)
    while True:
        yield run(space_for(program, target), at_random(rng))


def _changed(
    program: Program, target: Target, known: Mapping[Values, Decided], records: Sequence[Record], rng: Random
) -> Iterator[Decided]:
    ours = [r for r in counting(records) if r.choices in known]
    good = sorted(ours, key=lambda r: r.score)[:_PARENTS]
    parents = [known[r.choices] for r in good if known[r.choices].choices]
    while parents:
        for parent in parents:
            yield changed(space_for(program, target), parent, rng)
    yield from _first(program, target, None, rng)
