"""Steps of a reduction that add nothing become guards."""

from __future__ import annotations

import math

import numpy as np

from tests.lower.programs import lines
from tests.space.conv_programs import Image, pool
from tlm.ir.dtypes import f32
from tlm.ir.exprs import Expr, Load, Op, Var, const, op
from tlm.ir.interpret import interpret
from tlm.ir.nodes import For, If, Stmt, Update
from tlm.lower import lower
from tlm.lower.skip import skip_identities
from tlm.target import Target

R, J = Var("r"), Var("j")
X = Load("x", (R,), f32)
TYPES = {"m": f32}


def update(value: Expr, combiner: str, *at: Expr) -> Update:
    return Update(("m",), at, (value,), combiner, ("r",), False)


def where(cond: Expr, value: Expr, other: float) -> Expr:
    return Op("where", (cond, value, const(other, f32)), f32)


def skipped(stmt: Stmt) -> list[str]:
    return lines(skip_identities(stmt, TYPES))


def test_a_value_outside_of_a_condition_is_left_out():
    assert skipped(update(where(R < 3, X, -math.inf), "max")) == ["if r < 3:", "  m[] (r; no init)max= x[r]"]
    assert skipped(update(where(R < 3, X, 0.0), "sum"))[0] == "if r < 3:"


def test_other_values_than_the_identity_stay():
    for combiner, other in (("max", 0.0), ("sum", 1.0), ("sum", -0.0), ("min", -math.inf)):
        plain = update(where(R < 3, X, other), combiner)
        assert skip_identities(plain, TYPES) == plain


def test_conditions_on_data_stay():
    plain = update(where(op("lt", X, const(1.0, f32)), X, 0.0), "sum")
    assert skip_identities(plain, TYPES) == plain


def test_conditions_on_lanes_stay_but_for_products():
    both = op("and", R < 3, R + J < 4)
    lanes = For("j", 8, update(where(both, X, 0.0), "sum", J), "vectorize")
    out = skip_identities(lanes, TYPES)
    assert isinstance(out, For)
    assert isinstance(out.body, If)
    assert "where" in "\n".join(lines(out.body.then))
    product = For("j", 8, update(where(both, X * X, 0.0), "sum", J), "vectorize")
    assert "where" not in "\n".join(skipped(product))


def test_pools_skip_what_is_beyond_the_edge():
    program = pool(Image(1, 5, 6, 3, 3, pads=((1, 1), (1, 1))), 3, "max")
    lowered = lower(program, Target("avx2"))
    assert "where" not in str(lowered)
    x = np.random.default_rng(0).standard_normal((1, 5, 6, 3)).astype(np.float32)
    x[0, 2, 2, 1] = np.nan
    np.testing.assert_array_equal(interpret(lowered, [x])[0], interpret(program, [x])[0])
