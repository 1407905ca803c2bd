"""softmax along rows, scheduled by hand: all stages of a few rows while they are in the nearest cache.

    python kernels/softmax.py [ROWS N]

Prints the loop nest after each step, checks every one of them in the interpreter on a few rows, then compiles
the last one and checks it against numpy. A row is read once from memory; its exponentials wait in cache for
their sum. Each lane of a vector has a maximum and a sum of its own, merged at the end of the row, and while
one row waits for that, the instructions of the next one run.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlm
from tlm.cli.examples import main

ROWS = 2
"""Rows whose stages take turns."""

VECTORS = 4
"""Vectors side by side: as many independent maxima and sums hide the latency of each."""

STAGES = ("top", "E", "total", "part", "Y")

Step = tuple[str, tlm.Schedule]


def schedule(rows: int, n: int, target: tlm.Target) -> Iterator[Step]:
    """The schedule, after each step: (what the step is for, the schedule so far)."""
    width = VECTORS * target.lanes(4)
    s = tlm.Schedule(tlm.ops.softmax.program(np.empty((rows, n), np.float32)), target)
    yield "maximum, exponentials, their sum, one quotient a row, products: five passes over everything", s
    row = {"top": "i", **{stage: f"{stage}_i" for stage in STAGES[1:]}}
    column = {"top": "j", **{stage: f"{stage}_j" for stage in ("E", "total", "Y")}}
    for loop in row.values():
        s.split(loop, ROWS)
    yield "rows in blocks", s
    for stage in STAGES[1:]:
        s.merge("i.0", f"{row[stage]}.0")
    yield "all stages of a block before the next block: what lies between them is now a few rows", s
    for loop in column.values():
        s.split(loop, width)
    yield "rows in a few vectors each", s
    s.merge("E_i.1", "total_i.1").merge("E_j.0", "total_j.0")
    yield "exponentials are added up where they are computed", s
    for loop in column.values():
        s.vectorize(f"{loop}.1")
    yield "vectors; over a reduction they mean a result in each lane, merged at the end of the row", s
    s.parallel("i.0")
    yield "blocks of rows in parallel", s


def reference(x: np.ndarray) -> np.ndarray:
    """The same by numpy, in f64."""
    e = np.exp(x.astype("f8") - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def check(rows: int, n: int) -> None:
    """Print every step of the schedule for rows x n; check each on a few rows of an awkward length."""
    target = tlm.host()
    x = operands(5, 37)
    for (why, full), (_, small) in zip(schedule(rows, n, target), schedule(5, 37, target), strict=True):
        print(f"\n-- {why}\n{full}")
        if not np.allclose(small.run(x)[0], reference(x), rtol=1e-6, atol=0):
            raise SystemExit(f"wrong after: {why}")
    x = operands(rows, n)
    error = np.abs(tlm.ops.softmax(x, schedule=full) / reference(x) - 1).max()
    if not error < 1e-6:
        raise SystemExit(f"the compiled softmax is off by {error}")
    print(f"\nevery step is right, and so is the kernel of the last ({rows} x {n})")


def operands(rows: int, n: int) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(0).standard_normal((rows, n)).astype(np.float32)


if __name__ == "__main__":
    main(check, ROWS=512, N=512)
