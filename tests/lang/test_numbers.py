"""Numbers as columns."""

from __future__ import annotations

import numpy as np
import pytest

from tlm.lang import numbers
from tlm.lang.vocabulary import NUMBER


def test_neighbours_are_near_and_sizes_are_told_apart():
    x = numbers.columns([1000, 1001, 4000])[:, :11]
    assert np.abs(x[0] - x[1]).max() < 0.01
    assert np.abs(x[0] - x[2]).max() > 0.5


def test_hats_sum_to_one():
    x = numbers.columns([0, 1, 3, 100, 2**18, 2**30])
    assert x.shape == (6, NUMBER)
    np.testing.assert_allclose(x[:, 1:11].sum(1), 1.0, atol=1e-6)


@pytest.mark.parametrize(("value", "zeros"), [(1, 0), (6, 1), (8, 3), (64, 6), (4096, 6), (96, 5)])
def test_divisors(value: int, zeros: int):
    row = numbers.columns([value])[0]
    assert row[11] == pytest.approx(zeros / 6)
    assert row[12] == pytest.approx(value % 16 / 16)
    assert row[13] == value % 2


def test_fractions_and_huge_numbers_are_finite():
    assert np.isfinite(numbers.columns([0.3, 1e18, 1e300])).all()
    assert numbers.share([0.0, 1.0, 3.0]).tolist() == [0.0, 0.5, 0.75]
