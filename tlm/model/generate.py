"""Sentences from the model: every choice of a space is answered by the scores of its legal options.

The first sentence is greedy, the others are drawn; all advance in lockstep, so that each step is one batch,
and those that have said the same so far are one row of it. Where there is a value model, it ranks what was
written: choices that are each likely need not go together, and only a whole sentence shows it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from ..errors import ArgumentError
from ..ir.nodes import Program
from ..lang import options
from ..lang.encode import Prompt, prompt, vectors
from ..space.choice import Choice, Value
from ..space.decide import Decided, run_many
from ..space.spaces import spaces_of
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
    if samples < 1 or not temperature > 0 or seed < 0:
        raise ArgumentError(
            f"samples >= 1, temperature > 0 and seed >= 0 are needed, got {samples}, {temperature} and {seed}"
        )
    if not programs:
        return []
    if network is None:
        network, value = load(shipped(target.kind)), value or load_value(shipped(target.kind))
    # Some of what is drawn was said before: about half, of a model that is sure of itself.
    draws = 1 if samples == 1 else 1 + 2 * (samples - 1)
    sentences = _lockstep(network, programs, draws, samples, target, temperature, seed)
    found = []
    for first in range(0, len(sentences), draws):
        different: dict[tuple[Value, ...], Sentence] = {}
        for s in sentences[first : first + draws]:
            if s is not None:
                different.setdefault(s.decided.values, s)
        kept = list(different.values())[:samples]
        found.append(kept if value is None else ranked(kept, value))
    return found


def ranked(sentences: Sequence[Sentence], value: ValueModel) -> list[Sentence]:
    """Sentences of one program, those first that the value model expects to be fastest."""
    scores = value.scores(sentences[0].prompt, [s.decided.choices for s in sentences], exact=True)
    # Rounded, so that sums in another order, which differ by 1e-12, hardly ever change which is first.
    rated = [replace(s, value=round(float(v), 6)) for s, v in zip(sentences, scores, strict=True)]
    return sorted(rated, key=lambda s: -(s.value or 0.0))


def _lockstep(
    net: Network,
    programs: Sequence[Program],
    draws: int,
    samples: int,
    target: Target,
    temperature: float,
    seed: int,
) -> list[Sentence | None]:
    """`draws` sentences of each program; None for one that is not of the first `samples` different ones."""
    prompts = [prompt(program, target) for program in programs]
    session = net.start([vectors(p) for p in prompts], draws)
    total = len(programs) * draws
    # A generator of its own for each sentence, so that the others in the batch do not change what it draws.
    random = [np.random.default_rng([seed, n % draws]) if n % draws else None for n in range(total)]
    seen: list[list[tuple[float, ...]]] = [[] for _ in range(total)]
    row = [n - n % draws for n in range(total)]  # of the session: the first sentence that has said the same

    def decide(waiting: list[tuple[int, Choice]]) -> list[int | None]:
        choices = {row[number]: choice for number, choice in waiting}
        embedded, asked = _asked(net, session, choices, temperature)
        answers: list[int | None] = []
        said: dict[tuple[int, int], int] = {}
        for number, _ in waiting:
            old, generator = asked[row[number]], random[number]
            answer = old.likeliest if generator is None else bisect_left(old.below, generator.random())
            answers.append(answer)
            seen[number].append(old.chances)
            row[number] = said.setdefault((row[number], answer), number)
        late = _late(row, draws, samples)
        said = {spoken: new for spoken, new in said.items() if new not in late}
        split = [(old, new) for (old, _), new in said.items() if old != new]
        if split:
            session.fork(*np.array(split).T)
        picked = np.array([asked[old].first + answer for old, answer in said])
        session.pick(np.array(list(said.values())), embedded[picked])
        return [
            None if row[number] in late else answer
            for (number, _), answer in zip(waiting, answers, strict=True)
        ]

    makers = [spaces_of(program, target) for program in programs]
    decided = run_many([made() for made in makers for _ in range(draws)], decide)
    return [
        None if d is None else Sentence(prompts[n // draws], d, tuple(s))
        for n, (d, s) in enumerate(zip(decided, seen, strict=True))
    ]


def _late(row: Sequence[int], draws: int, samples: int) -> set[int]:
    """The rows whose sentences come after `samples` of the same program that are different already."""
    late: set[int] = set()
    for first in range(0, len(row), draws):
        late.update(list(dict.fromkeys(row[first : first + draws]))[samples:])
    return late


@dataclass(frozen=True, slots=True)
class _Asked:
    """The next choice of a row: its options' probabilities; the likeliest; what a draw of each is above, at
    the temperature in force; and the place of the first in the table of embeddings."""

    chances: tuple[float, ...]
    likeliest: int
    below: list[float]
    first: int


def _asked(
    net: Network, session: Session, choices: dict[int, Choice], temperature: float
) -> tuple[Floats, dict[int, _Asked]]:
    """Of the next choice of each row: the embeddings of all options, and what the model says of them."""
    # Those who stand before the same choice often do so with the same object: its options are read once.
    distinct = list({id(choice): choice for choice in choices.values()}.values())
    sizes = [len(choice.options) for choice in distinct]
    firsts = {id(choice): first for choice, first in zip(distinct, accumulate([0, *sizes]), strict=False)}
    table = net.embed(options.dense(options.pack(distinct)))

    asked = list(choices.values())
    counts = [len(choice.options) for choice in asked]
    rows = [firsts[id(choice)] + n for choice in asked for n in range(len(choice.options))]
    scores = session.scores(np.array(list(choices)), [choice.name for choice in asked], table[rows], counts)
    chances = probabilities(scores, counts).tolist()
    tempered = chances if temperature == 1 else probabilities(scores / temperature, counts).tolist()
    out, at = {}, 0
    for (row, choice), count, top in zip(choices.items(), counts, best(scores, counts), strict=True):
        below = list(accumulate(tempered[at : at + count - 1]))
        out[row] = _Asked(tuple(chances[at : at + count]), top, below, firsts[id(choice)])
        at += count
    return table, out
