"""The sum of a long array, scheduled by hand: parts for the threads, and running totals that stay short.

    python kernels/reduction.py [N]

Prints the loop nest after each step, checks every one of them in the interpreter on a short array, then
compiles the last one and checks it against numpy. One running total of a million terms would lose three
digits, as each step rounds to the size of the total (Higham 1993), and would wait for every addition. Here
each lane of a few vectors has a total of its own, each chunk starts new ones, and each thread has a part.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlm
from tlm.cli.examples import main

PARTS = 8
"""Parts of the array that threads share."""

CHUNK = 256
"""Additions in a row to one total."""

VECTORS = 4
"""Vectors side by side: as many independent totals hide the latency of an addition."""

Step = tuple[str, tlm.Schedule]


def schedule(n: int, target: tlm.Target) -> Iterator[Step]:
    """The schedule, after each step: (what the step is for, the schedule so far)."""
    width = VECTORS * target.lanes(4)
    s = tlm.Schedule(tlm.ops.sum.program(np.empty(n, np.float32)), target)
    yield "one total", s
    s.split("i", -(-n // PARTS))
    s.rfactor("i.0", name="part")
    yield "a total for each part, and a sum over these", s
    s.split("i.1", CHUNK * width)
    s.cache_write("part", at="i.1.0", memory="register", name="chunk")
    yield "a total for each chunk of a part", s
    s.split("i.1.1", width)
    s.vectorize("i.1.1.1")
    yield "a total for each lane of a few vectors, merged at the end of the chunk", s
    s.parallel("i.0")
    yield "parts in parallel", s


def check(n: int) -> None:
    """Print every step of the schedule for n elements; check each on a few hundred."""
    target = tlm.host()
    x = operands(301)
    for (why, full), (_, small) in zip(schedule(n, target), schedule(301, target), strict=True):
        print(f"\n-- {why}\n{full}")
        if small.run(x)[0] != x.sum():
            raise SystemExit(f"wrong after: {why}")
    x = np.random.default_rng(1).uniform(0, 1, n).astype(np.float32)
    exact = x.astype("f8").sum()
    error = abs(tlm.ops.sum(x, schedule=full) / exact - 1)
    if not error < 1e-6:
        raise SystemExit(f"the compiled sum is off by {error}")
    print(f"\nevery step is right, and so is the kernel of the last ({n} elements)")


def operands(n: int) -> np.ndarray:
    """Small integers: their sums are exact in f32 in any order."""
    return np.random.default_rng(0).integers(-3, 4, n).astype(np.float32)


if __name__ == "__main__":
    main(check, N=1 << 22)
