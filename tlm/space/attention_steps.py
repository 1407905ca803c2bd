"""From the answers of the space of attention to the steps of a schedule. Plain data in, plain data out."""

from __future__ import annotations

from dataclasses import dataclass

from ..schedule.steps import (
    CacheRead,
    CacheWrite,
    DecomposeReduction,
    Fuse,
    Merge,
    Parallel,
    Reorder,
    ReverseInline,
    Split,
    Step,
    Unroll,
    Vectorize,
)
from .attention import Attention, Product
from .contraction_choices import CHAIN, ceil
from .packing import turned
from .rows_steps import LONGEST, Shape, chunks, cut_sums, inner_order
from .stages import Stage


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers. `columns` and `packed` are for each product; `block` counts tiles of `rows` rows.

    `vectors` are side by side in the stages between the products, along their axis `along`.
    """

    lanes: int
    rows: int
    block: int
    columns: tuple[int, ...]
    packed: tuple[bool, ...]
    inner: str
    unroll: int
    along: str
    vectors: int
    merge: bool
    parallel: str


def steps(a: Attention, p: Plan) -> tuple[Step, ...]:
    """The schedule of `p`, to be applied to the unscheduled program in this order."""
    out: list[Step] = []
    marks: list[Step] = []
    products = {x.stage: (x, p.columns[n], p.packed[n]) for n, x in enumerate(a.products)}
    shapes: dict[int, Shape] = {}
    for number, stage in enumerate(a.rows.stages):
        if number in products:
            shapes[number] = _tiles(out, a, p, *products[number])
        elif number in a.others:
            shapes[number] = _rows(out, marks, a, p, stage)
    out += [ReverseInline(x.follower) for x in a.products if x.follower]
    first, *rest = [shapes[n] for n in a.rows.body if n in shapes]
    for at in range(len(first.rows)):
        out += [Merge(first.rows[at], s.rows[at]) for s in rest]
    if p.merge:
        out += [s for pair in mergeable(a, p) for s in _joined(shapes[pair[0]], shapes[pair[1]])]
    return tuple(out + marks + _threads(p, first))


def _outer(a: Attention, stage: Stage) -> list[str]:
    return [stage.loop(axis) for axis in a.outer]


def _tiles(out: list[Step], a: Attention, p: Plan, x: Product, columns: int, packed: bool) -> Shape:
    """A product in tiles of registers: rows x vectors, summed over all of k."""
    stage = a.rows.stages[x.stage]
    outer, m, n, k = _outer(a, stage), stage.loop(a.m), stage.loop(x.n), stage.loop(x.k)
    out += [Split(m, p.rows * p.block), Split(f"{m}.1", p.rows), Split(n, columns * p.lanes)]
    side: tuple[str, ...] = ()
    lane = f"{n}.1"
    if columns > 1:
        out.append(Split(lane, p.lanes))
        side, lane = (f"{n}.1.0",), f"{n}.1.1"
    long = stage.extent(x.k) > LONGEST
    if long:
        out.append(Split(k, max(CHAIN, ceil(stage.extent(x.k), LONGEST))))
    deep = (f"{k}.0", f"{k}.1") if long else (k,)
    row, tiles = f"{m}.1.1", {"m": f"{m}.1.0", "n": f"{n}.0"}
    order = [tiles[axis] for axis in p.inner]
    out.append(Reorder((*outer, f"{m}.0", *order, *deep, row, *side, lane)))
    if packed:
        out += _packing(a, p, x, stage, deep, (*side, lane))
    # Long sums have a total of their own for each part of k.
    spots = [order[-1], *deep[:-1]]
    target, copies = stage.name, ["", "@init"]
    for level, spot in enumerate(spots):
        name = f"{stage.name}_acc{level or ''}"
        out.append(CacheWrite(target, spot, memory="register", layout=(row, *side, lane), name=name))
        copies.append(f"@{name}")
        target = name
    out.append(DecomposeReduction(target, deep[-1]))
    for copy in copies:
        out += [Unroll(loop + copy) for loop in (row, *side)] + [Vectorize(lane + copy)]
    if p.unroll > 1:
        out.append(Unroll(deep[-1], p.unroll))
    return Shape(stage, rows=[*outer, f"{m}.0"])


def _packing(
    a: Attention, p: Plan, x: Product, stage: Stage, deep: tuple[str, ...], inner: tuple[str, ...]
) -> list[Step]:
    """The second factor in the order in which tiles read it, turned in registers where it lies along k."""
    name, n = f"{stage.name}_pack", stage.loop(x.n)
    moved = [stage.loop(axis) for axis in a.outer if axis in x.outer]
    at = moved[-1] if moved else ""
    layout = (f"{n}.0", *deep, *inner)
    out: list[Step] = [CacheRead(x.b, at, "heap", layout, name, pad=True, stage=stage.name)]
    if not x.crossed:
        return [*out, *[Unroll(f"{loop}@{name}") for loop in inner[:-1]], Vectorize(f"{inner[-1]}@{name}")]
    *before, k = deep
    outer = (f"{n}.0", *before)
    return out + turned(x.b, name, outer=outer, side=inner[:-1], row=k, lane=inner[-1], lanes=p.lanes)


def _rows(out: list[Step], marks: list[Step], a: Attention, p: Plan, stage: Stage) -> Shape:
    """A stage between the products: rows of the block outside, vectors along its inner axis."""
    m = stage.loop(a.m)
    shape = Shape(stage, rows=[*_outer(a, stage), f"{m}.0"], block=f"{m}.1", target=stage.name)
    out.append(Split(m, p.rows * p.block))
    for axis in inner_order(a.rows, stage, p.along):
        loop = stage.loop(axis)
        group = shape.summed if axis in stage.reduced else shape.kept
        if axis == p.along:
            out.append(Split(loop, p.lanes * p.vectors))
            group.append((f"{loop}.0", ceil(stage.extent(axis), p.lanes * p.vectors)))
            shape.lane = f"{loop}.1"
        else:
            group.append((loop, stage.extent(axis)))
    shape.kept, shape.summed = chunks(out, shape.kept), chunks(out, shape.summed)
    out.append(Reorder(shape.order))
    if shape.lane:
        marks.append(Vectorize(shape.lane))
    marks += cut_sums(out, shape)
    return shape


def mergeable(a: Attention, p: Plan) -> list[tuple[int, int]]:
    """Numbers of neighbouring stages between products, of which the second reads the first element by
    element: they can share their loops over a row."""
    pairs: list[tuple[int, int]] = []
    for one, two in zip(a.others, a.others[1:], strict=False):
        x, y = a.rows.stages[one], a.rows.stages[two]
        same = inner_order(a.rows, x, p.along) == inner_order(a.rows, y, p.along) != []
        reads = not x.combiner and x.name in y.reads and x.name not in y.apart
        free = not pairs or pairs[-1][1] != one
        if two == one + 1 and same and reads and free:
            pairs.append((one, two))
    return pairs


def _joined(x: Shape, y: Shape) -> list[Step]:
    return [Merge(x.block, y.block), Merge(x.inner[0], y.inner[0])]


def _threads(p: Plan, first: Shape) -> list[Step]:
    outer = first.rows[:-1]
    match p.parallel:
        case "batch":
            fuses = [Fuse("*".join(outer[:n]), outer[n]) for n in range(1, len(outer))]
            return [*fuses, Parallel("*".join(outer))]
        case "m":
            return [Parallel(first.rows[-1])]
    return []
