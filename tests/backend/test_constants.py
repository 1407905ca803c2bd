"""Constants keep their sign: 0.0 and -0.0 are equal as Python numbers, but not the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tlm
from tlm.backend.llvm.types import literal
from tlm.ir.dtypes import f32, f64, i32
from tlm.ir.exprs import const


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("lanes", [1, 8])
def test_literals_of_both_zeros(dtype, lanes):
    for first, second in ((0.0, -0.0), (-0.0, 0.0)):
        assert literal(first, dtype, lanes) != literal(second, dtype, lanes)


def test_equality_of_constants_is_that_of_their_bits():
    assert const(0.0, f32) != const(-0.0, f32)
    assert const(math.nan, f32) == const(math.nan, f32)
    assert hash(const(math.nan, f32)) == hash(const(float("nan"), f32))
    assert const(1.5, f32) == const(1.5, f32)
    assert const(1.5, f32) != const(1.5, f64)
    assert const(0, i32) == const(0, i32)
    assert const(0, i32) != 0


@pytest.mark.parametrize("order", [(0.0, -0.0), (-0.0, 0.0)])
def test_operators_with_both_zeros_in_one_process(order):
    x = np.ones(3, np.float32)
    for zero in order:
        assert np.signbit(tlm.ops.divide(x, zero)).all() == np.signbit(zero)
        padded = tlm.ops.pad(x, 1, constant_values=zero)
        assert np.signbit(padded).tolist() == [np.signbit(zero), False, False, False, np.signbit(zero)]
        assert np.signbit(tlm.ops.add(np.float32([-0.0]), zero)).all() == np.signbit(np.float32(-0.0) + zero)
