"""What a space yields: a named choice between options that are all legal in the present state."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from ..schedule.steps import Step

Value = int | str


@dataclass(frozen=True, slots=True)
class Option:
    """One answer to a choice.

    `facts` are named quantities (>= 0, names from `vocabulary.FACTS`) that say what the option would cost or
    give in the present state: trip counts, wasted work, bytes of a block. Deciders judge options by these.
    """

    value: Value
    facts: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """A question with at least two different options; a question with one answer is not asked."""

    name: str
    options: tuple[Option, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple([o.value for o in self.options])


Space = Generator[Choice, int, tuple[Step, ...]]
"""Yields choices, receives the index of the picked option, returns the steps of the schedule."""

Ask = Generator[Choice, int, Value]


def ask(name: str, options: list[Option]) -> Ask:
    """Yield the choice and return the picked value; one option is returned without asking."""
    if len(options) == 1:
        return options[0].value
    picked = yield Choice(name, tuple(options))
    return options[picked].value
