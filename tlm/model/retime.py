"""Timing again what matters: the fastest known programs of a workload, and what the model writes for it.

The first timings of many programs are short, and the machine is faster and slower by turns, so that the best
of them are lucky. Here a few of each workload run in many rounds in turns, which tells apart those that are a
few percent from each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from ..errors import RecordError
from ..ir.nodes import Program
from ..ir.serialize import from_json
from ..measure.measure import Measurer
from ..measure.record import Record, Values
from ..measure.standing import counting
from ..measure.store import Store
from ..space.decide import replay
from ..space.spaces import space_for
from ..target import Target
from .collect import Summary
from .generate import generate
from .infer import Network
from .progress import Progress, silent

KNOWN, MIDDLING, PROPOSED = 8, 4, 6
_AT_ONCE = 16  # workloads whose sentences are written in one batch

Workload = tuple[str, str]


def retime(
    store_path: str | Path,
    *,
    network: Network | None = None,
    known: int = KNOWN,
    proposed: int = PROPOSED,
    seconds: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
    measurer: Callable[[Target], Measurer] = Measurer,
) -> Summary:
    """Time the `known` fastest programs of each workload of a store and `proposed` ones of the model again.

    A few middling ones run along: unlike the fastest they were not picked for a lucky first timing, so they
    tell how the machine's speed of then and of now compare.

    network: None means the weights of the package. seconds: end after the workload that is running by then.
    Workloads that were timed again before are skipped, so a killed run goes on where it was.
    """
    began, measured, skipped, programs, failures = time.monotonic(), 0, 0, 0, 0
    with Store(store_path) as store:
        groups = _workloads(store.records())
        for _, members in groupby(sorted(groups, key=lambda pair: pair[::-1]), key=lambda pair: pair[1]):
            keys = list(members)
            todo = [key for key in keys if all(r.kind != "final" for r in groups[key])]
            skipped += len(keys) - len(todo)
            target = Target.from_json(groups[keys[0]][0].target)
            if not todo or not target.runs_here():
                continue
            with measurer(target) as active:
                for number, (key, wanted) in enumerate(_wanted(groups, todo, known, proposed, seed, network)):
                    if seconds is not None and time.monotonic() - began > seconds:
                        break
                    program = from_json(groups[key][0].program)
                    records = active.measure(program, wanted, kind="final", thorough=True, sink=store.add)
                    measured, programs = measured + 1, programs + len(records)
                    failures += sum(r.status != "ok" for r in records)
                    line = f"{program.name} on {target.isa}, {target.threads} threads: {len(records)} again"
                    progress("retime", number + 1, len(todo), line)
    return Summary(measured, skipped, programs, failures, time.monotonic() - began)


def _workloads(records: Sequence[Record]) -> dict[Workload, list[Record]]:
    groups: dict[Workload, list[Record]] = {}
    for record in records:
        groups.setdefault((record.workload, Target.from_json(record.target).key), []).append(record)
    return groups


def _wanted(
    groups: dict[Workload, list[Record]],
    todo: Sequence[Workload],
    known: int,
    proposed: int,
    seed: int,
    network: Network | None,
) -> list[tuple[Workload, list[Values]]]:
    """For each workload the different programs to time: the fastest known ones, then the model's."""
    found = []
    for n in range(0, len(todo), _AT_ONCE):
        keys = todo[n : n + _AT_ONCE]
        programs = [from_json(groups[key][0].program) for key in keys]
        target = Target.from_json(groups[keys[0]][0].target)
        made = generate(programs, target, samples=proposed, seed=seed, network=network) if proposed else []
        for at, (key, program) in enumerate(zip(keys, programs, strict=True)):
            good = sorted(counting(groups[key]), key=lambda r: r.score)
            best = list(dict.fromkeys(r.choices for r in good))
            usable = [v for v in best if _offered(program, target, v)]
            middling = usable[known :: max(1, len(usable) // (2 * MIDDLING))][:MIDDLING]
            sentences = [s.decided.values for s in made[at]] if proposed else []
            found.append((key, list(dict.fromkeys([*usable[:known], *middling, *sentences]))))
    return found


def _offered(program: Program, target: Target, values: Values) -> bool:
    try:
        replay(space_for(program, target), values)
    except RecordError:
        return False
    return True
