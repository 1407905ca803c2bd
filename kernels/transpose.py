"""The transpose of a matrix, scheduled by hand: square tiles that are turned in registers.

    python kernels/transpose.py [M N]

Prints the loop nest after each step, checks every one of them in the interpreter on a small matrix, then
compiles the last one and checks it against numpy. Either the reads or the writes of a plain transpose touch
one element of a cache line at a time. A tile of as many rows as a vector has lanes is read in whole vectors
along one axis and written in whole vectors along the other; between the two it is turned by shuffles.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlm
from tlm.cli.examples import main

BLOCK = 8
"""Tiles of columns that are walked together, so that the rows in use stay few."""

Step = tuple[str, tlm.Schedule]


def schedule(m: int, n: int, target: tlm.Target) -> Iterator[Step]:
    """The schedule, after each step: (what the step is for, the schedule so far)."""
    lanes = target.lanes(4)
    s = tlm.Schedule(tlm.ops.transpose.program(np.empty((m, n), np.float32)), target)
    yield "the result row by row, the matrix column by column", s
    s.split("i", lanes).split("j", lanes).split("j.0", BLOCK)
    yield "both axes in tiles of a vector's lanes", s
    s.reorder("j.0.0", "i.0", "j.0.1", "i.1", "j.1")
    yield "tile by tile", s
    s.cache_read("X", at="j.0.1", memory="register", layout=("j.1", "i.1"), name="tile")
    yield "a copy of the tile in registers", s
    s.vectorize("i.1@tile")
    s.unroll("j.1@tile")
    yield "the tile is read in vectors along the rows of the matrix", s
    s.vectorize("j.1")
    s.unroll("i.1")
    yield "and written in vectors along the rows of the result: columns of the tile", s
    s.parallel("j.0.0")
    yield "blocks in parallel", s


def check(m: int, n: int) -> None:
    """Print every step of the schedule for m x n; check each on a small matrix with awkward extents."""
    target = tlm.host()
    x = operands(37, 21)
    for (why, full), (_, small) in zip(schedule(m, n, target), schedule(37, 21, target), strict=True):
        print(f"\n-- {why}\n{full}")
        if not np.array_equal(small.run(x)[0], x.T):
            raise SystemExit(f"wrong after: {why}")
    x = operands(m, n)
    if not np.array_equal(tlm.ops.transpose(x, schedule=full), x.T):
        raise SystemExit("the compiled transpose is wrong")
    print(f"\nevery step is right, and so is the kernel of the last ({m} x {n})")


def operands(m: int, n: int) -> np.ndarray:
    """A number for each element."""
    return np.arange(m * n, dtype=np.float32).reshape(m, n)


if __name__ == "__main__":
    main(check, M=2048, N=2048)
