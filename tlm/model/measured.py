"""Measurements as the model sees them: grouped by workload and target, each with its decisions replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import RecordError
from ..ir.nodes import Program
from ..ir.serialize import from_json
from ..lang import features
from ..lang.encode import Prompt, prompt, vectors
from ..measure.record import Record
from ..measure.store import Store
from ..space.decide import Decided, replay
from ..space.spaces import space_for
from ..target import Target
from .data import Corpus, corpus
from .imagine import weights

FASTEST = 4
"""Measured programs of one workload that become training sentences."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The measured programs of one workload on one target; `seconds` f64 (n,) of each of `programs`."""

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
    store_path: str | Path, keep: Callable[[Program], bool] = lambda _: True
) -> tuple[list[Workload], int]:
    """Every workload of a store whose program is to be kept, and how many records could not be used.

    Not usable are failures, and choices that the space of this version no longer offers.
    """
    with Store(store_path) as store:
        records = store.records()
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.workload, Target.from_json(record.target).key), []).append(record)
    found, unused = [], 0
    for group in groups.values():
        program, target = from_json(group[0].program), Target.from_json(group[0].target)
        if not keep(program):
            continue
        best: dict[tuple[int | str, ...], float] = {}
        for record in group:
            if record.status == "ok" and record.cache == "warm":
                best[record.choices] = min(record.score, best.get(record.choices, np.inf))
            else:
                unused += 1
        programs, seconds = [], []
        for values, time in best.items():
            try:
                programs.append(replay(space_for(program, target), values))
                seconds.append(time)
            except RecordError:
                unused += 1
        if programs:
            words = prompt(program, target)
            found.append(Workload(program, target, words, tuple(programs), np.array(seconds)))
    return found, unused


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
