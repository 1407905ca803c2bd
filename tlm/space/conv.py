"""The space of a convolution on a CPU: a product's blocks and tiles, over rows of images and their windows.

    batch, blocks of m, n and k in any order [packing, padding], tiles of the block in either order,
      window [written out], k [unrolled], rows of an image, pixels (unrolled), columns (unrolled vectors)

m stands for the pixels (blocks are rows of the image), n for the output channels and k for the input ones.
Style "outer" has vectors of output channels over a tile of pixels, as for images whose channels are
contiguous; "swapped" vectors of pixels over a tile of channels. Reads beyond the edge of an image are avoided
by guards, which lowering turns into versions of the tiles at the edge, or by a copy of the block's part of
the image with its padding. The nest is that of direct convolutions (Georganas et al., SC 2018). A stencil has
no k: vectors of channels over a tile of pixels, and weights that may stay in registers.
"""

from __future__ import annotations

from collections.abc import Generator

from ..target import Target
from . import contraction_choices as ask
from . import conv_choices as more
from .choice import Choice, Space
from .contraction_choices import Figures, ceil
from .conv_problem import Convolution, Side
from .conv_steps import ConvPlan, steps


def convolution_space(problem: Convolution, target: Target) -> Space:
    """Every schedule of `problem` that this space knows, one choice at a time."""
    f = more.figures(problem, target)
    style = yield from more.style(f, more.offers(problem, f.full_lanes))
    c = {"swapped": problem.swapped, "groups": problem.merged}.get(style, lambda: problem)() or problem
    plan = yield from _plan(c, more.figures(c, target))
    return steps(c, plan)


def _plan(c: Convolution, f: Figures) -> Generator[Choice, int, ConvPlan]:
    inner_m, inner_n = c.extent(c.rows.inner), c.extent(c.columns.inner)
    lanes = yield from ask.lanes(f, inner_n)
    vectors = yield from ask.columns(f, inner_n, lanes)
    width = min(vectors * lanes, inner_n)
    rows = yield from ask.rows(f, inner_m, vectors)
    tall = c.extent(c.rows.blocked) if len(c.rows.loops) > 1 else 1
    height = yield from more.height(f, tall, rows, vectors)
    blocks_m, tile_m = _blocked(c, c.rows, rows, height)
    blocks_n, tile_n = _blocked(c, c.columns, width, 1)
    outer = c.extent(*c.batch, *c.rows.loops[:-2], *c.columns.loops[:-2])
    trips = (("batch", outer), ("m", ceil(blocks_m, tile_m)), ("n", ceil(blocks_n, tile_n)))
    parallel = yield from ask.parallel(f, trips)
    k, taps = c.extent(c.k), c.extent(*c.windows)
    block_k = k
    if c.deep:
        block_k = yield from ask.block_k(f, rows * height, width, k, 1, taps)
    depth_m, depth_n = _depth(c.rows, c, block_k, taps), _depth(c.columns, c, block_k, taps)
    block_m = yield from ask.block_m(f, blocks_m, tile_m, depth_m, parallel == "m")
    block_n = yield from ask.block_n(f, blocks_n, tile_n, depth_n, parallel == "n")
    count_m, count_n = ceil(blocks_m, tile_m), ceil(blocks_n, tile_n)
    trips = (("m", ceil(count_m, block_m)), ("n", ceil(count_n, block_n)), ("k", ceil(k, block_k)))
    order = yield from ask.order(f, trips)
    tiles_m = _tiles(c, c.rows, rows, min(block_m, count_m))
    tiles_n = _tiles(c, c.columns, width, min(block_n, count_n))
    inner = "nm"
    if tiles_n > 1:
        inner = yield from ask.inner(f, tiles_m, tiles_n, rows * height, width, block_k * taps)
    all_m, all_n = c.extent(*c.rows.loops) // (rows * height), c.extent(*c.columns.loops) // width
    pack_n = yield from _pack(c, c.columns, f, "n", all_m, block_k, (width, block_n * tile_n * depth_n))
    pack_m = yield from _pack(c, c.rows, f, "m", all_n, block_k, (rows, block_m * tile_m * depth_m))
    body = rows * height * vectors
    window = yield from more.window(body, tuple([c.extent(w) for w in c.windows]), c.deep)
    written = {"none": 1, "all": taps}.get(window, c.extent(*c.windows[-1:]))
    unroll = yield from more.unroll(body * written, block_k)
    hold = "none"
    if c.stencil and _has_weights(c) and written * unroll == taps * k:
        reuse = tiles_m if inner == "nm" else 1
        live = f.live_registers(rows * height, vectors)
        if reuse > 1:
            hold = yield from more.hold(f, live, taps * k * vectors, reuse)
    epilogue = yield from ask.epilogue(f, block_k < k, not c.fusable)
    return ConvPlan(
        lanes, vectors, rows, height, parallel, block_k, block_m, block_n, order.replace("none", ""), inner,
        pack_n == "block", pack_m == "block", window, unroll, hold == "tile", epilogue,
    )  # fmt: skip


def _has_weights(c: Convolution) -> bool:
    """Whether the columns move the second operand."""
    return bool(c.columns.operand.stride(c.columns.inner))


def _blocked(c: Convolution, side: Side, tile: int, height: int) -> tuple[int, int]:
    """The extent that blocks are cut from, and how much of it a tile takes."""
    return (c.extent(side.blocked), height) if len(side.loops) > 1 else (c.extent(side.inner), tile)


def _tiles(c: Convolution, side: Side, tile: int, block: int) -> int:
    """Register tiles of one block of a side."""
    return block * ceil(c.extent(side.inner), tile) if len(side.loops) > 1 else block


def _depth(side: Side, c: Convolution, block_k: int, taps: int) -> int:
    """Elements of the operand for each element along the axis that is cut into blocks."""
    if side.slid:
        return block_k * (c.extent(side.inner) if len(side.loops) > 1 else 1)
    return block_k * taps * (c.extent(side.inner) if len(side.loops) > 1 else 1)


def _pack(
    c: Convolution, side: Side, f: Figures, axis: str, reuse: int, block_k: int, tile: tuple[int, int]
) -> Generator[Choice, int, str]:
    """Whether an operand is copied: an image with its padding, others in the order in which they are read."""
    size = tile[1] * f.bytes
    if not side.operand.stride(side.inner) or (c.prepare and axis == "m" and not side.slid):
        return "none"
    if c.stencil and axis == "n":
        return "none"
    step = side.operand.stride(c.k if axis == "m" else side.inner)
    if side.slid:
        if c.guarded and not c.padded:
            return "none"
        if axis == "m":
            step = min(abs(stride) for _, stride in side.operand.strides if stride)
        asked = more.pad_m if axis == "m" else more.pad_n
        found: str = yield from asked(f, reuse, size, step)
        return found
    ask_pack = ask.pack_m if axis == "m" else ask.pack_n
    runs = (block_k, side.operand.stride(c.k)), (tile[0], side.operand.stride(side.inner))
    found = yield from ask_pack(f, reuse, size, step, runs)
    return found
