"""Which stages are computed where they are read: the first question of the spaces of rows and of maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import lru_cache

from ..ir.exprs import Load
from ..ir.nodes import Program, Store, Update
from ..ir.walk import loads, statements, walk
from ..schedule.steps import Inline, Step
from .choice import Ask, Choice
from .stages import Stage, reads_of, targets_of

MOST_NODES = 2000
"""Nodes of an expression that inlining may make: a stage that is read twice by the next doubles with each."""


def inlined(
    program: Program,
    stages: Iterable[Stage],
    readers: Callable[[Stage], int],
    recompute: Callable[[Stage, int], Ask],
) -> Generator[Choice, int, tuple[Step, ...]]:
    """The steps that inline stages with one reader, and those with several where `recompute` answers so.

    readers: how many places read a stage that may be computed there; 0 where none may.
    """
    steps: tuple[Step, ...] = ()
    sizes, times, nested = _sizes(program)
    grown = dict(sizes)
    for stage in stages:
        count = 0 if stage.name in nested else readers(stage)
        if count and max([t[stage.name] for t in times.values()]) * grown[stage.name] > MOST_NODES:
            continue
        if count == 1 or (count > 1 and (yield from recompute(stage, count)) == "inline"):
            steps = (*steps, Inline(stage.name))
            for reader, read in times.items():
                grown[reader] += read[stage.name] * grown[stage.name]
    return steps


@lru_cache(maxsize=256)
def _sizes(program: Program) -> tuple[Mapping[str, int], Mapping[str, Counter[str]], frozenset[str]]:
    """Of the stage that writes each buffer: its nodes, and how often it reads each other; and the buffers
    that are read at places that they tell themselves, as p[p[i]]."""
    leaves = [s for s in statements(program.body) if isinstance(s, (Store, Update))]
    sizes = {name: sum(1 for _ in walk(leaf)) for leaf in leaves for name in targets_of(leaf)}
    times = {name: Counter(e.buffer for e in reads_of(leaf)) for leaf in leaves for name in targets_of(leaf)}
    reads = [e for leaf in leaves for e in loads(leaf)]
    inside = [(e, x) for e in reads for index in e.indices for x in walk(index) if isinstance(x, Load)]
    return sizes, times, frozenset([e.buffer for e, x in inside if x.buffer == e.buffer])
