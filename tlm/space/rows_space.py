"""The space of a chain of stages over rows on a CPU: softmax, normalisations, reductions, their epilogues.

The nest that the choices spell, from the outside in:

    rows in blocks [in parallel], stage by stage: rows of the block, other loops, vectors side by side

with the vectors along a reduced axis (each lane has a result of its own, merged at the end of the row) or
along a kept one (no merge at all); or every stage on its own, its reductions cut into parts for the threads.
`rows_choices.py` has the questions, `rows_steps.py` makes steps of the answers.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import lru_cache, partial

from ..ir.walk import loads, parts, statements
from ..schedule.steps import Step, apply
from ..target import Target
from . import rows_choices as ask
from .choice import Ask, Choice, Space
from .contraction_choices import ceil
from .inlining import inlined
from .rows import Rows, rows
from .rows_choices import Figures, candidates
from .rows_steps import Plan, mergeable, steps
from .stages import Stage


def rows_space(r: Rows, target: Target) -> Space:
    """Every schedule of the chain `r` that this space knows, one choice at a time."""
    inlined, r = yield from inline_stages(r, target)
    plan = yield from _plan(r, target)
    return (*inlined, *steps(r, plan))


def inline_stages(r: Rows, target: Target) -> Generator[Choice, int, tuple[tuple[Step, ...], Rows]]:
    """Which elementwise stages are computed where they are read; the steps, and what is left of `r`."""
    asked = partial(ask.recompute, Figures.of(r, target))
    inlining = yield from inlined(r.program, r.chain, partial(_readers, r), asked)
    return inlining, _after(r, inlining)


@lru_cache(maxsize=256)
def _after(r: Rows, inlining: tuple[Step, ...]) -> Rows:
    """The chain without the stages that are inlined."""
    found = rows(apply(r.program, inlining)) if inlining else r
    assert found is not None
    return found


@lru_cache(maxsize=1024)
def _readers(r: Rows, stage: Stage) -> int:
    """How many places read an elementwise stage that may be computed there anew; 0 where none may."""
    if stage.combiner or stage.name in r.outputs:
        return 0
    users = [s for s in r.stages if stage.name in s.reads]
    if not users or any(set(s.axes) != set(stage.axes) for s in users):
        return 0
    places = {
        (id(s), e.indices)
        for s in statements(r.program.body)
        if not parts(s)
        for e in loads(s)
        if e.buffer == stage.name
    }
    return 0 if len(places) > 1 and set(stage.axes) <= set(r.rows) else len(places)


def _plan(r: Rows, target: Target) -> Ask:
    f = Figures.of(r, target)
    style = yield from ask.style(f)
    vector = dict(candidates(r)).get(style, "")
    lanes, columns = 1, 1
    if vector:
        lanes = yield from ask.lanes(f, r.extent(vector))
        columns = yield from ask.columns(f, r.extent(vector), lanes)
    width = lanes * columns
    kept = vector in r.rows
    last = r.extent(r.rows[-1]) if r.rows else 1
    fused = bool(r.rows) and (yield from ask.fusion(f, width if kept else 1)) == "fused"
    block = 1 if kept else (yield from ask.rows(f, last, fused))
    trips = f.trips
    if r.rows:
        cut = vector if kept else r.rows[-1]
        trips = trips // r.extent(cut) * ceil(r.extent(cut), width if kept else block)
    long = max([_steps(r, s, vector, width) for s in r.chain if s.combiner], default=1)
    parallel = yield from ask.parallel(f, trips, 1 if fused else long)
    parts = target.threads if parallel == "split" else 1
    plan = Plan(vector, lanes, columns, fused, block, False, parallel, parts)
    pairs = mergeable(r, plan)
    merge = yield from ask.merge(f, len(pairs), f.row_bytes(block))
    return Plan(vector, lanes, columns, fused, block, merge == "fused", parallel, parts)


def _steps(r: Rows, stage: Stage, vector: str, width: int) -> int:
    """Iterations of the longest loop of a reduction."""
    sizes = [ceil(stage.extent(a), width if a == vector else 1) for a in stage.axes if a in stage.reduced]
    return max(sizes, default=1)
