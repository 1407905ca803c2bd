"""Wrong calls of every kind: one clear error that names the thing and the value."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tlm
from tlm.errors import ArgumentError, DTypeError
from tlm.ops import (
    add,
    astype,
    conv2d,
    conv_transpose,
    cumsum,
    dot_product_attention,
    einsum,
    gelu,
    linear,
    matmul,
    negative,
    pad,
    sign,
    silu,
    sqrt,
    std,
    subtract,
    sum,
    var,
)  # fmt: skip

F = np.ones((2, 3), "f4")
I64 = np.ones((3, 3), "i8")
BOOL = np.array([True, False])
Q = np.ones((1, 2, 2, 4), "f4")
X, W = np.ones((1, 5, 5, 2), "f4"), np.ones((3, 3, 2, 4), "f4")
NOTHING = np.ones((1, 0, 2, 4), "f4")
HOW: dict[str, Any] = {"schedule": "heuristic"}

CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    **{
        f"dtype of {name}": (call, DTypeError, rf"{name}: dtype 'x' is not supported; supported are float16")
        for name, call in {
            "matmul": lambda: matmul(F, F.T, dtype="x", **HOW),
            "einsum": lambda: einsum("ij->i", F, dtype="x", **HOW),
            "sum": lambda: sum(F, dtype="x", **HOW),
            "var": lambda: var(F, dtype="x", **HOW),
            "cumsum": lambda: cumsum(F, 0, dtype="x", **HOW),
            "astype": lambda: astype(F, "x", **HOW),
            "conv2d": lambda: conv2d(np.ones((1, 3, 3, 1)), np.ones((2, 2, 1, 1)), dtype="x", **HOW),
        }.items()
    },
    "dtype None": (lambda: astype(F, None), DTypeError, "astype: dtype None"),
    "dtype number": (lambda: astype(F, 3), DTypeError, "astype: dtype 3"),
    "dtype record": (lambda: astype(F, "f4,f4"), DTypeError, "astype: dtype 'f4,f4'"),
    "no operand": (lambda: add(F, None), ArgumentError, "add: y is an array, got None"),
    "ragged": (lambda: sqrt([[1], [1, 2]]), ArgumentError, r"sqrt: \[\[1\], \[1, 2\]\] cannot be read"),
    "ragged product": (lambda: matmul.program([[1], [1, 2]], F), ArgumentError, "matmul: .* cannot be read"),
    "no keys": (lambda: dot_product_attention(Q, NOTHING, NOTHING), ArgumentError, "at least one key"),
    "ddof text": (lambda: var(F, ddof="a"), ArgumentError, "var: ddof is a number, got 'a'"),
    "ddof None": (lambda: std(F, ddof=None), ArgumentError, "std: ddof is a number, got None"),
    "ddof nan": (lambda: var(F, ddof=np.nan), ArgumentError, "var: ddof is a number, got nan"),
    "scale": (lambda: dot_product_attention(Q, Q, Q, scale="a"), ArgumentError, "scale is a number or None"),
    "two fills": (lambda: pad(F, 1, constant_values=(1, 2)), ArgumentError, r"a number, got \(1"),
    "gelu": (lambda: gelu(F, approximate="x"), ArgumentError, "gelu: approximate is True or False, got 'x'"),
    "keepdims": (lambda: sum(F, keepdims=2), ArgumentError, "sum: keepdims is True or False, got 2"),
    "axis": (lambda: sum(F, axis=True), ArgumentError, "sum: axis is an integer, got True"),
    "negative": (lambda: negative(BOOL), ArgumentError, "negative is not for bools"),
    "sign": (lambda: sign(BOOL), ArgumentError, "sign is not for bools"),
    "subtract": (lambda: subtract(BOOL, BOOL), ArgumentError, "subtract is not for bools"),
    "linear": (lambda: linear(I64, I64, activation="gelu"), ArgumentError, "'gelu' is for floats.*i64"),
    "cache": (lambda: tlm.cache("x"), ArgumentError, "tlm.cache takes True, False or None, got 'x'"),
    "layout number": (lambda: conv2d(X, W, layout=5), ArgumentError, "letters NCHW in any order, got 5"),
    "layout empty": (lambda: conv2d(X, W, layout=""), ArgumentError, "letters NCHW in any order, got ''"),
    "kernel layout": (
        lambda: conv2d(X, W, kernel_layout=5),
        ArgumentError,
        "letters IOHW in any order, got 5",
    ),
    "kernel empty": (lambda: conv2d(X, W, kernel_layout=""), ArgumentError, "letters IOHW .*, got ''"),
    "stride": (lambda: conv2d(X, W, stride=True), ArgumentError, "conv2d: stride is an integer .*got True"),
    "strides": (lambda: conv2d(X, W, stride=(1, True)), ArgumentError, "conv2d: stride is an integer"),
    "dilation": (lambda: conv2d(X, W, dilation=True), ArgumentError, "dilation is an integer .*got True"),
    "padding": (lambda: conv2d(X, W, padding=True), ArgumentError, "padding is .*got True"),
    "paddings": (lambda: conv2d(X, W, padding=((0, True), 1)), ArgumentError, "conv2d: padding is"),
    "groups": (lambda: conv2d(X, W, groups=True), ArgumentError, "conv2d: groups is an integer .*got True"),
    "window": (
        lambda: conv2d(X, W[:0]),
        ArgumentError,
        r"the window of w \(0, 3, 2, 4\) \(HWIO\) has no elements",
    ),
    "window of a transpose": (
        lambda: conv_transpose(X, W[:, :0]),
        ArgumentError,
        r"conv_transpose: the window of w \(3, 0, 2, 4\)",
    ),
    "operator": (lambda: tlm.operator(3), ArgumentError, "tlm.operator takes a function .*got 3"),
    "operator name": (lambda: tlm.operator(name=3), ArgumentError, "tlm.operator: name= is a string, got 3"),
    "operator check": (lambda: tlm.operator(check=3), ArgumentError, "tlm.operator: check= is a function"),
    "operator of parts": (lambda: tlm.operator()(3), ArgumentError, "tlm.operator takes a function .*got 3"),
    "no signature": (
        lambda: tlm.operator(type)(F),
        ArgumentError,
        "parameters of <class 'type'> cannot be told",
    ),
    "schedule": (lambda: tlm.Schedule(3), ArgumentError, "tlm.Schedule schedules a program.*got 3"),
    **{
        f"Random {seed!r}": (lambda s=seed: tlm.Random(s), ArgumentError, "Random.seed is an integer")
        for seed in ([1], "a", None, 1.5, True, -1)
    },
    **{
        f"Generate {words}": (lambda s=settings: tlm.Generate(**s), ArgumentError, f"Generate.{words}")
        for words, settings in (
            ("samples is an integer of at least 1, got 2.5", {"samples": 2.5}),
            ("samples is at most 1024, got 10000000", {"samples": 10**7}),
            ("temperature is a number of at least 0.001, got 1000", {"temperature": 10**400}),
            ("samples is an integer of at least 1, got nan", {"samples": float("nan")}),
            ("seed is an integer of at least 0, got -1", {"seed": -1, "samples": 2}),
            ("seed is an integer of at least 0, got 'a'", {"seed": "a"}),
            ("measure is at most samples, got measure=5 of samples=2", {"samples": 2, "measure": 5}),
            ("temperature is a number", {"temperature": float("nan")}),
        )
    },
    **{
        f"Search {settings}": (lambda s=settings: tlm.Search(**s), ArgumentError, f"Search.{words}")
        for words, settings in (
            ("trials is an integer of at least 1, got 1.5", {"trials": 1.5}),
            ("seconds is a number of at least 0, got nan", {"seconds": float("nan")}),
            ("seed is an integer", {"seed": 0.5}),
        )
    },
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_calls(case: str):
    call, kind, words = CALLS[case]
    with pytest.raises(kind, match=words):
        call()


def test_kernels_check_what_they_time_and_save(tmp_path: Any):
    kernel = matmul.kernel(F, F.T, threads=1, **HOW)
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: kernel.time(F), "takes 2 operands, got 1"),
        (lambda: kernel.time(F, F), r"operand 1 has shape \(2, 3\)"),
        (lambda: kernel.time(F.astype("f8"), F.T), "operand 0 has shape .* and dtype float64"),
        (lambda: kernel.time(repeats=0), "repeats= is an integer of at least 1, got 0"),
        (lambda: kernel.time(repeats=True), "repeats= is an integer of at least 1, got True"),
        (lambda: kernel.time(repeats=1.5), "repeats= is an integer of at least 1, got 1.5"),
        (lambda: kernel.time(number=-1), "number= is an integer of at least 0, got -1"),
        (lambda: kernel.time(threads=0), "threads= is an integer of at least 1, got 0"),
        (lambda: kernel.save(3), "saved to a directory.*got 3"),
        (lambda: kernel.save(f"{tmp_path}/a\0b"), "names no directory: a path has no zero bytes"),
        (lambda: kernel.save(f"{tmp_path}/\ud800/a"), "names no directory"),
        (lambda: kernel.save(tmp_path / "a", name=""), "names of files and of C.*got ''"),
        (lambda: kernel.save(tmp_path / "a", name=3), "names of files and of C.*got 3"),
    ]
    for call, words in wrong:
        with pytest.raises(ArgumentError, match=words):
            call()
    assert kernel.time(F, F.T) > 0
    assert kernel.time(repeats=1, number=2, threads=1) > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("dtype", "number"), [("f4", 1e300), ("f2", 1e6), ("f2", -1e6)])
def test_numbers_beyond_a_dtype_are_infinite(dtype: str, number: float):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = add(np.ones(3, dtype), number, **HOW)
    assert found.dtype == np.dtype(dtype)
    assert (found == np.copysign(np.inf, number)).all()


@pytest.mark.parametrize(
    "given", ["f4", "float32", "f32", np.float32, np.dtype("f4"), float, "bfloat16", "bf16"]
)
def test_names_of_dtypes(given: Any):
    want = {float: "float64", "bfloat16": "bfloat16", "bf16": "bfloat16"}.get(given, "float32")
    assert astype(F, given, **HOW).dtype.name == want
    assert matmul(F, F.T, dtype=given, **HOW).dtype.name == want


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("op", [silu, gelu, lambda x, **how: gelu(x, approximate=False, **how)])
def test_composed_activations_round_halves_once(dtype: Any, op: Any):
    x = np.concatenate([np.linspace(-16, 8, 3001), [-13.9]]).astype(dtype)
    want = op(x.astype("f4"), **HOW).astype(dtype)
    np.testing.assert_array_equal(op(x, **HOW), want)


def test_numbers_of_numpy_are_numbers():
    settings = tlm.Generate(samples=np.int64(2), temperature=np.float32(0.5), seed=np.int64(3))
    assert settings == tlm.Generate(samples=2, temperature=0.5, seed=3)
    a = np.ones((3, 4), np.float32)
    assert (tlm.ops.matmul(a, a.T, schedule="default", threads=np.int64(1)) == 4).all()


def test_more_axes_than_numpy_broadcasts():
    x = np.ones((1,) * 40 + (3,), np.float32)
    outcome: Any = nullcontext()
    try:
        np.broadcast_shapes(x.shape, x.shape)
    except RuntimeError:
        outcome = pytest.raises(
            ArgumentError, match="exp of arrays with 41 axes; numpy broadcasts at most 32"
        )
    with outcome:
        assert tlm.ops.exp(x, schedule="default").shape == x.shape
