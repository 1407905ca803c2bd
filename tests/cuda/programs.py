"""Programs scheduled for a GPU by hand: what the tests of the CUDA backend emit, compile and run."""

from __future__ import annotations

import numpy as np

import tlm
from tlm.ir.build import Builder
from tlm.ir.dtypes import DTYPES, f32, to_numpy
from tlm.ir.exprs import converted, op
from tlm.ir.nodes import Program
from tlm.schedule import Schedule, apply
from tlm.space.gpu.product import product
from tlm.space.gpu.product_steps import Cut, Plan, steps
from tlm.space.gpu.warpgroup import multiply


def tiled_product(m=128, n=128, k=32, tile=(8, 8), block=(16, 16), depth=8, dtype="f4") -> Schedule:
    """C = A @ B: register tiles, both operands staged in shared memory k.0 by k.0; nothing bound."""
    a, b = np.zeros((m, k), dtype), np.zeros((k, n), dtype)
    s = Schedule(tlm.ops.matmul.program(a, b))
    s.split("i", tile[0] * block[0]).split("i.1", tile[0])
    s.split("j", tile[1] * block[1]).split("j.1", tile[1]).split("k", depth)
    s.reorder("i.0", "j.0", "k.0", "i.1.0", "j.1.0", "k.1", "i.1.1", "j.1.1")
    s.cache_write("C", "j.0", "register", ("i.1.0", "j.1.0", "i.1.1", "j.1.1"), "acc")
    s.cache_read("A", "k.0", "shared", ("k.1", "i.1.0", "i.1.1"), "A_s", pad=True)
    s.cache_read("B", "k.0", "shared", ("k.1", "j.1.0", "j.1.1"), "B_s", pad=True)
    return s.decompose_reduction("acc", at="k.0")


def bound_product(tile=(8, 8), block=(16, 16), vector=4, stages=1, columns=1, **sizes) -> Schedule:
    """`tiled_product` on blocks and threads, in vectors, with `stages` copies of the staged operands.

    A thread reads `columns` neighbours of A at once.
    """
    s = tiled_product(tile=tile, block=block, **sizes)
    s.bind("i.0", "blockIdx.y").bind("j.0", "blockIdx.x")
    for suffix in ("", "@init", "@acc"):
        s.bind(f"i.1.0{suffix}", "threadIdx.y").bind(f"j.1.0{suffix}", "threadIdx.x")
        s.unroll(f"i.1.1{suffix}")
    if vector > 1:
        s.split("j.1.1@acc", vector).vectorize("j.1.1@acc.1").unroll("j.1.1@acc.0")
    s.unroll("j.1.1").unroll("j.1.1@init")
    # A comes column by column; B row by row, in vectors.
    s.reorder("i.1.0@A_s", "i.1.1@A_s", "k.1@A_s")
    s.fuse("i.1.0@A_s", "i.1.1@A_s").fuse("i.1.0@A_s*i.1.1@A_s", "k.1@A_s")
    share(s, "i.1.0@A_s*i.1.1@A_s*k.1@A_s", block, columns)
    s.fuse("k.1@B_s", "j.1.0@B_s").fuse("k.1@B_s*j.1.0@B_s", "j.1.1@B_s")
    share(s, "k.1@B_s*j.1.0@B_s*j.1.1@B_s", block, vector)
    if stages > 1:
        s.double_buffer("A_s", stages).double_buffer("B_s", stages)
    return s


def share(s: Schedule, flat: str, block: tuple[int, int], vector: int) -> None:
    """Share the loop `flat` out among the threads of a block, `vector` neighbours for each."""
    if vector > 1:
        s.split(flat, vector).vectorize(f"{flat}.1")
        flat = f"{flat}.0"
    s.split(flat, block[0] * block[1]).unroll(f"{flat}.0")
    s.split(f"{flat}.1", block[1])
    s.bind(f"{flat}.1.0", "threadIdx.y").bind(f"{flat}.1.1", "threadIdx.x")


def reduced_rows(rows=6, columns=100, threads=(4, 8), combiner="sum", dtype="f32") -> Schedule:
    """Rows reduced by threads (y: rows of a block, x: columns), with the values that `combiner` takes."""
    b = Builder("rows")
    x = b.input("x", (rows, columns), dtype)
    forms = {
        "argmax": (("v", "at"), lambda i, c: (x[i, c], c)),
        "welford": (("n", "mean", "m2"), lambda i, c: (op("exp", x[i, c] * 0.0), x[i, c], x[i, c] * 0.0)),
        "logsumexp": (("top", "total"), lambda i, c: (x[i, c], op("exp", x[i, c] * 0.0))),
    }
    names, fn = forms.get(combiner, ("s", lambda i, c: x[i, c]))
    b.reduce(names, (rows,), {"c": columns}, fn, combiner, axes=("i",), output=True)
    s = Schedule(b.build())
    s.split("i", threads[0]).split("c", threads[1]).reorder("i.0", "i.1", "c.1", "c.0")
    return s.bind("i.0", "blockIdx.x").bind("i.1", "threadIdx.y").bind("c.1", "threadIdx.x")


def tensor_product(
    m=64, n=32, k=48, warps=(2, 2), tiles=(2, 2), depth=16, dtype="bf16", turned=False, bound=True
):
    """C = A @ B by matrix instructions: warps along threadIdx.y, each with `tiles` of 16 x 8 results.

    A block sums 32 products at a time. With `turned`, B is stored by columns.
    """
    b = Builder("product")
    x = b.input("A", (m, k), dtype)
    y = b.input("B", (k, n), dtype, strides=(1, k) if turned else None)
    b.reduce(
        "C", (m, n), {"k": k}, lambda i, j, k: converted(x[i, k], f32) * converted(y[k, j], f32), output=True
    )
    s = Schedule(b.build())
    # i: block, warp, tile, half and row of a tile; j alike; k: block, products of an instruction.
    s.split("i", warps[0] * tiles[0] * 16).split("i.1", tiles[0] * 16).split("i.1.1", 16).split("i.1.1.1", 8)
    s.split("j", warps[1] * tiles[1] * 8).split("j.1", tiles[1] * 8).split("j.1.1", 8).split("j.1.1.1", 2)
    s.split("k", 32).split("k.1", depth)
    tile_i, row, half = "i.1.1.0", "i.1.1.1.1", "i.1.1.1.0"
    tile_j, pair, one = "j.1.1.0", "j.1.1.1.0", "j.1.1.1.1"
    s.reorder("i.0", "j.0", "k.0", "i.1.0", "j.1.0", row, pair, "k.1.0", tile_i, tile_j, "k.1.1", half, one)
    s.cache_read("A", "k.0", "shared", ("i.1.0", tile_i, half, row, "k.1.0", "k.1.1"), "A_s", pad=True)
    right = ("k.1.0", "k.1.1", "j.1.0", tile_j, pair, one)
    s.cache_read("B", "k.0", "shared", (*right[2:], *right[:2]) if turned else right, "B_s", pad=True)
    s.fuse("i.1.0", "j.1.0").fuse(row, pair)
    warp, lane = "i.1.0*j.1.0", f"{row}*{pair}"
    s.cache_write("C", "j.0", "register", (warp, lane, tile_i, tile_j, half, one), "acc")
    s.decompose_reduction("acc", at="k.0")
    s.bind("i.0", "blockIdx.y").bind("j.0", "blockIdx.x")
    for suffix in ("", "@init", "@acc"):
        s.bind(f"{warp}{suffix}", "threadIdx.y").bind(f"{lane}{suffix}", "threadIdx.x")
    for loop in (tile_i, tile_j):
        s.unroll(loop)
    s.tensorize("k.1.1")
    copies = {
        "A_s": ["i.1.0", tile_i, half, row, "k.1.0", "k.1.1"],
        "B_s": (*right[2:], *right[:2]) if turned else right,
    }
    for name, loops in copies.items() if bound else ():
        flat = f"{loops[0]}@{name}"
        for x in loops[1:]:
            s.fuse(flat, f"{x}@{name}")
            flat += f"*{x}@{name}"
        share(s, flat, (warps[0] * warps[1], 32), 16 // np.dtype("u2" if dtype != "f32" else "f4").itemsize)
    return s


def group_product(
    m=64, n=64, k=64, rows=64, columns=64, turns=1, stages=1, dtype="bf16", turned=False, swap=(1, 8, 1)
) -> Program:
    """matmul by matrix instructions of warpgroups: a block has `rows` x `columns` results, and each group of
    four warps `turns` instructions below each other. With `turned`, B is stored by columns."""
    kind = to_numpy(DTYPES[dtype])
    a, b = np.empty((m, k), kind), np.empty((n, k), kind).T if turned else np.empty((k, n), kind)
    program = tlm.ops.matmul.program(a, b)
    found = product(program)
    assert found is not None
    down = Cut(rows, 1, 2 * turns, 1, 8, True, 8, True, 0, swap)
    across = Cut(columns, 1, columns // 4, 2, 4, True, 8, turned, 0, swap, 0, 0 if turned else 64)
    plan = Plan(down, across, 64, 4, 1, 1, stages, 2, True, 16)
    return apply(program, steps(found.sides, plan, multiply))
