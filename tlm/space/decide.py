"""Drivers of a space: ask one decider, advance many spaces in lockstep, replay or repair recorded answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from ..errors import RecordError
from ..schedule.steps import Step
from .choice import Choice, Space, Value

Picked = tuple[tuple[Choice, int], ...]
Decide = Callable[[Choice, Picked], int]
DecideMany = Callable[[list[tuple[int, Choice]]], Sequence[int | None]]


@dataclass(frozen=True, slots=True)
class Decided:
    """A complete sentence: every choice with the index that was picked, and the schedule that they spell."""

    choices: Picked
    steps: tuple[Step, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple([choice.options[index].value for choice, index in self.choices])


def run(space: Space, decide: Decide) -> Decided:
    """Answer every choice of `space` with decide(choice, choices so far)."""
    picked: list[tuple[Choice, int]] = []
    try:
        choice = next(space)
        while True:
            index = decide(choice, tuple(picked))
            picked.append((choice, index))
            choice = space.send(index)
    except StopIteration as end:
        return Decided(tuple(picked), end.value)


def run_many(spaces: Sequence[Space], decide_many: DecideMany) -> list[Decided | None]:
    """Advance all spaces in lockstep: each round, one call answers [(number of the space, choice), ...].

    The answer None gives a sentence up: the space is asked no more, and None stands in its place.
    """
    picked: list[list[tuple[Choice, int]]] = [[] for _ in spaces]
    done: list[Decided | None] = [None] * len(spaces)
    waiting: list[tuple[int, Choice]] = []

    def advance(number: int, choice: Choice | None, index: int | None) -> None:
        try:
            if choice is None or index is None:
                waiting.append((number, next(spaces[number])))
            else:
                picked[number].append((choice, index))
                waiting.append((number, spaces[number].send(index)))
        except StopIteration as end:
            done[number] = Decided(tuple(picked[number]), end.value)

    for number in range(len(spaces)):
        advance(number, None, None)
    while waiting:
        asked = waiting.copy()
        waiting.clear()
        for (number, choice), index in zip(asked, decide_many(asked), strict=True):
            if index is not None:
                advance(number, choice, index)
    return done


def at_random(rng: Random) -> Decide:
    """A decider that picks every option with equal probability."""
    return lambda choice, _: rng.randrange(len(choice.options))


def replay(space: Space, values: Sequence[Value]) -> Decided:
    """Give recorded answers; RecordError where one is not offered, or where there are too few or too many."""
    left = list(reversed(values))

    def decide(choice: Choice, picked: Picked) -> int:
        if not left:
            raise RecordError(f"the record ends before choice {choice.name!r}: it has {len(values)} answers")
        value = left.pop()
        if value not in choice.values:
            raise RecordError(
                f"{value!r} is not an option of {choice.name!r}; options are {list(choice.values)}"
            )
        return choice.values.index(value)

    decided = run(space, decide)
    if left:
        raise RecordError(f"the record has {len(values)} answers, the space asks only {len(decided.choices)}")
    return decided


Place = tuple[str, int]
"""A question by its name, and how many of that name came before it."""


def places(names: Iterable[str]) -> list[Place]:
    """The places of questions that are asked in this order."""
    seen: Counter[str] = Counter()
    out = []
    for name in names:
        out.append((name, seen[name]))
        seen[name] += 1
    return out


def repair(space: Space, wanted: Sequence[tuple[str, Value]], rng: Random) -> Decided:
    """Follow the wanted answers (choice name, value) where offered, else the nearest number, else at random.

    Answers are matched by place, so a change early in a sentence keeps later answers that still make sense.
    """
    answers = dict(zip(places(name for name, _ in wanted), (value for _, value in wanted), strict=True))
    asked: Counter[str] = Counter()

    def decide(choice: Choice, _: Picked) -> int:
        value = answers.get((choice.name, asked[choice.name]))
        asked[choice.name] += 1
        if value in choice.values:
            return choice.values.index(value)
        numbers = [(i, v) for i, v in enumerate(choice.values) if isinstance(v, int)]
        if isinstance(value, int) and numbers:
            return min(numbers, key=lambda p: abs(math.log((p[1] + 0.5) / (value + 0.5))))[0]
        return rng.randrange(len(choice.options))

    return run(space, decide)


def changed(space: Space, parent: Decided, rng: Random) -> Decided:
    """`parent` with one answer changed; later answers stay where they are still offered."""
    wanted = [(choice.name, choice.options[index].value) for choice, index in parent.choices]
    at = rng.randrange(len(wanted))
    choice, index = parent.choices[at]
    other = (index + rng.randrange(1, len(choice.options))) % len(choice.options)
    wanted[at] = (choice.name, choice.options[other].value)
    return repair(space, wanted, rng)
