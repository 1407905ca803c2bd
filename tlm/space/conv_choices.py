"""The questions of convolutions beyond those of a product, with facts."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod

from ..target import Target
from .choice import Option, question
from .contraction_choices import Figures, caches, ceil, percent, waste
from .conv_problem import Convolution

MOST_CODE = 384
"""Multiply-adds of an unrolled window: more take long to compile, and leave the cache of instructions."""


@lru_cache(maxsize=256)
def figures(c: Convolution, target: Target) -> Figures:
    """The extents of all rows, all columns and all summed terms together."""
    m, n = c.extent(*c.rows.loops), c.extent(*c.columns.loops)
    return replace(Figures.of(c.product(), target), m=m, n=n, k=c.extent(*c.windows, c.k))


Offer = tuple[str, int, int, int]


def offers(c: Convolution, lanes: int) -> tuple[Offer, ...]:
    """(style, elements along the vectorised side, stride between its neighbours, elements of the other).

    Groups of few channels may be vectorised together: the lanes of a vector then read different pixels.
    """
    out = []
    for value, side, other in (("outer", c.columns, c.rows), ("swapped", c.rows, c.columns)):
        if c.stencil and value == "swapped":
            continue
        if c.out.stride(side.inner) == 1 and (c.extent(side.inner) > 1 or value == "outer"):
            stride = abs(side.operand.stride(side.inner))
            out.append((value, c.extent(*side.loops), stride, c.extent(*other.loops)))
    merged = c.merged()
    if merged is not None and c.extent(c.columns.inner) < 2 * lanes:
        out.append(("groups", merged.extent(merged.columns.inner), 1, merged.extent(*merged.rows.loops)))
    return tuple(out) or (("outer", c.extent(*c.columns.loops), 0, c.extent(*c.rows.loops)),)


@question("style")
def style(f: Figures, found: tuple[Offer, ...]) -> list[Option]:
    """Which side is vectorised: along it the result must be contiguous, if it is contiguous anywhere."""
    return [
        Option(value, (("size", size), ("stride", stride * f.bytes), ("reuse", reuse)))
        for value, size, stride, reuse in found
    ]


@question("height")
def height(f: Figures, extent: int, rows: int, vectors: int) -> list[Option]:
    """Rows of an image in a register tile, each with the same pixels."""
    options = []
    for count in (1, 2, 3, 4):
        live = f.live_registers(count * rows, vectors)
        if count > extent or (count > 1 and live > f.target.registers):
            break
        facts = (
            ("size", count), ("trips", ceil(extent, count)), ("waste", waste(extent, count)),
            ("registers", percent(live, f.target.registers)),
            ("intensity", count * rows * vectors / (count * rows + vectors)),
        )  # fmt: skip
        options.append(Option(count, facts))
    return options


@question("window")
def window(body: int, taps: tuple[int, ...], deep: bool) -> list[Option]:
    """Which loops over the window are written out: none, the innermost, or all; `body` operations a tap.

    Written out, what lies beyond the edge of an image is known when compiling. In the tile, inside of the
    loop over k, neighbouring pixels share what they read.
    """
    options = [Option("none", (("code", body), ("size", 1)))]
    if taps and taps[-1] > 1 and body * taps[-1] <= MOST_CODE:
        facts = (("code", body * taps[-1]), ("size", taps[-1]))
        options += [Option(word, facts) for word in (("last", "tile") if deep else ("last",))]
        whole = prod(taps)
        if whole > taps[-1] and body * whole <= MOST_CODE:
            options.append(Option("all", (("code", body * whole), ("size", whole))))
    return options


@question("unroll")
def unroll(body: int, k: int) -> list[Option]:
    """Steps of k in one round of the innermost loop, or all of a short one."""
    counts = sorted({u for u in (1, 2, 4, 8, k if k <= 8 else 1) if u <= k and (u == 1 or body * u <= 256)})
    return [Option(u, (("size", u), ("code", body * u), ("trips", ceil(k, u)))) for u in counts]


def _padded(f: Figures, reuse: int, size: float, stride: int) -> list[Option]:
    """Whether the part of an image that a block reads is copied, with its padding, or guarded at its edge."""
    facts = (("reuse", reuse), ("stride", abs(stride) * f.bytes))
    return [Option("none", facts), Option("block", (*facts, *caches(f.target, size)))]


pad_m, pad_n = question("pack_m")(_padded), question("pack_n")(_padded)


@question("hold")
def hold(f: Figures, tile: int, taps: int, reuse: int) -> list[Option]:
    """Whether the weights of a stencil stay in registers, beside the `tile`, for all pixels of a block."""
    live = tile + taps
    options = [Option("none", (("registers", percent(tile, f.target.registers)), ("reuse", 1)))]
    if live <= f.target.registers:
        options.append(Option("tile", (("registers", percent(live, f.target.registers)), ("reuse", reuse))))
    return options
