"""Programs, schedules and data for the tests of the backend."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tlm.backend import Kernel, compile
from tlm.ir.build import Builder
from tlm.ir.dtypes import DType, f32, to_numpy
from tlm.ir.exprs import Expr, Load, Var, const, op
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Alloc, Buffer, For, If, Program, Store, Update, block
from tlm.target import Target

Array = np.ndarray[Any, Any]
ISAS = ("avx512", "avx2", "sse")


@functools.cache
def target(isa: str) -> Target:
    """The target of a level; skips the test where this CPU lacks it."""
    made = Target(isa)
    if not made.runs_here():
        pytest.skip(f"this CPU has no {isa}")
    return made


def elementwise(
    name: str, dtypes: Sequence[DType], out: DType, n: int, value: Expr | None = None, kind: str = "vectorize"
) -> Program:
    """y[i] = OPS[name](x0[i], x1[i], ..), or `value` of such loads, for i in n."""
    inputs = tuple([Buffer(f"x{k}", (n,), d) for k, d in enumerate(dtypes)])
    loads = [Load(b.name, (Var("i"),), b.dtype) for b in inputs]
    body = Store("y", (Var("i"),), op(name, *loads) if value is None else value)
    return Program(name, inputs, (Buffer("y", (n,), out),), For("i", n, body, kind))  # type: ignore[arg-type]


def tiled_matmul(
    m: int, n: int, k: int, rows: int, columns: int, lanes: int, unroll: int = 1, threads: bool = False
) -> Program:
    """A register tile of rows x columns, B packed in panels, tails guarded, as a schedule makes it."""
    tiles_m, tiles_n, vectors = -(-m // rows), -(-n // columns), columns // lanes
    a, b, c = Buffer("A", (m, k), f32), Buffer("B", (k, n), f32), Buffer("C", (m, n), f32)
    panel = Buffer("P", (tiles_n, k, vectors, lanes), f32, "heap")
    acc = Buffer("acc", (rows, vectors, lanes), f32, "register")

    def row(suffix: str = "") -> Expr:
        return Var("i.0") * rows + Var(f"i.1{suffix}")

    def column(suffix: str, block_suffix: str = "") -> Expr:
        return Var(f"j.0{block_suffix}") * columns + Var(f"j.1.0{suffix}") * lanes + Var(f"j.1.1{suffix}")

    def columns_nest(suffix: str, body: Any) -> For:
        return For(f"j.1.0{suffix}", vectors, For(f"j.1.1{suffix}", lanes, body, "vectorize"), "unroll")

    at = column("@P", "@P")
    read = Load("B", (Var("k@P"), at), f32)
    copy = Store(
        "P",
        (Var("j.0@P"), Var("k@P"), Var("j.1.0@P"), Var("j.1.1@P")),
        op("where", at < n, read, const(0.0, f32)),
    )
    pack = For("j.0@P", tiles_n, For("k@P", k, columns_nest("@P", copy)))
    tile = (Var("i.1"), Var("j.1.0"), Var("j.1.1"))
    product = Load("A", (row(), Var("k")), f32) * Load("P", (Var("j.0"), Var("k"), *tile[1:]), f32)
    update = If(row() < m, Update(("acc",), tile, (product,), "sum", ("k",)))
    sums = For("k", k, For("i.1", rows, columns_nest("", update), "unroll"), unroll=unroll)
    written = Load("acc", (Var("i.1@acc"), Var("j.1.0@acc"), Var("j.1.1@acc")), f32)
    inside = op("and", row("@acc") < m, column("@acc") < n)
    back = For(
        "i.1@acc",
        rows,
        columns_nest("@acc", If(inside, Store("C", (row("@acc"), column("@acc")), written))),
        "unroll",
    )
    tiles = For("j.0", tiles_n, Alloc(acc, block(sums, back)))
    whole = For("i.0", tiles_m, tiles, "parallel" if threads else "serial")
    return Program("matmul", (a, b), (c,), Alloc(panel, block(pack, whole)))


def plain_matmul(m: int, n: int, k: int, dtype: str = "f32") -> Program:
    b = Builder("matmul")
    x, y = b.input("A", (m, k), dtype), b.input("B", (k, n), dtype)
    b.reduce("C", (m, n), over={"k": k}, fn=lambda i, j, k: x[i, k] * y[k, j], axes=("i", "j"), output=True)
    return b.build()


def whole_numbers(program: Program, seed: int = 0) -> list[Array]:
    """Inputs of small integers, whose sums and products are exact in every dtype used with them."""
    rng = np.random.default_rng(seed)
    out = []
    for b in program.inputs:
        low = 0 if b.dtype.kind in ("uint", "bool") else -3
        values = rng.integers(low, 2 if b.dtype.kind == "bool" else 4, b.shape).astype(to_numpy(b.dtype))
        out.append(strided(b, values))
    return out


def strided(buffer: Buffer, values: Array) -> Array:
    """`values` in memory with the strides of `buffer`."""
    if buffer.strides is None:
        return values
    reach = 1 + sum(abs(s) * (n - 1) for s, n in zip(buffer.strides, buffer.shape, strict=True))
    memory = np.zeros(reach, values.dtype)
    start = sum(-s * (n - 1) for s, n in zip(buffer.strides, buffer.shape, strict=True) if s < 0)
    steps = [s * values.itemsize for s in buffer.strides]
    view = np.lib.stride_tricks.as_strided(memory[start:], buffer.shape, steps)
    view[...] = values
    return view


def outputs(program: Program) -> list[Array]:
    """Output arrays full of a value that no test expects."""
    return [strided(b, np.full(b.shape, 77, to_numpy(b.dtype))) for b in program.outputs]


def run(kernel: Kernel, arrays: list[Array], threads: int = 1) -> list[Array]:
    out = outputs(kernel.program)
    kernel(*arrays, *out, threads=threads)
    return out


def check(program: Program, isa: str, arrays: list[Array] | None = None, threads: int = 1) -> Kernel:
    """The kernel of `program`, which must give exactly what the interpreter gives."""
    arrays = whole_numbers(program) if arrays is None else arrays
    kernel = compile(program, target(isa), cache=False)
    for got, want in zip(run(kernel, arrays, threads), interpret(program, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    return kernel
