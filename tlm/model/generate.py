"""Sentences from the model: every choice of a space is answered by the scores of its legal options.

Greedy unless asked otherwise; many programs advance in lockstep, so that each step is one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import ArgumentError
from ..ir.nodes import Program
from ..lang import options
from ..lang.encode import Prompt, prompt, vectors
from ..space.choice import Choice
from ..space.decide import Decided, run_many
from ..space.spaces import space_for
from ..target import Target
from .infer import Network, best, probabilities
from .weights import load, shipped


@dataclass(frozen=True, slots=True)
class Sentence:
    """A generated program. `probabilities`: for each decision, the probability of every option."""

    prompt: Prompt
    decided: Decided
    probabilities: tuple[tuple[float, ...], ...]

    @property
    def log_probability(self) -> float:
        """Natural logarithm of the probability of the whole sentence."""
        pairs = zip(self.decided.choices, self.probabilities, strict=True)
        return float(sum(np.log(p[index]) for (_, index), p in pairs))


def generate(
    programs: Sequence[Program],
    target: Target,
    *,
    samples: int = 1,
    temperature: float = 1.0,
    seed: int = 0,
    network: Network | None = None,
) -> list[list[Sentence]]:
    """For each program the greedy sentence, then up to `samples` - 1 different ones drawn with `temperature`.

    The same arguments give the same sentences in any process. `network` None: the package's
    weights for the target's kind.
    """
    if samples < 1 or not temperature > 0:
        raise ArgumentError(f"samples >= 1 and temperature > 0 are needed, got {samples} and {temperature}")
    if not programs:
        return []
    net = network or load(shipped(target.kind))
    draws = 1 if samples == 1 else 1 + 2 * (samples - 1)
    numbered = [(program, draw) for program in programs for draw in range(draws)]
    sentences = _lockstep(net, numbered, target, temperature, seed)
    found = []
    for first in range(0, len(sentences), draws):
        different = {s.decided.values: s for s in reversed(sentences[first : first + draws])}
        found.append(
            [s for s in sentences[first : first + draws] if different[s.decided.values] is s][:samples]
        )
    return found


def _lockstep(
    net: Network, numbered: list[tuple[Program, int]], target: Target, temperature: float, seed: int
) -> list[Sentence]:
    prompts = [prompt(program, target) for program, _ in numbered]
    session = net.start([vectors(p) for p in prompts])
    # A generator of its own for each sentence, so that the others in the batch do not change what it draws.
    random = [np.random.default_rng([seed, draw]) if draw else None for _, draw in numbered]
    seen: list[list[tuple[float, ...]]] = [[] for _ in numbered]

    def decide(waiting: list[tuple[int, Choice]]) -> list[int]:
        numbers = np.array([number for number, _ in waiting])
        choices = [choice for _, choice in waiting]
        counts = [len(choice.options) for choice in choices]
        embedded = net.embed(options.dense(options.pack(choices)))
        scores = session.scores(numbers, [choice.name for choice in choices], embedded, counts)
        answers = []
        for number, row in zip(numbers, scores, strict=True):
            generator = random[number]
            seen[number].append(tuple(probabilities(row).tolist()))
            if generator is None:
                answers.append(best(row))
            else:
                total = np.cumsum(probabilities(row / temperature))
                answers.append(min(int(np.searchsorted(total, generator.random())), len(row) - 1))
        session.pick(numbers, embedded[np.cumsum([0, *counts[:-1]]) + np.array(answers)])
        return answers

    decided = run_many([space_for(program, target) for program, _ in numbered], decide)
    return [Sentence(p, d, tuple(s)) for p, d, s in zip(prompts, decided, seen, strict=True)]
