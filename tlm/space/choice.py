"""What a space yields: a named choice between options that are all legal in the present state."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ParamSpec

from ..errors import ArgumentError
from ..schedule.steps import Step

P = ParamSpec("P")
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

Ask = Generator[Choice, int, Any]


def question(name: str) -> Callable[[Callable[P, list[Option]]], Callable[P, Ask]]:
    """Turns a function that lists the options into one that asks for one of them and returns its value.

    The list is kept for arguments seen before (they must be hashable): whoever samples a space comes by the
    same situations again and again. A single option is returned without asking.
    """

    def wrap(options: Callable[P, list[Option]]) -> Callable[P, Ask]:
        @lru_cache(maxsize=1024)
        def choice(*args: P.args, **kwargs: P.kwargs) -> Choice:
            made = tuple(options(*args, **kwargs))
            if not made:
                raise ArgumentError(
                    f"no answer to {name!r} is within the target's figures: it has too few registers, too"
                    " little memory or too few threads for this program"
                )
            return Choice(name, made)

        def asked(*args: P.args, **kwargs: P.kwargs) -> Ask:
            one = choice(*args, **kwargs)  # type: ignore[arg-type]  # lru_cache asks for hashables
            if len(one.options) == 1:
                return one.options[0].value
            picked = yield one
            return one.options[picked].value

        return asked

    return wrap
