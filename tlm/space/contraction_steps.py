"""From the answers of the contraction space to the steps of a schedule. Plain data in, plain data out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.dtypes import DType
from ..schedule.steps import (
    CacheRead,
    CacheWrite,
    DecomposeReduction,
    Parallel,
    PrefetchAhead,
    Reorder,
    RFactor,
    Split,
    Step,
    Unroll,
    Vectorize,
    Widen,
)
from .epilogue import epilogue
from .packing import ROWS, by_rows, turned
from .problem import Contraction


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers. Blocks of m and n are counted in tiles; `order` names the block loops, outermost first."""

    style: str
    lanes: int
    columns: int
    rows: int
    split_k: int
    parallel: str
    block_k: int
    block_m: int
    block_n: int
    order: str
    inner: str
    pack_n: bool
    pack_m: bool
    unroll: int
    prefetch: int
    epilogue: str
    terms: int
    held_a: DType
    held_b: DType


def part(k: int, parts: int, terms: int) -> int:
    """The terms of one of so many parts of a sum, in whole groups."""
    size = -(-k // parts)
    return size if size == k else min(-(-size // terms) * terms, k)


@dataclass(slots=True)
class Loops:
    """Names of the loops of the nest while it is cut into blocks and tiles."""

    block: dict[str, str]
    tile: dict[str, str]
    k: str
    rows: str
    columns: tuple[str, ...]
    lane: str
    term: tuple[str, ...] = ()


def steps(c: Contraction, plan: Plan) -> tuple[Step, ...]:
    """The schedule of `plan`, to be applied to the unscheduled program in this order."""
    return tuple(_dot_steps(c, plan) if plan.style == "dot" else _outer_steps(c, plan))


def _axis(out: list[Step], loop: str, extent: int, tile: int, block: int) -> tuple[str, str, str]:
    """Cut an axis into (block loop or "", tile loop, loop within a tile)."""
    out.append(Split(loop, tile))
    tiles = -(-extent // tile)
    if block >= tiles:
        return "", f"{loop}.0", f"{loop}.1"
    out.append(Split(f"{loop}.0", block))
    return f"{loop}.0.0", f"{loop}.0.1", f"{loop}.1"


def _batch(c: Contraction) -> tuple[str, ...]:
    """Batch loops, the longest first: it is the one that threads share."""
    return tuple(sorted(c.batch, key=lambda loop: (-c.extent(loop), loop)))


def _outer_steps(c: Contraction, p: Plan) -> list[Step]:
    out: list[Step] = []
    k, stage, batch = c.k, c.stage, _batch(c)
    if p.split_k > 1:
        out += [Split(k, part(c.extent(k), p.split_k, p.terms)), RFactor(f"{k}.0", memory="heap")]
        out += _joining(c, p, f"{stage}_rf", f"{k}.0")
        k, stage, batch = f"{k}.1", f"{stage}_rf", (*batch, f"{k}.0")
    width = p.columns * p.lanes
    n_block, n_tile, column = _axis(out, c.n, c.extent(c.n), width, p.block_n)
    m_block, m_tile, row = _axis(out, c.m, c.extent(c.m), p.rows, p.block_m)
    columns: tuple[str, ...] = ()
    lane = column
    if p.columns > 1:
        out.append(Split(column, p.lanes))
        columns, lane = (f"{column}.0",), f"{column}.1"
    k_block = ""
    if "k" in p.order:
        out.append(Split(k, p.block_k))
        k_block, k = f"{k}.0", f"{k}.1"
    term: tuple[str, ...] = ()
    if p.terms > 1:
        out.append(Split(k, p.terms))
        k, term = f"{k}.0", (f"{k}.1",)
    loops = Loops(
        {"m": m_block, "n": n_block, "k": k_block}, {"m": m_tile, "n": n_tile}, k, row, columns, lane, term
    )
    blocks = [*batch, *(loops.block[axis] for axis in p.order)]
    tiles = [loops.tile[axis] for axis in p.inner]
    out.append(Reorder((*blocks, *tiles, k, row, *columns, *term, lane)))
    out += _packing(c, p, loops, stage, batch)
    acc = f"{stage}_acc"
    tile = (row, *columns, lane)
    out += [
        CacheWrite(stage, tiles[-1], memory="register", layout=tile, name=acc),
        DecomposeReduction(acc, k),
    ]
    for copy in ("", "@init", f"@{acc}"):
        out += [Unroll(x + copy) for x in (row, *columns)] + [Vectorize(lane + copy)]
    out += [Unroll(x) for x in term]
    if p.unroll > 1:
        out.append(Unroll(k, p.unroll))
    if p.prefetch:
        out.append(PrefetchAhead(c.b.buffer.name, k, p.prefetch))
    return out + _last(c, p, loops, batch, blocks, k_block if p.split_k == 1 else "")


def _last(
    c: Contraction, p: Plan, loops: Loops, batch: tuple[str, ...], blocks: Sequence[str], k: str
) -> list[Step]:
    """The stages after the product, and its threads; `k` is the loop over blocks of the sum, or ""."""
    shared = _shared(p, loops, batch)
    after = epilogue(c.epilogue, p.epilogue == "fused", p.lanes, shared, blocks, k if c.chained else "")
    return after + ([Parallel(shared)] if shared else [])


def _packing(c: Contraction, p: Plan, loops: Loops, stage: str, batch: tuple[str, ...]) -> list[Step]:
    """Copies of operands in the order in which tiles read them, made once for each block that needs them."""
    out: list[Step] = []
    for axis, wanted, operand, held, inner in (
        ("n", p.pack_n, c.b, p.held_b, (*loops.columns, loops.lane)),
        ("m", p.pack_m, c.a, p.held_a, (loops.rows,)),
    ):
        if not wanted:
            continue
        name = f"{operand.buffer.name}_pack"
        # The loop over the parts of a split k is none of the problem's own: it moves both operands.
        own = [x for x in batch if operand.stride(x) or x not in c.batch]
        needed = [loops.block[x] for x in p.order if x in (axis, "k")]
        at = needed[-1] if needed else own[-1] if own else ""
        # A sum of one term may index one operand only.
        summed = ((loops.k,), loops.term) if operand.stride(c.k) else ((), ())
        layout = (loops.tile[axis], *summed[0], *inner, *summed[1])
        out.append(CacheRead(operand.buffer.name, at, "heap", layout, name, pad=True, stage=stage))
        if held != operand.buffer.dtype:
            out.append(Widen(name, held.name))
        outermost, order = _copying(c, p, loops, axis, name, inner)
        out += order
        shared = loops.block.get(p.parallel, batch[0] if batch and p.parallel in ("batch", "k") else "")
        around = ["", *batch, *(loops.block[x] for x in p.order)]
        if shared and around.index(at) < around.index(shared):
            out.append(Parallel(outermost))
    return out


def _copying(
    c: Contraction, p: Plan, loops: Loops, axis: str, name: str, inner: tuple[str, ...]
) -> tuple[str, list[Step]]:
    """The outermost loop of the copy `name` of an operand, and the steps that arrange its loops."""
    operand, held = (c.b, p.held_b) if axis == "n" else (c.a, p.held_a)
    tile, across, out = loops.tile[axis], inner[-1], list[Step]()
    outermost, along_k = f"{tile}@{name}", operand.stride(c.k)
    unit = operand.stride(c.n if axis == "n" else c.m) == 1
    vectors = axis == "n" or unit
    if vectors and not unit and along_k == 1 and p.terms == 1 and held == operand.buffer.dtype:
        source, side, k = operand.buffer.name, inner[:-1], loops.k
        return outermost, turned(source, name, outer=(tile,), side=side, row=k, lane=across, lanes=p.lanes)
    if unit and along_k and p.block_k > ROWS * p.terms and _panels(c, p, axis) > 1:
        outermost, order = by_rows(name, (tile,), loops.k)
        out += order
    term = loops.term if along_k else ()
    if term and vectors:
        out.append(Reorder((f"{term[0]}@{name}", f"{across}@{name}")))
    out += [Unroll(f"{x}@{name}") for x in (*inner[:-1], *term)]
    return outermost, [*out, Vectorize(f"{across}@{name}") if vectors else Unroll(f"{across}@{name}")]


def _panels(c: Contraction, p: Plan, axis: str) -> int:
    """Tiles of a block of an axis: the panels of its packed operand."""
    if axis == "n":
        return min(p.block_n, -(-c.extent(c.n) // (p.columns * p.lanes)))
    return min(p.block_m, -(-c.extent(c.m) // p.rows))


def _shared(p: Plan, loops: Loops, batch: tuple[str, ...]) -> str:
    """The loop that threads share, or ""."""
    match p.parallel:
        case "none":
            return ""
        case "batch":
            return batch[0]
        case "k":
            return batch[-1]
        case axis:
            return loops.block[axis]


def _joining(c: Contraction, p: Plan, partial: str, part: str) -> list[Step]:
    """The nest that adds up the parts of a split k: vectors along the columns, threads along the rows."""
    row, column, part = (f"{x}@{partial}" for x in (c.m, c.n, part))
    out: list[Step] = []
    if c.extent(c.n) > 1:
        out += [
            Split(column, p.lanes),
            Reorder((f"{column}.0", part, f"{column}.1")),
            Vectorize(f"{column}.1"),
        ]
    return [*out, Parallel(row)] if c.extent(c.m) > 1 else out


def _dot_steps(c: Contraction, p: Plan) -> list[Step]:
    out: list[Step] = []
    n_block, n_tile, column = _axis(out, c.n, c.extent(c.n), p.columns, p.block_n)
    m_block, m_tile, row = _axis(out, c.m, c.extent(c.m), p.rows, p.block_m)
    k, k_block = c.k, tuple[str, ...]()
    if p.block_k < c.extent(k):
        out.append(Split(k, p.block_k))
        k, k_block = f"{k}.1", (f"{k}.0",)
    out.append(Split(k, p.lanes))
    k, lane, batch = f"{k}.0", f"{k}.1", _batch(c)
    loops = Loops({"m": m_block, "n": n_block, "k": ""}, {"m": m_tile, "n": n_tile}, k, row, (column,), lane)
    tiles = [loops.tile[axis] for axis in p.inner]
    blocks = [*batch, *(loops.block[axis] for axis in p.order), *k_block]
    out.append(Reorder((*blocks, *tiles, k, row, column, lane)))
    acc = f"{c.stage}_lanes"
    out += [RFactor(lane, memory="register", at=tiles[-1], name=acc), DecomposeReduction(acc, k)]
    if p.epilogue == "fused":
        # The sum of the lanes must be a plain value before a stage can be inlined into its store.
        out.append(CacheWrite(c.stage, tiles[-1], memory="register", name=f"{c.stage}_acc"))
        out += [Unroll(f"{x}@{acc}@{c.stage}_acc") for x in (row, column)]
    for copy in ("", "@init", f"@{acc}"):
        out += [Unroll(row + copy), Unroll(column + copy), Vectorize(lane + copy)]
    if p.unroll > 1:
        out.append(Unroll(k, p.unroll))
    return out + _last(c, p, loops, batch, blocks, k_block[0] if k_block else "")
