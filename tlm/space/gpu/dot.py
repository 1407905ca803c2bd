"""The part of the space of products for thin ones: threads along k, whose sums are brought together.

A matrix times a few vectors reads each element of the matrix once: neighbouring threads read neighbouring
elements of its rows, each thread sums its share for a few rows and columns in registers, and a row's threads
add up by shuffles.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from ...schedule.steps import (
    Bind,
    CacheWrite,
    Reorder,
    ReverseInline,
    RFactor,
    Split,
    Step,
    Unroll,
    Vectorize,
)
from ..choice import Ask, Option, question
from ..contraction_choices import Facts, ceil, waste
from ..conv_problem import Convolution
from .launch import grid, spread_grid
from .limits import BASE_REGISTERS, Cost, block_facts, fits, grid_facts
from .product_choices import Figures, epilogue

THIN = 8
"""Rows (or columns) up to which a product is thin."""
EPILOGUE_THREADS = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers: rows and columns of a thread, columns of a block side by side, threads along k."""

    rows: int
    columns: int
    beside: int
    threads: int
    vector: int
    fused: bool


def offered(f: Figures) -> bool:
    """Whether both operands are contiguous along k, and one of the sides is thin."""
    c = f.c
    plain = not c.windows and len(c.rows.loops) == len(c.columns.loops) == 1
    unit = c.rows.operand.stride(c.k) == c.columns.operand.stride(c.k) == 1
    return (
        plain and unit and not c.guarded and not f.joined and min(f.m, f.n) <= THIN and f.k >= f.target.warp
    )


def _cost(f: Figures, rows: int, columns: int, threads: int, vector: int = 4) -> Cost:
    held = f.words * (rows * columns + vector * (rows + columns))
    shared = f.words * 4 * (ceil(threads, f.target.warp) + rows * columns * ceil(threads, f.target.warp))
    return Cost(threads, shared, BASE_REGISTERS + held)


@question("thread_m")
def _rows(f: Figures) -> list[Option]:
    """Rows that a thread sums for at a time."""
    return [Option(n, (("size", n), ("waste", waste(f.m, n)))) for n in (1, 2, 4, 8) if n == 1 or n < 2 * f.m]


@question("thread_n")
def _columns(f: Figures, rows: int) -> list[Option]:
    """Columns that a thread sums for at a time."""
    options = []
    for n in (1, 2, 4, 8):
        cost = _cost(f, rows, n, f.target.warp)
        if n == 1 or (n < 2 * f.n and rows * n <= 32 and fits(cost, f.target)):
            facts: Facts = (("size", n), ("waste", waste(f.n, n)), ("intensity", rows * n / (rows + n)))
            options.append(Option(n, facts + block_facts(cost, f.target)))
    return options


@question("threads")
def _threads(f: Figures, rows: int, columns: int) -> list[Option]:
    """Threads along k."""
    blocks = f.outer * ceil(f.m, rows) * ceil(f.n, columns)
    options = []
    for n in (32, 64, 128, 256, 512, 1024):
        cost = _cost(f, rows, columns, n)
        if n == 32 or (n < 2 * f.k and fits(cost, f.target)):
            facts: Facts = (("size", n), ("trips", ceil(f.k, n)), ("waste", waste(f.k, n)))
            options.append(Option(n, facts + grid_facts(blocks, cost, f.target)))
    return options


@question("cta_rows")
def _beside(f: Figures, rows: int, columns: int, threads: int) -> list[Option]:
    """Groups of threads along the columns."""
    options = []
    for n in (1, 2, 4, 8, 16):
        cost = _cost(f, rows, columns, n * threads)
        if n == 1 or (n * columns < 2 * f.n and fits(cost, f.target)):
            blocks = f.outer * ceil(f.m, rows) * ceil(f.n, n * columns)
            facts: Facts = (("size", n), ("waste", waste(f.n, n * columns)), *block_facts(cost, f.target))
            options.append(Option(n, facts + grid_facts(blocks, cost, f.target)))
    return options


@question("vector")
def _vector(f: Figures, longest: int) -> list[Option]:
    """Elements along k that a thread reads at a time."""
    return [Option(n, (("size", n),)) for n in (1, 2, 4, 8) if longest % n == 0]


def plan(f: Figures) -> Ask:
    """Answers for a thin product."""
    c = f.c
    operands = c.rows.operand, c.columns.operand
    steps = [abs(step) for o in operands for name, step in o.strides if name != c.k]
    longest = gcd(max(1, 16 // max(o.buffer.dtype.bytes for o in operands)), f.k, *steps)
    rows = yield from _rows(f)
    columns = yield from _columns(f, rows)
    count = yield from _threads(f, rows, columns)
    beside = yield from _beside(f, rows, columns, count)
    size = yield from _vector(f, longest)
    after = yield from epilogue(f, c.fusable)
    return Plan(rows, columns, beside, count, size, after == "fused")


def steps(c: Convolution, p: Plan) -> tuple[Step, ...]:
    """The schedule of `p`, to be applied to the unscheduled program in this order."""
    out: list[Step] = list(c.prepare)
    m, n, k = c.rows.inner, c.columns.inner, c.k
    out += [Split(m, p.rows), Split(n, p.beside * p.columns), Split(f"{n}.1", p.columns)]
    out.append(Split(k, p.threads * p.vector))
    x, lane = f"{k}.1", tuple[str, ...]()
    if p.vector > 1:
        out.append(Split(x, p.vector))
        x, lane = f"{k}.1.0", (f"{k}.1.1",)
    y, tile = f"{n}.1.0", (f"{m}.1", f"{n}.1.1")
    blocks = [(loop, c.extent(loop)) for loop in c.batch]
    blocks += [(f"{m}.0", ceil(c.extent(m), p.rows)), (f"{n}.0", ceil(c.extent(n), p.beside * p.columns))]
    out.append(Reorder((*[name for name, _ in blocks], y, x, f"{k}.0", *tile, *lane)))
    launch = grid(out, blocks)
    part, total = f"{c.stage}_lanes", f"{c.stage}_sum"
    out.append(RFactor(x, memory="register", at=launch.inner, name=part))
    out.append(Reorder(tuple([f"{loop}@{part}" for loop in (*tile, y, x)])))
    out.append(CacheWrite(c.stage, launch.inner, memory="shared", name=total))
    if p.fused:
        out += [ReverseInline(e.stage) for e in c.epilogue]
    for copy in ("", f"@{part}"):
        out += [Bind(f"{y}{copy}", "threadIdx.y"), Bind(f"{x}{copy}", "threadIdx.x")]
        out += [Unroll(f"{loop}{copy}") for loop in tile]
    out += [Vectorize(name) for name in lane]
    home = f"@{part}@{total}"
    out += [Reorder(tuple([f"{loop}{home}" for loop in (y, *tile)])), Bind(f"{y}{home}", "threadIdx.y")]
    out += launch.binds()
    if not p.fused:
        for e in c.epilogue:
            spread_grid(out, e.loops, EPILOGUE_THREADS)
    return tuple(out)
