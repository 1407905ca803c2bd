"""The questions of the contraction space: for each, the options that are legal and worth asking, with facts.

Each is arithmetic on extents and on the figures of the target, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import gcd

from ..lower.dots import Grouping, groupings
from ..target import Target
from .choice import Option, question
from .problem import Contraction

LONG_SUM, CHAIN = 4096, 256
"""A sum of more terms than LONG_SUM is cut so that no running total takes more than CHAIN terms, at any
level: each step rounds to the size of the total, and a million would lose three digits (Higham 1993)."""

LONG_WINDOW = 2 * LONG_SUM
"""Terms of one total of a convolution, over the taps of its window and a block of its channels."""

Facts = tuple[tuple[str, float], ...]
Trips = tuple[tuple[str, int], ...]
"""Iterations of the loops of each axis."""


def ceil(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def percent(part: float, whole: float) -> float:
    return 100.0 * part / max(whole, 1e-9)


def waste(extent: int, tile: int) -> float:
    """Percent of work that falls outside `extent` when it is cut into tiles."""
    return percent(ceil(extent, tile) * tile - extent, extent)


def caches(target: Target, size: float) -> Facts:
    """Facts about a block of `size` bytes."""
    levels = ("l1", target.l1), ("l2", target.l2), ("l3", target.l3 or target.l2)
    return tuple([(name, percent(size, level)) for name, level in levels])


def shared_work(target: Target, trips: int) -> Facts:
    """Facts about `trips` equal pieces of work dealt to the threads."""
    threads = target.threads
    busiest = ceil(trips, threads)
    return ("tasks", percent(trips, threads)), ("imbalance", percent(busiest * threads, trips) - 100)


@dataclass(frozen=True, eq=False)
class Figures:
    """What facts are computed from. One object a problem and target, compared by identity: quick to hash."""

    c: Contraction
    target: Target
    m: int
    n: int
    k: int
    bytes: int
    """Of an element of an operand while it is used: those of the sum, fewer for dot-product instructions."""

    @staticmethod
    @lru_cache(maxsize=256)
    def of(c: Contraction, target: Target, bytes: int = 0) -> Figures:
        return Figures(c, target, c.extent(c.m), c.extent(c.n), c.extent(c.k), bytes or c.dtype.bytes)

    @property
    def full_lanes(self) -> int:
        return max(1, self.target.vector_bytes // self.c.dtype.bytes)

    def groupings(self, lanes: int) -> tuple[Grouping, ...]:
        """The dot-product instructions for these operands on vectors of `lanes`."""
        c = self.c
        return groupings(self.target, c.a.buffer.dtype, c.b.buffer.dtype, c.dtype, lanes)

    def live_registers(self, rows: int, columns: int) -> int:
        """Vectors alive in the innermost loop: sums, a row of columns, a broadcast, a product without FMA."""
        return rows * columns + columns + (1 if self.target.fma else 2)


def thin(sizes: set[int], limit: int, keep: set[int]) -> list[int]:
    """At most about `limit` sizes, spread evenly in the logarithm; those in `keep` stay."""
    ordered = sorted(sizes)
    if len(ordered) <= limit:
        return ordered
    ratio = (ordered[-1] / ordered[0]) ** (1.0 / limit)
    out: list[int] = []
    for s in ordered:
        if s in keep or not out or s >= out[-1] * ratio:
            out.append(s)
    return out


@question("style")
def style(f: Figures) -> list[Option]:
    """Which axis is vectorised: along it the result (for a dot product, both operands) must be contiguous."""
    c, options = f.c, []

    def offer(value: str, stride: int, size: int, reuse: int) -> None:
        facts = (("size", size), ("stride", abs(stride) * f.bytes), ("reuse", reuse))
        options.append(Option(value, facts))

    if c.out.stride(c.n) == 1 and (f.n > 1 or f.m == 1):
        offer("outer", c.b.stride(c.n), f.n, f.m)
    if c.out.stride(c.m) == 1 and f.m > 1:
        offer("swapped", c.a.stride(c.m), f.m, f.n)
    short = f.k <= CHAIN * CHAIN * max(2, f.full_lanes // 4)
    if c.a.stride(c.k) == 1 and c.b.stride(c.k) == 1 and f.k > 1 and short:
        offer("dot", 1, f.k, min(f.m, f.n))
    if not options:
        offer("outer", c.b.stride(c.n), f.n, f.m)
    return options


@question("lanes")
def lanes(f: Figures, extent: int) -> list[Option]:
    """Elements of a vector: the full width, and down to a quarter of it for short axes."""
    options, width = [], f.full_lanes
    while width >= max(2, f.full_lanes // 4):
        if width < 2 * extent or width <= 4:
            options.append(Option(width, (("size", width), ("waste", waste(extent, width)))))
        width //= 2
    return options or [Option(f.full_lanes)]


# A multiply-add of i32 is a slow product and a sum.
_PLAIN_RATE = {"float": 100.0, "int": 40.0}


@question("terms")
def terms(f: Figures, width: int) -> list[Option]:
    """Products of narrow elements that one instruction sums: their operands are packed side by side."""
    rates = {1: _PLAIN_RATE[f.c.dtype.kind]} | {g.terms: 100 * g.rate for g in f.groupings(width)}
    return [
        Option(n, (("size", n), ("rate", rate), ("waste", waste(f.k, n)), ("reuse", f.m)))
        for n, rate in rates.items()
        if n <= f.k
    ]


@question("columns")
def columns(f: Figures, extent: int, width: int) -> list[Option]:
    """Vectors side by side in a register tile."""
    options = []
    for count in (1, 2, 3, 4, 6):
        fits = f.live_registers(1, count) <= f.target.registers
        if fits and (count == 1 or count <= ceil(extent, width)):
            size = count * width
            facts = (("size", size), ("trips", ceil(extent, size)), ("waste", waste(extent, size)))
            options.append(Option(count, facts))
    return options


@question("rows")
def rows(f: Figures, extent: int, vectors: int) -> list[Option]:
    """Rows of a register tile: all of it must stay in registers."""
    options = []
    for count in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16):
        live = f.live_registers(count, vectors)
        if count > extent or (live > f.target.registers and count > 1):
            break
        facts = (
            ("size", count), ("trips", ceil(extent, count)), ("waste", waste(extent, count)),
            ("registers", percent(live, f.target.registers)),
            ("intensity", count * vectors / (count + vectors)),
        )  # fmt: skip
        options.append(Option(count, facts))
    return options


@question("split_k")
def split_k(f: Figures, tiles: int) -> list[Option]:
    """Sums of separate parts of k in parallel: only where too few tiles would leave threads without work."""
    threads, least = f.target.threads, ceil(f.k, CHAIN * CHAIN)
    counts = [least]
    if threads > 1 and tiles * least < 4 * threads and f.k >= 512:
        counts += [least * threads, 2 * least * threads]
    return [Option(c, (("size", ceil(f.k, c)), *shared_work(f.target, tiles * c))) for c in counts]


@question("parallel")
def parallel(f: Figures, trips: Trips) -> list[Option]:
    """The axis whose blocks are dealt to the threads."""
    work = f.m * f.n * f.k * f.c.batches
    options = [Option("none", (("size", work),))]
    if f.target.threads > 1:
        for axis, count in trips:
            if count > 1:
                options.append(
                    Option(axis, (("size", work), ("trips", count), *shared_work(f.target, count)))
                )
    return options


@question("block_k")
def block_k(f: Figures, height: int, width: int, k: int, unit: int = 1, taps: int = 1) -> list[Option]:
    """Steps of k between two visits of a tile; all of k means that every tile is finished in one go.

    Blocks are whole groups of `unit` terms, but for all of k. Each step adds `taps` terms.
    """
    parts = {ceil(k, p) for p in (1, 2, 3, 4, 6, 8)}
    sizes = {s for s in (4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024) if s < k} | parts
    sizes = {min(ceil(s, unit) * unit, k) for s in sizes}
    least, most = (min(4, k), k) if k <= LONG_SUM else (ceil(k, CHAIN), CHAIN)
    if taps * k > LONG_WINDOW and taps > 1:
        most = max(1, min(most, LONG_WINDOW // taps))
        least, sizes = min(least, most), {*sizes, most}
    options = []
    for size in thin({s for s in sizes if least <= s <= most}, 12, {k, ceil(k, 2)}):
        facts = (
            ("size", size), ("trips", ceil(k, size)), ("waste", waste(k, size)),
            *caches(f.target, size * (height + width) * f.bytes),
            ("traffic", percent(2 * (ceil(k, size) - 1) * f.m * f.n, f.k * f.n)),
        )  # fmt: skip
        options.append(Option(size, facts))
    return options


def _block(f: Figures, extent: int, tile: int, depth: int, shared: bool) -> list[Option]:
    """Tiles of an axis in one block; the count of all tiles means that the axis is not blocked."""
    tiles = ceil(extent, tile)
    parts = {ceil(tiles, p) for p in (1, 2, 3, 4, 6, 8, 16)}
    sizes = {s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if s < tiles} | parts
    if shared:
        sizes.discard(tiles)
    options = []
    for size in thin(sizes, 9, {tiles, ceil(tiles, f.target.threads)} & sizes):
        trips = ceil(tiles, size)
        facts: Facts = (
            ("size", size * tile), ("trips", trips), ("waste", waste(tiles, size)),
            *caches(f.target, size * tile * depth * f.bytes),
        )  # fmt: skip
        options.append(Option(size, facts + shared_work(f.target, trips) if shared else facts))
    return options


block_m, block_n = question("block_m")(_block), question("block_n")(_block)


@question("order")
def order(f: Figures, trips: Trips) -> list[Option]:
    """The order of the block loops with more than one trip, outermost first."""
    count = dict(trips)
    bytes_of = {"mk": f.m * f.k * f.bytes, "kn": f.k * f.n * f.bytes, "mn": 2.0 * f.m * f.n * f.bytes}
    options = []
    for nesting in permutations([axis for axis in "mnk" if count[axis] > 1]):
        # An operand is read again for each trip of a loop outside it that does not index it.
        traffic = 0.0
        for operand, size in bytes_of.items():
            deepest = max((i for i, axis in enumerate(nesting) if axis in operand), default=-1)
            for axis in nesting[: deepest + 1]:
                size *= 1 if axis in operand else count[axis]
            traffic += size
        facts = (("traffic", percent(traffic, sum(bytes_of.values()))), *caches(f.target, traffic))
        options.append(Option("".join(nesting) or "none", facts))
    return options


@question("inner")
def inner(f: Figures, tiles_m: int, tiles_n: int, height: int, width: int, k: int) -> list[Option]:
    """Which tile loop of a block is the outer one; the operand of the inner one streams through caches."""
    if tiles_m == 1 or tiles_n == 1:
        return [Option("mn")]
    return [
        Option("mn", (("trips", tiles_n), *caches(f.target, tiles_n * width * k * f.bytes))),
        Option("nm", (("trips", tiles_m), *caches(f.target, tiles_m * height * k * f.bytes))),
    ]


Run = tuple[int, int]
"""Elements along an axis, and how far apart they lie."""

_WAY_BYTES = 4096  # of an L1 cache that is indexed before the address is translated, as all present ones are
_LINE_BYTES = 64


def _conflicts(f: Figures, runs: tuple[Run, Run]) -> float:
    """Lines of a block of an operand as it lies in memory, percent of the L1 lines that they can occupy.

    Rows that are a multiple of a large power of two apart fall on few sets of the cache, so that a block much
    smaller than the cache drives itself out of it.
    """
    (count, step), (length, unit) = sorted(runs, key=lambda run: -abs(run[1]))
    lines = ceil(length * f.bytes, _LINE_BYTES) if abs(unit) == 1 else length
    starts = _WAY_BYTES // gcd(abs(step) * f.bytes, _WAY_BYTES)
    sets = min(_WAY_BYTES // _LINE_BYTES, min(count, starts) * lines)
    return percent(count * lines, sets * max(1, f.target.l1 // _WAY_BYTES))


def _pack(
    f: Figures, reuse: int, size: float, stride: int, runs: tuple[Run, Run], narrow: int = 0
) -> list[Option]:
    """Whether a block of an operand is copied into the order in which the tiles read it.

    `runs`: what one tile reads of it, along k and along the other axis. `narrow`: conversions to the type of
    the sum in each step of k that a packed operand, converted when it is copied, does without.
    """
    facts: Facts = (("reuse", reuse), ("stride", abs(stride) * f.bytes))
    converted: Facts = (("code", narrow),) if narrow else ()
    options = [Option("none", (*facts, ("conflicts", _conflicts(f, runs)), *converted))]
    if reuse > 1 or stride > 1:
        options.append(Option("block", (*facts, *caches(f.target, size), *converted)))
    return options


pack_n, pack_m = question("pack_n")(_pack), question("pack_m")(_pack)


@question("unroll")
def unroll(f: Figures, body: int, k: int) -> list[Option]:
    """Steps of k in one round of the innermost loop, whose one step has `body` vector operations."""
    counts = [u for u in (1, 2, 4, 8) if u <= k and (u == 1 or body * u <= 128)]
    return [Option(u, (("size", u), ("code", body * u))) for u in counts]


@question("prefetch")
def prefetch(f: Figures, packed: bool, size: float, k: int) -> list[Option]:
    """How many steps of k ahead the unpacked column operand is fetched; asked only beyond the L2 cache."""
    distances = (0,) if packed or size <= f.target.l2 else (0, 4, 16)
    return [Option(d, (("size", d),)) for d in distances if d < max(k, 1)]


@question("epilogue")
def epilogue(f: Figures, blocked_k: bool, split: bool) -> list[Option]:
    """Where elementwise stages run: on the registers of a finished tile, or later (see `epilogue`)."""
    if not f.c.epilogue:
        return [Option("none")]
    words = ["separate"] if blocked_k or split or not f.c.chained else ["fused", "separate"]
    return [Option(v, caches(f.target, f.m * f.n * f.bytes)) for v in words]
