"""From the answers of the space of products to the steps of a schedule. Plain data in, plain data out.

The nest of a block, from the outside in:

    blocks of the grid
      start of the accumulators: threads, their tile
      windows, blocks of k: copies of both operands into shared memory, by all threads
        threads: k: a row and a column of the tile into registers; the tile
      write-back: threads, their tile
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...schedule.steps import (
    Bind,
    CacheRead,
    CacheWrite,
    DecomposeReduction,
    DoubleBuffer,
    Reorder,
    ReverseInline,
    RFactor,
    Split,
    Step,
    StorageAlign,
    Swizzle,
    Tensorize,
    Unroll,
    Vectorize,
)
from ..contraction_choices import ceil
from ..conv_problem import Convolution, Side
from .banks import Swap, bank_row
from .launch import Loop, Threads, fuse, grid, spread, spread_grid

JOIN_THREADS = 256


@dataclass(frozen=True, slots=True)
class Cut:
    """How one side of a block's tile is dealt: `wide` elements of the inner loop times `high` of the one
    around it; a thread has `thread` of them, in groups of `vector` neighbours; `lanes` threads of a warp lie
    along it. `staged`: through shared memory, in copies of `copy` elements at a time, `turned` where they are
    contiguous along k. Rows of the copy are `align` elements more than a multiple of all banks apart (0:
    dense), or `swap` is how their pieces change places. Of one that is turned, neighbouring threads copy
    `near` steps of k, then go along the side (0: all steps). `panel`: elements of its rows; each so many of
    the side lie in rows below each other (0: the side is one row).
    """

    wide: int
    high: int
    thread: int
    vector: int
    lanes: int
    staged: bool
    copy: int
    turned: bool = False
    align: int = 0
    swap: Swap | None = None
    near: int = 0
    panel: int = 0

    @property
    def block(self) -> int:
        return self.wide * self.high

    @property
    def threads(self) -> int:
        return self.block // self.thread

    @property
    def warps(self) -> int:
        return self.threads // self.lanes


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers. `raster`: 1 and 0 have blocks along n and along m as neighbours, larger numbers as many
    rows of blocks in one group. `out` is the width of the vectors of the result. `depth`: steps of k of a
    matrix instruction, 0 for plain multiply-adds."""

    m: Cut
    n: Cut
    k: int
    unroll: int
    slices: int
    raster: int
    stages: int
    out: int
    fused: bool
    depth: int = 0

    @property
    def threads(self) -> Threads:
        return Threads(self.m.warps * self.n.warps, self.m.lanes * self.n.lanes)


@dataclass(frozen=True, slots=True)
class Parts:
    """The loops of one side: over blocks, and those of a block's tile before it is dealt."""

    blocks: tuple[Loop, ...]
    tile: tuple[Loop, ...]


@dataclass(frozen=True, slots=True)
class Dealt:
    """The loops of one side of the tile: over warps, lanes, groups of neighbours, and neighbours."""

    warp: str
    lane: str
    repeat: str
    vector: str


Middle = Callable[[list[Step], list[Step], Convolution, Plan, "Inside"], None]
"""Adds the steps of what a block multiplies, around those of its copies."""


def steps(c: Convolution, p: Plan, middle: Middle | None = None) -> tuple[Step, ...]:
    """The schedule of `p`, to be applied to the unscheduled program in this order."""
    out: list[Step] = list(c.prepare)
    stage, k, extent, batch = c.stage, c.k, c.extent(c.k), [(x, c.extent(x)) for x in c.batch]
    if p.slices > 1:
        part = part_of(extent, p.slices, p.k if p.depth else 1)
        out += [Split(k, part), RFactor(f"{k}.0", memory="heap", name=f"{stage}_part")]
        batch.append((f"{k}.0", ceil(extent, part)))
        stage, k, extent = f"{stage}_part", f"{k}.1", part
    rows, columns = _cut(out, c, c.rows, p.m), _cut(out, c, c.columns, p.n)
    out.append(Split(k, p.k))
    blocks = _raster(out, batch, rows, columns, p)
    deep = (*c.windows, f"{k}.0")
    tiles = [name for name, _ in (*rows.tile, *columns.tile)]
    out.append(Reorder((*[name for name, _ in blocks], *deep, f"{k}.1", *tiles)))
    launch = grid(out, blocks)
    copies: list[Step] = []
    names = []
    for side, cut, parts, word in ((c.rows, p.m, rows, "a"), (c.columns, p.n, columns, "b")):
        inner = (f"{k}.1", p.k)
        names.append(_stage(out, copies, c, p, side, cut, parts, inner, deep[-1], word))
    middle = middle or (_matrices if p.depth else _threads)
    middle(out, copies, c, p, Inside(stage, f"{k}.1", deep[0], launch.inner, rows, columns, tuple(names)))
    out += launch.binds()
    if p.slices > 1:
        join(out, c, f"{c.k}.0", stage)
        if p.fused:
            out += [ReverseInline(e.stage) for e in c.epilogue]
    if not p.fused:
        for e in c.epilogue:
            spread_grid(out, e.loops, JOIN_THREADS)
    return tuple(out)


def part_of(k: int, slices: int, unit: int) -> int:
    """Steps of k of one of so many parts, in whole groups: what lies beyond a part is no padding."""
    size = ceil(k, slices)
    return size if slices == 1 else ceil(size, unit) * unit


@dataclass(frozen=True, slots=True)
class Inside:
    """What a block's nest is made of: the stage, the innermost loop over k and the outermost summed one, the
    loop inside of which a block runs, the loops of both sides, and the names of what the threads read."""

    stage: str
    k: str
    summed: str
    at: str
    rows: Parts
    columns: Parts
    names: tuple[str, ...]


def _threads(out: list[Step], copies: list[Step], c: Convolution, p: Plan, b: Inside) -> None:
    """Each thread multiplies a row by a column of its part of the tile in each step of k."""
    m, n = deal(out, b.rows.tile, p.m), deal(out, b.columns.tile, p.n)
    tile = (m.repeat, m.vector, n.repeat, n.vector)
    out.append(Reorder((m.warp, n.warp, m.lane, n.lane, b.k, *tile)))
    y, x = fuse(out, ((m.warp, 0), (n.warp, 0)))[0], fuse(out, ((m.lane, 0), (n.lane, 0)))[0]
    out += _fragments(c, p, b.names, (m, n), b.k)
    acc = f"{b.stage}_acc"
    out += [
        CacheWrite(b.stage, b.at, memory="register", layout=(y, x, *tile), name=acc),
        DecomposeReduction(acc, b.summed),
        *copies,
    ]
    marked(out, c, p, (y, x), tile, acc)
    out += [Bind(y, "threadIdx.y"), Bind(x, "threadIdx.x"), *[Unroll(loop) for loop in tile]]
    if p.unroll > 1:
        out.append(Unroll(b.k, 0 if p.unroll >= p.k else p.unroll))


def _matrices(out: list[Step], copies: list[Step], c: Convolution, p: Plan, b: Inside) -> None:
    """Warps multiply 16 x 8 results in each step of p.depth; a thread has 2 x 2 of them (PTX, mma.m16n8)."""
    (loop, _), n = b.rows.tile[-1], deal(out, b.columns.tile, p.n)
    out += [Split(loop, 16 * p.m.warps), Split(f"{loop}.1", 16), Split(f"{loop}.1.1", 8), Split(b.k, p.depth)]
    m = Dealt(f"{loop}.1.0", f"{loop}.1.1.1", f"{loop}.0", f"{loop}.1.1.0")
    steps = (f"{b.k}.0", m.repeat, n.repeat, f"{b.k}.1", m.vector, n.vector)
    out.append(Reorder((m.warp, n.warp, m.lane, n.lane, *steps)))
    y, x = fuse(out, ((m.warp, 0), (n.warp, 0)))[0], fuse(out, ((m.lane, 0), (n.lane, 0)))[0]
    tile, acc = (m.repeat, m.vector, n.repeat, n.vector), f"{b.stage}_acc"
    out += [
        CacheWrite(b.stage, b.at, memory="register", layout=(y, x, *tile), name=acc),
        DecomposeReduction(acc, b.summed),
        Bind(y, "threadIdx.y"), Bind(x, "threadIdx.x"), Unroll(m.repeat), Unroll(n.repeat),
        Tensorize(f"{b.k}.1"), *([Unroll(f"{b.k}.0", p.unroll if p.unroll < p.k // p.depth else 0)]
                                if p.unroll > 1 else []),
        *copies,
    ]  # fmt: skip
    marked(out, c, p, (y, x), tile, acc)


def marked(
    out: list[Step], c: Convolution, p: Plan, threads: tuple[str, str], tile: tuple[str, ...], acc: str
) -> None:
    """The start and the write-back of the accumulators, with the epilogue in it, on threads."""
    if p.fused and p.slices == 1:
        out += [ReverseInline(e.stage) for e in c.epilogue]
    for copy, width in (("@init", 1), (f"@{acc}", p.out)):
        out += [Bind(f"{threads[0]}{copy}", "threadIdx.y"), Bind(f"{threads[1]}{copy}", "threadIdx.x")]
        out += [Unroll(f"{loop}{copy}") for loop in tile[:-1]]
        out.append(Vectorize(f"{tile[-1]}{copy}") if width > 1 else Unroll(f"{tile[-1]}{copy}"))


def _cut(out: list[Step], c: Convolution, side: Side, cut: Cut) -> Parts:
    """Splits of the loops of a side into blocks and the tile of a block."""
    inner = side.inner
    out.append(Split(inner, cut.wide))
    blocks: list[Loop] = [(f"{inner}.0", ceil(c.extent(inner), cut.wide))]
    tile: list[Loop] = [(f"{inner}.1", cut.wide)]
    rest = [(loop, c.extent(loop)) for loop in side.loops[:-1]]
    if cut.high > 1:
        loop, extent = rest.pop()
        out.append(Split(loop, cut.high))
        blocks.insert(0, (f"{loop}.0", ceil(extent, cut.high)))
        tile.insert(0, (f"{loop}.1", cut.high))
    return Parts((*rest, *blocks), tuple(tile))


def _raster(out: list[Step], batch: list[Loop], rows: Parts, columns: Parts, p: Plan) -> list[Loop]:
    """The loops over blocks from the outside in; those of the two inner axes come last, so that they stay
    loops of their own."""
    *above, m = rows.blocks
    *beside, n = columns.blocks
    outer = [*batch, *above, *beside]
    if p.raster < 2:
        return [*outer, m, n] if p.raster else [*outer, n, m]
    out.append(Split(m[0], p.raster))
    group = (f"{m[0]}.0", ceil(m[1], p.raster)), (f"{m[0]}.1", min(p.raster, m[1]))
    return [*outer, group[0], n, group[1]]


def _stage(
    out: list[Step], copies: list[Step], c: Convolution, p: Plan, side: Side, cut: Cut, parts: Parts, k: Loop,
    at: str, word: str,
) -> str:  # fmt: skip
    """The copy of an operand in shared memory; the name of what the threads read."""
    operand = side.operand
    if not cut.staged:
        return operand.buffer.name
    name = f"{c.stage}_{word}"
    moved = [loop for loop in parts.tile if moves(operand.strides, loop[0])]
    if cut.panel:
        (wide, extent) = moved.pop()
        out.append(Split(wide, cut.panel))
        moved += [(f"{wide}.0", ceil(extent, cut.panel)), (f"{wide}.1", cut.panel)]
    # A sum of one term may index one operand only.
    summed = [k] if moves(operand.strides, k[0]) else []
    order = [*moved, *summed] if cut.turned else [*summed, *moved]
    # Matrix instructions take operands as they lie; threads read a row or a column in one step of k.
    kept = order if p.depth else [*summed, *moved]
    kept = [*moved[:-1], *summed, moved[-1]] if cut.panel else kept
    layout = tuple([loop for loop, _ in kept])
    out.append(CacheRead(operand.buffer.name, at, memory="shared", layout=layout, name=name, pad=True))
    spread(
        copies, _order(copies, [(f"{loop}@{name}", n) for loop, n in order], cut.near), p.threads, cut.copy
    )
    if cut.align and len(kept) > 1:
        row = 2 * cut.align if p.depth else bank_row(operand.buffer.dtype.bytes)
        copies.append(StorageAlign(name, 0, row, cut.align))
    if cut.swap is not None and len(kept) > 1:
        copies.append(Swizzle(name, 1 if cut.panel else 0, *cut.swap))
    if p.stages > 1:
        copies.append(DoubleBuffer(name, p.stages))
    return name


def _order(out: list[Step], loops: list[Loop], near: int) -> list[Loop]:
    """The loops of a copy, the last one cut so that its parts of `near` iterations lie around all others."""
    *rest, (last, extent) = loops
    if not 0 < near < extent or not rest:
        return loops
    out.append(Split(last, near))
    return [(f"{last}.0", extent // near), *rest, (f"{last}.1", near)]


def moves(strides: tuple[tuple[str, int], ...], loop: str) -> bool:
    """Whether the part `loop` of a loop of the program moves an operand."""
    return any(loop == name or loop.startswith(f"{name}.") for name, _ in strides)


def deal(out: list[Step], tile: tuple[Loop, ...], cut: Cut) -> Dealt:
    """Cut a side of the tile into groups, warps, lanes and neighbours."""
    loop, _ = fuse(out, tile)
    out += [
        Split(loop, cut.warps * cut.lanes * cut.vector),
        Split(f"{loop}.1", cut.lanes * cut.vector),
        Split(f"{loop}.1.1", cut.vector),
    ]
    return Dealt(f"{loop}.1.0", f"{loop}.1.1.0", f"{loop}.0", f"{loop}.1.1.1")


def _fragments(
    c: Convolution, p: Plan, names: tuple[str, ...], sides: tuple[Dealt, Dealt], k: str
) -> list[Step]:
    """What a thread multiplies in one step of k, read once into registers."""
    out: list[Step] = []
    for side, cut, dealt, name, word in zip(
        (c.rows, c.columns), (p.m, p.n), sides, names, ("a", "b"), strict=True
    ):
        held = f"{c.stage}_{word}_row"
        if not any(moves(side.operand.strides, x) for x in side.loops[-2:] if x):
            continue
        layout = (dealt.repeat, dealt.vector)
        out.append(CacheRead(name, k, memory="register", layout=layout, name=held, pad=True))
        out.append(Unroll(f"{dealt.repeat}@{held}"))
        whole = cut.vector > 1 and cut.wide % cut.vector == 0 and cut.staged
        lane = f"{dealt.vector}@{held}"
        out.append(Vectorize(lane) if whole else Unroll(lane))
    return out


def join(out: list[Step], c: Convolution, part: str, partial: str) -> None:
    """The kernel that adds up the parts of a split k: one element a thread."""
    order = [x for x, _ in c.extents if x in (*c.batch, *c.rows.loops, *c.columns.loops)]
    loops = [(f"{x}@{partial}", c.extent(x)) for x in order]
    whole, extent = fuse(out, loops)
    out.append(Split(whole, min(JOIN_THREADS, extent)))
    launch = grid(out, [(f"{whole}.0", ceil(extent, JOIN_THREADS))])
    thread = f"{whole}.1"
    out += [
        CacheWrite(c.stage, thread, memory="register", name=f"{c.stage}_sum"),
        *launch.binds(),
        Bind(thread, "threadIdx.x"),
    ]
