"""Layer normalisation, scheduled by hand: three passes over a row that never leaves the nearest cache.

    python kernels/layer_norm.py [ROWS N]

Prints the loop nest after each step, checks every one of them in the interpreter on a few rows, then compiles
the last one and checks it against numpy. The variance is that of the differences to the mean, so a row is
needed three times: for its sum, for the squares, for the result. Each pass ends in a short chain of dependent
instructions (the merge of the lanes, a root); with two rows in turns, one computes while the other waits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlm
from tlm.cli.examples import main

ROWS = 2
"""Rows whose stages take turns."""

VECTORS = 4
"""Vectors side by side: as many independent sums hide the latency of an addition."""

STAGES = ("total", "mean", "square", "root", "Y")

Step = tuple[str, tlm.Schedule]


def schedule(rows: int, n: int, target: tlm.Target) -> Iterator[Step]:
    """The schedule, after each step: (what the step is for, the schedule so far)."""
    width = VECTORS * target.lanes(4)
    x, scale = np.empty((rows, n), np.float32), np.empty(n, np.float32)
    s = tlm.Schedule(tlm.ops.layer_norm.program(x, scale, scale), target)
    yield "sum, mean, squares, root, result: each over all rows", s
    row = {"total": "i", **{stage: f"{stage}_i" for stage in STAGES[1:]}}
    column = ("j", "square_j", "Y_j")
    for loop in row.values():
        s.split(loop, ROWS)
    yield "rows in blocks", s
    for stage in STAGES[1:]:
        s.merge("i.0", f"{row[stage]}.0")
    yield "all stages of a block before the next block; sums and roots are now single numbers", s
    for loop in column:
        s.split(loop, width)
    yield "rows in a few vectors each", s
    for loop in column:
        s.vectorize(f"{loop}.1")
    yield "vectors; over a reduction they mean a sum in each lane, merged at the end of the row", s
    s.parallel("i.0")
    yield "blocks of rows in parallel", s


def reference(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The same by numpy, in f64."""
    wide = x.astype("f8")
    middle = wide - wide.mean(axis=-1, keepdims=True)
    return middle / np.sqrt((middle**2).mean(axis=-1, keepdims=True) + 1e-5) * scale + bias


def check(rows: int, n: int) -> None:
    """Print every step of the schedule for rows x n; check each on a few rows of an awkward length."""
    target = tlm.host()
    arrays = operands(5, 37)
    for (why, full), (_, small) in zip(schedule(rows, n, target), schedule(5, 37, target), strict=True):
        print(f"\n-- {why}\n{full}")
        if not np.allclose(small.run(*arrays)[0], reference(*arrays), rtol=1e-5, atol=1e-5):
            raise SystemExit(f"wrong after: {why}")
    arrays = operands(rows, n)
    error = np.abs(tlm.ops.layer_norm(*arrays, schedule=full) - reference(*arrays)).max()
    if not error < 1e-5:
        raise SystemExit(f"the compiled normalisation is off by {error}")
    print(f"\nevery step is right, and so is the kernel of the last ({rows} x {n})")


def operands(rows: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with a mean and a spread of their own, scales, biases."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, n)) * 3 + rng.standard_normal((rows, 1))
    return x.astype("f4"), rng.uniform(0.5, 2, n).astype("f4"), rng.standard_normal(n).astype("f4")


if __name__ == "__main__":
    main(check, ROWS=128, N=768)
