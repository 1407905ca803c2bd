"""Elementary functions: 4 ulp at most on every level, in vectors and their tails, with all special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from tests.backend.programs import ISAS, elementwise, run, target
from tlm import ops
from tlm.backend import compile
from tlm.ir.dtypes import DTYPES, DType, f64, to_numpy
from tlm.ir.exprs import Load, Var, op
from tlm.ir.nodes import Buffer, For, Program, Store, block

Array = Any
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def logistic(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


EXACT: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "erf": special.erf, "erfc": special.erfc, "logistic": logistic, "cbrt": np.cbrt,
}  # fmt: skip
_LIBRARY = {"erf": np.vectorize(math.erf), "erfc": np.vectorize(math.erfc)}
PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "pow": np.power, "atan2": np.arctan2, "rem": np.fmod,
}  # fmt: skip
EDGES = [
    0.0, -0.0, 1, -1, math.inf, -math.inf, math.nan, 0.5, 1.5, -0.75, 1e-45, -1e-45, 1e-40, -1e-40, 5e-324,
    2.2e-308, 1e-310, 88.72, 88.73, -87.3, -103.9, -104.1, 709.7, 709.9, -745, -746, -708.5, 127.9, 128, -149,
    -150, 1023.9, 1024, -1074, -1075, 3.4e38, 1.7e308, 1e22, 0.49999997, 9.2, 10.05, 27.2, 26.5, -10, 50, -50,
    100, -100, 1e4, -1e4, 1e-8, -1e-8,
]  # fmt: skip


def exactly(name: str, *args: Array) -> Array:
    """The value in a wider type: f64 for f32 (and halves), long double for f64."""
    if args[0].dtype == np.float64:
        if name in _LIBRARY:
            return _LIBRARY[name](args[0]).astype(np.longdouble)
        args = tuple([a.astype(np.longdouble) for a in args])
    else:
        args = tuple([a.astype(np.float64) for a in args])
    return EXACT[name](*args) if name in EXACT else PAIRS[name](*args)


def ulps(got: Array, exact: Array) -> float:
    """The largest error in units of the last place; inf where a special value is wrong."""
    kind = got.dtype.type
    want = exact.astype(got.dtype)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    finite = np.isfinite(got) & np.isfinite(want)
    if not (same | finite).all():
        return math.inf
    g, w, x = got[finite], want[finite], exact[finite]
    step = np.maximum(np.spacing(np.abs(w)), np.spacing(kind(0))).astype(np.longdouble)
    return float((np.abs(g.astype(np.longdouble) - x.astype(np.longdouble)) / step).max(initial=0))


def samples(dtype: DType, count: int) -> Array:
    """Values of every exponent, of the ranges that matter, and the edges."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**dtype.bits, count, dtype=np.uint64)
    any_ = bits.astype(f"u{dtype.bytes}").view(to_numpy(dtype))
    near = [rng.uniform(-s, s, count // 8) for s in (1, 5, 30, 110, 800)]
    return np.concatenate([any_, *[n.astype(any_.dtype) for n in near], np.array(EDGES).astype(any_.dtype)])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", [*EXACT, *PAIRS])
def test_within_four_ulp(name: str, dtype: str, isa: str):
    d = DTYPES[dtype]
    x = samples(d, 4096)
    args = [x] if name in EXACT else [np.abs(x), np.random.default_rng(1).permutation(x)]
    kernel = compile(elementwise(name, [d] * len(args), d, len(x)), target(isa), cache=False)
    assert ulps(run(kernel, args)[0], exactly(name, *args)) <= 4


@pytest.mark.parametrize("isa", ISAS)
def test_the_tail_of_erfc_in_doubles(isa: str):
    """Where a sample of every exponent has few points: between 0.5 and the end of the range."""
    x = np.random.default_rng(3).uniform(0.5, 27.2, 40_000)
    kernel = compile(elementwise("erfc", [f64], f64, len(x)), target(isa), cache=False)
    assert ulps(run(kernel, [x])[0], exactly("erfc", x)) <= 4


def everything(dtype: DType, n: int) -> Program:
    """All functions of one argument on n elements, each as one vectorised loop."""
    outs = [Buffer(name, (n,), dtype) for name in EXACT]
    nests = []
    for name in EXACT:
        at = (Var(f"i_{name}"),)
        nests.append(For(f"i_{name}", n, Store(name, at, op(name, Load("x", at, dtype))), "vectorize"))
    return Program("everything", (Buffer("x", (n,), dtype),), tuple(outs), block(*nests))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("n", range(1, 41))
def test_every_number_of_elements(n: int, dtype: str):
    d = DTYPES[dtype]
    isa = ISAS[n % 3]
    kernel = compile(everything(d, n), target(isa), cache=False)
    x = np.resize(np.roll(np.array(EDGES), -5 * n), 3 * n).astype(to_numpy(d))
    for part in x.reshape(3, n):
        for name, got in zip(EXACT, run(kernel, [part.copy()]), strict=True):
            assert ulps(got, exactly(name, part)) <= 4, (name, part, got)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", EXACT)
def test_halves_are_rounded_once_more(name: str, dtype: str):
    """All values of the type."""
    d = DTYPES[dtype]
    x = np.arange(2**16, dtype=np.uint16).view(to_numpy(d))
    kernel = compile(elementwise(name, [d], d, len(x)), target("avx2"), cache=False)
    (got,) = run(kernel, [x])
    want = exactly(name, x)
    assert ulps(got.astype("f4"), want.astype(x.dtype).astype("f4")) <= 2 ** (
        23 - (10 if dtype == "f16" else 7)
    )


OPERATORS = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log1p": "log1p",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin",
    "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "erf": "erf",
    "erfc": "erfc", "cbrt": "cbrt", "sigmoid": "logistic",
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_say_and_keep_it(name: str):
    operator = getattr(ops, name)
    assert "4 ulp" in operator.__doc__
    for n in (1, 17, 40):
        for schedule in ("default", "random"):
            x = np.resize(EDGES, n).astype("f4")
            assert ulps(operator(x, schedule=schedule), exactly(OPERATORS[name], x)) <= 4


def test_compositions_keep_their_tails():
    """gelu and silu of large negative numbers are small, not zero."""
    x = np.linspace(-12, 12, 4001).astype("f4")
    w = x.astype("f8")
    inner = np.sqrt(2 / np.pi) * (w + 0.044715 * w**3)
    for schedule in ("default", "random"):
        got = ops.gelu(x, schedule=schedule)
        np.testing.assert_allclose(got, w * logistic(2 * inner), rtol=3e-5, atol=1e-44)
        np.testing.assert_allclose(ops.silu(x, schedule=schedule), w * logistic(w), rtol=6e-7)
        exact = w * 0.5 * special.erfc(-w * np.sqrt(0.5))
        np.testing.assert_allclose(
            ops.gelu(x, approximate=False, schedule=schedule), exact, rtol=3e-5, atol=1e-44
        )
    edges = np.array([np.nan, np.inf, 0, -0.0, 1e-40], "f4")
    np.testing.assert_array_equal(ops.gelu(edges)[:2], edges[:2])
    np.testing.assert_array_equal(ops.silu(edges)[:2], edges[:2])
