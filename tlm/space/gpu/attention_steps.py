"""From the answers of the GPU space of attention to the steps of a schedule."""

from __future__ import annotations

from dataclasses import dataclass

from ...schedule.steps import (
    Bind,
    CacheRead,
    CacheWrite,
    DecomposeReduction,
    Merge,
    Reorder,
    ReverseInline,
    Split,
    Step,
    Unroll,
)
from ..attention import Attention, Product
from ..contraction_choices import ceil
from .launch import Threads, fuse, grid, spread
from .product_steps import Cut, Dealt, deal
from .rows_steps import Plan as RowPlan
from .rows_steps import Shape, scopes, shaped


@dataclass(frozen=True, slots=True)
class Tile:
    """How a product is dealt: rows and columns of the tile, steps of k of a copy, whether it is copied."""

    m: Cut
    n: Cut
    k: int
    staged: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers: a tile for each product, and how the stages between them are dealt."""

    tiles: tuple[Tile, ...]
    between: RowPlan
    unroll: int


def steps(a: Attention, p: Plan) -> tuple[Step, ...]:
    """The schedule of `p`, to be applied to the unscheduled program in this order."""
    out: list[Step] = []
    products = {x.stage: (x, p.tiles[n]) for n, x in enumerate(a.products)}
    shapes: dict[int, Shape] = {}
    for number, stage in enumerate(a.rows.stages):
        if number in products:
            shapes[number] = _product(out, a, p, *products[number])
        elif number in a.others:
            shapes[number] = shaped(out, a.rows, p.between, stage)
    out += [ReverseInline(x.follower) for x in a.products if x.follower]
    found = [shapes[n] for n in a.rows.body if n in shapes]
    if p.between.fused:
        for at in range(len(found[0].blocks)):
            out += [Merge(found[0].blocks[at][0], s.blocks[at][0]) for s in found[1:]]
        gone = frozenset(a.rows.stages[x.stage].name for x in a.products if x.follower)
        out += scopes(a.rows, p.between, gone)
        found[0].marks = [mark for s in found for mark in s.marks]
        found = found[:1]
    for shape in found:
        launch = grid(out, shape.blocks)
        out += [*shape.marks, *launch.binds()]
    return tuple(out)


def _product(out: list[Step], a: Attention, p: Plan, x: Product, tile: Tile) -> Shape:
    """A product in tiles of a block: all columns in turn where the chain is fused, else in blocks."""
    stage = a.rows.stages[x.stage]
    outer = [(stage.loop(axis), a.extent(axis)) for axis in a.outer]
    m, n, k = stage.loop(a.m), stage.loop(x.n), stage.loop(x.k)
    out += [Split(m, tile.m.wide), Split(n, tile.n.wide), Split(k, tile.k)]
    blocks = [*outer, (f"{m}.0", ceil(a.extent(a.m), tile.m.wide))]
    tiles = (f"{n}.0", ceil(a.extent(x.n), tile.n.wide))
    names = [name for name, _ in (*blocks, tiles)]
    out.append(Reorder((*names, f"{k}.0", f"{k}.1", f"{m}.1", f"{n}.1")))
    shape = Shape(blocks if p.between.fused else [*blocks, tiles])
    threads = Threads(tile.m.warps * tile.n.warps, tile.m.lanes * tile.n.lanes)
    read = x.b
    if tile.staged:
        read = f"{stage.name}_b"
        layout = (f"{k}.1", f"{n}.1")
        out.append(CacheRead(x.b, f"{k}.0", memory="shared", layout=layout, name=read, pad=True))
        order = [(f"{k}.1@{read}", tile.k), (f"{n}.1@{read}", tile.n.wide)]
        spread(shape.marks, order[::-1] if x.crossed else order, threads)
    rows, columns = deal(out, ((f"{m}.1", 0),), tile.m), deal(out, ((f"{n}.1", 0),), tile.n)
    inner = (rows.repeat, rows.vector, columns.repeat, columns.vector)
    out.append(Reorder((rows.warp, columns.warp, rows.lane, columns.lane, f"{k}.1", *inner)))
    y = fuse(out, ((rows.warp, 0), (columns.warp, 0)))[0]
    lanes = fuse(out, ((rows.lane, 0), (columns.lane, 0)))[0]
    _hold(out, stage.name, read, columns, f"{k}.1")
    acc = f"{stage.name}_acc"
    out.append(CacheWrite(stage.name, tiles[0], memory="register", layout=(y, lanes, *inner), name=acc))
    out.append(DecomposeReduction(acc, f"{k}.0"))
    for copy in ("", "@init", f"@{acc}"):
        shape.marks += [Bind(f"{y}{copy}", "threadIdx.y"), Bind(f"{lanes}{copy}", "threadIdx.x")]
        shape.marks += [Unroll(f"{loop}{copy}") for loop in inner]
    if p.unroll > 1:
        shape.marks.append(Unroll(f"{k}.1", 0 if p.unroll >= tile.k else p.unroll))
    return shape


def _hold(out: list[Step], stage: str, read: str, columns: Dealt, k: str) -> None:
    """What a thread multiplies by in one step of k, read once into registers."""
    held = f"{stage}_b_row"
    layout = (columns.repeat, columns.vector)
    out.append(CacheRead(read, k, memory="register", layout=layout, name=held, pad=True))
    out += [Unroll(f"{loop}@{held}") for loop in layout]
