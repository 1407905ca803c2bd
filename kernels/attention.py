"""Attention, scheduled by hand: two products and the softmax between, for one block of queries at a time.

    python kernels/attention.py [TIME HEADS WIDTH]

Prints the loop nest after each step, checks every one of them in the interpreter on a short sequence, then
compiles the last one and checks it against numpy. The scores of all queries with all keys would be by far the
largest array; here only those of a block of queries exist, in cache (the idea of Dao et al. 2022). Both
products sum into tiles of registers; keys are turned once a head, so that the lanes of a vector are keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlm
from tlm.cli.examples import main

ROWS, VECTORS = 6, 2
"""The register tile of both products."""

TILES = 4
"""Tiles of queries in a block."""

Step = tuple[str, tlm.Schedule]


def schedule(time: int, heads: int, width: int, target: tlm.Target) -> Iterator[Step]:
    """The schedule, after each step: (what the step is for, the schedule so far)."""
    lanes = target.lanes(4)
    x = np.empty((time, heads, width), np.float32)
    s = tlm.Schedule(tlm.ops.dot_product_attention.program(x, x, x), target)
    yield "scores, softmax, mixed values: each stage over all queries and keys", s
    between = ("top", "E", "total", "part")
    for loop in ("t", "mixed_t", *[f"{stage}_t" for stage in between]):
        s.split(loop, ROWS * TILES)
    yield "queries in blocks", s
    for loop, row in (("s", "t.1"), ("mixed_h", "mixed_t.1")):
        s.split(row, ROWS).split(loop, VECTORS * lanes).split(f"{loop}.1", lanes)
    s.reorder("n", "t.0", "s.0", "t.1.0", "h", "t.1.1", "s.1.0", "s.1.1")
    s.reorder(
        "mixed_n", "mixed_t.0", "mixed_h.0", "mixed_t.1.0", "mixed_s", "mixed_t.1.1", "mixed_h.1.0",
        "mixed_h.1.1",
    )  # fmt: skip
    yield "both products in tiles", s
    s.cache_read("key", at="n", layout=("s.0", "h", "s.1.0", "s.1.1"), name="keys", pad=True)
    s.split("h@keys", lanes)
    s.reorder("s.0@keys", "s.1.0@keys", "h@keys.0", "h@keys.1", "s.1.1@keys")
    s.cache_read("key", at="h@keys.0", memory="register", layout=("s.1.1@keys", "h@keys.1"), name="turned")
    yield "the keys of a head in the order in which tiles read them, turned in registers", s
    s.cache_write("dots", at="t.1.0", layout=("t.1.1", "s.1.0", "s.1.1"), name="tile")
    s.decompose_reduction("tile", at="h")
    s.cache_write("mixed", at="mixed_t.1.0", layout=("mixed_t.1.1", "mixed_h.1.0", "mixed_h.1.1"), name="mix")
    s.decompose_reduction("mix", at="mixed_s")
    yield "sum in registers", s
    s.reverse_inline("score").reverse_inline("Y")
    yield "scale scores and results where they are stored", s
    for stage in (*between, "mixed"):
        s.merge("n", f"{stage}_n")
    for stage in (*between, "mixed"):
        s.merge("t.0", f"{stage}_t.0")
    yield "all stages of a block before the next block: its scores are a small array", s
    for loop in ("top_s", "E_s", "total_s"):
        s.split(loop, 4 * lanes).vectorize(f"{loop}.1")
    for loop in ("s.1.1@keys", "h@keys.1@turned"):
        s.vectorize(loop)
    for loop in ("h@keys.1", "s.1.1@keys@turned"):
        s.unroll(loop)
    products = (("tile", "t.1.1", "s.1.0", "s.1.1"), ("mix", "mixed_t.1.1", "mixed_h.1.0", "mixed_h.1.1"))
    for name, row, side, lane in products:
        for copy in ("", "@init", f"@{name}"):
            s.vectorize(lane + copy).unroll(row + copy).unroll(side + copy)
    yield "vectors, and tiles unrolled", s
    s.parallel("n")
    yield "heads in parallel", s


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The same by numpy, in f64."""
    scores = np.einsum("tnh,snh->nts", q.astype("f8"), k.astype("f8")) / np.sqrt(q.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("nts,snh->tnh", e / e.sum(axis=-1, keepdims=True), v.astype("f8"))


def check(time: int, heads: int, width: int) -> None:
    """Print every step of the schedule; check each on a short sequence with awkward extents."""
    target, short = tlm.host(), (29, 2, 21)
    arrays = operands(*short)
    for (why, full), (_, small) in zip(
        schedule(time, heads, width, target), schedule(*short, target), strict=True
    ):
        print(f"\n-- {why}\n{full}")
        if not np.allclose(small.run(*arrays)[0], reference(*arrays), rtol=1e-5, atol=1e-5):
            raise SystemExit(f"wrong after: {why}")
    arrays = operands(time, heads, width)
    error = np.abs(tlm.ops.dot_product_attention(*arrays, schedule=full) - reference(*arrays)).max()
    if not error < 1e-5:
        raise SystemExit(f"the compiled attention is off by {error}")
    print(f"\nevery step is right, and so is the kernel of the last ({time} x {heads} x {width})")


def operands(time: int, heads: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normal numbers."""
    rng = np.random.default_rng(0)
    shape = (time, heads, width)
    return tuple(rng.standard_normal(shape).astype(np.float32) for _ in range(3))  # type: ignore[return-value]


if __name__ == "__main__":
    main(check, TIME=128, HEADS=12, WIDTH=64)
