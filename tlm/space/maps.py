"""Reading elementwise and layout programs: stages without reductions, and how they walk through memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ..ir.nodes import Program, Store, Update
from ..ir.walk import buffers, free_vars, statements
from .problem import Nest, nests, strides_of
from .stages import Stage, plain_nest, reads_of, stage_of


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """Stages of `program` in running order. Compared by identity.

    `main` is the number of the largest stage, `along` its loop along which it writes contiguously (the
    innermost one where there is none). `crossed` are a buffer that it reads in another order, and the loop
    along which that one is contiguous; empty where there is none that could be turned in registers.
    """

    program: Program
    stages: tuple[Stage, ...]
    main: int
    along: str
    crossed: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        """The largest stage."""
        return self.stages[self.main]


@lru_cache(maxsize=256)
def maps(program: Program) -> Maps | None:
    """The stages of `program`; None where it reduces, where stages are no plain nests, or nothing loops."""
    found = list(nests(program.body))
    leaves = [s for s in statements(program.body) if isinstance(s, (Store, Update))]
    if not found or len(leaves) != len(found) or any(isinstance(s, Update) for s in leaves):
        return None
    if not all(plain_nest(nest) for nest in found):
        return None
    own = {f.var: f.var for around, _ in found for f in around}
    stages = tuple([stage_of(program, nest, own, {}) for nest in found])
    main = max(range(len(stages)), key=lambda n: (elements(stages[n]), n))
    loops = stages[main].loops
    if not loops:
        return None
    unit = [v for v, n in loops if n > 1 and dict(stages[main].strides[0]).get(v) == 1]
    along = unit[-1] if unit else loops[-1][0]
    return Maps(program, stages, main, along, _crossed(program, found[main], along))


def elements(stage: Stage) -> int:
    """How often the statement of a stage runs."""
    return prod([extent for _, extent in stage.loops])


def _crossed(program: Program, nest: Nest, along: str) -> tuple[str, ...]:
    around, leaf = nest
    extents = {f.var: f.extent for f in around}
    known = buffers(program)
    places: dict[str, set[object]] = {}
    for read in reads_of(leaf):
        places.setdefault(read.buffer, set()).add(read.indices)
    for read in reads_of(leaf):
        strides = dict(strides_of(known[read.buffer], read.indices) or ())
        if len(places[read.buffer]) > 1 or strides.get(along, 0) in (0, 1):
            continue
        other = [v for v, c in strides.items() if c == 1 and v != along and extents.get(v, 1) > 1]
        used = {v for i in read.indices for v in free_vars(i)}
        if other and {along, other[0]} <= used:
            return read.buffer, other[0]
    return ()
