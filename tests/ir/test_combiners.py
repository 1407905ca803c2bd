"""Reductions with each combiner: ties, identities, not-a-numbers, and the digits that are kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tlm.ir.build import Builder
from tlm.ir.combiners import COMBINERS
from tlm.ir.dtypes import DTYPES, f32, f64, to_numpy
from tlm.ir.exprs import const
from tlm.ir.interpret import interpret
from tlm.ir.verify import verify

RNG = np.random.default_rng(0)


def _reduce(x, fn, combiner, dtype="f32"):
    """One reduction of each row of x (m, n) on its own."""
    b = Builder("reduce")
    X = b.input("x", x.shape, dtype)
    b.reduce("y", x.shape[:1], {"k": x.shape[1]}, lambda i, k: fn(X[i, k], k), combiner, output=True)
    program = b.build()
    verify(program)
    return interpret(program, [x])


SINGLE = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.bitwise_or.reduce,
          "all": np.bitwise_and.reduce}  # fmt: skip


COMBINED = [(c, d) for c in SINGLE for d in DTYPES if (c in ("any", "all")) == (d == "bool")]


@pytest.mark.parametrize(("combiner", "dtype"), COMBINED)
def test_combiners_against_numpy(combiner, dtype):
    kind = DTYPES[dtype]
    x = RNG.integers(0, 3, (5, 6)).astype(to_numpy(kind))
    (y,) = _reduce(x, lambda v, k: v, combiner, dtype)
    np.testing.assert_array_equal(y, SINGLE[combiner](x, axis=1).astype(y.dtype))


@pytest.mark.parametrize("combiner", COMBINERS)
def test_the_identity_is_neutral(combiner):
    dtype = "bool" if combiner in ("any", "all") else "f32"
    one = np.array([[1]], to_numpy(DTYPES[dtype]))
    values = {
        "argmax": lambda v, k: (v, k), "argmin": lambda v, k: (v, k),
        "logsumexp": lambda v, k: (v, const(1, f32)),
        "welford": lambda v, k: (const(1, f32), v, const(0, f32)),
    }.get(combiner, lambda v, k: v)  # fmt: skip
    right = {"argmax": [1, 0], "argmin": [1, 0], "logsumexp": [1, 1], "welford": [1, 1, 0]}.get(combiner, [1])
    assert [y.tolist() for y in _reduce(one, values, combiner, dtype)] == [[r] for r in right]


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i8"])
@pytest.mark.parametrize("combiner", ["argmax", "argmin"])
def test_arg_reductions_with_ties(combiner, dtype):
    x = RNG.integers(-2, 3, (20, 9)).astype(to_numpy(DTYPES[dtype]))
    value, at = _reduce(x, lambda v, k: (v, k), combiner, dtype)
    np.testing.assert_array_equal(at, getattr(np, combiner)(x, axis=1))
    np.testing.assert_array_equal(value, x.max(1) if combiner == "argmax" else x.min(1))


def test_reductions_keep_not_a_number():
    """Kind G: a NaN at any position of 33 values is the maximum, the minimum and the argmax."""
    x = np.tile(np.arange(33, dtype="f4"), (33, 1))
    np.fill_diagonal(x, math.nan)
    for combiner in ("max", "min"):
        assert np.isnan(_reduce(x, lambda v, k: v, combiner)[0]).all()
    value, at = _reduce(x, lambda v, k: (v, k), "argmax")
    assert np.isnan(value).all()
    assert at.tolist() == list(range(33))
    x[:, 20] = math.nan
    assert _reduce(x, lambda v, k: (v, k), "argmax")[1].tolist() == np.argmax(x, 1).tolist()


@pytest.mark.parametrize("n", [1, 2, 3, 17, 40])
def test_online_softmax_of_short_rows(n):
    """Kind G: the running (max, sum) of rows with -inf, only -inf, NaN, and large values, against f64."""
    x = RNG.standard_normal((5, n)).astype("f4") * 3
    x[0, 0] = -math.inf
    x[1, :] = -math.inf
    x[2, n // 2] = math.nan
    x[3, :] = 1000
    top, total = _reduce(x, lambda v, k: (v, const(1, f32)), "logsumexp")
    with np.errstate(all="ignore"):
        result = top + np.log(total)
        wide = x.astype("f8")
        peak = np.where(np.isneginf(wide.max(1)), 0, wide.max(1))
        expected = peak + np.log(np.exp(wide - peak[:, None]).sum(1))
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert result[3] == pytest.approx(1000 + math.log(n), abs=1e-3)
    assert np.isnan(result[2])


@pytest.mark.parametrize("offset", [0.0, 1449.0, 10000.0])
def test_variance_of_large_means(offset):
    """Kind K: Welford's combiner keeps the digits that E[x^2] - E[x]^2 loses."""
    x = (offset + np.array([[0, 1, 2, 3] * 4])).astype("f4")
    count, mean, m2 = _reduce(x, lambda v, k: (const(1, f32), v, const(0, f32)), "welford")
    assert count[0] == 16
    assert mean[0] == pytest.approx(offset + 1.5, abs=2e-3)
    assert m2[0] / count[0] == pytest.approx(1.25, rel=1e-3)
    same = np.full((1, 9), 100 + offset, "f4")
    assert _reduce(same, lambda v, k: (const(1, f32), v, const(0, f32)), "welford")[2][0] < 1e-3


@pytest.mark.parametrize(("value", "right", "tolerance"), [(0.1, 100000, 1), (1 / 255, 3921.57, 0.04)])
def test_a_long_sum_in_two_levels(value, right, tolerance):
    """Kind K: partial sums of 1000 keep what one running f32 total of 10^6 loses."""
    b = Builder("sum")
    x = b.input("x", (1,), "f32")
    part = b.reduce("part", (1000,), {"k": 1000}, lambda i, k: x[k * 0])
    b.reduce("y", (), {"k": 1000}, lambda k: part[k], output=True)
    assert abs(float(interpret(b.build(), [np.array([value], "f4")])[0]) - right) < tolerance


def test_f64_is_not_narrowed():
    x = RNG.standard_normal((3, 50))
    (y,) = _reduce(x, lambda v, k: v, "sum", "f64")
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-14)
    assert y.dtype == to_numpy(f64)
