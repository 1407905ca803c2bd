"""Programs scheduled for a GPU by hand: what the tests of the CUDA backend emit, compile and run."""

from __future__ import annotations

import numpy as np

import tlm
from tlm.ir.build import Builder
from tlm.ir.nodes import Program, op
from tlm.schedule import Schedule


def tiled_product(
    m: int = 128,
    n: int = 128,
    k: int = 32,
    tile: tuple[int, int] = (8, 8),
    block: tuple[int, int] = (16, 16),
    depth: int = 8,
) -> Schedule:
    """C = A @ B: blocks of threads, register tiles, both operands staged in shared memory k.0 by k.0."""
    a, b = np.zeros((m, k), np.float32), np.zeros((k, n), np.float32)
    s = Schedule(tlm.ops.matmul.program(a, b))
    s.split("i", tile[0] * block[0]).split("i.1", tile[0])
    s.split("j", tile[1] * block[1]).split("j.1", tile[1]).split("k", depth)
    s.reorder("i.0", "j.0", "k.0", "i.1.0", "j.1.0", "k.1", "i.1.1", "j.1.1")
    s.cache_write("C", at="j.0", memory="register", layout=("i.1.0", "j.1.0", "i.1.1", "j.1.1"), name="acc")
    s.cache_read("A", at="k.0", memory="shared", layout=("k.1", "i.1.0", "i.1.1"), name="A_s", pad=True)
    s.cache_read("B", at="k.0", memory="shared", layout=("k.1", "j.1.0", "j.1.1"), name="B_s", pad=True)
    s.decompose_reduction("acc", at="k.0")
    return s


def bind_product(
    s: Schedule, tile: tuple[int, int] = (8, 8), block: tuple[int, int] = (16, 16), vector: int = 4
) -> Schedule:
    """Bind `tiled_product` to blocks and threads; vectors for what is contiguous."""
    s.bind("i.0", "blockIdx.y").bind("j.0", "blockIdx.x")
    for suffix in ("", "@init", "@acc"):
        s.bind(f"i.1.0{suffix}", "threadIdx.y").bind(f"j.1.0{suffix}", "threadIdx.x")
        s.unroll(f"i.1.1{suffix}")
        if suffix == "@acc" and vector > 1:
            s.split("j.1.1@acc", vector).vectorize("j.1.1@acc.1").unroll("j.1.1@acc.0")
        else:
            s.unroll(f"j.1.1{suffix}")
    # A comes column by column; B row by row, in vectors.
    s.reorder("i.1.0@A_s", "i.1.1@A_s", "k.1@A_s")
    s.fuse("i.1.0@A_s", "i.1.1@A_s").fuse("i.1.0@A_s*i.1.1@A_s", "k.1@A_s")
    flat = "i.1.0@A_s*i.1.1@A_s*k.1@A_s"
    _share(s, flat, block, 1)
    s.fuse("k.1@B_s", "j.1.0@B_s").fuse("k.1@B_s*j.1.0@B_s", "j.1.1@B_s")
    _share(s, "k.1@B_s*j.1.0@B_s*j.1.1@B_s", block, vector)
    return s


def _share(s: Schedule, flat: str, block: tuple[int, int], vector: int) -> None:
    """Share the loop `flat` out among the threads of a block, `vector` neighbours for each."""
    if vector > 1:
        s.split(flat, vector).vectorize(f"{flat}.1")
        flat = f"{flat}.0"
    s.split(flat, block[0] * block[1]).unroll(f"{flat}.0")
    s.split(f"{flat}.1", block[1])
    s.bind(f"{flat}.1.0", "threadIdx.y").bind(f"{flat}.1.1", "threadIdx.x")


def row_softmax(rows: int = 5, columns: int = 100, threads: int = 64) -> Program:
    """softmax by rows, unscheduled."""
    b = Builder("softmax")
    x = b.input("x", (rows, columns), tlm.ir.dtypes.f32)
    top = b.reduce("top", (rows,), {"c": columns}, lambda i, c: x[i, c], combiner="max", axes=("i",))
    total = b.reduce("total", (rows,), {"c": columns}, lambda i, c: op("exp", x[i, c] - top[i]), axes=("i",))
    b.compute(
        "y",
        (rows, columns),
        lambda i, c: op("exp", x[i, c] - top[i]) / total[i],
        axes=("i", "c"),
        output=True,
    )
    return b.build()
