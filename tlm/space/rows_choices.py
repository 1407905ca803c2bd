"""The questions of the space of rows: for each, the options that are legal and worth asking, with facts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ..target import Target
from .choice import Option, question
from .contraction_choices import Facts, caches, ceil, percent, shared_work, waste
from .rows import Rows
from .stages import Stage

MOST_LANES = 512
"""The primitive takes no longer vector loops."""


@dataclass(frozen=True, eq=False)
class Figures:
    """What facts are computed from. One object a chain and target, compared by identity: quick to hash."""

    r: Rows
    target: Target

    @staticmethod
    @lru_cache(maxsize=256)
    def of(r: Rows, target: Target) -> Figures:
        return Figures(r, target)

    @property
    def bytes(self) -> int:
        """Bytes of the widest element that the chain computes with."""
        return max(s.bytes for s in self.r.chain)

    @property
    def full_lanes(self) -> int:
        return max(1, self.target.vector_bytes // self.bytes)

    @property
    def trips(self) -> int:
        """Rows in all."""
        return prod([self.r.extent(axis) for axis in self.r.rows])

    @property
    def work(self) -> int:
        """Vector instructions of the whole chain, times the lanes."""
        return sum([s.work * prod([extent for _, extent in s.loops]) for s in self.r.chain])

    def row_bytes(self, rows: int) -> int:
        """Bytes of what `rows` rows keep between stages."""
        size = 0
        for s in self.r.chain:
            if s.name not in self.r.outputs:
                inner = [s.extent(a) for a in s.axes if a not in self.r.rows and a not in s.reduced]
                size += rows * s.bytes * prod(inner)
        return size


def candidates(r: Rows) -> list[tuple[str, str]]:
    """(word, axis) of the axes along which vectors may run: the best reduced and the best kept one."""
    found = []
    for word, axes in (("reduced", r.inner), ("kept", r.rows)):
        scored = [(_unit(r, a), r.extent(a), a) for a in axes if r.extent(a) > 1]
        good = [x for x in scored if x[0][0] > 0]
        if good:
            found.append((word, max(good, key=lambda x: (x[0][0] - x[0][1], x[1]))[2]))
    if not found:
        every = [a for a in (*r.inner, *r.rows) if r.extent(a) > 1]
        found = [("kept" if a in r.rows else "reduced", a) for a in every[-1:]]
    return found


def _unit(r: Rows, axis: str) -> tuple[int, int]:
    """Accesses of the chain that are contiguous along `axis`, and those with other strides."""
    along = [abs(dict(strides).get(axis, 0)) for s in r.chain for strides in s.strides if axis in s.axes]
    return along.count(1), sum(c > 1 for c in along)


@question("style")
def style(f: Figures) -> list[Option]:
    """Along which axis vectors run: a reduced one (lanes are merged at the end of a row) or a kept one."""
    options = []
    for word, axis in candidates(f.r):
        along = [abs(dict(x).get(axis, 0)) for s in f.r.chain for x in s.strides if axis in s.axes]
        facts: Facts = (("size", f.r.extent(axis)), ("stride", max(along, default=0) * f.bytes))
        options.append(Option(word, facts))
    return options or [Option("none")]


@question("recompute")
def recompute(f: Figures, stage: Stage, readers: int) -> list[Option]:
    """Whether an elementwise stage with several readers is stored, or computed anew by each of them."""
    size = f.row_bytes(1)
    facts: Facts = (("reuse", readers), ("code", stage.work), *caches(f.target, size))
    return [Option("store", facts), Option("inline", facts)]


def lane_options(full: int, extent: int) -> list[Option]:
    """Elements of a vector: the full width; down to a quarter of it for short axes."""
    options, width = [], full
    if extent >= 2 * width:
        return [Option(width)]
    while width >= max(2, full // 4):
        if width < 2 * extent or width <= 4:
            options.append(Option(width, (("size", width), ("waste", waste(extent, width)))))
        width //= 2
    return options or [Option(full)]


@question("lanes")
def lanes(f: Figures, extent: int) -> list[Option]:
    """Elements of a vector."""
    return lane_options(f.full_lanes, extent)


@question("columns")
def columns(f: Figures, extent: int, width: int) -> list[Option]:
    """Vectors side by side: independent running results, which hide the latency of their instructions."""
    options = []
    parts = max(len(s.targets) for s in f.r.chain)
    work = max(s.work for s in f.r.chain)
    for count in (1, 2, 4, 8):
        size, live = count * width, count * parts + 4
        fits = live <= f.target.registers and size <= MOST_LANES
        if count == 1 or (fits and count < 2 * ceil(extent, width)):
            facts = (
                ("size", size), ("trips", ceil(extent, size)), ("waste", waste(extent, size)),
                ("registers", percent(live, f.target.registers)), ("code", count * work),
            )  # fmt: skip
            options.append(Option(count, facts))
    return options


@question("fusion")
def fusion(f: Figures, row_block: int) -> list[Option]:
    """Whether all stages of a row run before the next row, or each stage runs over all rows by itself."""
    if len(f.r.body) < 2 or not f.r.together:
        return [Option("separate")]
    fused = (("trips", ceil(f.trips, row_block)), *caches(f.target, f.row_bytes(row_block)))
    return [
        Option("fused", fused),
        Option("separate", (("trips", 1), *caches(f.target, f.row_bytes(f.trips)))),
    ]


@question("rows")
def rows(f: Figures, extent: int, fused: bool) -> list[Option]:
    """Rows whose stages run one after the other: while one waits for the merge of its lanes, others work."""
    options = []
    for count in (1, 2, 4, 8):
        if count == 1 or (fused and count <= extent):
            facts = (
                ("size", count), ("trips", ceil(extent, count)), ("waste", waste(extent, count)),
                *caches(f.target, f.row_bytes(count)),
            )  # fmt: skip
            options.append(Option(count, facts))
    return options


@question("merge")
def merge(f: Figures, pairs: int, size: float) -> list[Option]:
    """Whether a stage and a following one that reads it element by element share their innermost loops."""
    if not pairs:
        return [Option("separate")]
    facts: Facts = (("reuse", pairs), *caches(f.target, size))
    return [Option("fused", facts), Option("separate", facts)]


@question("parallel")
def parallel(f: Figures, trips: int, long: int) -> list[Option]:
    """What threads share: blocks of rows, or (for few rows of `long` elements) parts of the reductions."""
    options = [Option("none", (("size", f.work),))]
    threads = f.target.threads
    if threads > 1 and trips > 1:
        options.append(Option("outer", (("size", f.work), ("trips", trips), *shared_work(f.target, trips))))
    if threads > 1 and trips < 4 * threads and long >= 2 * threads:
        options.append(
            Option("split", (("size", f.work), ("trips", threads), *shared_work(f.target, threads)))
        )
    return options
