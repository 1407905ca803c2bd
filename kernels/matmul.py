"""The matrix product, scheduled by hand: from three plain loops to a register tile over packed panels.

    python kernels/matmul.py [M K N]

Prints the loop nest after each step, checks every one of them in the interpreter on a small product, then
compiles the last one and checks it against numpy. The plan is that of Goto and van de Geijn (2008): the
innermost loops update a tile of C that stays in registers, from a panel of B that was packed so that it is
read in order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlm
from tlm.cli.examples import main

ROWS = 8
"""Rows of the register tile: with two vectors of columns, 16 independent sums hide the latency of an FMA."""

VECTORS = 2
"""Vectors of columns in the tile."""

Step = tuple[str, tlm.Schedule]


def schedule(m: int, k: int, n: int, target: tlm.Target) -> Iterator[Step]:
    """The schedule, after each step: (what the step is for, the schedule so far)."""
    lanes = target.lanes(4)
    a, b = np.empty((m, k), np.float32), np.empty((k, n), np.float32)
    s = tlm.Schedule(tlm.ops.matmul.program(a, b), target)
    yield "the plain product", s
    s.split("j", VECTORS * lanes)
    yield "columns in panels as wide as the register tile", s
    s.split("j.1", lanes)
    yield "a panel in vectors", s
    s.split("i", ROWS)
    yield "rows in tiles; tails are guarded, not left out", s
    s.reorder("j.0", "i.0", "k", "i.1", "j.1.0", "j.1.1")
    yield "for each panel, for each tile: all of k, and the tile innermost", s
    s.cache_read("B", at="j.0", layout=("k", "j.1.0", "j.1.1"), name="panel", pad=True)
    yield "pack the panel of B in the order in which it is read, with zeros beyond its edge", s
    s.cache_write("C", at="i.0", layout=("i.1", "j.1.0", "j.1.1"), name="tile")
    yield "sum into a tile of registers, written to C once", s
    s.decompose_reduction("tile", at="k")
    yield "set the tile to zero before the sum over k, not inside of it", s
    for loop in ("j.1.1", "j.1.1@init", "j.1.1@tile", "j.1.1@panel"):
        s.vectorize(loop)
    yield "the innermost loops as vectors", s
    for loop in ("i.1", "j.1.0", "i.1@init", "j.1.0@init", "i.1@tile", "j.1.0@tile"):
        s.unroll(loop)
    yield "the tile unrolled: its elements are now single registers", s
    s.unroll("k", 4)
    yield "four steps of k at a time", s
    s.parallel("j.0")
    yield "panels in parallel", s


def check(m: int, k: int, n: int) -> None:
    """Print every step of the schedule for m x k x n; check each on a small product with awkward extents."""
    target = tlm.host()
    a, b = operands(13, 7, 37)
    for (why, full), (_, small) in zip(schedule(m, k, n, target), schedule(13, 7, 37, target), strict=True):
        print(f"\n-- {why}\n{full}")
        if not np.array_equal(small.run(a, b)[0], a @ b):
            raise SystemExit(f"wrong after: {why}")
    a, b = operands(m, k, n)
    error = np.abs(tlm.ops.matmul(a, b, schedule=full) - a.astype("f8") @ b.astype("f8")).max()
    if error:
        raise SystemExit(f"the compiled product is off by {error}")
    print(f"\nevery step is right, and so is the kernel of the last ({m} x {k} x {n})")


def operands(m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Small integers: their sums are exact in f32 in any order."""
    rng = np.random.default_rng(0)
    return tuple(rng.integers(-3, 4, s).astype(np.float32) for s in ((m, k), (k, n)))  # type: ignore[return-value]


if __name__ == "__main__":
    main(check, M=512, K=512, N=512)
