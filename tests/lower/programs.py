"""Programs and checks for the tests of lowering."""

from __future__ import annotations

import numpy as np

from tlm.ir.build import Builder
from tlm.ir.dtypes import DType, to_numpy
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program, Stmt, Update
from tlm.ir.printer import text
from tlm.ir.walk import buffers, walk
from tlm.lower import lower
from tlm.schedule import Schedule
from tlm.target import Target

AVX2 = Target("avx2")


def matmul(m: int = 4, n: int = 5, k: int = 6) -> Program:
    b = Builder("matmul")
    x, y = b.input("A", (m, k), "f32"), b.input("B", (k, n), "f32")
    b.reduce("C", (m, n), over={"k": k}, fn=lambda i, j, k: x[i, k] * y[k, j], axes=("i", "j"), output=True)
    return b.build()


def row_sums(m: int = 3, n: int = 20, combiner: str = "sum") -> Program:
    b = Builder("rows")
    x = b.input("x", (m, n), "f32")
    b.reduce("s", (m,), over={"k": n}, fn=lambda i, k: x[i, k], axes=("i",), combiner=combiner, output=True)
    return b.build()


def double(*shape: int) -> Program:
    b = Builder("double")
    x = b.input("x", shape, "f32")
    names = ("i", "j")[: len(shape)]
    b.compute("y", shape, lambda *at: x[at] * 2.0, axes=names, output=True)
    return b.build()


def scheduled(program: Program, *steps: tuple[object, ...]) -> Program:
    """`program` after steps written as (method, arguments...)."""
    s = Schedule(program)
    for name, *arguments in steps:
        getattr(s, str(name))(*arguments)
    return s.program


def dtypes(program: Program) -> dict[str, DType]:
    return {name: b.dtype for name, b in buffers(program).items()}


def lines(stmt: Stmt) -> list[str]:
    return text(stmt).splitlines()


def same(got: Program, want: Program) -> None:
    """Both programs compute the same from small integers."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, b.shape).astype(to_numpy(b.dtype)) for b in want.inputs]
    for a, b in zip(interpret(got, arrays), interpret(want, arrays), strict=True):
        np.testing.assert_array_equal(a, b)


def lowered(program: Program, target: Target = AVX2) -> Program:
    """The lowered program, which means the same and has no implicit initialisation."""
    out = lower(program, target)
    assert not any(isinstance(n, Update) and n.init for n in walk(out.body))
    same(out, program)
    return out
