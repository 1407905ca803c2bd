"""Every operation on every dtype, in vectors with a scalar tail, against the interpreter."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.backend.programs import Array, elementwise, run, target
from tlm.backend import compile
from tlm.errors import DTypeError
from tlm.ir.dtypes import DTYPES, DType, bf16, boolean, f16, f32, f64, i32, to_numpy
from tlm.ir.exprs import Cast, Load, Var, const, op
from tlm.ir.interpret import interpret
from tlm.ir.optable import OPS, result_dtype

N = 37
# Relative error: one rounding of the half types, 4 ulp of libm and libmvec for the others.
TOLERANCE = {f16: 1e-3, bf16: 8e-3, f32: 5e-7, f64: 1e-15}
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 2.5, -3.5, 1e4, -1e4]


def data(dtype: DType, rng: np.random.Generator) -> Array:
    if dtype.is_float:
        values = np.concatenate([rng.normal(size=N - len(SPECIAL)) * 3, SPECIAL])
        return rng.permutation(values).astype(to_numpy(dtype))
    if dtype == boolean:
        return rng.integers(0, 2, N).astype(bool)
    if dtype.kind == "uint":
        return rng.integers(0, 256, N).astype(to_numpy(dtype))
    values = rng.integers(-5, 6, N)
    low = -(2 ** (dtype.bits - 1))
    values[:8] = [low, -1, 0, 7, -7, -1 - low, -1, 3]
    return rng.permutation(values).astype(to_numpy(dtype))


def same(got: Array, want: Array, dtype: DType) -> Array:
    if not dtype.is_float:
        return np.asarray(got == want)
    g, w = got.astype("f8"), want.astype("f8")
    with np.errstate(invalid="ignore"):
        close = np.abs(g - w) <= TOLERANCE[dtype] * np.abs(w)
    return np.asarray((g == w) | (np.isnan(g) & np.isnan(w)) | (close & np.isfinite(w)))


def cases() -> list[tuple[str, str]]:
    out = []
    for name, info in OPS.items():
        for d in DTYPES.values():
            dtypes = (boolean, d, d) if name == "where" else (d,) * info.arity
            try:
                result_dtype(name, dtypes)
            except DTypeError:
                continue
            out.append((name, d.name))
    return out


@pytest.mark.parametrize(("name", "dtype"), cases())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operation(name: str, dtype: str) -> None:
    d, rng = DTYPES[dtype], np.random.default_rng(len(name))
    dtypes = (boolean, d, d) if name == "where" else (d,) * OPS[name].arity
    out = result_dtype(name, dtypes)
    program = elementwise(name, dtypes, out, N)
    arrays = [data(x, rng) for x in dtypes]
    if name in ("shl", "shr"):
        arrays[1] = np.abs(arrays[1] % (d.bits + 3)).astype(arrays[1].dtype)
    if name == "pow" and d.is_float:
        arrays[0] = np.abs(arrays[0])
    (want,) = interpret(program, arrays)
    levels = (
        ("avx512", "avx2", "sse") if name in ("add", "maximum", "floordiv", "round", "exp") else ("avx2",)
    )
    for level in levels:
        (got,) = run(compile(program, target(level), cache=False), arrays)
        wrong = ~same(got, want, out)
        assert not wrong.any(), (level, [a[wrong][:4] for a in arrays], want[wrong][:4], got[wrong][:4])


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_casts_to_every_dtype(source: str, isa: str) -> None:
    d, rng = DTYPES[source], np.random.default_rng(3)
    arrays = [data(d, rng)]
    for to in DTYPES.values():
        value = Cast(Load("x0", (Var("i"),), d), to)
        program = elementwise("cast", [d], to, N, value)
        (want,) = interpret(program, arrays)
        (got,) = run(compile(program, target(isa), cache=False), arrays)
        np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"), err_msg=f"{source} to {to}")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_types_round_to_nearest_even(dtype: str, isa: str) -> None:
    """All values near every half value, its neighbours and the ties between them; subnormals and overflow
    too."""
    d = DTYPES[dtype]
    halves = np.arange(0, 1 << 16, 7, dtype=np.uint16).view(to_numpy(d)).astype("f4")
    halves = halves[np.isfinite(halves)]
    with np.errstate(over="ignore"):
        x = np.concatenate([halves, halves * np.float32(1.0005), halves * np.float32(1 + 2**-9)])
    x = x[: len(x) // 16 * 16]
    n = len(x)
    program = elementwise("cast", [f32], d, n, Cast(Load("x0", (Var("i"),), f32), d))
    (got,) = run(compile(program, target(isa), cache=False), [x])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, x.astype(to_numpy(d)))
    back = elementwise("cast", [d], f32, n, Cast(Load("x0", (Var("i"),), d), f32))
    (wide,) = run(compile(back, target(isa), cache=False), [got])
    np.testing.assert_array_equal(wide, got.astype("f4"))


def test_floor_and_truncating_division(isa: str) -> None:
    a, b = np.array([-7, 7, -7, 7] * 4, "i4"), np.array([2, -2, -2, 2] * 4, "i4")
    want = {"floordiv": [-4, -4, 3, 3], "mod": [1, -1, -1, 1], "quot": [-3, -3, 3, 3], "rem": [-1, 1, -1, 1]}
    for name, values in want.items():
        kernel = compile(elementwise(name, [i32, i32], i32, 16), target(isa), cache=False)
        assert run(kernel, [a, b])[0].tolist() == values * 4


def test_integer_division_by_zero_and_overflow_do_not_trap(isa: str) -> None:
    low = -(2**31)
    a, b = np.array([5, low, low, 7] * 4, "i4"), np.array([0, -1, 0, -1] * 4, "i4")
    for name in ("floordiv", "mod", "quot", "rem"):
        kernel = compile(elementwise(name, [i32, i32], i32, 16), target(isa), cache=False)
        got = run(kernel, [a, b])[0][:4].tolist()
        assert got == ([0, low, 0, -7] if name in ("floordiv", "quot") else [0, 0, 0, 0])


def test_nan_goes_through_min_max_and_relu(isa: str) -> None:
    nan = math.nan
    a, b = np.array([nan, 1] * 10, "f4"), np.array([1, nan] * 10, "f4")
    for name in ("maximum", "minimum"):
        kernel = compile(elementwise(name, [f32, f32], f32, 20), target(isa), cache=False)
        assert np.isnan(run(kernel, [a, b])[0]).all()
    relu = op("maximum", Load("x0", (Var("i"),), f32), const(0.0, f32))
    (got,) = run(compile(elementwise("relu", [f32], f32, 20, relu), target(isa), cache=False), [a])
    np.testing.assert_array_equal(got, a)


def test_algebra_that_is_false_for_inf_and_nan_is_not_used(isa: str) -> None:
    inf, nan = math.inf, math.nan
    x = Load("x0", (Var("i"),), f32)
    for value, given, want in (
        (x * 0.0, [inf, nan, 1], [nan, nan, 0]), (x - x, [inf, 1, -inf], [nan, 0, nan]),
        (x / x, [0, 2, inf], [nan, 1, nan]),
    ):  # fmt: skip
        arrays = [np.array(given * 6, "f4")]
        kernel = compile(elementwise("a", [f32], f32, 18, value), target(isa), cache=False)
        np.testing.assert_array_equal(run(kernel, arrays)[0], np.array(want * 6, "f4"))


ELEMENTARY = {"tanh": math.tanh, "exp": math.exp, "erf": math.erf, "log": math.log}


@pytest.mark.parametrize("n", [1, 7, 8, 19])
@pytest.mark.parametrize("name", ["tanh", "exp", "erf"])
def test_elementary_functions_at_the_edges(name: str, n: int, isa: str) -> None:
    inf, nan = math.inf, math.nan
    points = [
        10,
        -10,
        50,
        -50,
        100,
        -100,
        1e4,
        -1e4,
        inf,
        -inf,
        nan,
        1e-8,
        -1e-8,
        0.0,
        0.3,
        -0.7,
        1.5,
        80,
        -80,
    ]
    for dtype in (f32, f16):
        kernel = compile(elementwise(name, [dtype], dtype, n), target(isa), cache=False)
        for shift in range(0, len(points), n):
            x = np.resize(points[shift:] + points, n).astype(to_numpy(dtype))
            (got,) = run(kernel, [x])
            with np.errstate(over="ignore"):
                want = np.array([reference(name, float(v)) for v in x]).astype(to_numpy(dtype))
            with np.errstate(invalid="ignore"):
                ulp = np.spacing(np.abs(want)).astype("f8")
                saturated = (name != "exp") & (np.abs(x) >= 10)
                close = np.abs(got.astype("f8") - want.astype("f8")) <= ulp * np.where(saturated, 1, 4)
            assert ((got == want) | (np.isnan(got) & np.isnan(want)) | close).all(), (x, got, want)


def reference(name: str, x: float) -> float:
    try:
        return ELEMENTARY[name](x)
    except OverflowError:
        return math.inf


def test_tanh_keeps_its_digits_near_zero(isa: str) -> None:
    kernel = compile(elementwise("tanh", [f32], f32, 16), target(isa), cache=False)
    (got,) = run(kernel, [np.full(16, 1e-8, "f4")])
    np.testing.assert_allclose(got, 1e-8, rtol=1e-5)


@pytest.mark.parametrize("name", ["tanh", "exp", "erf", "log"])
@pytest.mark.parametrize("level", ["avx512", "sse"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_own_polynomials_are_within_four_ulp(name: str, level: str) -> None:
    """The fallback for machines without a vector math library, with and without FMA."""
    from tests.backend.direct import build

    edge = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1e-8, 1e4, -1e4, 88.7, -87.5, 1e-45]
    x = np.concatenate([np.linspace(-20, 20, 20000), np.exp(np.linspace(-100, 88, 20004)), edge]).astype("f4")
    if name == "log":
        x = np.abs(x)
    kernel = build(elementwise(name, [f32], f32, len(x)), target(level), vector_math=False)
    (got,) = run(kernel, [x])
    exact = np.array([edge_case(name, float(v)) for v in x])
    want = exact.astype("f4")
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    ulp = np.abs(got[finite].astype("f8") - exact[finite]) / np.spacing(np.abs(want[finite])).astype("f8")
    assert ulp.max() <= 4


def edge_case(name: str, x: float) -> float:
    if name == "log" and x == 0:
        return -math.inf
    return reference(name, x)
