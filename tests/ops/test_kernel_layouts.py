"""Kernels on arrays in other layouts than those they were made for, and results in memory of odd layouts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import tlm
from tlm.errors import ArgumentError
from tlm.ops.arrays import shares_memory

HOW: dict[str, Any] = {"schedule": "heuristic", "threads": 1}
W = np.arange(35, dtype="f4").reshape(5, 7) % 4
OPS: dict[str, tuple[Any, Callable[[np.ndarray], Any]]] = {
    "sum": (lambda x, **how: tlm.ops.sum.kernel(x, 0, **how), lambda x: x.sum(0)),
    "mean": (lambda x, **how: tlm.ops.mean.kernel(x, 2, **how), lambda x: x.mean(2)),
    "negative": (tlm.ops.negative.kernel, lambda x: -x),
}


def broadcast(base: np.ndarray) -> np.ndarray:
    return np.broadcast_to(base.ravel()[:20].reshape(4, 5), (3, 4, 5))


def windows(base: np.ndarray) -> np.ndarray:
    return sliding_window_view(base.reshape(5, 8), (2, 8))[:, 0]


def base(start: int = 0, shift: int = 0) -> np.ndarray:
    made = np.ndarray((40,), "f4", bytearray(160 + shift), offset=shift)
    made[...] = np.arange(start, start + 40)
    return made


@pytest.mark.parametrize("view", [broadcast, windows])
@pytest.mark.parametrize("op", OPS)
def test_kernels_for_views_take_such_views_alone(op: str, view: Callable[[np.ndarray], np.ndarray]):
    make, want = OPS[op]
    x = view(base())
    kernel = make(x, **HOW)
    for given in (x, view(base(7)), view(base(3, shift=1))):
        np.testing.assert_array_equal(kernel(given), want(given))
        assert kernel.time(given, repeats=1, number=1) > 0
    assert kernel.time(repeats=1, number=1) > 0
    made_for = ", ".join(map(str, x.strides[:2]))
    for given in (x.copy(), np.asfortranarray(x), x.copy()[::-1], (x.copy() + 1)[:, ::-1]):
        words = rf"operand 0 has strides \({given.strides[0]}, .* a view with strides \({made_for}, "
        for call in (kernel, kernel.time):
            with pytest.raises(ArgumentError, match=words):
                call(given)


def test_the_second_operand_of_a_product_is_named():
    x = np.broadcast_to(W, (3, 5, 7))
    a = np.arange(60, dtype="f4").reshape(3, 4, 5) % 3
    kernel = tlm.ops.matmul.kernel(a, x, **HOW)
    np.testing.assert_array_equal(kernel(a, x), a @ x)
    with pytest.raises(ArgumentError, match=r"operand 1 has strides \(140, 28, 4\) .*strides \(0, 28, 4\)"):
        kernel(a, x.copy())


@pytest.mark.parametrize("make", [
    np.asfortranarray, lambda x: np.ascontiguousarray(x[::-1])[::-1], lambda x: np.repeat(x, 2, 1)[:, ::2],
    lambda x: np.pad(x, 3)[3:-3, 3:-3],
])  # fmt: skip
def test_layouts_without_shared_memory_are_copied(make: Callable[[np.ndarray], np.ndarray]):
    x = np.arange(35, dtype="f4").reshape(5, 7)
    for first, second in ((x, make(x)), (make(x), x)):
        np.testing.assert_array_equal(tlm.ops.negative.kernel(first, **HOW)(second), -x)


def test_which_layouts_share_memory():
    """Against the addresses themselves."""
    found = set()
    for shape in ((3,), (2, 3), (1, 3), (0, 3), (2, 2, 3)):
        for strides in product((-3, -1, 0, 1, 2, 3, 4, 6), repeat=len(shape)):
            places = [sum(i * s for i, s in zip(at, strides, strict=True)) for at in np.ndindex(*shape)]
            want = len(set(places)) < len(places)
            assert shares_memory(shape, strides) == want, (shape, strides)
            found.add(want)
    assert found == {False, True}
    assert not shares_memory((), ())


@pytest.mark.parametrize("again", [False, True], ids=["cold", "warm"])
def test_a_result_needs_memory_for_each_element(again: bool):
    x = np.arange(12, dtype="f4").reshape(3, 4)
    if again:
        tlm.ops.negative(x, **HOW)
    kernel = tlm.ops.negative.kernel(x, **HOW)
    for steps in ((0, 4), (16, 0), (4, 4), (0, 0)):
        out = as_strided(np.zeros(12, "f4"), (3, 4), steps)
        for call in (lambda out: tlm.ops.negative(x, out=out, **HOW), lambda out: kernel(x, out=out)):
            with pytest.raises(
                ArgumentError, match=rf"out= has elements that share .*\({steps[0]}, {steps[1]}\)"
            ):
                call(out)
        assert not out.any()
    woven = as_strided(np.zeros(16, "f4"), (3, 4), (4, 12))
    np.testing.assert_array_equal(tlm.ops.negative(x, out=woven, **HOW), -x)
