"""Steps that every GPU schedule needs: loops of blocks, and nests that all threads of a block share.

A block has threads (y, x): warps or rows along y, lanes along x. Every nest inside of a block binds both, so
that no statement is left to guess which thread runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ...schedule.steps import Bind, Fuse, Reorder, Split, Step, Unroll, Vectorize
from ..contraction_choices import ceil
from .limits import GRID_X, GRID_YZ

Loop = tuple[str, int]
"""Name and iterations."""

MOST_ROUNDS = 16
"""Rounds of a cooperative nest that are written out."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of a block along y and x."""

    y: int
    x: int

    @property
    def count(self) -> int:
        return self.y * self.x


@dataclass(frozen=True, slots=True)
class Grid:
    """The loops over blocks once they are fused, with their GPU axes; `inner` is the loop inside of which a
    block runs."""

    bound: tuple[tuple[str, str], ...]
    inner: str

    def binds(self) -> list[Step]:
        return [Bind(loop, axis) for loop, axis in reversed(self.bound)]


def fuse(out: list[Step], loops: Sequence[Loop]) -> Loop:
    """Neighbouring loops, from the outside in, as one."""
    name, extent = loops[0]
    for loop, n in loops[1:]:
        out.append(Fuse(name, loop))
        name, extent = f"{name}*{loop}", extent * n
    return name, extent


def grid(out: list[Step], loops: Sequence[Loop]) -> Grid:
    """Loops over blocks, from the outside in, on x, y and z of the grid.

    The innermost is x, the one around it y, all others together z; all of them are on x where an axis would
    be too long. Beyond the longest grid each block runs several of them in turn.
    """
    groups = [list(loops)] if len(loops) == 1 else [list(loops[-1:]), list(loops[-2:-1])]
    if len(loops) > 2:
        groups.append(list(loops[:-2]))
    if any(prod([n for _, n in g]) > GRID_YZ for g in groups[1:]) or loops[-1][1] > GRID_X:
        groups = [list(loops)]
    made = [fuse(out, g) for g in groups]
    inner, extent = made[0]
    first = inner
    if extent > GRID_X:
        out.append(Split(inner, ceil(extent, GRID_X)))
        first, inner = f"{inner}.0", f"{inner}.1"
    axes = zip((first, *[name for name, _ in made[1:]]), "xyz", strict=False)
    return Grid(tuple([(name, f"blockIdx.{axis}") for name, axis in axes]), inner)


def spread(
    out: list[Step], loops: Sequence[Loop], threads: Threads, vector: int = 1, lanes: bool = True
) -> None:
    """A perfect nest of independent iterations dealt to all threads of a block.

    `loops` take the given order, the last one is the contiguous one: `vector` of its iterations are one
    vector where `lanes`, else copies. Neighbouring threads take neighbouring vectors.
    """
    names = [name for name, _ in loops]
    if len(names) > 1:
        out.append(Reorder(tuple(names)))
    (whole, extent), inner = _in_vectors(out, loops, vector)
    count = min(threads.count, extent)
    out.append(Split(whole, count))
    turns, one = f"{whole}.0", f"{whole}.1"
    out += deal(one, count, threads)
    y, x = f"{one}.0", f"{one}.1"
    if ceil(extent, count) > 1 or inner:
        out.append(Reorder((y, x, turns, *inner)))
    out += [Bind(y, "threadIdx.y"), Bind(x, "threadIdx.x")]
    if 1 < ceil(extent, count) <= MOST_ROUNDS:
        out.append(Unroll(turns))
    if inner:
        out.append(Vectorize(inner[0]) if lanes else Unroll(inner[0]))


def _in_vectors(out: list[Step], loops: Sequence[Loop], vector: int) -> tuple[Loop, tuple[str, ...]]:
    """All loops as one, but for `vector` iterations of the last one, and the loop of these, if any."""
    last, n = loops[-1]
    if vector == 1:
        return fuse(out, loops), ()
    out.append(Split(last, vector))
    return fuse(out, [*loops[:-1], (f"{last}.0", ceil(n, vector))]), (f"{last}.1",)


def deal(loop: str, extent: int, threads: Threads) -> list[Step]:
    """Cut a loop over threads into those along y and along x."""
    return [Split(loop, min(threads.x, extent))]


def spread_grid(
    out: list[Step], loops: Sequence[Loop], threads: int, items: int = 1, vector: int = 1
) -> None:
    """A perfect nest of independent iterations as a kernel of its own: blocks of `threads` threads, of which
    each runs `items` vectors of `vector`."""
    (whole, extent), inner = _in_vectors(out, loops, vector)
    count = min(threads, extent)
    items = min(items, ceil(extent, count))
    out += [Split(whole, count * items), Split(f"{whole}.1", count)]
    block, turn, thread = f"{whole}.0", f"{whole}.1.0", f"{whole}.1.1"
    out.append(Reorder((block, thread, turn, *inner)))
    bound = grid(out, [(block, ceil(extent, count * items))])
    out += [*bound.binds(), Bind(thread, "threadIdx.x")]
    if items > 1:
        out.append(Unroll(turn))
    if inner:
        out.append(Vectorize(inner[0]))
