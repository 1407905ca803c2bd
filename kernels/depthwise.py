"""A depthwise convolution, scheduled by hand: each pixel is read once a row, the weights not at all.

    python kernels/depthwise.py [H W C]

Prints the loop nest after each step, checks every one of them in the interpreter on a small image, then
compiles the last one and checks it against numpy. Each channel has a window of its own, so there is little to
reuse: neighbouring pixels share what they read, if the window is written out over a few of them, and the nine
vectors of weights stay in registers while the image runs by. From memory each pixel comes and goes once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlm
from tlm.cli.examples import main

PIXELS = 4
"""Pixels of the register tile: with two vectors of channels, 8 sums beside 18 vectors of weights."""

Step = tuple[str, tlm.Schedule]


def schedule(h: int, w: int, c: int, target: tlm.Target) -> Iterator[Step]:
    """The schedule, after each step: (what the step is for, the schedule so far)."""
    lanes = target.lanes(4)
    vectors = 2 if target.registers > 16 else 1
    x, k = np.empty((1, h, w, c), np.float32), np.empty((3, 3, 1, c), np.float32)
    s = tlm.Schedule(tlm.ops.conv2d.program(x, k, padding="SAME", groups=c), target)
    yield "the plain sum: pixels and channels, and under them the window", s
    s.split("c", vectors * lanes)
    s.split("c.1", lanes)
    yield "channels in vectors", s
    s.split("x", PIXELS)
    yield "pixels of a row in tiles", s
    s.reorder("c.0", "y", "x.0", "r", "s", "x.1", "c.1.0", "c.1.1")
    yield "the tile innermost, under the window; all pixels for one group of channels", s
    held = ("r", "s", "c.1.0", "c.1.1")
    s.cache_read("W", at="c.0", memory="register", layout=held, name="held", pad=True)
    yield "the weights of these channels in registers", s
    s.cache_write("Y", at="x.0", layout=("x.1", "c.1.0", "c.1.1"), name="tile")
    s.decompose_reduction("tile", at="r")
    yield "sum in registers, written once", s
    for loop in ("c.1.1", "c.1.1@init", "c.1.1@tile", "c.1.1@held"):
        s.vectorize(loop)
    yield "the innermost loops as vectors", s
    for loop in (
        "x.1",
        "c.1.0",
        "x.1@init",
        "c.1.0@init",
        "x.1@tile",
        "c.1.0@tile",
        "r@held",
        "s@held",
        "c.1.0@held",
    ):
        s.unroll(loop)
    yield "all that is in registers unrolled", s
    s.unroll("s")
    s.unroll("r")
    yield "the window written out: pixels that neighbours share are read once", s
    s.parallel("y")
    yield "rows in parallel", s


def reference(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    """The same by numpy: nine shifted products of a padded image."""
    _, h, w, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return sum(padded[:, r : r + h, s : s + w] * k[r, s, 0] for r in range(3) for s in range(3))  # type: ignore[return-value]


def check(h: int, w: int, c: int) -> None:
    """Print every step of the schedule for h x w x c; check each on a small image with awkward extents."""
    target = tlm.host()
    x, k = operands(5, 11, 37)
    for (why, full), (_, small) in zip(schedule(h, w, c, target), schedule(5, 11, 37, target), strict=True):
        print(f"\n-- {why}\n{full}")
        if not np.array_equal(run(small, x, k), reference(x, k)):
            raise SystemExit(f"wrong after: {why}")
    x, k = operands(h, w, c)
    error = np.abs(tlm.ops.conv2d(x, k, padding="SAME", groups=c, schedule=full) - reference(x, k)).max()
    if error:
        raise SystemExit(f"the compiled convolution is off by {error}")
    print(f"\nevery step is right, and so is the kernel of the last ({h} x {w} x {c})")


def run(s: tlm.Schedule, *arrays: np.ndarray) -> np.ndarray:
    """The result of a schedule by the interpreter. The program of an operator has no axes of one element."""
    shaped = [a.reshape(b.shape) for a, b in zip(arrays, s.program.inputs, strict=True)]
    return s.run(*shaped)[0][np.newaxis]


def operands(h: int, w: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    """Small integers: their sums are exact in f32 in any order."""
    rng = np.random.default_rng(0)
    shapes = ((1, h, w, c), (3, 3, 1, c))
    return tuple(rng.integers(-3, 4, s).astype(np.float32) for s in shapes)  # type: ignore[return-value]


if __name__ == "__main__":
    main(check, H=112, W=112, C=32)
