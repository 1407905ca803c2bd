"""Measurements as the model sees them: grouped by workload and target, each with its decisions replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import RecordError
from ..ir import canonical
from ..ir.nodes import Program
from ..ir.regions import regions
from ..ir.serialize import from_json
from ..lang import features
from ..lang.encode import Prompt, prompt, vectors
from ..measure.record import MODELLED, Record
from ..measure.standing import counting, times
from ..measure.store import Store
from ..schedule.steps import apply
from ..space.decide import Decided, replay
from ..space.problem import contraction
from ..space.spaces import space_for
from ..target import Target
from .data import Corpus, corpus
from .imagine import weights
from .shapes import Pair, Shape, Work

FASTEST = 4
"""Measured programs of one workload that become training sentences."""

SLOW = 1.5
"""The regions of programs so many times slower than the best are not counted one by one: counting takes a
while, and such a program is held to have as many as the worst of the others."""

JOIN_SECONDS = 5e-6
"""What a parallel region is held to cost beyond what was measured. Where nothing else runs it is some 2 us.
Where a waiting thread of another library (OpenBLAS, oneDNN, ONNX Runtime) spins on the CPU of a worker, it is
up to a tick of the scheduler, 4 ms, and kernels are called among others. Much more than this would keep small
kernels from using threads at all."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The measured programs of one workload on one target.

    `seconds` f64 (n,) of each of `programs`: what was measured, and JOIN_SECONDS for each parallel region.
    """

    program: Program
    target: Target
    prompt: Prompt
    programs: tuple[Decided, ...]
    seconds: NDArray[np.float64]

    @property
    def quality(self) -> NDArray[np.float32]:
        """log(best / seconds), 0 for the best."""
        return np.asarray(np.log(self.seconds.min() / self.seconds), np.float32)

    def features(self) -> NDArray[np.float32]:
        """f32 (n, features.LENGTH)."""
        return features.matrix(self.prompt, [d.choices for d in self.programs])


def read(
    store_path: str | Path,
    keep: Callable[[Program], bool] = lambda _: True,
    *,
    kind: str = "cpu",
    estimates: bool = False,
) -> tuple[list[Workload], int]:
    """Every workload of a store on targets of a kind whose program is to be kept, and how many records could
    not be used.

    Not usable are failures, and choices that the space of this version no longer offers. RecordError where
    the store holds estimates and `estimates` is not set, or the other way round.
    """
    with Store(store_path) as store:
        records = [r for r in store.records() if r.target.get("kind") == kind]
    if any((r.kind == MODELLED) != estimates for r in records):
        holds, wanted = ("measurements", "estimates") if estimates else ("estimates", "measurements")
        raise RecordError(f"the store {store_path} holds {holds}; {wanted} are needed here")
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.workload, Target.from_json(record.target).key), []).append(record)
    found, unused = [], 0
    for group in groups.values():
        program, target = from_json(group[0].program), Target.from_json(group[0].target)
        if not keep(program):
            continue
        unused += len(group) - len(counting(group))
        programs, seconds = [], []
        for values, time in times(group).items():
            try:
                decided = replay(space_for(program, target), values)
            except RecordError:
                unused += 1
                continue
            programs.append(decided)
            seconds.append(time)
        if programs:
            words = prompt(program, target)
            whole = np.array(seconds) + joining(program, target, programs, seconds)
            found.append(Workload(program, target, words, tuple(programs), whole))
    return found, unused


def keys(works: Sequence[Work]) -> frozenset[str]:
    """Canonical keys of programs, such as those held out: measurements of these are never trained on."""
    return frozenset(canonical.key(work.program()) for work in works)


def taught(program: Program, hidden: frozenset[str], pairs: frozenset[Pair]) -> bool:
    """Whether measurements of a program may be trained on: it is not held out, by its key, and no product
    that shares two extents with one that is, whoever measured it."""
    if canonical.key(program) in hidden:
        return False
    c = contraction(program)
    if c is None:
        return True
    m, k, n = (dict(c.extents).get(loop, 1) for loop in (c.m, c.k, c.n))
    return not Shape("", m, k, n).pairs & pairs


def joining(
    program: Program, target: Target, programs: Sequence[Decided], times: Sequence[float]
) -> NDArray[np.float64]:
    """Seconds f64 (n,) that the parallel regions of programs for a CPU are held to cost beyond `times`."""
    cost = np.zeros(len(programs))
    if target.kind != "cpu" or target.threads == 1:
        return cost
    near = [n for n, time in enumerate(times) if time <= SLOW * min(times)]
    cost[near] = [JOIN_SECONDS * regions(apply(program, programs[n].steps).body) for n in near]
    cost[[n for n in range(len(times)) if n not in set(near)]] = cost.max()
    return cost


def fastest(workloads: Sequence[Workload], tau: float) -> Corpus:
    """The fastest measured programs of each workload as training sentences, with weights as imagined ones
    have."""
    prompts: list[NDArray[np.float32]] = []
    sentences = []
    for number, w in enumerate(workloads):
        order = np.argsort(w.seconds, kind="stable")[:FASTEST]
        for index, weight in zip(order, weights(w.quality[order].tolist(), tau), strict=True):
            if w.programs[index].choices:
                sentences.append((number, w.programs[index].choices, float(weight)))
        prompts.append(vectors(w.prompt))
    return corpus(prompts, sentences)
