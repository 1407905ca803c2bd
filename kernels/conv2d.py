"""A convolution of an image, scheduled by hand: from seven plain loops to a register tile without a branch.

    python kernels/conv2d.py [H W C O]

Prints the loop nest after each step, checks every one of them in the interpreter on a small image, then
compiles the last one and checks it against numpy. The plan is that of direct convolutions (Georganas et al.,
SC 2018): a tile of pixels times vectors of output channels stays in registers for the whole sum. Nothing is
padded: the loop over the window's columns is written out, so that lowering can tell the tiles at the left and
right edge from those inside, and leaves out of each what lies beyond the image.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlm
from tlm.cli.examples import main

PIXELS = 14
"""Pixels of the register tile: 28 sums with two vectors of channels. Most widths are multiples of 7."""

VECTORS = 2
"""Vectors of output channels in the tile."""

Step = tuple[str, tlm.Schedule]


def schedule(h: int, w: int, c: int, o: int, target: tlm.Target) -> Iterator[Step]:
    """The schedule, after each step: (what the step is for, the schedule so far)."""
    lanes = target.lanes(4)
    pixels = PIXELS if target.registers > 16 else PIXELS // 3
    x, k = np.empty((1, h, w, c), np.float32), np.empty((3, 3, c, o), np.float32)
    s = tlm.Schedule(tlm.ops.conv2d.program(x, k, padding="SAME"), target)
    yield "the plain sum: pixels, output channels, and under them the window and the input channels", s
    s.split("o", VECTORS * lanes)
    s.split("o.1", lanes)
    yield "output channels in panels, in vectors", s
    s.split("x", pixels)
    yield "pixels of a row in tiles", s
    s.reorder("o.0", "y", "x.0", "r", "s", "c", "x.1", "o.1.0", "o.1.1")
    yield "for each panel, for each tile: the window, all input channels, and the tile innermost", s
    s.cache_read("W", at="o.0", layout=("r", "s", "c", "o.1.0", "o.1.1"), name="panel", pad=True)
    yield "pack the weights of the panel in the order in which they are read", s
    s.cache_write("Y", at="x.0", layout=("x.1", "o.1.0", "o.1.1"), name="tile")
    s.decompose_reduction("tile", at="r")
    yield "sum into a tile of registers that starts at zero, written once", s
    for loop in ("o.1.1", "o.1.1@init", "o.1.1@tile", "o.1.1@panel"):
        s.vectorize(loop)
    yield "the innermost loops as vectors", s
    for loop in ("x.1", "o.1.0", "x.1@init", "o.1.0@init", "x.1@tile", "o.1.0@tile"):
        s.unroll(loop)
    yield "the tile unrolled: its elements are now single registers", s
    s.unroll("s")
    yield "the columns of the window written out: what is beyond an edge is known when compiling", s
    s.parallel("y")
    yield "rows in parallel", s


def reference(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    """The same by numpy: nine shifted products of a padded image."""
    _, h, w, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return sum(padded[:, r : r + h, s : s + w] @ k[r, s] for r in range(3) for s in range(3))  # type: ignore[return-value]


def check(h: int, w: int, c: int, o: int) -> None:
    """Print every step of the schedule for h x w x c; check each on a small image with awkward extents."""
    target = tlm.host()
    x, k = operands(5, 17, 3, 37)
    small_steps = schedule(5, 17, 3, 37, target)
    for (why, full), (_, small) in zip(schedule(h, w, c, o, target), small_steps, strict=True):
        print(f"\n-- {why}\n{full}")
        if not np.array_equal(run(small, x, k), reference(x, k)):
            raise SystemExit(f"wrong after: {why}")
    x, k = operands(h, w, c, o)
    error = np.abs(tlm.ops.conv2d(x, k, padding="SAME", schedule=full) - reference(x, k)).max()
    if error:
        raise SystemExit(f"the compiled convolution is off by {error}")
    print(f"\nevery step is right, and so is the kernel of the last ({h} x {w} x {c} to {o})")


def run(s: tlm.Schedule, *arrays: np.ndarray) -> np.ndarray:
    """The result of a schedule by the interpreter. The program of an operator has no axes of one element."""
    shaped = [a.reshape(b.shape) for a, b in zip(arrays, s.program.inputs, strict=True)]
    return s.run(*shaped)[0][np.newaxis]


def operands(h: int, w: int, c: int, o: int) -> tuple[np.ndarray, np.ndarray]:
    """Small integers: their sums are exact in f32 in any order."""
    rng = np.random.default_rng(0)
    shapes = ((1, h, w, c), (3, 3, c, o))
    return tuple(rng.integers(-3, 4, s).astype(np.float32) for s in shapes)  # type: ignore[return-value]


if __name__ == "__main__":
    main(check, H=56, W=56, C=64, O=64)
