"""Calls that ran before skip the checks, never what a check or a number tells apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tlm
from tlm.errors import ArgumentError

HOW: dict[str, Any] = {"schedule": "heuristic"}
X = np.arange(1, 13, dtype="f4").reshape(3, 4)


class Own(float):
    """A number of a class of its own."""


class Foreign:
    """An array of another library."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    def __dlpack__(self, **settings: Any) -> Any:
        return self.x.__dlpack__(**settings)

    def __dlpack_device__(self) -> Any:
        return self.x.__dlpack_device__()


@pytest.mark.parametrize("kind", [float, Own, np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_the_sign_of_a_zero_counts(kind: Callable[[float], Any]):
    nothing = np.zeros((3, 4), bool)
    for zero in (0.0, -0.0, 0.0, -0.0):
        negative = np.signbit(zero)
        quotient = tlm.ops.divide(X, kind(zero), **HOW)
        picked = tlm.ops.where(nothing, X, kind(zero), **HOW)
        padded = tlm.ops.pad(X, 1, constant_values=kind(zero), **HOW)
        np.testing.assert_array_equal(quotient, np.full((3, 4), -np.inf if negative else np.inf))
        assert (np.signbit(picked) == negative).all()
        assert (np.signbit(padded[0]) == negative).all()


def test_numbers_next_to_each_other_are_two():
    for kind in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16):
        one = kind(1)
        next_one = np.nextafter(one, kind(2))
        ones = np.ones(3, kind)
        assert (tlm.ops.add(ones, one, **HOW) == ones + one).all()
        assert (tlm.ops.multiply(ones, next_one, **HOW) == next_one).all()
        assert (tlm.ops.multiply(ones, one, **HOW) == one).all()


@pytest.mark.parametrize("threads", [True, 1.0, np.float64(1), np.bool_(True), "1"])
@pytest.mark.parametrize("call", [
    lambda **how: tlm.ops.matmul(X, X.T, **how),
    lambda **how: tlm.ops.linear(X, X.T, **how),
    lambda **how: tlm.ops.exp(X, **how),
    lambda **how: tlm.ops.add(X, [1, 2, 3, 4], **how),
    lambda **how: tlm.ops.exp(Foreign(X), **how),
    lambda **how: tlm.ops.matmul(Foreign(X), X.T, **how),
])  # fmt: skip
def test_threads_are_checked_before_and_after(call: Callable[..., Any], threads: Any):
    for _ in range(2):
        with pytest.raises(ArgumentError, match="threads= is an integer of at least 1, got"):
            call(threads=threads, **HOW)
        first = call(threads=1, **HOW)
        np.testing.assert_array_equal(first, call(threads=np.int64(1), **HOW))


@pytest.mark.parametrize("run", [tlm.ops.matmul, tlm.ops.matmul.kernel])
def test_a_schedule_of_another_program_is_refused_before_and_after(run: Callable[..., Any]):
    a, b = np.ones((5, 7), "f4"), np.ones((7, 12), "f4")
    right, wrong = tlm.Schedule(tlm.ops.matmul.program(a, b)), tlm.Schedule(tlm.ops.matmul.program(a, a.T))
    for s in (right, wrong):
        s.split("i", 2)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="the schedule was made for another program"):
            run(a, b, schedule=wrong)
        run(a, b, schedule=right)
    # One of the same program, made anew, is as good.
    again = tlm.Schedule(tlm.ops.matmul.program(np.zeros_like(a), np.zeros_like(b)))
    again.split("i", 2)
    np.testing.assert_array_equal(tlm.ops.matmul(a, b, schedule=again), a @ b)
