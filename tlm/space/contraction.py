"""The space of a contraction on a CPU: blocking as in GotoBLAS with every variation, legal by construction.

The nest that the choices spell, from the outside in (Goto and van de Geijn 2008, Van Zee and van de Geijn
2015):

    batch, blocks of m, n and k in any order [packing], tiles of the block in either order,
      k [unrolled, prefetched], rows of the tile (unrolled), columns of the tile (unrolled vectors)

Styles: "outer" holds a tile of rows x vectors of columns in registers; "swapped" the same with rows and
columns exchanged, where the result is contiguous along m; "dot" keeps a vector of partial sums along k for
each element. `contraction_choices.py` has the questions, `contraction_steps.py` makes steps of the answers.
"""

from __future__ import annotations

from collections.abc import Generator

from ..ir.dtypes import DType, exact
from ..target import Target
from . import contraction_choices as ask
from .choice import Choice, Space
from .contraction_choices import CHAIN, LONG_SUM, Figures, ceil
from .contraction_steps import Plan, part, steps
from .problem import Contraction


def contraction_space(problem: Contraction, target: Target) -> Space:
    """Every schedule of `problem` that this space knows, one choice at a time."""
    style = yield from ask.style(Figures.of(problem, target))
    c = problem.swapped() if style == "swapped" else problem
    figures = Figures.of(c, target)
    plan = yield from (_dot(figures) if style == "dot" else _outer(figures, style))
    return steps(c, plan)


def _outer(f: Figures, style: str) -> Generator[Choice, int, Plan]:
    c = f.c
    lanes = yield from ask.lanes(f, f.n)
    terms = yield from ask.terms(f, lanes)
    held_a, held_b = _held(f, lanes, terms)
    if terms > 1:
        f = Figures.of(c, f.target, held_b.bytes)
    vectors = yield from ask.columns(f, f.n, lanes)
    columns = min(vectors * lanes, f.n)
    rows = yield from ask.rows(f, f.m, vectors)
    tiles_m, tiles_n = ceil(f.m, rows), ceil(f.n, columns)
    split = yield from ask.split_k(f, tiles_m * tiles_n * c.batches)
    depth, parallel = part(f.k, split, terms), "k"
    if split == 1:
        parallel = yield from ask.parallel(f, (("batch", c.batches), ("m", tiles_m), ("n", tiles_n)))
    block_k = yield from ask.block_k(f, rows, columns, depth, terms)
    block_m = yield from ask.block_m(f, f.m, rows, block_k, parallel == "m")
    block_n = yield from ask.block_n(f, f.n, columns, block_k, parallel == "n")
    trips = (("m", ceil(tiles_m, block_m)), ("n", ceil(tiles_n, block_n)), ("k", ceil(depth, block_k)))
    order = yield from ask.order(f, trips)
    inner = yield from ask.inner(f, min(block_m, tiles_m), min(block_n, tiles_n), rows, columns, block_k)
    narrow = held_b != c.b.buffer.dtype
    size = block_k * block_n * columns * f.bytes
    runs = (block_k, c.b.stride(c.k)), (columns, c.b.stride(c.n))
    pack_n = "block"
    if terms == 1:
        reuse = _reuse(order, "n", tiles_m, block_m)
        pack_n = yield from ask.pack_n(f, reuse, size, c.b.stride(c.n), runs, vectors * narrow)
    narrow = held_a != c.a.buffer.dtype
    size = block_k * block_m * rows * f.bytes
    runs = (block_k, c.a.stride(c.k)), (rows, c.a.stride(c.m))
    pack_m = "block"
    if terms == 1 or not (narrow or c.a.stride(c.k) != 1):
        reuse = _reuse(order, "m", tiles_n, block_n)
        pack_m = yield from ask.pack_m(f, reuse, size, c.a.stride(c.k), runs, rows * narrow)
    unroll = yield from ask.unroll(f, rows * vectors, ceil(block_k, terms))
    prefetch = yield from ask.prefetch(f, pack_n == "block", f.k * f.n * f.bytes, block_k)
    epilogue = yield from ask.epilogue(f, block_k < depth, split > 1)
    return Plan(
        style, lanes, vectors, rows, split, parallel, block_k, block_m, block_n, order.replace("none", ""),
        inner, pack_n == "block", pack_m == "block", unroll, prefetch, epilogue, terms, held_a, held_b,
    )  # fmt: skip


def _held(f: Figures, lanes: int, terms: int) -> tuple[DType, DType]:
    """The types of packed operands: those that an instruction for `terms` takes, else that of the sum."""
    for g in f.groupings(lanes):
        if g.terms == terms:
            return g.a, g.b
    a, b = (x.buffer.dtype for x in (f.c.a, f.c.b))
    wide = f.c.dtype
    return wide if exact(a, wide) else a, wide if exact(b, wide) else b


def _reuse(order: str, own: str, tiles: int, block: int) -> int:
    """Times that a packed element is read: by all tiles of the other axis, or a block's if it is outside."""
    other = "n" if own == "m" else "m"
    needed = [order.index(axis) for axis in (own, "k") if axis in order]
    outside = other in order and (not needed or order.index(other) < max(needed))
    return min(block, tiles) if outside else tiles


def _dot(f: Figures) -> Generator[Choice, int, Plan]:
    lanes = yield from ask.lanes(f, f.k)
    columns = yield from ask.columns(f, f.n, 1)
    rows = yield from ask.rows(f, f.m, columns)
    tiles_m, tiles_n = ceil(f.m, rows), ceil(f.n, columns)
    parallel = yield from ask.parallel(f, (("batch", f.c.batches), ("m", tiles_m), ("n", tiles_n)))
    block_m = yield from ask.block_m(f, f.m, rows, f.k, parallel == "m")
    block_n = yield from ask.block_n(f, f.n, columns, f.k, parallel == "n")
    trips = (("m", ceil(tiles_m, block_m)), ("n", ceil(tiles_n, block_n)), ("k", 1))
    order = yield from ask.order(f, trips)
    inner = yield from ask.inner(f, min(block_m, tiles_m), min(block_n, tiles_n), rows, columns, f.k)
    unroll = yield from ask.unroll(f, rows * columns, ceil(f.k, lanes))
    block_k = f.k if f.k <= LONG_SUM * lanes else _long_block(f.k, lanes)
    epilogue = yield from ask.epilogue(f, block_k < f.k, False)
    return Plan(
        "dot", lanes, columns, rows, 1, parallel, block_k, block_m, block_n, order.replace("none", ""), inner,
        False, False, unroll, 0, epilogue, 1, f.c.a.buffer.dtype, f.c.b.buffer.dtype,
    )  # fmt: skip


def _long_block(k: int, lanes: int) -> int:
    """Terms of a block of a long dot product: whole vectors, and a last block that starts every lane."""
    size = CHAIN * lanes
    while 0 < k % size < lanes and size > lanes:
        size -= lanes
    return size
