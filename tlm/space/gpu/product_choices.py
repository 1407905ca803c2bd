"""The questions of the space of products on a GPU: for each, the options that are legal and worth asking.

Budgets are part of the state: a tile is offered only if some way to deal it to threads stays within the
target's threads and registers, a depth only if the copies fit into shared memory (stages: see `staging`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from ...target import Target
from ..choice import Option, question
from ..contraction_choices import Facts, ceil, percent, waste
from ..conv_problem import Convolution, Side
from .limits import BASE_REGISTERS, Cost, block_facts, fits, grid_facts, occupancy, roomy

LONGEST = 16384
"""Terms of one running total: more are cut into parts with totals of their own."""

TILES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PER_THREAD = (1, 2, 4, 8, 16)
MOST_COPIES = 2048
"""Multiply-adds of an unrolled loop over k."""
MOST_SLICES = 64


@dataclass(frozen=True, eq=False)
class Figures:
    """What facts are computed from. One object a problem and target, compared by identity: quick to hash."""

    c: Convolution
    target: Target
    m: int
    n: int
    k: int
    outer: int
    """Elements of the result along m and n, steps of k, and blocks that other loops make at least."""
    joined: frozenset[str]
    """Loops that share an index of the result with another one."""

    @staticmethod
    @lru_cache(maxsize=256)
    def of(c: Convolution, target: Target, joined: frozenset[str] = frozenset()) -> Figures:
        m, n = c.extent(*c.rows.loops), c.extent(*c.columns.loops)
        return Figures(c, target, m, n, c.extent(c.k), c.extent(*c.batch), joined)

    def tiles(self, loop: str) -> list[int]:
        """Sizes of tiles along a loop: powers of two, and all of a short axis.

        A tile that reached beyond a loop which shares an index with another would be told apart from the next
        step of that one by its guard alone: there only divisors are tiles.
        """
        extent = self.c.extent(loop)
        found = {t for t in TILES if t <= extent} | ({extent} if extent <= 32 else set())
        return sorted([t for t in found if loop not in self.joined or extent % t == 0])

    @property
    def words(self) -> int:
        """Registers of one accumulator."""
        return ceil(self.c.out.buffer.dtype.bytes, 4)

    def cost(self, tile: tuple[int, int], thread: tuple[int, int], shared: int = 0) -> Cost:
        """What a block with a tile of m x n takes, of which each thread has `thread`."""
        m, n = thread
        registers = self.words * (m * n + 2 * (m + n)) + BASE_REGISTERS + 8
        return Cost(tile[0] * tile[1] // (m * n), shared, registers)

    @lru_cache(maxsize=4096)  # noqa: B019  # figures live as long as the process does
    def deals(self, m: int, n: int) -> tuple[tuple[int, int], ...]:
        """The shapes of a thread's part of a tile of m x n that a block can have."""
        found = [
            (a, b)
            for a in divisors(m)
            for b in divisors(n)
            if fits(self.cost((m, n), (a, b)), self.target) and max(a, b) <= 8 * min(a, b) * 2
        ]
        found = [x for x in found if roomy(self.cost((m, n), x), self.target)] or found
        many = [x for x in found if m * n // (x[0] * x[1]) >= min(32, m * n)]
        return tuple(many or found)

    def bytes(self, side: Side) -> int:
        return side.operand.buffer.dtype.bytes


def along_k(c: Convolution, side: Side) -> bool:
    """Whether an operand is contiguous along k rather than along its side."""
    return abs(side.operand.stride(c.k)) <= abs(side.operand.stride(side.inner))


def longest_vector(f: Figures, side: Side, deep: tuple[int, int], wide: int) -> int:
    """The longest vectors, in elements, in which an operand can be copied: all that starts one is a multiple
    of it, and the edge of the operand is not inside of one. `deep`: steps of k of a copy, and of a part."""
    c, operand = f.c, side.operand
    along = ((c.k, (*deep, f.k)), (side.inner, (wide, c.extent(side.inner))))
    contiguous = [x for x in along if operand.stride(x[0]) == 1]
    if not contiguous or (side.slid and (contiguous[0][0] != c.k or not c.deep)):
        return 1
    loop, extents = contiguous[0]
    steps = [abs(step) for name, step in operand.strides if name != loop]
    return gcd(max(1, 16 // f.bytes(side)), *extents, *steps)


@lru_cache(maxsize=1024)
def divisors(n: int) -> tuple[int, ...]:
    """Parts of a tile that one thread may have: small powers of two, and small tiles as a whole."""
    return tuple([d for d in sorted({*PER_THREAD, n}) if n % d == 0 and d <= 16])


@question("cta_m")
def cta_m(f: Figures) -> list[Option]:
    """Rows of a block's tile along the inner axis of the rows."""
    loop, options = f.c.rows.inner, []
    extent = f.c.extent(loop)
    for size in f.tiles(loop):
        if f.deals(size, 1):
            facts = (("size", size), ("trips", ceil(extent, size)), ("waste", waste(extent, size)))
            options.append(Option(size, facts))
    return options


@question("cta_h")
def cta_h(f: Figures, loop: str, wide: int) -> list[Option]:
    """Rows of an image in a block's tile, each with the same pixels."""
    options, extent = [], f.c.extent(loop)
    for count in (1, 2, 4, 8, 16):
        some = count in f.tiles(loop) and wide * count <= 256 and f.deals(wide * count, 1)
        if count == 1 or some:
            facts = (("size", wide * count), ("trips", ceil(extent, count)), ("waste", waste(extent, count)))
            options.append(Option(count, facts))
    return options


@question("cta_n")
def cta_n(f: Figures, rows: int, blocks: int) -> list[Option]:
    """Columns of a block's tile of so many rows; `blocks` lie along all other axes."""
    loop, options = f.c.columns.inner, []
    extent = f.c.extent(loop)
    for size in f.tiles(loop):
        deals = f.deals(rows, size)
        if not deals:
            continue
        cost = f.cost((rows, size), deals[-1])
        facts: Facts = (
            ("size", size), ("trips", ceil(extent, size)), ("waste", waste(extent, size)),
            ("intensity", rows * size / (rows + size)), ("reuse", min(rows, size)),
            ("threads", cost.threads), ("occupancy", _busy(f, rows, size)),
            *grid_facts(blocks * ceil(extent, size), cost, f.target),
        )  # fmt: skip
        options.append(Option(size, facts))
    return options


def _busy(f: Figures, rows: int, columns: int) -> float:
    """The best occupancy of a tile whose threads read each element for four multiply-adds, or as many as a
    thread of this tile can."""
    deals = [(a * b / (a + b), f.cost((rows, columns), (a, b))) for a, b in f.deals(rows, columns)]
    least = min(4.0, max(depth for depth, _ in deals))
    return max(occupancy(cost, f.target) for depth, cost in deals if depth >= least)


@question("thread_m")
def thread_m(f: Figures, tile: tuple[int, int], blocks: int) -> list[Option]:
    """Rows of a thread's part of the tile."""
    return _thread(f, tile, blocks, sorted({a for a, _ in f.deals(*tile)}), 0)


@question("thread_n")
def thread_n(f: Figures, tile: tuple[int, int], blocks: int, rows: int) -> list[Option]:
    """Columns of a thread's part of the tile."""
    return _thread(f, tile, blocks, sorted({b for a, b in f.deals(*tile) if a == rows}), rows)


def _thread(f: Figures, tile: tuple[int, int], blocks: int, sizes: list[int], rows: int) -> list[Option]:
    options = []
    for size in sizes:
        deals = [(a, b) for a, b in f.deals(*tile) if (b == size and a == rows if rows else a == size)]
        m, n = max(deals, key=lambda x: x[0] * x[1] / (x[0] + x[1]))
        cost = f.cost(tile, (m, n))
        facts: Facts = (("size", size), ("intensity", m * n / (m + n)), *block_facts(cost, f.target))
        options.append(Option(size, facts + grid_facts(blocks, cost, f.target)))
    return options


@question("warp_m")
def warp_m(f: Figures, threads_m: int, threads_n: int, thread: tuple[int, int]) -> list[Option]:
    """Threads of a warp along the rows: a warp of 4 x 8 reads less of shared memory than one of 1 x 32."""
    warp = f.target.warp
    options = []
    for lanes in (1, 2, 4, 8, 16, 32):
        if threads_m % lanes == 0 and threads_n % (warp // lanes) == 0:
            read = lanes * thread[0] + warp // lanes * thread[1]
            facts = (("size", lanes), ("reuse", warp * (thread[0] + thread[1]) / read))
            options.append(Option(lanes, facts))
    return options or [Option(threads_m)]


@question("group")
def group(f: Figures, thread: tuple[int, int]) -> list[Option]:
    """Neighbouring elements of a thread: it reads them from shared memory in one go. Groups of all threads
    alternate, so that neighbouring threads read neighbouring banks."""
    options = {}
    for size in (1, 2, 4, 8, 16):
        made = gcd(size, thread[0]), gcd(size, thread[1])
        if size == 1 or max(made) == size:
            bits = max(made) * f.bytes(f.c.columns)
            options[made] = Option(size, (("size", size), ("stride", bits)))
    return list(options.values())


@question("cta_k")
def cta_k(
    f: Figures, tile: tuple[int, int], cost: Cost, registers: Callable[[int], int] = lambda _: 0
) -> list[Option]:
    """Steps of k whose operands lie in shared memory at a time; `registers`: those of a thread in which the
    copies of so many steps wait."""
    options = []
    for size in sorted({s for s in (4, 8, 16, 32, 64) if s <= f.k} | ({f.k} if f.k < 64 else set())):
        shared = size * (tile[0] * f.bytes(f.c.rows) + tile[1] * f.bytes(f.c.columns))
        made = Cost(cost.threads, shared, cost.registers + registers(size))
        if fits(made, f.target) or size <= 4:
            facts: Facts = (
                ("size", size), ("trips", ceil(f.k, size)), ("waste", waste(f.k, size)),
                ("stride", size * f.bytes(f.c.rows)),
                ("intensity", size * tile[0] * tile[1] / cost.threads), *block_facts(made, f.target),
            )  # fmt: skip
            options.append(Option(size, facts))
    return options


def _stage(f: Figures, reuse: int, stride: int, size: int) -> list[Option]:
    """Whether an operand goes through shared memory, or is read by each thread from where it lies."""
    facts: Facts = (("reuse", reuse), ("stride", stride), ("shared", percent(size, f.target.block_shared)))
    return [Option("none", facts), Option("shared", facts)]


stage_m, stage_n = question("stage_m")(_stage), question("stage_n")(_stage)


@question("turns")
def turns(f: Figures, body: int, k: int) -> list[Option]:
    """Steps of k that are written out, of `body` multiply-adds each."""
    counts = sorted({u for u in (1, 2, 4, 8, k) if u <= k and (u == 1 or body * u <= MOST_COPIES)})
    return [Option(u, (("size", u), ("code", body * u))) for u in counts]


@question("slices")
def slices(f: Figures, blocks: int, alone: bool, cost: Cost) -> list[Option]:
    """Parts of k that blocks of their own add up: for long sums, and, where no other loops over blocks but
    those of the tile share the grid (`alone`), for too few blocks."""
    least = ceil(f.k, LONGEST)
    counts = [least]
    enough = 512 * f.target.threads // min(256, cost.threads)
    while alone and counts[-1] < MOST_SLICES * least and blocks * counts[-1] < enough:
        if f.k < 64 * counts[-1]:
            break
        counts.append(2 * counts[-1])
    found = {ceil(f.k, ceil(f.k, c)): c for c in counts}
    return [
        Option(c, (("size", ceil(f.k, c)), *grid_facts(blocks * c, cost, f.target))) for c in found.values()
    ]


@question("raster")
def raster(f: Figures, blocks_m: int, blocks_n: int, tile: tuple[int, int], alone: bool) -> list[Option]:
    """The order of blocks: along n (1), along m (0), or along n in groups of so many rows of blocks, which
    take an axis of the grid. Blocks that run at one time share what they read in the L2 cache."""
    if blocks_m == 1 or blocks_n == 1:
        return [Option(1)]
    options = []
    sizes = tile[0] * f.bytes(f.c.rows), tile[1] * f.bytes(f.c.columns)
    for value in (1, 0, 4, 8, 16):
        if value > 1 and (blocks_m < 2 * value or not alone):
            continue
        rows, columns = _resident(f, blocks_m, blocks_n, value)
        read = f.k * (rows * sizes[0] + columns * sizes[1])
        facts = (
            ("size", value),
            ("l2", percent(read, f.target.l2)),
            ("traffic", percent(read, f.k * sum(sizes))),
        )
        options.append(Option(value, facts))
    return options


def _resident(f: Figures, blocks_m: int, blocks_n: int, value: int) -> tuple[int, int]:
    """Rows and columns of blocks among those that run at one time."""
    count = f.target.threads
    if value == 1:
        return ceil(count, blocks_n), min(count, blocks_n)
    if value == 0:
        return min(count, blocks_m), ceil(count, blocks_m)
    return value, ceil(count, value)


@question("epilogue")
def epilogue(f: Figures, elementwise: bool) -> list[Option]:
    """Where elementwise stages run: on the registers of a finished tile, or in kernels of their own."""
    if not f.c.epilogue:
        return [Option("none")]
    facts: Facts = (("l2", percent(f.outer * f.m * f.n * f.c.out.buffer.dtype.bytes, f.target.l2)),)
    return [Option(v, facts) for v in (("fused", "separate") if elementwise else ("separate",))]
