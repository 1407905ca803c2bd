"""Affine forms, bounds and implications against brute force over every iteration."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given

from tests.ir.strategies import EXTENTS, affine_indices, conditions, guards, indices, quick, value
from tlm.ir.affine import Affine, affine, below, bound, conjunction, conjuncts, implied, interval
from tlm.ir.dtypes import boolean, f32, i32, i64
from tlm.ir.exprs import Cast, Load, Var, const, op
from tlm.ir.printer import text

POINTS = [dict(zip(EXTENTS, p, strict=True)) for p in product(*map(range, EXTENTS.values()))]
i, j = Var("i"), Var("j")


@quick
@given(affine_indices)
def test_the_affine_form_has_the_values_of_the_expression(expr):
    form = affine(expr)
    assert list(form.terms) == sorted(form.terms)
    assert all(c for _, c in form.terms)
    for point in POINTS[::7]:
        expected = value(expr, point)
        assert form.const + sum(c * point[n] for n, c in form.terms) == expected
        assert value(form.expr(), point) == expected
    assert affine(form.expr()) == form


@quick
@given(affine_indices)
def test_bounds_of_affine_expressions_are_exact(expr):
    values = [value(expr, p) for p in POINTS]
    assert interval(expr, EXTENTS) == (min(values), max(values))


@quick
@given(indices)
def test_bounds_hold_in_every_iteration(expr):
    reach = interval(expr, EXTENTS)
    values = [value(expr, p) for p in POINTS]
    assert reach is None or (reach[0] <= min(values) and max(values) <= reach[1])


@quick
@given(conditions)
def test_what_is_decided_is_so(cond):
    known = implied(cond, EXTENTS)
    assert known is None or all(bool(value(cond, p)) == known for p in POINTS)


@quick
@given(guards, guards, guards)
def test_what_guards_imply_holds_under_them(first, second, cond):
    known = implied(cond, EXTENTS, [op("and", first, second)])
    under = [p for p in POINTS if value(first, p) and value(second, p)]
    assert known is None or not under or all(bool(value(cond, p)) == known for p in under)


@quick
@given(guards)
def test_an_affine_inequality_has_one_normal_form(cond):
    form, limit = bound(cond)
    again = below(form, limit)
    assert all(bool(value(again, p)) == bool(value(cond, p)) for p in POINTS)
    assert form.const == 0


@pytest.mark.parametrize(
    ("cond", "facts", "expected"),
    [
        (i * 8 + j < 40, [], True),
        (i * 8 + j < 30, [], None),
        (i * 8 + j < 30, [i * 8 + j < 13], True),
        (i < 2, [i * 8 + j < 16], True),  # j only adds
        (i * 2 + j * 2 < 9, [i + j < 5], True),  # a multiple of the fact
        (i + j < 6, [i < 3, j < 2], True),  # two facts together
        (i + j < 3, [i < 3, j < 2], None),
        (i < 0, [], False),
        (op("eq", i - i, const(0)), [], True),
        (op("ne", i, i + 1), [], True),
        (op("or", i < 9, j < 1), [], True),
        (op("not", i < 9), [], False),
    ],
)
def test_typical_guards_are_decided(cond, facts, expected):
    assert implied(cond, EXTENTS, facts) is expected


def test_a_condition_on_data_is_implied_by_itself_only():
    positive = Load("A", (i,), f32) > 0
    assert implied(positive, EXTENTS, [positive]) is True
    assert implied(positive, EXTENTS) is None


@pytest.mark.parametrize(
    "expr", [i * j, i // 2, Load("A", (i,), i64), Cast(i, i32), const(1.0, f32), const(True, boolean)]
)
def test_what_is_not_affine_has_no_form(expr):
    assert affine(expr) is None


def test_arithmetic_of_forms():
    a, b = affine(i * 8 + j - 3), affine(i + 4)
    assert a + b == affine(i * 9 + j + 1)
    assert a - a == Affine(0)
    assert a.scale(-2).shift(1) == affine(7 - i * 16 - j * 2)
    assert a.scale(0) == Affine(0)
    assert (a.coefficient("i"), a.coefficient("k"), a.names) == (8, 0, {"i", "j"})
    assert interval(i, {}) is None


@pytest.mark.parametrize(
    ("expr", "shown"),
    [
        (j + i * 8 - 3, "i * 8 + j - 3"),
        (j - i * 8 - 3, "j - i * 8 - 3"),
        (3 - i, "3 - i"),
        (-i, "0 - i"),
        (-i - 3, "-3 - i"),
        (i - i, "0"),
        (i + 3 - i, "3"),
    ],
)
def test_canonical_text_of_forms(expr, shown):
    assert text(affine(expr).expr()) == shown


def test_conjunctions_flatten_and_join():
    conds = (i < 3, j < 2, i < 3)
    joined = conjunction(conds)
    assert conjuncts(joined) == conds[:2]
    assert conjunction([joined, joined]) == joined
    assert conjunction([]) == const(True, boolean)
    assert conjuncts(const(True, boolean)) == ()
