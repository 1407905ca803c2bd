"""Simplified expressions and programs equal the originals in every iteration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given

from tests.ir.strategies import EXTENTS, conditions, guards, indices, quick, value
from tlm.ir.affine import interval
from tlm.ir.build import Builder
from tlm.ir.dtypes import boolean, f32, i64
from tlm.ir.exprs import Const, Load, Var, const, op
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Block, For, If, Program, Store
from tlm.ir.printer import text
from tlm.ir.simplify import simplify, simplify_program
from tlm.ir.verify import verify

POINTS = [dict(zip(EXTENTS, p, strict=True)) for p in product(*map(range, EXTENTS.values()))]
i, j = Var("i"), Var("j")
SIZES = {"i": 4, "j": 8, "x": 32}
x = Var("x")


@quick
@given(indices)
def test_index_arithmetic_keeps_its_values(expr):
    simple = simplify(expr, EXTENTS)
    assert [value(simple, p) for p in POINTS] == [value(expr, p) for p in POINTS]


@quick
@given(conditions)
def test_conditions_keep_their_values(cond):
    simple = simplify(cond, EXTENTS)
    assert [bool(value(simple, p)) for p in POINTS] == [bool(value(cond, p)) for p in POINTS]


@quick
@given(indices, guards)
def test_facts_are_used_only_where_they_hold(expr, fact):
    simple = simplify(expr, EXTENTS, [fact])
    for p in POINTS:
        assert not value(fact, p) or value(simple, p) == value(expr, p)


@quick
@given(indices)
def test_simplifying_again_changes_nothing_in_value_and_bounds_stay_safe(expr):
    simple = simplify(expr, EXTENTS)
    again = simplify(simple, EXTENTS)
    values = [value(again, p) for p in POINTS]
    reach = interval(again, EXTENTS)
    assert values == [value(simple, p) for p in POINTS]
    assert reach is None or (reach[0] <= min(values) and max(values) <= reach[1])


@pytest.mark.parametrize(
    ("expr", "shown"),
    [
        ((i * 8 + j) // 8, "i"),
        ((i * 8 + j) % 8, "j"),
        ((i * 8 + j) // 4, "i * 2 + j // 4"),
        ((i * 8 + j * 2) // 16, "(i * 4 + j) // 8"),
        ((i * 8 + j * 2) % 16, "(i * 4 + j) % 8 * 2"),
        ((x * 8 + j) // 24, "x // 3"),
        ((x * 8 + j + 19) // 24, "(j + x * 8 + 19) // 24"),
        ((x * 8 + i + 18) // 24, "(x + 2) // 3"),
        ((x * 16 + i * 8 + j) // 48, "(i + x * 2) // 6"),
        (x // 4 * 4 + x % 4, "x"),
        (x // 4 // 2, "x // 8"),
        ((j - 8) // 8, "-1"),
        ((j - 8) % 8, "j"),
        (op("quot", j, const(8)), "0"),
        (op("quot", j - 4, const(8)), "quot(j - 4, 8)"),
        (op("minimum", i * 8 + j, const(31)), "i * 8 + j"),
        (op("maximum", i, const(9)), "9"),
        (op("where", i < 4, i, j), "i"),
        (i * 8 + j - i * 8, "j"),
        (i * 2 + j * 2 < 9, "i + j < 5"),
        (i >= 2, "1 < i"),
        (op("not", i < 2), "1 < i"),
        (op("and", i < 3, op("and", j < 5, i < 2)), "j < 5 & i < 2"),
        (op("and", i < 3, i < 4), "i < 3"),
        (op("eq", i * 2, const(3)), "false"),
    ],
)
def test_what_becomes_simple(expr, shown):
    assert text(simplify(expr, SIZES)) == shown


def test_floats_keep_what_is_not_a_number():
    """Kind G: x * 0, x - x and x / x are not constants."""
    A = Load("A", (i,), f32)
    for expr in (A * 0, A - A, A / A, A + 0, op("eq", A, A), op("maximum", A, A)):
        assert simplify(expr, SIZES) == expr


def test_wrapping_data_is_left_alone():
    a = Load("A", (i * 1 + 0,), i64)
    assert text(simplify(a + 1 < a, SIZES)) == "A[i] + 1 < A[i]"
    assert text(simplify((a * 8 + 8) // 8, SIZES)) == "(A[i] * 8 + 8) // 8"


def _copy(body):
    b = Builder("copy")
    A = b.input("A", (32,), "f32")
    b.compute("C", (32,), lambda i: A[i], output=True)
    p = b.build()
    return Program(p.name, p.inputs, p.outputs, body)


def _store(index):
    return Store("C", (index,), Load("A", (index,), f32))


def test_programs_lose_decided_guards_and_empty_loops():
    inner = If(
        op("and", i * 8 + j < 32, i * 8 + j < 30),
        If(i * 8 + j < 31, _store(i * 8 + j), Store("C", (i,), const(0, f32))),
    )
    nothing = For("z", 0, _store(Var("z")))
    program = _copy(
        Block((For("i", 4, For("j", 8, inner)), nothing, For("k", 3, If(Var("k") > 7, _store(Var("k"))))))
    )
    simple = simplify_program(program)
    verify(simple)
    expected = "for i in 4:\n  for j in 8:\n    if i * 8 + j < 30:\n      C[i * 8 + j] = A[i * 8 + j]"
    assert text(simple.body) == expected
    a = np.arange(32, dtype=np.float32)
    assert interpret(simple, [a])[0].tobytes() == interpret(program, [a])[0].tobytes()


def test_bounds_that_do_not_bind_are_dropped_and_others_are_facts():
    loose = For("i", 4, For("j", 8, _store(i * 8 + j), bound=16 - i))
    assert text(simplify_program(_copy(loose)).body).splitlines()[1] == "  for j in 8:"
    tight = For("i", 4, For("j", 8, If(i * 8 + j < 30, _store(i * 8 + j)), bound=30 - i * 8))
    assert text(simplify_program(_copy(tight)).body) == (
        "for i in 4:\n  for j in 8 upto 30 - i * 8:\n    C[i * 8 + j] = A[i * 8 + j]"
    )


def test_a_guard_on_data_is_not_a_fact_after_a_write():
    C0 = Load("C", (const(0),), f32) > 0
    inner = If(
        C0, Block((Store("C", (const(0),), const(-1, f32)), If(C0, Store("C", (const(1),), const(5, f32)))))
    )
    program = _copy(Block((For("i", 32, _store(i)), inner)))
    assert text(simplify_program(program)) == text(program)
    assert isinstance(simplify(op("and", C0, const(False, boolean)), {}), Const)
