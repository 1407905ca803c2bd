"""The text of programs is fixed: golden texts, and the shape of every node."""

from __future__ import annotations

import math

import pytest

from tests.ir.programs import argmax_rows, linear_relu, matmul, tiled_matmul
from tlm.ir.dtypes import bf16, boolean, f32, f64, i8, i32, i64
from tlm.ir.exprs import Cast, Load, Var, const, op
from tlm.ir.nodes import Alloc, Block, Buffer, For, If, Prefetch, Store, Update
from tlm.ir.printer import text

i, j, k = Var("i"), Var("j"), Var("k")

MATMUL = """\
program matmul(A: f32[4, 6], B: f32[6, 5]) -> (C: f32[4, 5])
for i in 4:
  for j in 5:
    for k in 6:
      C[i, j] (k)+= A[i, k] * B[k, j]"""
LINEAR = """\
program linear(x: bf16[4, 6], w: bf16[6, 5] strides (1, 6), bias: f32[5]) -> (y: bf16[4, 5])
alloc acc: f32[4, 5] heap:
  for i in 4:
    for j in 5:
      for k in 6:
        acc[i, j] (k)+= f32(x[i, k]) * f32(w[k, j])
  for y_i in 4:
    for y_j in 5:
      y[y_i, y_j] = bf16(maximum(acc[y_i, y_j] + bias[y_j], 0.0))"""
ARGMAX = """\
program argmax(A: f32[3, 7]) -> (v: f32[3], at: i64[3])
for i in 3:
  for k in 7:
    (v, at)[i] (k)argmax= (A[i, k], k)"""
TILED = """\
program matmul(A: f32[4, 6], B: f32[6, 5]) -> (C: f32[4, 5])
parallel for i.0 in 2:
  for k in 6 unroll 3:
    unroll for i.1 in 2:
      vectorize for j in 5:
        C[i.0 * 2 + i.1, j] (k)+= A[i.0 * 2 + i.1, k] * B[k, j]"""


@pytest.mark.parametrize(
    ("program", "golden"),
    [(matmul(), MATMUL), (linear_relu(), LINEAR), (argmax_rows(), ARGMAX), (tiled_matmul(), TILED)],
    ids=["matmul", "linear", "argmax", "tiled"],
)
def test_golden_programs(program, golden):
    assert text(program) == golden


STORE = Store("C", (i,), const(0.5, f32))
STATEMENTS = [
    (If(op("and", i < 3, i * 2 + j < 9), STORE), "if i < 3 & i * 2 + j < 9:\n  C[i] = 0.5"),
    (If(i < 3, STORE, Block(())), "if i < 3:\n  C[i] = 0.5\nelse:\n  pass"),
    (For("k", 96, STORE, unroll=4, bound=100 - i), "for k in 96 unroll 4 upto 100 - i:\n  C[i] = 0.5"),
    (For("t", 32, STORE, "threadIdx.x"), "threadIdx.x for t in 32:\n  C[i] = 0.5"),
    (Alloc(Buffer("T", (8, 2), f32, "register"), STORE), "alloc T: f32[8, 2] register:\n  C[i] = 0.5"),
    (Prefetch("C", (i + 8,), 2), "prefetch C[i + 8] locality 2"),
    (Block((STORE, STORE)), "C[i] = 0.5\nC[i] = 0.5"),
    (Update(("C",), (i,), (j,), "prod", ("j", "k"), init=False), "C[i] (j, k; no init)*= j"),
    (Update(("C",), (), (j,), "max", ()), "C[] ()max= j"),
]


@pytest.mark.parametrize(("stmt", "shown"), STATEMENTS)
def test_statements(stmt, shown):
    assert text(stmt) == shown


@pytest.mark.parametrize(
    ("expr", "shown"),
    [
        (i + j + k, "i + j + k"),
        (i + (j + k), "i + (j + k)"),
        (i - (j - k), "i - (j - k)"),
        ((i + j) * k, "(i + j) * k"),
        (i * j + k, "i * j + k"),
        (i * (j // k), "i * (j // k)"),
        (i // 2 % 3, "i // 2 % 3"),
        (op("or", op("and", i < 1, j < 2), k < 3), "i < 1 & j < 2 | k < 3"),
        (op("and", i < 1, op("or", j < 2, k < 3)), "i < 1 & (j < 2 | k < 3)"),
        (op("eq", i < j, j < k), "(i < j) == (j < k)"),
        (-(i + j), "neg(i + j)"),
        (op("where", i < j, i, j), "where(i < j, i, j)"),
        (Cast(i + 1, f32), "f32(i + 1)"),
        (Load("A", (i, j // 2), f32), "A[i, j // 2]"),
        (const(-3), "-3"),
        (const(1.5, f32), "1.5"),
        (const(-0.0, f32), "-0.0"),
        (const(True, boolean), "true"),
        (const(3, i8), "i8(3)"),
        (const(math.inf, f64), "f64(inf)"),
        (const(math.nan, bf16), "bf16(nan)"),
        (const(7, i32), "i32(7)"),
        (const(7, i64), "7"),
    ],
)
def test_expressions_show_the_order_of_evaluation(expr, shown):
    assert text(expr) == shown


def test_a_declaration():
    assert text(Buffer("A", (4, 2), f32, "heap", (1, 4))) == "A: f32[4, 2] heap strides (1, 4)"
