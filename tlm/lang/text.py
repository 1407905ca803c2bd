"""Sentences as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from ..space.choice import Choice
from .encode import Phrase, Prompt


def phrase(words: Phrase) -> str:
    """One phrase on a line: `axis reduce extent=768 in0 in0.unit in1 in1.stride=512`."""
    return " ".join(word if quantity is None else f"{word}={_number(quantity)}" for word, quantity in words)


def decision(choice: Choice, picked: int) -> str:
    """One decision: `rows=8 waste=3 registers=72`."""
    option = choice.options[picked]
    return " ".join([f"{choice.name}={option.value}", *(f"{name}={_number(q)}" for name, q in option.facts)])


def sentence(prompt: Prompt, choices: Sequence[tuple[Choice, int]]) -> str:
    """The prompt's phrases, then the decisions, one a line."""
    return "\n".join([*map(phrase, prompt.phrases), "", *(decision(c, n) for c, n in choices)])


def _number(quantity: float) -> str:
    return f"{quantity:.0f}" if quantity == int(quantity) else f"{quantity:.3g}"
