"""Which stages are computed where they are read: the first question of the spaces of rows and of maps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from ..schedule.steps import Inline, Step
from .choice import Ask, Choice
from .stages import Stage


def inlined(
    stages: Iterable[Stage], readers: Callable[[Stage], int], recompute: Callable[[Stage, int], Ask]
) -> Generator[Choice, int, tuple[Step, ...]]:
    """The steps that inline stages with one reader, and those with several where `recompute` answers so.

    readers: how many places read a stage that may be computed there; 0 where none may.
    """
    steps: tuple[Step, ...] = ()
    for stage in stages:
        count = readers(stage)
        if count == 1 or (count > 1 and (yield from recompute(stage, count)) == "inline"):
            steps = (*steps, Inline(stage.name))
    return steps
