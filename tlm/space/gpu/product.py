"""The space of products on a GPU: matrix products and convolutions as tiles of blocks, warps and threads.

A block computes a tile of the result; windows and steps of k go through shared memory, each thread holds its
part of the tile in registers (Volkov and Demmel 2008; the hierarchy of blocks, warps and threads is that of
CUTLASS). The tile of a convolution is several rows of pixels times several channels. `product_choices.py` has
the questions, `product_steps.py` makes steps of the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import gcd, prod
from typing import TypeVar

from ...ir.nodes import Program, Update
from ...ir.walk import free_vars
from ...target import Target
from ..choice import Ask, Option, Space, question
from ..contraction_choices import Facts, ceil
from ..conv_problem import Convolution, Side, convolution, factors
from ..problem import Contraction, contraction, nests
from . import dot, matrix, staging, warpgroup
from . import product_choices as ask
from .banks import SWAPPED, Swap, Turned
from .limits import Cost
from .product_choices import Figures
from .product_steps import Cut, Plan, moves, steps
from .tiling import Tiling

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Product:
    """A product with its sides, the buffer of its first factor, loops that share an index of the result."""

    sides: Convolution
    first: str
    joined: frozenset[str] = frozenset()


@lru_cache(maxsize=256)
def product(program: Program) -> Product | None:
    """The product that `program` starts with, plain or under windows; None for others and for stencils."""
    update = next((s for _, s in nests(program.body)), None)
    if not isinstance(update, Update):
        return None
    indices = [free_vars(index) for index in update.indices]
    joined = frozenset[str]().union(*[i for i in indices if len(i) > 1])
    plain = contraction(program)
    if plain is not None:
        return Product(_as_convolution(plain), plain.a.buffer.name, joined)
    found, pair = convolution(program), factors(update.values[0])
    if found is None or found.stencil or pair is None:
        return None
    return Product(found, pair[0].load.buffer, joined)


def _as_convolution(c: Contraction) -> Convolution:
    """A plain product as a convolution without windows."""
    sides = Side(c.a, (c.m,), False), Side(c.b, (c.n,), False)
    return Convolution(
        stage=c.stage, out=c.out, rows=sides[0], columns=sides[1], batch=c.batch, windows=(), k=c.k,
        deep=True, guarded=False, padded=True, stencil=False, extents=c.extents, epilogue=c.epilogue,
        elementwise=True, chained=c.chained,
    )  # fmt: skip


def product_space(problem: Product, target: Target) -> Space:
    """Every schedule of `problem` that this space knows, one choice at a time."""
    c = problem.sides
    straight = c if c.rows.operand.buffer.name == problem.first else c.swapped()
    first = Figures.of(straight, target, problem.joined)
    # Neighbouring threads take neighbouring columns: what is contiguous in the result is the column axis.
    if c.out.stride(c.rows.inner) == 1 and c.out.stride(c.columns.inner) != 1:
        c = c.swapped()
    f = Figures.of(c, target, problem.joined)
    how = yield from form(f, first)
    if how == "dot":
        thin = yield from dot.plan(f)
        return dot.steps(c, thin)
    if how == "groups":
        plan = yield from warpgroup.plan(first)
        return steps(first.c, plan, warpgroup.multiply)
    if how == "matrix":
        plan = yield from matrix.plan(first)
        return steps(first.c, plan)
    plan = yield from _plan(f)
    return steps(c, plan)


@question("form")
def form(f: Figures, first: Figures) -> list[Option]:
    """Tiles whose elements threads share out, or that warps or groups of them multiply by matrix
    instructions, or sums that threads share."""
    facts: Facts = (("size", f.k), ("reuse", min(f.m, f.n)))
    offers = (
        ("tiles", True), ("matrix", matrix.offered(first)), ("dot", dot.offered(f)),
        ("groups", warpgroup.offered(first)),
    )  # fmt: skip
    rates = dict.fromkeys(("matrix", "groups"), 100.0 * f.target.tensor_rate / f.target.fma_rate)
    return [Option(word, (*facts, ("rate", rates.get(word, 100.0)))) for word, offer in offers if offer]


@dataclass(frozen=True, slots=True)
class Copies:
    """How each operand comes to the threads, how rows of its copies lie, and the bytes that these take; the
    registers of a thread for their addresses, and the elements that wait in some where copies run ahead."""

    staged: tuple[bool, bool]
    width: tuple[int, int]
    turned: tuple[bool, bool]
    align: tuple[int, int]
    swap: tuple[Swap | None, Swap | None]
    near: tuple[int, int]
    shared: int
    addresses: int
    waiting: int


def _plan(f: Figures) -> Ask:
    c = f.c
    t = yield from _tiling(f)
    rows = yield from ask.thread_m(f, t.shape, t.blocks)
    thread = rows, (yield from ask.thread_n(f, t.shape, t.blocks, rows))
    threads = t.shape[0] // thread[0], t.shape[1] // thread[1]
    lanes = yield from _lanes(f, threads, thread)
    size = yield from ask.group(f, thread)
    cost = f.cost(t.shape, thread)
    slices = yield from ask.slices(f, t.blocks, t.alone, cost)
    part = ceil(f.k, slices)
    waiting = partial(staging.waiting_of, f, t.shape, cost.threads)
    deep = min((yield from ask.cta_k(f, t.shape, cost, waiting)), part)
    copies = yield from _copies(f, t, threads, (deep, part))
    block = Cost(cost.threads, copies.shared, cost.registers + copies.addresses)
    ahead = yield from staging.stages(f, ceil(part, deep), block, copies.waiting)
    turns = yield from ask.turns(f, thread[0] * thread[1], deep)
    order = yield from ask.raster(f, t.blocks_m, t.blocks_n, t.shape, t.alone and slices == 1)
    after = yield from ask.epilogue(f, c.fusable)
    m, n = [
        Cut(
            (t.wide, t.columns)[s], (t.high, 1)[s], thread[s], gcd(size, thread[s]), lanes[s],
            copies.staged[s], copies.width[s], copies.turned[s], copies.align[s], copies.swap[s],
            copies.near[s],
        )
        for s in (0, 1)
    ]  # fmt: skip
    return Plan(m, n, deep, turns, slices, order, ahead, _result(f, n), after == "fused")


def _tiling(f: Figures) -> Ask:
    c = f.c
    above = c.rows.loops[-2:-1]
    wide = yield from ask.cta_m(f)
    high = (yield from ask.cta_h(f, above[0], wide)) if above else 1
    others = f.outer * c.extent(*c.rows.loops[:-2], *c.columns.loops[:-1]) * ceil(c.extent(*above), high)
    blocks_m = ceil(c.extent(c.rows.inner), wide)
    columns = yield from ask.cta_n(f, wide * high, others * blocks_m)
    blocks_n = ceil(c.extent(c.columns.inner), columns)
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
    longest = _both(lambda n: ask.longest_vector(f, sides[n], deep, wide[n]) if staged[n] else 1)
    sizes = t.shape[0] * deep[0], t.shape[1] * deep[0]
    width = yield from staging.vector(f, longest, sizes, threads[0] * threads[1])
    widths = _both(lambda n: max(1, min(longest[n], width // f.bytes(sides[n]))))
    turned = _both(lambda n: staged[n] and ask.along_k(f.c, sides[n]))
    made = _both(lambda n: Turned(_pitch(f, t, n), deep[0], f.bytes(sides[n]), widths[n]))
    plain = sum([deep[0] * made[n].block * made[n].bytes for n in (0, 1) if staged[n] and not turned[n]])
    way: int | str = 0
    if any(turned):
        way = yield from staging.align(f, tuple([made[n] for n in (0, 1) if turned[n]]), plain)
    align = _both(lambda n: way if turned[n] and isinstance(way, int) else 0)
    swap = _both(lambda n: made[n].swap if turned[n] and way == SWAPPED else None)
    shared = plain + sum([deep[0] * made[n].stride(way) * made[n].bytes for n in (0, 1) if turned[n]])
    near = _both(lambda n: made[n].near if turned[n] else 0)
    count = threads[0] * threads[1]
    waiting = [
        staging.held(f, sides[n], ceil(sizes[n], count), widths[n], turned[n]) for n in (0, 1) if staged[n]
    ]
    held = staging.addresses([made[n] for n in (0, 1) if turned[n]], way)
    return Copies((staged[0], staged[1]), widths, turned, align, swap, near, shared, held, sum(waiting))


def _pitch(f: Figures, t: Tiling, n: int) -> int:
    """Elements of the copy of an operand for one step of k."""
    side, sizes = (f.c.rows, f.c.columns)[n], ((t.high, t.wide), (1, t.columns))[n]
    loops = zip((*([""] * (2 - len(side.loops))), *side.loops[-2:]), sizes, strict=True)
    return prod([size for loop, size in loops if moves(side.operand.strides, loop)])


def _both(make: Callable[[int], T]) -> tuple[T, T]:
    """Of the rows, and of the columns."""
    return make(0), make(1)


def _result(f: Figures, n: Cut) -> int:
    """The width of the vectors in which a thread stores its part."""
    c = f.c
    if c.out.stride(c.columns.inner) != 1 or n.vector * c.out.buffer.dtype.bytes > 16:
        return 1
    steps = [abs(step) for name, step in c.out.strides if name != c.columns.inner]
    return n.vector if gcd(n.vector, c.extent(c.columns.inner), *steps) == n.vector else 1
