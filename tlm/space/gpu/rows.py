"""The space of a chain of stages over rows on a GPU: softmax, normalisations, reductions, their epilogues.

A block has one or several rows, each with a warp or more: threads take turns along the row, bring their
partial results together by shuffles, and go on with the next stage while what the row keeps stays in shared
memory or in their registers. Or threads lie along a kept axis and each goes down its own column; or every
stage is a kernel, its reductions cut into parts for more blocks. `rows_steps.py` makes steps of the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod

from ...target import Target
from ..choice import Ask, Option, Space, question
from ..contraction_choices import Facts, ceil, percent, waste
from ..rows import Rows
from ..rows_choices import Figures as Chain
from ..rows_choices import candidates
from ..rows_space import inline_stages
from ..rows_steps import LONGEST
from ..stages import Stage
from .limits import BASE_REGISTERS, Cost, block_facts, fits, grid_facts
from .rows_steps import Plan, private, steps

MOST_PARTS = 1024
MOST_HELD = 64
"""Registers of a thread for what a row keeps."""


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
    def chain(self) -> Chain:
        return Chain.of(self.r, self.target)

    def kept_bytes(self, rows: int) -> int:
        """Bytes that `rows` rows keep in a block."""
        r, size = self.r, 0
        for s in r.chain:
            if s.name not in r.outputs:
                inner = [s.extent(a) for a in s.axes if a not in s.reduced and a not in r.rows]
                # The parts of a tuple, one of which may be an index, are stored twice: where they are merged,
                # and where they are read.
                one = s.bytes if len(s.targets) == 1 else 2 * len(s.targets) * max(8, s.bytes)
                size += ceil(rows * one * prod(inner), 16) * 16
        return size

    def scratch(self, threads: int) -> int:
        """Bytes for bringing the partial results of warps together."""
        parts = sum(len(s.targets) * s.bytes for s in self.r.chain if s.combiner)
        return parts * ceil(threads, self.target.warp)

    def cost(self, threads: int, rows: int, fused: bool, vector: int = 1) -> Cost:
        work = max([s.work for s in self.r.chain])
        registers = BASE_REGISTERS + min(32, work) + vector * ceil(self.chain.bytes, 4)
        kept = self.kept_bytes(rows) if fused else 0
        return Cost(threads, kept + self.scratch(threads), registers)

    def terms(self, along: str) -> int:
        """The longest sum, and along which loops one thread would run alone."""
        return max([prod([s.extent(a) for a in s.reduced]) for s in self.r.chain if s.combiner], default=1)

    def longest_vector(self, along: str) -> int:
        """The longest vectors along an axis that start at multiples of their length in every access."""
        size = max(1, 16 // self.chain.bytes)
        for s in self.r.chain:
            if along not in s.axes:
                continue
            if s.scattered:
                return 1
            for strides in s.strides:
                if dict(strides).get(along) == 1:
                    size = gcd(size, *[abs(step) for axis, step in strides if axis != along])
        return gcd(size, self.r.extent(along))


def gpu_rows_space(r: Rows, target: Target) -> Space:
    """Every schedule of the chain `r` that this space knows, one choice at a time."""
    inlined, r = yield from inline_stages(r, target)
    plan = yield from _plan(Figures.of(r, target))
    return (*inlined, *steps(r, plan))


@question("form")
def form(f: Figures) -> list[Option]:
    """Along which axis neighbouring threads lie: a reduced one (they share a row) or a kept one."""
    options = []
    for word, axis in candidates(f.r):
        along = [abs(dict(x).get(axis, 0)) for s in f.r.chain for x in s.strides if axis in s.axes]
        facts: Facts = (("size", f.r.extent(axis)), ("stride", max(along, default=0) * f.chain.bytes))
        options.append(Option(word, facts))
    return options or [Option("none")]


@question("fusion")
def fusion(f: Figures, kept: bool, along: str) -> list[Option]:
    """Whether all stages of a row run before the next row, or each stage is a kernel."""
    facts: Facts = (("shared", percent(f.kept_bytes(1), f.target.block_shared)), ("trips", f.chain.trips))
    return [Option("fused", facts), Option("separate", (("trips", len(f.r.body)),))]


@question("vector")
def vector(f: Figures, longest: int) -> list[Option]:
    """Elements that a thread reads at a time."""
    return [
        Option(n, (("size", n), ("stride", n * f.chain.bytes))) for n in (1, 2, 4, 8, 16) if longest % n == 0
    ]


@question("threads")
def threads(f: Figures, extent: int, size: int, kept: bool, fused: bool) -> list[Option]:
    """Threads along the axis: for a reduced one whole warps, or one thread for each short row."""
    options = []
    for n in (1, 32, 64, 128, 256, 512, 1024):
        cost = f.cost(n, n * size if kept else 1, fused, size)
        if not fits(cost, f.target) or (n == 1 and (kept or extent > 64)):
            continue
        if n <= 32 or n * size < 2 * extent:
            facts: Facts = (
                ("size", n),
                ("trips", ceil(extent, n * size)),
                ("waste", waste(extent, n * size)),
            )
            options.append(Option(n, facts + block_facts(cost, f.target)))
    return options


@question("cta_rows")
def cta_rows(f: Figures, extent: int, others: int, count: int, fused: bool) -> list[Option]:
    """Rows of a block."""
    options = []
    for n in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        cost = f.cost(n * count, n, fused)
        if n == 1 or (n <= extent and fits(cost, f.target)):
            facts: Facts = (("size", n), ("waste", waste(extent, n)), *block_facts(cost, f.target))
            options.append(Option(n, facts + grid_facts(others * ceil(extent, n), cost, f.target)))
    return options


@question("keep")
def keep(f: Figures, size: int, registers: int) -> list[Option]:
    """Where what a row keeps lies: in shared memory, or in the registers of the threads that made it."""
    facts: Facts = (("shared", percent(size, f.target.block_shared)), ("code", registers))
    return [Option("shared", facts)] + ([Option("register", facts)] if registers <= MOST_HELD else [])


@question("slices")
def slices(f: Figures, blocks: int, terms: int, longest: int, least: int) -> list[Option]:
    """Parts of reductions for blocks of their own (0: none): for few rows, and for long sums."""
    counts = [] if least else [0]
    n = max(2, least)
    while (
        n <= min(MOST_PARTS, longest) and (n == least or blocks * n <= 8 * f.target.threads) and terms >= 256
    ):
        counts.append(n)
        n *= 4
    counts = counts or [max(1, min(least, longest))]
    return [Option(n, (("size", n), *grid_facts(blocks * max(1, n), Cost(128), f.target))) for n in counts]


def _plan(f: Figures) -> Ask:
    r = f.r
    word = yield from form(f)
    along = dict(candidates(r)).get(word, "")
    kept = along in r.rows
    fused = False
    if r.rows and r.together and len(r.body) > 1 and _may_fuse(f, along, kept):
        fused = (yield from fusion(f, kept, along)) == "fused"
    extent = r.extent(along) if along else 1
    size = (yield from vector(f, f.longest_vector(along))) if along else 1
    if fused and kept:
        while not fits(f.cost(32, 32 * size, True, size), f.target):
            size //= 2
    count = (yield from threads(f, extent, size, kept, fused)) if along else 1
    last = r.extent(r.rows[-1]) if r.rows and not kept else 1
    others = f.chain.trips // (extent if kept else last)
    rows = (yield from cta_rows(f, last, others, count, fused)) if last > 1 else 1
    parts = 0
    if not fused:
        blocks = others * (ceil(extent, count * size) if kept else ceil(last, rows))
        parts = yield from _parts(f, along, kept, count, blocks)
    held = False
    long = [s for s in r.chain if _row_long(r, s, along)]
    if fused and long and not kept:
        registers = sum(_held(r, s, along, count * size) * size for s in long) * ceil(f.chain.bytes, 4)
        held = all(_same_thread(r, s, along) for s in long) and (
            (yield from keep(f, f.kept_bytes(rows), registers)) == "register"
        )
    blocked = r.rows[-1] if r.rows and not kept else ""
    return Plan(along, kept, fused, count, size, blocked, rows, rows, parts, held)


def _may_fuse(f: Figures, along: str, kept: bool) -> bool:
    """Whether a block can hold a row, and no thread sums too many terms."""
    chain = ceil(f.terms(along), 1 if kept else f.target.block_threads)
    return fits(f.cost(32, 32 if kept else 1, True), f.target) and chain <= LONGEST


def _parts(f: Figures, along: str, kept: bool, count: int, blocks: int) -> Ask:
    r = f.r
    sums = [s for s in r.chain if s.combiner]
    if any(not s.reduced for s in sums):
        return 0
    longest = min(s.extent(along if along in s.reduced else max(s.reduced, key=s.extent)) for s in sums)
    alone = ceil(f.terms(along), 1 if kept else count)
    least = min(MOST_PARTS, longest, ceil(alone, LONGEST)) if alone > LONGEST else 0
    found = yield from slices(f, blocks, f.terms(along), longest, max(least, 0 if r.rows else 1))
    return found


def _row_long(r: Rows, s: Stage, along: str) -> bool:
    """Whether the chain keeps an element of a stage for each step along the axis."""
    inside = along in s.axes and along not in s.reduced
    return inside and s.name not in r.outputs and len(s.targets) == 1 and private(r, s)


def _held(r: Rows, s: Stage, along: str, step: int) -> int:
    """Vectors of a stage's row that one thread would hold."""
    others = prod([s.extent(a) for a in s.axes if a not in (along, *r.rows, *s.reduced)])
    return ceil(s.extent(along), step) * others


def _same_thread(r: Rows, s: Stage, along: str) -> bool:
    """Whether every reader reads an element in the thread that made it."""
    return all(s.name not in t.apart and along in t.axes for t in r.chain if s.name in t.reads)
