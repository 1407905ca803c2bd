"""The space of products on a GPU: matrix products and convolutions as tiles of blocks, warps and threads.

A block computes a tile of the result; windows and steps of k go through shared memory, each thread holds its
part of the tile in registers (Volkov and Demmel 2008; the hierarchy of blocks, warps and threads is that of
CUTLASS). The tile of a convolution is several rows of pixels times several channels. `product_choices.py` has
the questions, `product_steps.py` makes steps of the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from ...target import Target
from ..choice import Ask, Space
from ..contraction_choices import ceil
from ..conv_problem import Convolution, Side
from ..problem import Contraction
from . import dot
from . import product_choices as ask
from .limits import Cost
from .product_choices import Figures
from .product_steps import Cut, Plan, steps


def as_convolution(c: Contraction) -> Convolution:
    """A plain product as a convolution without windows."""
    sides = Side(c.a, (c.m,), False), Side(c.b, (c.n,), False)
    return Convolution(
        stage=c.stage, out=c.out, rows=sides[0], columns=sides[1], batch=c.batch, windows=(), k=c.k,
        deep=True, guarded=False, padded=True, stencil=False, extents=c.extents, epilogue=c.epilogue,
        elementwise=True,
    )  # fmt: skip


def product_space(problem: Convolution, target: Target) -> Space:
    """Every schedule of `problem` that this space knows, one choice at a time."""
    c = problem
    # Neighbouring threads take neighbouring columns: what is contiguous in the result is the column axis.
    if c.out.stride(c.rows.inner) == 1 and c.out.stride(c.columns.inner) != 1:
        c = c.swapped()
    f = Figures.of(c, target)
    if (yield from dot.form(f)) == "dot":
        thin = yield from dot.plan(f)
        return dot.steps(c, thin)
    plan = yield from _plan(f)
    return steps(c, plan)


@dataclass(frozen=True, slots=True)
class Tiling:
    """A block's tile: rows along the inner loop and along the one around it, columns; and the blocks."""

    wide: int
    high: int
    columns: int
    blocks_m: int
    blocks_n: int
    blocks: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.wide * self.high, self.columns


@dataclass(frozen=True, slots=True)
class Copies:
    """How each operand comes to the threads, and the bytes of shared memory that its copies take."""

    staged: tuple[bool, bool]
    width: tuple[int, int]
    turned: tuple[bool, bool]
    align: tuple[int, int]
    shared: int


def _plan(f: Figures) -> Ask:
    c = f.c
    t = yield from _tiling(f)
    rows = yield from ask.thread_m(f, t.shape, t.blocks)
    thread = rows, (yield from ask.thread_n(f, t.shape, t.blocks, rows))
    threads = t.shape[0] // thread[0], t.shape[1] // thread[1]
    lanes = yield from _lanes(f, threads, thread)
    size = yield from ask.group(f, thread)
    cost = f.cost(t.shape, thread)
    slices = yield from ask.slices(f, t.blocks, cost)
    part = ceil(f.k, slices)
    deep = min((yield from ask.cta_k(f, t.shape, cost)), part)
    copies = yield from _copies(f, t, threads, (deep, part))
    ahead = yield from ask.stages(f, ceil(part, deep), Cost(cost.threads, copies.shared, cost.registers))
    turns = yield from ask.turns(f, thread[0] * thread[1], deep)
    order = yield from ask.raster(f, t.blocks_m, t.blocks_n, t.shape)
    after = yield from ask.epilogue(f, c.elementwise)
    m, n = [
        Cut(
            (t.wide, t.columns)[s], (t.high, 1)[s], thread[s], gcd(size, thread[s]), lanes[s],
            copies.staged[s], copies.width[s], copies.turned[s], copies.align[s],
        )
        for s in (0, 1)
    ]  # fmt: skip
    return Plan(m, n, deep, turns, slices, order, ahead, _result(f, n), after == "fused")


def _tiling(f: Figures) -> Ask:
    c = f.c
    wide_m, wide_n = c.extent(c.rows.inner), c.extent(c.columns.inner)
    above = c.rows.loops[-2:-1]
    wide = yield from ask.cta_m(f, wide_m)
    high = (yield from ask.cta_h(f, c.extent(*above), wide)) if above else 1
    blocks_m = c.extent(*c.rows.loops[:-2]) * ceil(c.extent(*above), high) * ceil(wide_m, wide)
    others = f.outer * c.extent(*c.columns.loops[:-1])
    columns = yield from ask.cta_n(f, wide_n, wide * high, others * blocks_m)
    blocks_n = ceil(wide_n, columns)
    return Tiling(wide, high, columns, blocks_m, blocks_n, others * blocks_m * blocks_n)


def _lanes(f: Figures, threads: tuple[int, int], thread: tuple[int, int]) -> Ask:
    """Threads of a warp along the rows and along the columns; of the whole block where no warp fits."""
    down = yield from ask.warp_m(f, *threads, thread)
    across = f.target.warp // down
    whole = across * down == f.target.warp and threads[0] % down == 0 == threads[1] % across
    return (down, across) if whole else threads


def _copies(f: Figures, t: Tiling, threads: tuple[int, int], deep: tuple[int, int]) -> Ask:
    """Which operands go through shared memory, and how; `deep`: steps of k of a copy, and of a part of k."""
    sides, wide = (f.c.rows, f.c.columns), (t.wide, t.columns)
    staged = []
    for n, asked in enumerate((ask.stage_m, ask.stage_n)):
        step = abs(sides[n].operand.stride(f.c.k)) * f.bytes(sides[n])
        size = t.shape[n] * deep[0] * f.bytes(sides[n])
        staged.append((yield from asked(f, threads[1 - n], step, size)) == "shared")
    longest = tuple([_longest(f, sides[n], deep, wide[n]) if staged[n] else 1 for n in (0, 1)])
    sizes = tuple([t.shape[n] * deep[0] for n in (0, 1)])
    width = yield from ask.vector(f, longest, sizes, threads[0] * threads[1])
    widths = tuple([max(1, min(longest[n], width // f.bytes(sides[n]))) for n in (0, 1)])
    turned = tuple([staged[n] and _turned(f.c, sides[n]) for n in (0, 1)])
    made = [ask.Turned(t.shape[n], deep[0], f.bytes(sides[n]), widths[n]) for n in (0, 1)]
    apart = 0
    if any(turned):
        apart = yield from ask.align(f, tuple([made[n] for n in (0, 1) if turned[n]]))
    align = tuple([apart if turned[n] else 0 for n in (0, 1)])
    shared = sum([deep[0] * made[n].stride(align[n]) * made[n].bytes for n in (0, 1) if staged[n]])
    return Copies(tuple(staged), widths, turned, align, shared)  # type: ignore[arg-type]  # pairs all of them


def _turned(c: Convolution, side: Side) -> bool:
    """Whether an operand is read along k and stored across it."""
    return abs(side.operand.stride(c.k)) <= abs(side.operand.stride(side.inner))


def _longest(f: Figures, side: Side, deep: tuple[int, int], wide: int) -> int:
    """The longest vectors, in elements, in which an operand can be copied: all that starts one is a multiple
    of it, and the edge of the operand is not inside of one."""
    c, operand = f.c, side.operand
    along = ((c.k, (*deep, f.k)), (side.inner, (wide, c.extent(side.inner))))
    contiguous = [x for x in along if operand.stride(x[0]) == 1]
    if not contiguous or (side.slid and (contiguous[0][0] != c.k or not c.deep)):
        return 1
    loop, extents = contiguous[0]
    steps = [abs(step) for name, step in operand.strides if name != loop]
    return gcd(max(1, 16 // f.bytes(side)), *extents, *steps)


def _result(f: Figures, n: Cut) -> int:
    """The width of the vectors in which a thread stores its part."""
    c = f.c
    if c.out.stride(c.columns.inner) != 1 or n.vector * c.out.buffer.dtype.bytes > 16:
        return 1
    steps = [abs(step) for name, step in c.out.strides if name != c.columns.inner]
    return n.vector if gcd(n.vector, c.extent(c.columns.inner), *steps) == n.vector else 1
