"""From the answers of the GPU space of rows to the steps of a schedule. Plain data in, plain data out."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from ...ir.exprs import Var
from ...schedule.steps import (
    Bind,
    CacheWrite,
    Merge,
    Reorder,
    RFactor,
    SetScope,
    Split,
    SplitDimension,
    Step,
    Vectorize,
)
from ..contraction_choices import ceil
from ..problem import nests
from ..rows import Rows
from ..rows_steps import inner_order
from ..stages import Stage
from .launch import Loop, fuse, grid, spread_grid

ALONE = 256
"""Threads of a block of kernels beside the chain."""

MANY_RESULTS = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers.

    `along` is the axis of neighbouring threads, `kept` whether it is a row axis. `threads` lie along it,
    `vector` neighbours are one thread's. A block has `rows` rows of the axis `blocked`, of which `beside` run
    at a time. `parts`: into how many parts reductions are cut, each for blocks of its own (0: none). `held`:
    row-long temporaries in registers.
    """

    along: str
    kept: bool
    fused: bool
    threads: int
    vector: int
    blocked: str
    rows: int
    beside: int
    parts: int
    held: bool


@dataclass(slots=True)
class Shape:
    """The loops of a stage over blocks, from the outside in, and marks that wait until stages are merged."""

    blocks: list[Loop] = field(default_factory=list)
    marks: list[Step] = field(default_factory=list)


def steps(r: Rows, p: Plan) -> tuple[Step, ...]:
    """The schedule of `p`, to be applied after its stages are inlined, in this order."""
    out: list[Step] = []
    shapes: dict[int, Shape] = {}
    for n, stage in enumerate(r.stages):
        if n in r.body and (r.rows or stage.combiner):
            shapes[n] = shaped(out, r, p, stage)
        elif stage.loops:
            _alone(out, stage)
    body = [shapes[n] for n in r.body if n in shapes]
    if p.fused:
        for at in range(len(body[0].blocks)):
            out += [Merge(body[0].blocks[at][0], s.blocks[at][0]) for s in body[1:]]
        out += scopes(r, p, frozenset())
        body[0].marks = [mark for s in body for mark in s.marks]
        body = body[:1]
    for shape in body:
        launch = grid(out, shape.blocks) if shape.blocks else None
        out += [*shape.marks, *(launch.binds() if launch else [])]
    return tuple(out)


def _alone(out: list[Step], stage: Stage) -> None:
    """A stage beside the chain: one element of its result a thread."""
    kept = [(v, n) for (v, n), a in zip(stage.loops, stage.axes, strict=True) if a not in stage.reduced]
    if len(kept) == len(stage.loops):
        spread_grid(out, stage.loops, ALONE)
    elif kept:
        out.append(Reorder((*[v for v, _ in kept], *[v for v, _ in stage.loops if v not in dict(kept)])))
        _each(out, kept)


def _each(out: list[Step], loops: list[Loop]) -> str:
    """One iteration of `loops`, the outermost ones of a nest, a thread; the loop over threads."""
    whole, extent = fuse(out, loops)
    out.append(Split(whole, min(ALONE, extent)))
    launch = grid(out, [(f"{whole}.0", ceil(extent, ALONE))])
    out += [*launch.binds(), Bind(f"{whole}.1", "threadIdx.x")]
    return f"{whole}.1"


def shaped(out: list[Step], r: Rows, p: Plan, stage: Stage) -> Shape:
    """Cut the loops of a stage of the chain, put them in order, and give each thread partial results."""
    shape, target = Shape(), stage.name
    along = stage.loop(p.along) if p.along in stage.axes else ""
    extent = stage.extent(p.along) if along else 1
    part: list[Loop] = []
    cut = ""
    if p.parts and stage.combiner:
        cut = p.along if p.along in stage.reduced else max(stage.reduced, key=stage.extent)
        size = ceil(stage.extent(cut), p.parts)
        part = [(f"{stage.loop(cut)}.0", ceil(stage.extent(cut), size))]
        name = f"{stage.name}_part"
        out += [Split(stage.loop(cut), size), RFactor(part[0][0], memory="heap", name=name)]
        target = _first(stage, name)
        _parts(out, stage, target, part[0])
        if cut == p.along:
            along, extent = f"{along}.1", size
    shape.blocks = [(stage.loop(a), stage.extent(a)) for a in r.rows if a not in (p.along, p.blocked)]
    y, turns = _block_rows(out, shape, stage, p)
    shape.blocks += part
    inner = [stage.loop(a) + (".1" if a == cut else "") for a in inner_order(r, stage, p.along)]
    inner = [loop for loop in inner if loop != along]
    x, lane = "", ""
    if along and p.threads == 1 and not p.kept:
        if p.vector > 1:
            out.append(Split(along, p.vector))
            along, lane = f"{along}.0", f"{along}.1"
        inner.append(along)
        along = ""
    if along:
        x, lane = _along(out, along, p)
        outer = (f"{along}.0", ceil(extent, p.threads * p.vector))
        if p.kept:
            shape.blocks.append(outer)
        else:
            inner.append(outer[0])
    elif y:
        out.append(Split(y, 1))
        y, x = f"{y}.0", f"{y}.1"
    order = [*[name for name, _ in shape.blocks], *turns, y, x, *inner, lane]
    out.append(Reorder(tuple([name for name in order if name])))
    shape.marks += [Bind(name, axis) for name, axis in ((y, "threadIdx.y"), (x, "threadIdx.x")) if name]
    if lane:
        shape.marks.append(Vectorize(lane))
    if stage.combiner and along and p.along in stage.reduced and p.threads > 1:
        at = turns[-1] if turns else shape.blocks[-1][0]
        _lanes(out, shape, stage, target, at, ((y,) if y else (), x), _kept(r, stage), p.fused)
    elif stage.combiner and x:
        _total(out, shape, stage, target, x, lane if p.along not in stage.reduced else "")
    return shape


def _block_rows(out: list[Step], shape: Shape, stage: Stage, p: Plan) -> tuple[str, list[str]]:
    """Cut the blocked rows; the loop over rows side by side ("" for none), and that over turns of them."""
    if not p.blocked or p.kept:
        return "", []
    loop = stage.loop(p.blocked)
    out.append(Split(loop, p.rows))
    shape.blocks.append((f"{loop}.0", ceil(stage.extent(p.blocked), p.rows)))
    if p.beside >= p.rows:
        return f"{loop}.1", []
    out.append(Split(f"{loop}.1", p.beside))
    return f"{loop}.1.1", [f"{loop}.1.0"]


def _along(out: list[Step], along: str, p: Plan) -> tuple[str, str]:
    """Cut the axis of the threads; the loops over threads and over the lanes of a vector ("" for none)."""
    out.append(Split(along, p.threads * p.vector))
    if p.vector == 1:
        return f"{along}.1", ""
    out.append(Split(f"{along}.1", p.vector))
    return f"{along}.1.0", f"{along}.1.1"


def _first(stage: Stage, name: str) -> str:
    """The (first) buffer that is made for a stage under a name."""
    return name if len(stage.targets) == 1 else f"{name}.{stage.name}"


def _kept(r: Rows, stage: Stage) -> list[str]:
    """Loops of a reduction that are neither rows nor reduced."""
    return [stage.loop(a) for a in stage.axes if a not in stage.reduced and a not in r.rows]


def _lanes(
    out: list[Step], shape: Shape, stage: Stage, target: str, at: str, threads: tuple[tuple[str, ...], str],
    kept: list[str], fused: bool,
) -> None:  # fmt: skip
    """Each thread sums its share; then the threads of a row bring their sums together."""
    y, x = threads
    name = f"{stage.name}_lanes"
    out.append(RFactor(x, memory="register", at=at, name=name))
    copy = name if len(stage.targets) == 1 else f"{name}.{target}"
    if kept and y:
        out.append(Reorder(tuple([f"{loop}@{copy}" for loop in (*kept, *y, x)])))
    if fused and len(stage.targets) > 1:
        # Only what plain stores write becomes private to a row when stages are merged.
        whole = f"{stage.name}_all"
        out.append(CacheWrite(target, at, memory="shared", name=whole))
        shape.marks += [Bind(f"{loop}@{copy}@{whole}.{target}", "threadIdx.y") for loop in y]
    shape.marks += [Bind(f"{loop}@{copy}", "threadIdx.y") for loop in y]
    shape.marks.append(Bind(f"{x}@{copy}", "threadIdx.x"))


def _total(out: list[Step], shape: Shape, stage: Stage, target: str, x: str, lane: str) -> None:
    """Each thread sums in registers, and stores once."""
    name = f"{stage.name}_acc"
    out.append(CacheWrite(target, x, memory="register", name=name))
    copy = name if len(stage.targets) == 1 else f"{name}.{target}"
    if lane:
        shape.marks.append(Vectorize(f"{lane}@{copy}"))


def _parts(out: list[Step], stage: Stage, target: str, part: Loop) -> None:
    """The kernel that brings the parts of a reduction together: a thread for each result, or, for few
    results, a block."""
    kept = [(v, n) for (v, n), a in zip(stage.loops, stage.axes, strict=True) if a not in stage.reduced]
    home = [(f"{v}@{target}", n) for v, n in kept]
    if prod([n for _, n in home]) >= MANY_RESULTS:
        thread = _each(out, home)
        out.append(CacheWrite(stage.name, thread, memory="register", name=f"{stage.name}_sum"))
        return
    launch = grid(out, home) if home else None
    out.append(Bind(f"{part[0]}@{target}", "threadIdx.x"))
    out += launch.binds() if launch else []


def scopes(r: Rows, p: Plan, gone: frozenset[str]) -> list[Step]:
    """Temporaries but for those `gone` now belong to a block: in shared memory, or in registers."""
    out: list[Step] = []
    leaves = [leaf for _, leaf in nests(r.program.body)]
    for number in r.body:
        stage = r.stages[number]
        if {*stage.targets} & (r.outputs | gone) or not private(r, stage):
            continue
        axes = [a for a in stage.axes if a not in stage.reduced]
        if not (p.held and p.along in axes) or len(stage.targets) > 1:
            out += [SetScope(name, "shared") for name in stage.targets]
            continue
        place = [i.name if isinstance(i, Var) else "" for i in leaves[number].indices]
        d = place.index(stage.loop(p.along))
        if not p.kept:
            out.append(SplitDimension(stage.name, d, p.threads * p.vector))
            d += 1
        if p.vector > 1:
            out.append(SplitDimension(stage.name, d, p.vector))
        out.append(SetScope(stage.name, "register"))
    return out


def private(r: Rows, stage: Stage) -> bool:
    """Whether only the chain reads what a stage of it writes."""
    readers = [{n for n, s in enumerate(r.stages) if name in s.reads} for name in stage.targets]
    return all(bool(found) and found <= set(r.body) for found in readers)
