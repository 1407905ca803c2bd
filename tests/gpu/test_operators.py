"""Every operator on a GPU against numpy in float64, over shapes and dtypes."""

from __future__ import annotations

import numpy as np
import pytest

import tlm
from bench import cuda as driver
from bench.cuda_cases import Case, cases


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name.replace(" ", "-"))
def test_operators(cupy, case: Case):
    assert driver.check(case, tlm.ops, cupy, {"schedule": "heuristic"}) == ""


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sin", "erf", "sqrt", "sigmoid", "gelu"])
def test_special_values(cupy, name):
    """NaN, infinities, signed zeros and subnormal numbers, in the vector body and in the tail."""
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 88.0, -104.0, 1.0], "f4")
    for n in (1, 3, 10, 40):
        x = np.resize(special, n)
        got = cupy.asnumpy(getattr(tlm.ops, name)(cupy.asarray(x), schedule="heuristic"))
        want = getattr(tlm.ops, name)(x, schedule="default")
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        known = ~np.isnan(want)
        np.testing.assert_allclose(got[known], want[known], rtol=2e-6, atol=1e-44)


@pytest.mark.parametrize("rows", [65535, 65536, 65537, 70000])
def test_grids_above_the_limits_of_an_axis(cupy, rows):
    x = np.arange(rows * 8, dtype="f4").reshape(rows, 8)
    got = tlm.ops.add(cupy.asarray(x), 1, schedule="heuristic")
    np.testing.assert_array_equal(cupy.asnumpy(got), x + 1)


@pytest.mark.parametrize("n", [1024, 2048])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_large_products(cupy, n, dtype):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (n, n)).astype(dtype) for _ in range(2))
    got = tlm.ops.matmul(cupy.asarray(a), cupy.asarray(b), schedule="heuristic")
    np.testing.assert_array_equal(
        cupy.asnumpy(got).astype("f8"), (a.astype("f8") @ b.astype("f8")).astype(dtype)
    )
