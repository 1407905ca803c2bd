"""The space of stencils on a GPU: depthwise convolutions and pools, one thread a few neighbouring results.

A block computes a rectangle of the result: neighbouring threads lie along the axis along which the result is
contiguous, rows of threads along the axis of the windows. Each thread sums its windows in registers; what
neighbours read twice comes from the L1 cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from ...schedule.steps import (
    Bind,
    CacheWrite,
    DecomposeReduction,
    Reorder,
    ReverseInline,
    Split,
    Step,
    Unroll,
    Vectorize,
)
from ...target import Target
from ..choice import Ask, Option, Space, question
from ..contraction_choices import Facts, ceil, waste
from ..conv_choices import window
from ..conv_problem import Convolution
from .launch import Loop, grid, spread_grid
from .limits import BASE_REGISTERS, Cost, block_facts, fits, grid_facts

EPILOGUE_THREADS = 256


@dataclass(frozen=True, eq=False)
class Figures:
    """What facts are computed from. One object a problem and target, compared by identity."""

    c: Convolution
    target: Target

    @staticmethod
    @lru_cache(maxsize=256)
    def of(c: Convolution, target: Target) -> Figures:
        return Figures(c, target)

    @property
    def words(self) -> int:
        return ceil(self.c.out.buffer.dtype.bytes, 4)

    def cost(self, threads: int, results: int) -> Cost:
        return Cost(threads, 0, BASE_REGISTERS + 2 * self.words * results + 8)


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers: threads along the lane axis and along the pixels, pixels and lanes of each thread."""

    x: int
    y: int
    pixels: int
    vector: int
    window: str
    fused: bool


def stencil_space(c: Convolution, target: Target) -> Space:
    """Every schedule of `c` that this space knows, one choice at a time."""
    plan = yield from _plan(Figures.of(c, target))
    return _steps(c, plan)


@question("vector")
def vector(f: Figures, longest: int) -> list[Option]:
    """Neighbouring results along the lane axis that a thread computes as a vector."""
    return [Option(n, (("size", n),)) for n in (1, 2, 4, 8) if longest % n == 0]


@question("items")
def items(f: Figures, extent: int, lanes: int) -> list[Option]:
    """Neighbouring results along the axis of the windows: what their windows share is read once."""
    options = []
    for n in (1, 2, 4, 8):
        cost = f.cost(32, n * lanes)
        if n == 1 or (n < 2 * extent and n * lanes <= 32 and fits(cost, f.target)):
            facts: Facts = (("size", n), ("trips", ceil(extent, n)), ("waste", waste(extent, n)))
            options.append(Option(n, facts + block_facts(cost, f.target)))
    return options


@question("threads")
def threads(f: Figures, extent: int, results: int) -> list[Option]:
    """Threads of a block along the lane axis."""
    options = []
    for n in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        if n == 1 or (n < 2 * extent and fits(f.cost(n, results), f.target)):
            facts = (("size", n), ("trips", ceil(extent, n)), ("waste", waste(extent, n)), ("threads", n))
            options.append(Option(n, facts))
    return options


@question("cta_rows")
def cta_rows(f: Figures, extent: int, beside: int, results: int, blocks: int) -> list[Option]:
    """Threads of a block along the axis of the windows."""
    options = []
    for n in (1, 2, 4, 8, 16, 32, 64):
        cost = f.cost(n * beside, results)
        if n == 1 or (n < 2 * extent and fits(cost, f.target)):
            facts: Facts = (("size", n), ("trips", ceil(extent, n)), ("waste", waste(extent, n)))
            facts += (*block_facts(cost, f.target), *grid_facts(blocks * ceil(extent, n), cost, f.target))
            options.append(Option(n, facts))
    return options


@question("epilogue")
def epilogue(f: Figures) -> list[Option]:
    """Where elementwise stages run: on the registers of each thread, or in kernels of their own."""
    if not f.c.epilogue:
        return [Option("none")]
    return [Option(v) for v in (("fused", "separate") if f.c.fusable else ("separate",))]


def _longest(c: Convolution) -> int:
    lane = c.columns.inner
    if c.rows.operand.stride(lane) != 1 or c.out.stride(lane) != 1:
        return 1
    operands = [c.out, c.rows.operand, *([c.columns.operand] if c.columns.operand.stride(lane) == 1 else [])]
    inside = {*c.windows, c.k} & {v for v, _ in c.rows.operand.strides}
    wide = max(o.buffer.dtype.bytes for o in operands)
    steps = [abs(s) for o in operands for name, s in o.strides if name != lane]
    return gcd(max(1, 16 // wide), c.extent(lane), *steps) if inside else 1


def _plan(f: Figures) -> Ask:
    c = f.c
    lane, pixel = c.extent(c.columns.inner), c.extent(c.rows.inner)
    wide = yield from vector(f, _longest(c))
    each = yield from items(f, pixel, wide)
    x = yield from threads(f, ceil(lane, wide), each * wide)
    others = c.extent(*c.batch, *c.rows.loops[:-1]) * ceil(lane, wide * x)
    y = yield from cta_rows(f, ceil(pixel, each), x, each * wide, others)
    written = yield from window(each * wide, tuple([c.extent(w) for w in (*c.windows, c.k)]), False)
    after = yield from epilogue(f)
    return Plan(x, y, each, wide, written, after == "fused")


def _steps(c: Convolution, p: Plan) -> tuple[Step, ...]:
    out: list[Step] = list(c.prepare)
    lane, pixel = c.columns.inner, c.rows.inner
    out += [Split(lane, p.x * p.vector), Split(f"{lane}.1", p.vector)]
    out += [Split(pixel, p.y * p.pixels), Split(f"{pixel}.1", p.pixels)]
    blocks: list[Loop] = [(x, c.extent(x)) for x in (*c.batch, *c.rows.loops[:-1])]
    blocks += [(f"{pixel}.0", ceil(c.extent(pixel), p.y * p.pixels))]
    blocks += [(f"{lane}.0", ceil(c.extent(lane), p.x * p.vector))]
    y, x, tile = f"{pixel}.1.0", f"{lane}.1.0", (f"{pixel}.1.1", f"{lane}.1.1")
    summed = (*c.windows, c.k)
    out.append(Reorder((*[name for name, _ in blocks], y, x, *summed, *tile)))
    launch = grid(out, blocks)
    acc = f"{c.stage}_acc"
    out += [
        CacheWrite(c.stage, launch.inner, memory="register", layout=(y, x, *tile), name=acc),
        DecomposeReduction(acc, y),
    ]
    if p.fused:
        out += [ReverseInline(e.stage) for e in c.epilogue]
    for copy in ("", "@init", f"@{acc}"):
        out += [Bind(f"{y}{copy}", "threadIdx.y"), Bind(f"{x}{copy}", "threadIdx.x"), Unroll(tile[0] + copy)]
        out.append(Vectorize(tile[1] + copy) if p.vector > 1 else Unroll(tile[1] + copy))
    out += [Unroll(w) for w in {"none": (), "all": summed}.get(p.window, summed[-1:])]
    out += launch.binds()
    if not p.fused:
        for e in c.epilogue:
            spread_grid(out, e.loops, EPILOGUE_THREADS)
    return tuple(out)
