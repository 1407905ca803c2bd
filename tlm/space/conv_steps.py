"""From the answers of the space of convolutions to the steps of a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..schedule.steps import (
    CacheRead,
    CacheWrite,
    DecomposeReduction,
    Parallel,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
)
from .contraction_choices import LONG_WINDOW
from .conv_problem import Convolution, Side
from .epilogue import epilogue
from .packing import ROWS, by_rows


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """The answers. Blocks of m and n are counted in tiles of the blocked axis; `order` names the block loops,
    outermost first."""

    lanes: int
    columns: int
    rows: int
    height: int
    parallel: str
    block_k: int
    block_m: int
    block_n: int
    order: str
    inner: str
    pack_n: bool
    pack_m: bool
    window: str
    unroll: int
    hold: bool
    epilogue: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The loops of a side: around everything, of blocks (or ""), of tiles in a block, inside of a tile."""

    outer: tuple[str, ...]
    block: str
    tiles: tuple[str, ...]
    inside: tuple[str, ...]


def steps(c: Convolution, p: ConvPlan) -> tuple[Step, ...]:
    """The schedule of `p`, to be applied to the unscheduled program in this order."""
    out: list[Step] = list(c.prepare)
    rows = _cut(out, c, c.rows, p.rows, p.height, p.block_m)
    columns = _cut(out, c, c.columns, p.columns * p.lanes, 1, p.block_n)
    lane, vectors = columns.inside[-1], columns.inside[:-1]
    if p.columns > 1:
        out.append(Split(lane, p.lanes))
        vectors, lane = (*vectors, f"{lane}.0"), f"{lane}.1"
    k, block_k = c.k, ""
    if "k" in p.order:
        out.append(Split(k, p.block_k))
        block_k, k = f"{k}.0", f"{k}.1"
    blocks = {"m": rows.block, "n": columns.block, "k": block_k}
    tiles = [loop for axis in p.inner for loop in (rows if axis == "m" else columns).tiles]
    outer = sorted([*c.batch, *rows.outer, *columns.outer], key=lambda loop: (-c.extent(loop), loop))
    around = [*outer, *[blocks[axis] for axis in p.order]]
    tile = (*rows.inside, *vectors, lane)
    windows = _windows(out, c, p.block_k)
    shared = windows[-1:] if p.window == "tile" else ()
    summed = (*windows[: len(windows) - len(shared)], k)
    out.append(Reorder((*around, *tiles, *summed, *rows.inside, *shared, *vectors, lane)))
    nest = Nest(tuple(outer), blocks, windows, k, tile)
    for axis, wanted, side, cut in (("n", p.pack_n, c.columns, columns), ("m", p.pack_m, c.rows, rows)):
        if wanted:
            inside = (*vectors, lane) if axis == "n" else cut.inside
            out += _copy(c, p, nest, side, axis, (*cut.tiles, *windows, k, *inside))
    if p.hold:
        out += _held(c, (*around, *tiles), (*windows, k), tile)
    totals, inside_of = [f"{c.stage}_acc"], _long(c, p.block_k, windows)
    out.append(CacheWrite(c.stage, tiles[-1], memory="register", layout=tile, name=totals[0]))
    for loop in inside_of:
        totals.append(f"{c.stage}_{loop}")
        out.append(CacheWrite(totals[-2], loop, memory="register", layout=tile, name=totals[-1]))
    out.append(DecomposeReduction(totals[-1], summed[len(inside_of)]))
    for copy in ("", "@init", *[f"@{total}" for total in totals]):
        out += [Unroll(x + copy) for x in tile[:-1]] + [Vectorize(lane + copy)]
    if p.unroll > 1:
        out.append(Unroll(k, p.unroll if p.unroll < p.block_k else 0))
    out += [Unroll(w) for w in {"none": (), "all": windows}.get(p.window, windows[-1:])]
    threaded, blocked = _shared(p, nest), block_k if c.fusable else ""
    last = epilogue(c.epilogue, p.epilogue == "fused", p.lanes, threaded, around, blocked)
    return tuple(out + last + ([Parallel(threaded)] if threaded else []))


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops of the whole nest: around it, of blocks by axis, over the window, over k, and of the register
    tile."""

    outer: tuple[str, ...]
    blocks: dict[str, str]
    windows: tuple[str, ...]
    k: str
    tile: tuple[str, ...]


def _windows(out: list[Step], c: Convolution, block_k: int) -> tuple[str, ...]:
    """The loops over the window; one that is too long for one total is cut."""
    if not c.windows or c.extent(c.windows[-1]) * block_k <= LONG_WINDOW:
        return c.windows
    *outer, last = c.windows
    out.append(Split(last, max(1, LONG_WINDOW // block_k)))
    return (*outer, f"{last}.0", f"{last}.1")


def _long(c: Convolution, block_k: int, windows: tuple[str, ...]) -> tuple[str, ...]:
    """Loops over the window inside of which the terms have a total of their own, as all are too many for
    one."""
    extents = [c.extent(w) for w in c.windows]
    if len(windows) > len(extents):
        last = max(1, LONG_WINDOW // block_k)
        extents = [*extents[:-1], -(-extents[-1] // last), last]
    count = 0
    while count + 1 < len(windows) and prod(extents[count:]) * block_k > LONG_WINDOW:
        count += 1
    return windows[:count]


def _cut(out: list[Step], c: Convolution, side: Side, tile: int, height: int, block: int) -> Cut:
    """Splits of the loops of a side into blocks, tiles, and what is inside of a tile."""
    inner = side.inner
    out.append(Split(inner, tile))
    tiles, inside = f"{inner}.0", [f"{inner}.1"]
    if len(side.loops) == 1:
        if block >= -(-c.extent(inner) // tile):
            return Cut((), "", (tiles,), tuple(inside))
        out.append(Split(tiles, block))
        return Cut((), f"{tiles}.0", (f"{tiles}.1",), tuple(inside))
    rows, outside = side.blocked, side.loops[:-2]
    count = -(-c.extent(rows) // height)
    if height > 1:
        out.append(Split(rows, height))
        inside.insert(0, f"{rows}.1")
        rows = f"{rows}.0"
    if block >= count:
        return Cut(outside, "", (rows, tiles), tuple(inside))
    out.append(Split(rows, block))
    return Cut(outside, f"{rows}.0", (f"{rows}.1", tiles), tuple(inside))


def _copy(
    c: Convolution, p: ConvPlan, nest: Nest, side: Side, axis: str, readers: tuple[str, ...]
) -> list[Step]:
    """A copy of an operand made once for each block: the box of an image, or panels in reading order."""
    operand = side.operand
    name = f"{operand.buffer.name}_pack"
    own = [x for x in nest.outer if operand.stride(x)]
    needed = [nest.blocks[x] for x in p.order if x == axis or (x == "k" and operand.stride(c.k))]
    at = needed[-1] if needed else own[-1] if own else ""
    order = ["", *nest.outer, *[nest.blocks[x] for x in p.order]]
    shared = _shared(p, nest)
    outside = bool(shared) and order.index(at) < order.index(shared)
    if side.slid:
        last = f"ax{len(operand.buffer.shape) - 1}@{name}"
        out: list[Step] = [
            CacheRead(operand.buffer.name, at, memory="heap", name=name, pad=True),
            Split(last, p.lanes), Vectorize(f"{last}.1"),
        ]  # fmt: skip
        return out + ([Parallel(_longest(operand.buffer.shape[:-1], name))] if outside else [])
    layout = tuple([x for x in readers if _moves(operand.strides, x)])
    out = [CacheRead(operand.buffer.name, at, "heap", layout, name, pad=True, stage=c.stage)]
    last, inner = layout[-1], [x for x in nest.tile if x in layout]
    unit, outermost = operand.stride(side.inner) == 1, f"{layout[0]}@{name}"
    if unit and nest.k in layout and p.block_k > ROWS and _panels(c, p, side, axis) > 1:
        around = [x for x in layout if x not in inner and x != nest.k]
        outermost, streamed = by_rows(name, sorted(around, key=lambda x: x not in nest.windows), nest.k)
        out += streamed
    if last in inner:
        out += [Unroll(f"{x}@{name}") for x in inner[:-1]]
        out.append(Vectorize(f"{last}@{name}") if axis == "n" or unit else Unroll(f"{last}@{name}"))
    if outside and layout[0] not in inner:
        out.append(Parallel(outermost))
    return out


def _panels(c: Convolution, p: ConvPlan, side: Side, axis: str) -> int:
    """Tiles of a block along the innermost loop of a side: panels of a row of its packed operand."""
    size, block = (p.columns * p.lanes, p.block_n) if axis == "n" else (p.rows, p.block_m)
    tiles = -(-c.extent(side.inner) // size)
    return tiles if len(side.loops) > 1 else min(block, tiles)


def _held(
    c: Convolution, outside: tuple[str, ...], summed: tuple[str, ...], tile: tuple[str, ...]
) -> list[Step]:
    """The weights in registers, from the innermost loop outside of the tile that moves them."""
    operand = c.columns.operand
    name = f"{operand.buffer.name}_held"
    at = [x for x in outside if _moves(operand.strides, x)][-1]
    inside = [x for x in tile if _moves(operand.strides, x)]
    loops = (*summed, *inside)
    out: list[Step] = [
        CacheRead(operand.buffer.name, at, memory="register", layout=loops, name=name, pad=True)
    ]
    return [*out, *[Unroll(f"{x}@{name}") for x in loops[:-1]], Vectorize(f"{loops[-1]}@{name}")]


def _longest(shape: tuple[int, ...], name: str) -> str:
    """The longest dimension of a copied box, but for the last one."""
    return f"ax{max(range(len(shape)), key=lambda d: shape[d])}@{name}"


def _moves(strides: tuple[tuple[str, int], ...], loop: str) -> bool:
    """Whether the part `loop` of a loop of the program moves an operand."""
    return any(loop == name or loop.startswith(f"{name}.") for name, stride in strides if stride)


def _shared(p: ConvPlan, nest: Nest) -> str:
    """The loop that threads share, or ""."""
    match p.parallel:
        case "none":
            return ""
        case "batch":
            return nest.outer[0]
        case axis:
            return nest.blocks[axis]
