"""The space of a contraction on a CPU: blocking as in GotoBLAS, every promising variation, legal by construction.

The nest that the choices spell, from the outside in (Goto and van de Geijn 2008, Van Zee and van de Geijn
2015):

    batch, blocks of m, n and k in any order [packing], tiles of the block in either order,
      k [unrolled, prefetched], rows of the tile (unrolled), columns of the tile (unrolled vectors)

Styles: "outer" holds a tile of rows x vectors of columns in registers; "swapped" the same with rows and
columns exchanged, where the result is contiguous along m; "dot" keeps a vector of partial sums along k for
each element.

Deciding is arithmetic on extents; `contraction_steps.py` turns the answers into schedule steps at the end.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import permutations

from ..target import Target
from .choice import Choice, Option, Space, ask
from .contraction_steps import Plan, steps
from .problem import Contraction

Asking = Generator[Choice, int, int]
Picking = Generator[Choice, int, str]


def contraction_space(problem: Contraction, target: Target) -> Space:
    """Every schedule of `problem` that this space knows, one choice at a time."""
    style = yield from _style(problem, target)
    c = problem.swapped() if style == "swapped" else problem
    figures = Figures.of(c, target)
    if style == "dot":
        plan = yield from _dot(figures)
    else:
        plan = yield from _outer(figures, style)
    return steps(c, plan)


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def percent(part: float, whole: float) -> float:
    return 100.0 * part / max(whole, 1e-9)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the facts of options are computed from."""

    c: Contraction
    target: Target
    m: int
    n: int
    k: int

    @classmethod
    def of(cls, c: Contraction, target: Target) -> Figures:
        return cls(c, target, c.extent(c.m), c.extent(c.n), c.extent(c.k))

    @property
    def bytes(self) -> int:
        """Bytes of one summed element: operands are held at this width while they are used."""
        return self.c.dtype.bytes

    @property
    def full_lanes(self) -> int:
        return max(1, self.target.vector_bytes // self.bytes)

    def caches(self, size: float) -> tuple[tuple[str, float], ...]:
        """Facts about a block of `size` bytes."""
        t = self.target
        return ("l1", percent(size, t.l1)), ("l2", percent(size, t.l2)), ("l3", percent(size, t.l3 or t.l2))

    def shared_work(self, trips: int) -> tuple[tuple[str, float], ...]:
        """Facts about `trips` equal pieces of work dealt to the threads."""
        threads = self.target.threads
        busiest = ceil(trips, threads)
        return ("tasks", percent(trips, threads)), ("imbalance", percent(busiest * threads, trips) - 100)


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


def _style(c: Contraction, target: Target) -> Picking:
    m, n, k = (c.extent(x) for x in (c.m, c.n, c.k))
    options = []

    def offer(value: str, stride: int, size: int, reuse: int) -> None:
        facts = (("size", size), ("stride", abs(stride) * c.dtype.bytes), ("reuse", reuse))
        options.append(Option(value, facts))

    if c.out.stride(c.n) == 1 and (n > 1 or m == 1):
        offer("outer", c.b.stride(c.n), n, m)
    if c.out.stride(c.m) == 1 and m > 1:
        offer("swapped", c.a.stride(c.m), m, n)
    if c.a.stride(c.k) == 1 and c.b.stride(c.k) == 1 and k > 1:
        offer("dot", 1, k, min(m, n))
    if not options:
        offer("outer", c.b.stride(c.n), n, m)
    return str((yield from ask("style", options)))


def _lanes(f: Figures, extent: int) -> Asking:
    options, lanes = [], f.full_lanes
    while lanes >= max(2, f.full_lanes // 4):
        if lanes < 2 * extent or lanes <= 4:
            options.append(
                Option(
                    lanes, (("size", lanes), ("waste", percent(ceil(extent, lanes) * lanes - extent, extent)))
                )
            )
        lanes //= 2
    return int((yield from ask("lanes", options or [Option(f.full_lanes)])))


def live_registers(f: Figures, rows: int, columns: int) -> int:
    """Vectors alive in the innermost loop: sums, a row of columns, a broadcast (and a product without FMA)."""
    return rows * columns + columns + (1 if f.target.fma else 2)


def _columns(f: Figures, extent: int, lanes: int) -> Asking:
    options = []
    for count in (1, 2, 3, 4, 6):
        vectors = ceil(extent, lanes)
        if (count == 1 or count <= vectors) and live_registers(f, 1, count) <= f.target.registers:
            size = count * lanes
            wasted = ceil(extent, size) * size - extent
            options.append(
                Option(
                    count, (("size", size), ("trips", ceil(extent, size)), ("waste", percent(wasted, extent)))
                )
            )
    return int((yield from ask("columns", options)))


def _rows(f: Figures, extent: int, columns: int) -> Asking:
    options = []
    for count in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16):
        live = live_registers(f, count, columns)
        if count > extent or (live > f.target.registers and count > 1):
            break
        wasted = ceil(extent, count) * count - extent
        facts = (
            ("size", count), ("trips", ceil(extent, count)), ("waste", percent(wasted, extent)),
            ("registers", percent(live, f.target.registers)),
            ("intensity", count * columns / (count + columns)),
        )  # fmt: skip
        options.append(Option(count, facts))
    return int((yield from ask("rows", options)))


def _split_k(f: Figures, tiles: int) -> Asking:
    """Sums of separate parts of k in parallel: only where there are too few tiles to keep the threads busy."""
    threads, options = f.target.threads, [Option(1, (("size", f.k), *f.shared_work(tiles)))]
    if threads > 1 and tiles < 4 * threads and f.k >= 512:
        for parts in (threads, 2 * threads):
            options.append(Option(parts, (("size", ceil(f.k, parts)), *f.shared_work(tiles * parts))))
    return int((yield from ask("split_k", options)))


def _parallel(f: Figures, trips: dict[str, int]) -> Picking:
    work = f.m * f.n * f.k * f.c.batches
    options = [Option("none", (("size", work),))]
    if f.target.threads > 1:
        for axis, count in trips.items():
            if count > 1:
                options.append(Option(axis, (("size", work), ("trips", count), *f.shared_work(count))))
    return str((yield from ask("parallel", options)))


def _block_k(f: Figures, rows: int, columns: int, k: int) -> Asking:
    halves = {ceil(k, p) for p in (1, 2, 3, 4, 6, 8)}
    sizes = {s for s in (4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024) if s < k} | halves
    options = []
    for size in thin({s for s in sizes if s >= min(4, k)}, 12, {k, ceil(k, 2)}):
        trips = ceil(k, size)
        facts = (
            ("size", size), ("trips", trips), ("waste", percent(trips * size - k, k)),
            *f.caches(size * (rows + columns) * f.bytes),
            ("traffic", percent(2 * (trips - 1) * f.m * f.n, f.k * f.n)),
        )  # fmt: skip
        options.append(Option(size, facts))
    return int((yield from ask("block_k", options)))


def _block(f: Figures, name: str, extent: int, tile: int, depth: int, parallel: bool) -> Asking:
    """Tiles of an axis in one block; the count of all tiles means that the axis is not blocked."""
    tiles = ceil(extent, tile)
    whole = {ceil(tiles, p) for p in (1, 2, 3, 4, 6, 8, 16)}
    sizes = {s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if s < tiles} | whole
    if parallel:
        sizes.discard(tiles)
    keep = {tiles, ceil(tiles, f.target.threads)} & sizes
    options = []
    for size in thin(sizes, 9, keep):
        trips = ceil(tiles, size)
        facts: tuple[tuple[str, float], ...] = (
            ("size", size * tile), ("trips", trips), ("waste", percent(trips * size - tiles, tiles)),
            *f.caches(size * tile * depth * f.bytes),
        )  # fmt: skip
        options.append(Option(size, facts + f.shared_work(trips) if parallel else facts))
    return int((yield from ask(name, options)))


def _order(f: Figures, trips: dict[str, int], bytes_of: dict[str, float]) -> Picking:
    """The order of the block loops with more than one trip, outermost first."""
    names = [axis for axis in "mnk" if trips[axis] > 1]
    options = []
    for order in permutations(names):
        # An operand is read again for each trip of a loop outside it that does not index it.
        traffic = 0.0
        for operand in ("mk", "kn", "mn"):
            deepest = max((i for i, axis in enumerate(order) if axis in operand), default=-1)
            repeats = 1
            for axis in order[: deepest + 1]:
                repeats *= 1 if axis in operand else trips[axis]
            traffic += bytes_of[operand] * repeats
        word = "".join(order) or "none"
        options.append(
            Option(word, (("traffic", percent(traffic, sum(bytes_of.values()))), *f.caches(traffic)))
        )
    return str((yield from ask("order", options)))


def _inner(f: Figures, tiles_m: int, tiles_n: int, rows: int, columns: int, k: int) -> Picking:
    """Which tile loop of a block is the outer one; the operand of the inner one streams through the caches."""
    if tiles_m == 1 or tiles_n == 1:
        return "mn"
    options = [
        Option("mn", (("trips", tiles_n), *f.caches(tiles_n * columns * k * f.bytes))),
        Option("nm", (("trips", tiles_m), *f.caches(tiles_m * rows * k * f.bytes))),
    ]
    return str((yield from ask("inner", options)))


def _pack(f: Figures, name: str, reuse: int, size: float, stride: int) -> Picking:
    options = [Option("none", (("reuse", reuse), ("stride", abs(stride) * f.bytes)))]
    if reuse > 1 or stride > 1:
        options.append(
            Option("block", (("reuse", reuse), ("stride", abs(stride) * f.bytes), *f.caches(size)))
        )
    return str((yield from ask(name, options)))


def _unroll(f: Figures, body: int, k: int) -> Asking:
    options = [
        Option(u, (("size", u), ("code", body * u)))
        for u in (1, 2, 4, 8)
        if u <= k and (u == 1 or body * u <= 128)
    ]
    return int((yield from ask("unroll", options)))


def _prefetch(f: Figures, packed: bool, size: float, k: int) -> Asking:
    """How many steps of k ahead the unpacked column operand is fetched; asked only beyond the L2 cache."""
    distances = (0,) if packed or size <= f.target.l2 else (0, 4, 16)
    return int((yield from ask("prefetch", [Option(d, (("size", d),)) for d in distances if d < max(k, 1)])))


def _epilogue(f: Figures, blocked_k: bool, split: bool) -> Picking:
    """Where elementwise stages run: on the registers of a finished tile, or in nests of their own."""
    if not f.c.epilogue:
        return "none"
    words = ["separate"] if blocked_k or split else ["fused", "separate"]
    size = f.m * f.n * f.bytes
    return str((yield from ask("epilogue", [Option(v, f.caches(size)) for v in words])))


def _outer(f: Figures, style: str) -> Generator[Choice, int, Plan]:
    c = f.c
    lanes = yield from _lanes(f, f.n)
    vectors = yield from _columns(f, f.n, lanes)
    columns = min(vectors * lanes, f.n)
    rows = yield from _rows(f, f.m, vectors)
    tiles = {"batch": c.batches, "m": ceil(f.m, rows), "n": ceil(f.n, columns)}
    split = yield from _split_k(f, tiles["m"] * tiles["n"] * c.batches)
    depth = ceil(f.k, split)
    parallel = "k" if split > 1 else (yield from _parallel(f, tiles))
    block_k = yield from _block_k(f, rows, columns, depth)
    block_m = yield from _block(f, "block_m", f.m, rows, block_k, parallel == "m")
    block_n = yield from _block(f, "block_n", f.n, columns, block_k, parallel == "n")
    trips = {"m": ceil(tiles["m"], block_m), "n": ceil(tiles["n"], block_n), "k": ceil(depth, block_k)}
    bytes_of = {"mk": f.m * f.k * f.bytes, "kn": f.k * f.n * f.bytes, "mn": 2.0 * f.m * f.n * f.bytes}
    order = yield from _order(f, trips, bytes_of)
    inner = yield from _inner(f, min(block_m, tiles["m"]), min(block_n, tiles["n"]), rows, columns, block_k)
    pack_n = yield from _pack(
        f,
        "pack_n",
        _reuse(order, "n", tiles["m"], trips, block_m),
        block_k * block_n * columns * f.bytes,
        c.b.stride(c.n),
    )
    pack_m = yield from _pack(
        f,
        "pack_m",
        _reuse(order, "m", tiles["n"], trips, block_n),
        block_k * block_m * rows * f.bytes,
        c.a.stride(c.k),
    )
    unroll = yield from _unroll(f, rows * vectors, block_k)
    prefetch = yield from _prefetch(f, pack_n == "block", bytes_of["kn"], block_k)
    epilogue = yield from _epilogue(f, block_k < depth, split > 1)
    return Plan(
        style, lanes, vectors, rows, split, parallel, block_k, block_m, block_n,
        "" if order == "none" else order, inner, pack_n == "block", pack_m == "block", unroll, prefetch, epilogue,
    )  # fmt: skip


def _reuse(order: str, own: str, tiles: int, trips: dict[str, int], block: int) -> int:
    """Times that a packed element is read: by all tiles of the other axis, or of one block where it is outside."""
    other = "n" if own == "m" else "m"
    needed = [order.index(axis) for axis in (own, "k") if axis in order]
    outside = other in order and (not needed or order.index(other) < max(needed))
    return min(block, tiles) if outside else tiles


def _dot(f: Figures) -> Generator[Choice, int, Plan]:
    lanes = yield from _lanes(f, f.k)
    columns = yield from _columns(f, f.n, 1)
    rows = yield from _rows(f, f.m, columns)
    tiles = {"batch": f.c.batches, "m": ceil(f.m, rows), "n": ceil(f.n, columns)}
    parallel = yield from _parallel(f, tiles)
    block_m = yield from _block(f, "block_m", f.m, rows, f.k, parallel == "m")
    block_n = yield from _block(f, "block_n", f.n, columns, f.k, parallel == "n")
    trips = {"m": ceil(tiles["m"], block_m), "n": ceil(tiles["n"], block_n), "k": 1}
    bytes_of = {"mk": f.m * f.k * f.bytes, "kn": f.k * f.n * f.bytes, "mn": 2.0 * f.m * f.n * f.bytes}
    order = yield from _order(f, trips, bytes_of)
    inner = yield from _inner(f, min(block_m, tiles["m"]), min(block_n, tiles["n"]), rows, columns, f.k)
    unroll = yield from _unroll(f, rows * columns, ceil(f.k, lanes))
    epilogue = yield from _epilogue(f, False, False)
    return Plan(
        "dot", lanes, columns, rows, 1, parallel, f.k, block_m, block_n,
        "" if order == "none" else order, inner,
        False, False, unroll, 0, epilogue,
    )  # fmt: skip
