"""The space of attention on a GPU: products and the softmax between them, fused for each block of queries.

A block has some queries of one head. It computes their scores tile by tile into shared memory, warps turn
rows of them into weights, and a second product runs over the weights (as in Dao et al. 2022, with whole rows
of scores in place of a running maximum). Where a block cannot hold the scores of its rows, or where that is
not chosen, each stage is a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...target import Target
from ..attention import Attention, Product
from ..choice import Ask, Option, Space, question
from ..contraction_choices import Facts, ceil, percent, waste
from ..rows_choices import candidates
from .attention_steps import Plan, Tile, steps
from .limits import BASE_REGISTERS, Cost, block_facts, fits, grid_facts
from .product_steps import Cut
from .rows import Figures as Chain
from .rows_steps import Plan as RowPlan

DEPTHS = (4, 8, 16, 32, 64)
WARP = 32


@dataclass(frozen=True, eq=False)
class Figures:
    """What facts are computed from. One object a chain and target, compared by identity."""

    a: Attention
    target: Target

    @staticmethod
    @lru_cache(maxsize=256)
    def of(a: Attention, target: Target) -> Figures:
        return Figures(a, target)

    @property
    def chain(self) -> Chain:
        return Chain.of(self.a.rows, self.target)

    @property
    def bytes(self) -> int:
        return self.chain.chain.bytes

    def cost(self, rows: int, warps: int, fused: bool, tile: int = 0, staged: int = 0) -> Cost:
        """What a block takes that keeps `rows` rows, with `tile` results a thread and a copy of `staged`
        elements."""
        words = ceil(self.bytes, 4)
        kept = self.chain.kept_bytes(rows) if fused else 0
        shared = kept + staged * self.bytes + self.chain.scratch(WARP * warps)
        return Cost(WARP * warps, shared, BASE_REGISTERS + 8 + words * (tile + ceil(tile, 4)))


def gpu_attention_space(a: Attention, target: Target) -> Space:
    """Every schedule of `a` that this space knows, one choice at a time."""
    plan = yield from _plan(Figures.of(a, target))
    return steps(a, plan)


def _sizes(extent: int) -> list[int]:
    return [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n <= extent]


def _least(f: Figures, rows: int, fused: bool) -> Cost:
    """The smallest block with so many rows: one warp, one result a thread, a short copy."""
    return f.cost(rows, 1, fused, ceil(rows, 1), 4 * WARP)


@question("fusion")
def fusion(f: Figures) -> list[Option]:
    """Whether a block goes through all stages of its rows, or each stage is a kernel."""
    size = f.chain.kept_bytes(1)
    facts: Facts = (
        ("shared", percent(size, f.target.block_shared)),
        ("trips", f.a.heads * f.a.extent(f.a.m)),
    )
    fused = [Option("fused", facts)] if fits(_least(f, 1, True), f.target) else []
    return [*fused, Option("separate", (("trips", len(f.a.rows.body)),))]


@question("cta_m")
def cta_m(f: Figures, fused: bool) -> list[Option]:
    """Rows of a block."""
    extent, options = f.a.extent(f.a.m), []
    for n in _sizes(extent):
        cost = _least(f, n, fused)
        if n == 1 or fits(cost, f.target):
            facts: Facts = (("size", n), ("trips", ceil(extent, n)), ("waste", waste(extent, n)))
            facts += (*block_facts(cost, f.target), *grid_facts(f.a.heads * ceil(extent, n), cost, f.target))
            options.append(Option(n, facts))
    return options


@question("threads")
def threads(f: Figures, rows: int, fused: bool) -> list[Option]:
    """Threads of a block, in whole warps."""
    options = []
    for warps in (1, 2, 4, 8, 16):
        cost = f.cost(rows, warps, fused, ceil(rows, warps), 4 * WARP)
        if (warps == 1 or warps <= 2 * rows) and fits(cost, f.target):
            options.append(Option(WARP * warps, (("size", WARP * warps), *block_facts(cost, f.target))))
    return options


def _columns(f: Figures, product: Product, rows: int, warps: int, fused: bool) -> list[Option]:
    """Columns of the tile of a product."""
    extent, options = f.a.extent(product.n), []
    for n in _sizes(extent):
        each = ceil(rows * n, WARP * warps)
        cost = f.cost(rows, warps, fused, each, 4 * n)
        if n == 1 or (each <= 64 and fits(cost, f.target)):
            facts: Facts = (("size", n), ("trips", ceil(extent, n)), ("waste", waste(extent, n)))
            facts += (("intensity", rows * n / (rows + n)), *block_facts(cost, f.target))
            options.append(Option(n, facts))
    return options


_sides = (question("cta_n")(_columns), question("cta_h")(_columns))
"""The same question for the first product and for later ones."""


@question("thread_m")
def thread_m(f: Figures, rows: int, columns: tuple[int, ...], count: int) -> list[Option]:
    """Rows of a thread's part of the tiles."""
    options = []
    for n in (1, 2, 4, 8):
        if rows % n == 0 and all(_deal(rows, width, count, n) for width in columns):
            options.append(Option(n, (("size", n),)))
    return options or [Option(0)]


def _deal(rows: int, columns: int, warps: int, each: int) -> tuple[Cut, Cut] | None:
    """A tile of powers of two dealt to warps, `each` rows a thread if that leaves no thread idle."""
    down = rows // each
    lanes_n = min(WARP, columns)
    lanes_m = min(WARP // lanes_n, down)
    warps_m = min(warps, down // lanes_m)
    warps_n = min(warps // warps_m, columns // lanes_n)
    idle = lanes_m * lanes_n * warps_m * warps_n < min(WARP * warps, rows * columns)
    if each > 1 and idle:
        return None
    m = Cut(rows, 1, rows // (lanes_m * warps_m), 1, lanes_m, False, 1)
    return m, Cut(columns, 1, columns // (lanes_n * warps_n), 1, lanes_n, False, 1)


@question("cta_k")
def cta_k(f: Figures, rows: int, columns: int, warps: int, fused: bool, each: int) -> list[Option]:
    """Steps of k of the copies of second factors."""
    least = min(f.a.extent(p.k) for p in f.a.products)
    options = []
    for n in DEPTHS:
        cost = f.cost(rows, warps, fused, each, n * columns)
        if n == 4 or (n <= least and fits(cost, f.target)):
            facts: Facts = (("size", n), ("stride", n * f.bytes), *block_facts(cost, f.target))
            options.append(Option(n, facts))
    return options


@question("stage_n")
def stage_n(f: Figures, rows: int) -> list[Option]:
    """Whether the second factors go through shared memory."""
    return [Option(word, (("reuse", rows),)) for word in ("none", "shared")]


@question("turns")
def turns(f: Figures, body: int, k: int) -> list[Option]:
    """Steps of k that are written out."""
    counts = [u for u in (1, 2, 4, 8, 16) if u <= k and (u == 1 or body * u <= 1024)]
    return [Option(u, (("size", u), ("code", body * u))) for u in counts]


def _plan(f: Figures) -> Ask:
    a = f.a
    fused = (yield from fusion(f)) == "fused"
    rows = yield from cta_m(f, fused)
    count = (yield from threads(f, rows, fused)) // WARP
    wide = []
    for n, product in enumerate(a.products):
        wide.append((yield from _sides[min(n, 1)](f, product, rows, count, fused)))
    down = yield from thread_m(f, rows, tuple(wide), count)
    cuts = [_deal(rows, width, count, down or 1) or _deal(rows, width, count, 1) for width in wide]
    dealt = [cut for cut in cuts if cut is not None]
    each = max(m.thread * n.thread for m, n in dealt)
    deep = yield from cta_k(f, rows, max(wide), count, fused, each)
    staged = (yield from stage_n(f, rows)) == "shared"
    written = yield from turns(f, each, deep)
    tiles = tuple([
        Tile(m, n, min(deep, a.extent(p.k)), staged) for (m, n), p in zip(dealt, a.products, strict=True)
    ])  # fmt: skip
    along = dict(candidates(a.rows)).get("reduced", "")
    beside = max(n for n in _sizes(rows) if n <= count)
    between = RowPlan(along, False, fused, WARP, 1, a.m, rows, beside, 0, False)
    return Plan(tiles, between, written)
