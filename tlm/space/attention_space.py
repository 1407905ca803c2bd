"""The space of attention on a CPU: products and the softmax between them, fused for each block of queries.

The nest that the choices spell, from the outside in (as in Dao et al. 2022, with whole rows of scores of a
block instead of a running maximum):

    heads [packing of keys], blocks of rows: tiles of scores in registers; rows of the block, vectors of
      scores; tiles of the result in registers
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..target import Target
from .attention import Attention, Product
from .attention_steps import Plan, mergeable, steps
from .choice import Ask, Option, Space, question
from .contraction_choices import Facts, caches, ceil, percent, shared_work, thin, waste
from .rows_choices import Figures as Chain
from .rows_choices import candidates


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
    def bytes(self) -> int:
        return Chain.of(self.a.rows, self.target).bytes

    @property
    def lanes(self) -> int:
        return max(1, self.target.vector_bytes // self.bytes)

    @property
    def work(self) -> int:
        """Multiply-adds of all products."""
        depth = sum(self.a.extent(p.n) * self.a.extent(p.k) for p in self.a.products)
        return self.a.heads * self.a.extent(self.a.m) * depth

    def live(self, rows: int, columns: int) -> int:
        """Vectors alive in the innermost loop of a tile."""
        return rows * columns + columns + (1 if self.target.fma else 2)


def attention_space(a: Attention, target: Target) -> Space:
    """Every schedule of `a` that this space knows, one choice at a time."""
    plan = yield from _plan(Figures.of(a, target))
    return steps(a, plan)


@question("rows")
def rows(f: Figures) -> list[Option]:
    """Rows of the register tiles."""
    extent = f.a.extent(f.a.m)
    options = []
    for count in (1, 2, 3, 4, 6, 8, 12):
        live = f.live(count, 1)
        if count > 1 and (count > extent or live > f.target.registers):
            break
        facts = (
            ("size", count), ("trips", ceil(extent, count)), ("waste", waste(extent, count)),
            ("registers", percent(live, f.target.registers)), ("intensity", count / (count + 1)),
        )  # fmt: skip
        options.append(Option(count, facts))
    return options


@question("columns")
def columns(f: Figures, product: Product, rows: int) -> list[Option]:
    """Vectors side by side in the tile of a product."""
    extent, options = f.a.extent(product.n), []
    for count in (1, 2, 3, 4, 6):
        fits = f.live(rows, count) <= f.target.registers and count <= ceil(extent, f.lanes)
        if count == 1 or fits:
            size = count * f.lanes
            facts = (
                ("size", size), ("trips", ceil(extent, size)), ("waste", waste(extent, size)),
                ("registers", percent(f.live(rows, count), f.target.registers)),
                ("intensity", rows * count / (rows + count)),
            )  # fmt: skip
            options.append(Option(count, facts))
    return options


@question("block_m")
def block(f: Figures, rows: int) -> list[Option]:
    """Tiles of rows whose scores are kept between the products."""
    extent = f.a.extent(f.a.m)
    tiles = ceil(extent, rows)
    sizes = {s for s in (1, 2, 4, 8, 16, 32, 64, 128) if s < tiles} | {tiles}
    options = []
    for size in thin(sizes, 8, {ceil(tiles, f.target.threads)} & sizes):
        kept = Chain.of(f.a.rows, f.target).row_bytes(size * rows)
        facts: Facts = (
            ("size", size * rows), ("trips", ceil(tiles, size)), ("waste", waste(tiles, size)),
            *caches(f.target, kept),
        )  # fmt: skip
        options.append(Option(size, facts))
    # Scores that leave the cache between the products would cost more than they save.
    least = [o for o in options if dict(o.facts)["l2"] <= 50]
    return least or options[:1]


@question("pack_n")
def pack(f: Figures, product: Product, tiles: int) -> list[Option]:
    """Whether the second factor is copied into the order in which tiles read it, once for each head."""
    size = f.a.extent(product.n) * f.a.extent(product.k) * f.bytes
    facts: Facts = (
        ("reuse", tiles),
        ("stride", f.bytes if product.unit else 64 * f.bytes),
        *caches(f.target, size),
    )
    return [Option("none", facts), Option("block", facts)]


@question("inner")
def inner(f: Figures, tiles_m: int, width: int) -> list[Option]:
    """Which loop over tiles of a product is the outer one."""
    product = f.a.products[0]
    if tiles_m == 1:
        return [Option("nm")]
    panel = width * f.a.extent(product.k) * f.bytes
    whole = f.a.extent(product.n) * f.a.extent(product.k) * f.bytes
    return [
        Option("nm", (("trips", tiles_m), *caches(f.target, panel))),
        Option("mn", (("trips", ceil(f.a.extent(product.n), width)), *caches(f.target, whole))),
    ]


@question("unroll")
def unroll(f: Figures, body: int) -> list[Option]:
    """Steps of k in one round of the innermost loops of products."""
    least = min(f.a.extent(p.k) for p in f.a.products)
    counts = [u for u in (1, 2, 4) if u <= least and (u == 1 or body * u <= 128)]
    return [Option(u, (("size", u), ("code", body * u))) for u in counts]


@question("window")
def vectors(f: Figures, extent: int) -> list[Option]:
    """Vectors side by side in the stages between products."""
    options = []
    for count in (1, 2, 4, 8):
        size = count * f.lanes
        if count == 1 or count < 2 * ceil(extent, f.lanes):
            facts = (
                ("size", size), ("trips", ceil(extent, size)), ("waste", waste(extent, size)),
                ("code", count * max(f.a.rows.stages[n].work for n in f.a.others)),
            )  # fmt: skip
            options.append(Option(count, facts))
    return options


@question("merge")
def merge(f: Figures, pairs: int) -> list[Option]:
    """Whether neighbouring stages between the products share their loops over a row."""
    if not pairs:
        return [Option("separate")]
    facts: Facts = (("reuse", pairs), *caches(f.target, Chain.of(f.a.rows, f.target).row_bytes(1)))
    return [Option("fused", facts), Option("separate", facts)]


@question("parallel")
def parallel(f: Figures, blocks: int) -> list[Option]:
    """What threads share: heads, or the blocks of rows of each head."""
    threads = f.target.threads
    options = [Option("none", (("size", f.work),))]
    for word, trips in (("batch", f.a.heads), ("m", blocks)):
        if threads > 1 and trips > 1:
            options.append(Option(word, (("size", f.work), ("trips", trips), *shared_work(f.target, trips))))
    return options


def _plan(f: Figures) -> Ask:
    a = f.a
    count = yield from rows(f)
    sides, packed = [], []
    for product in a.products:
        sides.append((yield from columns(f, product, count)))
    size = yield from block(f, count)
    tiles = ceil(a.extent(a.m), count)
    for product in a.products:
        packed.append((yield from pack(f, product, tiles)) == "block")
    order = yield from inner(f, min(size, tiles), sides[0] * f.lanes)
    turns = yield from unroll(f, count * max(sides))
    along = dict(candidates(a.rows)).get("reduced", "")
    names = [n for n in a.others if along in a.rows.stages[n].axes]
    side = (yield from vectors(f, a.extent(along))) if names else 1
    plan = Plan(f.lanes, count, size, tuple(sides), tuple(packed), order, turns, along, side, False, "none")
    joined = yield from merge(f, len(mergeable(a, plan)))
    shared = yield from parallel(f, ceil(tiles, size))
    return Plan(
        f.lanes,
        count,
        size,
        tuple(sides),
        tuple(packed),
        order,
        turns,
        along,
        side,
        joined == "fused",
        shared,
    )
