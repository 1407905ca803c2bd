"""Sentences that nobody measured: the space of an imagined shape searched with the value model instead of a
clock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from ..ir.nodes import Program
from ..lang.encode import Prompt, prompt, vectors
from ..space.choice import Value
from ..space.decide import Decided, at_random, changed, run
from ..space.spaces import space_for
from ..target import Target
from .data import Corpus, corpus
from .fleet import Judge
from .generate import generate
from .shapes import Work
from .value import ValueModel
from .weights import load

Values = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Effort:
    """For one shape: `first` random sentences and, where there is a model already, `proposed` ones of its
    own; then `rounds` in which `parents` of the best have `children` each.

    The `keep` best become training sentences with weights exp(score / tau), 1 in all.
    """

    first: int = 96
    proposed: int = 8
    rounds: int = 3
    parents: int = 12
    children: int = 6
    keep: int = 6
    tau: float = 0.02


@dataclass(frozen=True, slots=True)
class Imagination:
    """What is searched with: the file of a value model, that of a language model or None, and how much.

    judge: an analytic model that ranks the `judged` sentences of each shape that the value model likes best.
    """

    value: Path
    network: Path | None
    seed: int
    effort: Effort = field(default_factory=Effort)
    judge: Judge | None = None
    judged: int = 0


def imagine(
    program: Program,
    target: Target,
    value: ValueModel,
    rng: Random,
    effort: Effort,
    proposed: Sequence[Decided] = (),
) -> list[tuple[Decided, float]]:
    """The best sentences that an evolutionary search with the value model finds, best first, with scores."""
    words = prompt(program, target)
    known: dict[Values, tuple[Decided, float]] = {}
    dice = [run(space_for(program, target), at_random(rng)) for _ in range(effort.first)]
    _score(words, value, known, [*proposed, *dice])
    for _ in range(effort.rounds):
        best = sorted(known.values(), key=lambda pair: -pair[1])[: effort.parents]
        if not best[0][0].choices:
            break
        children = [
            changed(space_for(program, target), parent, rng)
            for parent, _ in best
            for _ in range(effort.children)
        ]
        _score(words, value, known, children)
    return sorted(known.values(), key=lambda pair: -pair[1])[: effort.keep]


def weights(scores: Sequence[float], tau: float) -> NDArray[np.float64]:
    """Weights of the best sentences of one shape: proportional to exp(score / tau), 1 in all."""
    s = np.asarray(scores, np.float64)
    e = np.exp((s - s.max()) / tau)
    return np.asarray(e / e.sum())


def _score(
    words: Prompt,
    value: ValueModel,
    known: dict[Values, tuple[Decided, float]],
    new: list[Decided],
) -> None:
    fresh = list({d.values: d for d in new if d.values not in known}.values())
    if fresh:
        scores = value.scores(words, [d.choices for d in fresh])
        known.update((d.values, (d, float(s))) for d, s in zip(fresh, scores, strict=True))


def imagined(jobs: Sequence[tuple[Work, Target]], how: Imagination) -> Corpus:
    """Training sentences of many shapes."""
    value = ValueModel.load(how.value)
    proposals = _proposals(jobs, how)
    prompts: list[NDArray[np.float32]] = []
    sentences = []
    for number, (shape, target) in enumerate(jobs):
        program, rng = shape.program(), Random(f"imagine {how.seed} {shape} {target.key}")
        found = _searched(program, target, value, rng, how, proposals.get(number, ()))
        shares = weights([score for _, score in found], how.effort.tau)
        for (decided, _), weight in zip(found, shares, strict=True):
            if decided.choices:
                sentences.append((number, decided.choices, float(weight)))
        prompts.append(vectors(prompt(program, target)))
    return corpus(prompts, sentences)


def _searched(
    program: Program,
    target: Target,
    value: ValueModel,
    rng: Random,
    how: Imagination,
    proposed: Sequence[Decided],
) -> list[tuple[Decided, float]]:
    """The best sentences of one shape with their scores; with a judge, by its seconds."""
    effort, judge = how.effort, how.judge
    if judge is None:
        return imagine(program, target, value, rng, effort, proposed)
    wider = replace(effort, keep=max(effort.keep, how.judged))
    liked = [decided for decided, _ in imagine(program, target, value, rng, wider, proposed)]
    seconds = [judge(program, target, decided) for decided in liked]
    order = sorted(range(len(liked)), key=seconds.__getitem__)[: effort.keep]
    return [(liked[n], float(np.log(seconds[order[0]] / seconds[n]))) for n in order]


def _proposals(jobs: Sequence[tuple[Work, Target]], how: Imagination) -> dict[int, list[Decided]]:
    """What the language model writes for each job, by its number; nothing where there is no model yet."""
    if how.network is None:
        return {}
    network, by_target = load(how.network), dict[Target, list[int]]()
    for number, (_, target) in enumerate(jobs):
        by_target.setdefault(target, []).append(number)
    found = {}
    for target, numbers in by_target.items():
        programs = [jobs[n][0].program() for n in numbers]
        many = generate(programs, target, samples=how.effort.proposed, seed=how.seed, network=network)
        found.update({n: [s.decided for s in made] for n, made in zip(numbers, many, strict=True)})
    return found


def imagine_many(
    chunks: Sequence[Sequence[tuple[Work, Target]]], how: Imagination, processes: int
) -> Iterator[tuple[int, Corpus]]:
    """`imagined` for each chunk in spawned processes; yields (number of the chunk, corpus) as they end."""
    with _one_thread_each(), ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(imagined, chunk, how): n for n, chunk in enumerate(chunks)}
        try:
            for job in as_completed(jobs):
                yield jobs[job], job.result()
        finally:
            for job in jobs:
                job.cancel()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Children started inside use one BLAS thread each: several processes already fill the machine."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                del os.environ[name]
            else:
                os.environ[name] = old
