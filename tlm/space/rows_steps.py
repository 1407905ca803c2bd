"""From the answers of the space of rows to the steps of a schedule. Plain data in, plain data out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..ir.combiners import COMBINERS
from ..schedule.steps import (
    CacheWrite,
    Fuse,
    Merge,
    Parallel,
    Reorder,
    RFactor,
    Split,
    Step,
    Vectorize,
)
from .contraction_choices import CHAIN, ceil
from .rows import Rows
from .stages import Stage

LONGEST = 4 * CHAIN
"""Terms that one running total takes: each lane has its own, so that only sums of many thousand terms have
more, and are cut."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers. `vector` is the axis of the vectors, "" for none; `rows` counts the rows of a block.

    `parts` is into how many parts reductions are cut for the threads, 1 where they are not.
    """

    vector: str
    lanes: int
    columns: int
    fused: bool
    rows: int
    merge: bool
    parallel: str
    parts: int


@dataclass(slots=True)
class Shape:
    """Loops of one stage while it is cut: a part of a reduction, rows, rows of a block, other kept loops,
    reduction loops (these two with their iterations), and the loop of the vectors."""

    stage: Stage
    part: str = ""
    rows: list[str] = field(default_factory=list)
    block: str = ""
    kept: list[tuple[str, int]] = field(default_factory=list)
    summed: list[tuple[str, int]] = field(default_factory=list)
    lane: str = ""
    target: str = ""

    @property
    def inner(self) -> tuple[str, ...]:
        return tuple([n for n, _ in (*self.kept, *self.summed)])

    @property
    def order(self) -> tuple[str, ...]:
        names = (self.part, *self.rows, self.block, *self.inner, self.lane)
        return tuple([n for n in names if n])


def steps(r: Rows, p: Plan) -> tuple[Step, ...]:
    """The schedule of `p`, to be applied after its stages are inlined, in this order."""
    out: list[Step] = []
    shapes: dict[int, Shape] = {}
    marks: list[Step] = []
    for n, stage in enumerate(r.stages):
        shape = _shaped(out, r, p, stage) if n in r.body else _alone(out, stage, p)
        shapes[n] = shape
        if shape.lane:
            marks.append(Vectorize(shape.lane))
        marks += cut_sums(out, shape)
    body = [shapes[n] for n in r.body]
    if p.fused:
        for at in range(len(body[0].rows)):
            out += [Merge(body[0].rows[at], s.rows[at]) for s in body[1:]]
    if p.merge:
        for a, b in mergeable(r, p):
            out += _merged(shapes[r.body[a]], shapes[r.body[b]])
    out += marks
    return tuple(out + _threads(r, p, list(shapes.values()), body))


def _shaped(out: list[Step], r: Rows, p: Plan, stage: Stage) -> Shape:
    """Cut the loops of a stage of the body, and put them in order."""
    shape = Shape(stage, target=stage.name)
    width = p.lanes * p.columns
    last = r.rows[-1] if r.rows else ""
    blocked = p.vector if p.vector in r.rows else last
    for axis in (*[a for a in r.rows if a != blocked], *([blocked] if blocked else [])):
        loop = stage.loop(axis)
        size = width if axis == p.vector else p.rows if axis == blocked else 1
        if axis == blocked and (size > 1 or axis == p.vector):
            out.append(Split(loop, size))
            shape.rows.append(f"{loop}.0")
            if axis == p.vector:
                shape.lane = f"{loop}.1"
            else:
                shape.block = f"{loop}.1"
        else:
            shape.rows.append(loop)
    for axis in inner_order(r, stage, p.vector):
        loop, extent = stage.loop(axis), stage.extent(axis)
        group = shape.summed if axis in stage.reduced else shape.kept
        if axis == p.vector:
            out.append(Split(loop, width))
            group.append((f"{loop}.0", ceil(extent, width)))
            shape.lane = f"{loop}.1"
        else:
            group.append((loop, extent))
    _parts(out, shape, p)
    shape.kept, shape.summed = chunks(out, shape.kept), chunks(out, shape.summed)
    if len(shape.order) > 1:
        out.append(Reorder(shape.order))
    if shape.part:
        out.append(RFactor(shape.part, memory="heap"))
        shape.target = f"{stage.name}_rf"
    return shape


def inner_order(r: Rows, stage: Stage, vector: str) -> list[str]:
    """Axes of a stage that are no rows: the kept ones, then the reduced ones, that of the vectors last."""
    own = [a for a in r.inner if a in stage.axes]
    return sorted(own, key=lambda a: (a in stage.reduced, a == vector))


def _parts(out: list[Step], shape: Shape, p: Plan) -> None:
    """Cut the longest reduction loop into parts for the threads, outermost."""
    if p.parts < 2 or not shape.stage.combiner or not shape.summed:
        return
    at = max(range(len(shape.summed)), key=lambda n: shape.summed[n][1])
    loop, trips = shape.summed[at]
    if trips > 1:
        size = ceil(trips, p.parts)
        out.append(Split(loop, size))
        shape.part = f"{loop}.0"
        shape.summed[at] = (f"{loop}.1", size)


def chunks(out: list[Step], loops: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Cut loops of more than LONGEST steps, of every stage alike, so that a sum can end inside of them."""
    cut: list[tuple[str, int]] = []
    for loop, trips in loops:
        while trips > LONGEST:
            size = CHAIN if trips <= CHAIN * CHAIN else CHAIN * CHAIN
            out.append(Split(loop, size))
            cut.append((f"{loop}.0", ceil(trips, size)))
            loop, trips = f"{loop}.1", size
        cut.append((loop, trips))
    return cut


def cut_sums(out: list[Step], shape: Shape) -> list[Step]:
    """Totals of their own for chunks of long sums; the marks of the loops that bring them home."""
    if not shape.stage.combiner or not COMBINERS[shape.stage.combiner].adds:
        return []
    chain, ends = 1, list[str]()
    for loop, trips in reversed(shape.summed):
        if chain > 1 and chain * trips > LONGEST:
            ends.append(loop)
            chain = trips
        else:
            chain *= trips
    target, marks = shape.target, list[Step]()
    for level, loop in enumerate(reversed(ends)):
        name = f"{shape.stage.name}_sum{level}"
        out.append(CacheWrite(target, loop, memory="register", name=name))
        if shape.lane and not _horizontal(shape):
            marks.append(Vectorize(f"{shape.lane}@{name}"))
        target = name
    return marks


def _horizontal(shape: Shape) -> bool:
    """Whether the lanes of a stage are merged into one element."""
    names = [
        v for (v, _), a in zip(shape.stage.loops, shape.stage.axes, strict=True) if a in shape.stage.reduced
    ]
    return any(shape.lane.startswith(f"{v}.") for v in names)


def _alone(out: list[Step], stage: Stage, p: Plan) -> Shape:
    """A stage beside the body: vectors along its innermost loop where that is contiguous."""
    shape = Shape(stage, target=stage.name)
    names = [v for v, _ in stage.loops]
    if not names:
        return shape
    axis, (loop, extent) = stage.axes[-1], stage.loops[-1]
    unit = any(dict(s).get(axis) == 1 for s in stage.strides)
    if unit and extent > 1 and (not stage.reduced or axis in stage.reduced) and not p.parts > 1:
        out.append(Split(loop, p.lanes))
        shape.lane = f"{loop}.1"
    return shape


def mergeable(r: Rows, p: Plan) -> list[tuple[int, int]]:
    """Pairs of stages of the body, by number, of which the second can share the innermost loops of the first.

    The first one is the first of its group: a group ends where a stage needs a whole reduction of it.
    """
    if p.parts > 1 or (not p.fused and r.rows):
        return []
    pairs: list[tuple[int, int]] = []
    head, pending, group = -1, set[str](), set[str]()
    for n, stage in enumerate(r.chain):
        inner = inner_order(r, stage, p.vector)
        same = head >= 0 and inner == inner_order(r, r.chain[head], p.vector)
        if inner and same and not stage.reads & pending and not stage.apart & group:
            pairs.append((head, n))
        elif inner:
            head, pending, group = n, set(), set()
        group |= set(stage.targets)
        if stage.combiner or not inner or stage.reads & pending:
            pending |= set(stage.targets)
    return pairs


def _merged(a: Shape, b: Shape) -> list[Step]:
    """The loops inside of the rows of two stages as one."""
    outer: list[Step] = [Merge(a.block, b.block)] if a.block else []
    return [*outer, Merge(a.inner[0], b.inner[0])]


def _threads(r: Rows, p: Plan, shapes: Iterable[Shape], body: list[Shape]) -> list[Step]:
    match p.parallel:
        case "none":
            return []
        case "outer" if p.fused:
            loops = body[0].rows
            fuses = [Fuse("*".join(loops[:n]), loops[n]) for n in range(1, len(loops))]
            return [*fuses, Parallel("*".join(loops))]
    out: list[Step] = []
    for shape in shapes:
        if shape.part:
            out.append(Parallel(shape.part))
        elif p.parts > 1 and shape.inner and not shape.stage.combiner:
            out.append(Parallel(shape.inner[0]))
        elif shape.stage.name in {s.stage.name for s in body} and shape.rows:
            out.append(Parallel(shape.rows[0]))
    return out
