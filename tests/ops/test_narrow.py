"""Products of narrow integers write their result and nothing beside it, under every schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tlm import ops
from tlm.ops.settings import Random

_GUARD = 0x5A


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2"])
@pytest.mark.parametrize("schedule", ["default", "heuristic", "generate", Random(1), Random(2)], ids=str)
def test_bytes_around_the_result_stay(dtype: str, schedule: Any):
    rng = np.random.default_rng(0)
    for m, k, n in ((2, 1, 33), (1, 7, 1), (5, 3, 17), (3, 64, 9), (2, 5, 65)):
        a, b = rng.integers(0, 9, (m, k)).astype(dtype), rng.integers(0, 9, (k, n)).astype(dtype)
        want = a.astype("i8") @ b.astype("i8")
        kind = ops.matmul(a, b, schedule=schedule).dtype
        raw = np.full(128 + m * n * kind.itemsize, _GUARD, np.uint8)
        out = raw[64:-64].view(kind).reshape(m, n)
        ops.matmul(a, b, schedule=schedule, out=out)
        np.testing.assert_array_equal(out, want.astype(kind))
        assert (raw[:64] == _GUARD).all()
        assert (raw[-64:] == _GUARD).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("schedule", ["heuristic", "generate", *map(Random, (3, 87))], ids=str)
def test_positions_where_only_the_position_is_asked_for(schedule: Any, threads: int):
    how = {"schedule": schedule, "threads": threads}
    assert ops.argmax(np.array([1.0, 5, 2]), **how) == 1
    assert ops.argmin(np.array([3, 1, 2, 0, 5], "i4"), **how) == 3
    assert ops.argmax(np.arange(100.0), **how) == 99
    x = np.random.default_rng(1).random((3, 7, 24), dtype=np.float32)
    np.testing.assert_array_equal(ops.argmax(x, -1, **how), x.argmax(-1))
