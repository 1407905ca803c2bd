"""Sentences from the model: every choice of a space is answered by the scores of its legal options.

The first sentence is greedy, the others are drawn; all advance in lockstep, so that each step is one batch,
and those that have said the same so far are one row of it. Where there is a value model, it ranks what was
written: choices that are each likely need not go together, and only a whole sentence shows it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import ArgumentError
from ..ir.nodes import Program
from ..lang import options
from ..lang.encode import Prompt, prompt, vectors
from ..space.choice import Choice
from ..space.decide import Decided, run_many
from ..space.spaces import space_for
from ..target import Target
from .infer import Floats, Network, Session, best, probabilities
from .value import ValueModel
from .weights import load, load_value, shipped


@dataclass(frozen=True, slots=True)
class Sentence:
    """A generated program. `probabilities`: for each decision, the probability of every option. `value`: what
    the value model expects of it, log(best / seconds); None where none was asked."""

    prompt: Prompt
    decided: Decided
    probabilities: tuple[tuple[float, ...], ...]
    value: float | None = None


def generate(
    programs: Sequence[Program],
    target: Target,
    *,
    samples: int = 1,
    temperature: float = 1.0,
    seed: int = 0,
    network: Network | None = None,
    value: ValueModel | None = None,
) -> list[list[Sentence]]:
    """For each program the greedy sentence and up to `samples` - 1 different ones drawn with `temperature`.

    They come in the order in which `value` likes them, best first; without it, as they were drawn. The same
    arguments give the same sentences in any process. `network` None: the package's weights for the target's
    kind, and their value model.
    """
    if samples < 1 or not temperature > 0:
        raise ArgumentError(f"samples >= 1 and temperature > 0 are needed, got {samples} and {temperature}")
    if not programs:
        return []
    if network is None:
        network, value = load(shipped(target.kind)), value or load_value(shipped(target.kind))
    # Some of what is drawn was said before: about half, of a model that is sure of itself.
    draws = 1 if samples == 1 else 1 + 2 * (samples - 1)
    sentences = _lockstep(network, programs, draws, target, temperature, seed)
    found = []
    for first in range(0, len(sentences), draws):
        different = {s.decided.values: s for s in reversed(sentences[first : first + draws])}
        kept = [s for s in sentences[first : first + draws] if different[s.decided.values] is s][:samples]
        found.append(kept if value is None else ranked(kept, value))
    return found


def ranked(sentences: Sequence[Sentence], value: ValueModel) -> list[Sentence]:
    """Sentences of one program, those first that the value model expects to be fastest."""
    scores = value.scores(sentences[0].prompt, [s.decided.choices for s in sentences], exact=True)
    # Rounded, so that sums in another order, which differ by 1e-12, hardly ever change which is first.
    rated = [replace(s, value=round(float(v), 6)) for s, v in zip(sentences, scores, strict=True)]
    return sorted(rated, key=lambda s: -(s.value or 0.0))


def _lockstep(
    net: Network, programs: Sequence[Program], draws: int, target: Target, temperature: float, seed: int
) -> list[Sentence]:
    prompts = [prompt(program, target) for program in programs]
    session = net.start([vectors(p) for p in prompts], draws)
    total = len(programs) * draws
    # A generator of its own for each sentence, so that the others in the batch do not change what it draws.
    random = [np.random.default_rng([seed, n % draws]) if n % draws else None for n in range(total)]
    seen: list[list[tuple[float, ...]]] = [[] for _ in range(total)]
    row = [n - n % draws for n in range(total)]  # of the session: the first sentence that has said the same

    def decide(waiting: list[tuple[int, Choice]]) -> list[int]:
        choices = {row[number]: choice for number, choice in waiting}
        scores, embedded, first = _scores(net, session, choices)
        answers = _answers(
            [row[number] for number, _ in waiting], [random[n] for n, _ in waiting], scores, temperature
        )
        chances = {r: tuple(probabilities(s).tolist()) for r, s in scores.items()}
        said: dict[tuple[int, int], int] = {}
        for (number, _), answer in zip(waiting, answers, strict=True):
            seen[number].append(chances[row[number]])
            row[number] = said.setdefault((row[number], answer), number)
        split = [(old, new) for (old, _), new in said.items() if old != new]
        if split:
            session.fork(*np.array(split).T)
        picked = np.array([first[old] + answer for old, answer in said])
        session.pick(np.array(list(said.values())), embedded[picked])
        return answers

    decided = run_many([space_for(program, target) for program in programs for _ in range(draws)], decide)
    return [
        Sentence(prompts[n // draws], d, tuple(s)) for n, (d, s) in enumerate(zip(decided, seen, strict=True))
    ]


def _scores(
    net: Network, session: Session, choices: dict[int, Choice]
) -> tuple[dict[int, Floats], Floats, dict[int, int]]:
    """Of the next choice of each row: scores of its options; embeddings of all options; each row's first."""
    asked = list(choices.values())
    counts = [len(choice.options) for choice in asked]
    embedded = net.embed(options.dense(options.pack(asked)))
    scores = session.scores(np.array(list(choices)), [choice.name for choice in asked], embedded, counts)
    first = dict(zip(choices, np.cumsum([0, *counts[:-1]]).tolist(), strict=True))
    return dict(zip(choices, scores, strict=True)), embedded, first


def _answers(
    rows: Sequence[int],
    random: Sequence[np.random.Generator | None],
    scores: Mapping[int, Floats],
    temperature: float,
) -> list[int]:
    """For each sentence, in row `rows`: the likeliest option, or where it has a generator one drawn."""
    likeliest = {row: best(s) for row, s in scores.items()}
    below = {row: np.cumsum(probabilities(s / temperature))[:-1].tolist() for row, s in scores.items()}
    return [
        likeliest[row] if generator is None else bisect_left(below[row], generator.random())
        for row, generator in zip(rows, random, strict=True)
    ]
