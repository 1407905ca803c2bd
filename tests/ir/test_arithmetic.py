"""Every operation and cast on every dtype, run by the interpreter, against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tlm.errors import DTypeError
from tlm.ir.build import Builder
from tlm.ir.dtypes import DTYPES, DType, bf16, boolean, f16, f32, f64, i8, i16, i32, i64, to_numpy, u8
from tlm.ir.exprs import Cast, const, op
from tlm.ir.interpret import interpret
from tlm.ir.optable import OPS, result_dtype

INTEGERS = (i8, i16, i32, i64, u8)
FLOATS = (f16, bf16, f32, f64)
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -2.5, 1.5, 3.0, 1e-3, 88.0, -30.25, 6e4]


def _erf(f):
    return np.vectorize(f, otypes=[np.float64])


# What numpy says in f64, to be rounded once.
WIDE = {
    "div": np.divide, "floordiv": np.floor_divide, "mod": np.mod, "rem": np.fmod, "pow": np.power,
    "atan2": np.arctan2, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "erf": _erf(math.erf), "erfc": _erf(math.erfc), "cbrt": np.cbrt, "floor": np.floor,
    "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
    "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "logistic": lambda x: np.where(x > -700, 1 / (1 + np.exp(-x)), 0.0 + np.exp(x)),
    "fma": lambda x, y, z: x * y + z,
}  # fmt: skip
# What numpy says in the dtype itself.
NARROW = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "mod": np.mod,
    "rem": np.fmod, "minimum": np.minimum, "maximum": np.maximum, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "shl": np.left_shift, "shr": np.right_shift,
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "isnan": np.isnan, "isfinite": np.isfinite,
    "quot": lambda x, y: ((np.abs(x.astype(object)) // np.abs(y.astype(object))) * np.sign(x.astype(object))
                          * np.sign(y.astype(object))).astype(np.int64).astype(x.dtype),
    "pow": lambda x, y: np.array([pow(int(a), int(b), 2**64) for a, b in zip(x, y, strict=True)],
                                 dtype=np.uint64).astype(np.int64).astype(x.dtype),
    "where": np.where,
}  # fmt: skip


def _data(dtype, n, seed):
    """`n` values with the awkward ones among them."""
    rng = np.random.default_rng(seed)
    kind = to_numpy(dtype)
    if dtype == boolean:
        return rng.random(n) < 0.5
    if dtype.is_float:
        base = rng.permutation(np.concatenate([SPECIAL, rng.standard_normal(n) * 4])[:n])
        with np.errstate(over="ignore"):
            return base.astype(kind)
    info = np.iinfo(kind)
    edge = [info.min, info.max, 0, 1, info.max - 1, 7]
    return rng.permutation(np.concatenate([edge, rng.integers(info.min // 2, info.max // 2, n - 6)])).astype(
        kind
    )


def _run(fn, arrays, dtypes):
    b = Builder("one")
    inputs = [b.input(f"x{n}", a.shape, d) for n, (a, d) in enumerate(zip(arrays, dtypes, strict=True))]
    b.compute("y", arrays[0].shape, lambda i: fn(*[x[i] for x in inputs]), output=True)
    return interpret(b.build(), arrays)[0]


def _takes(name, dtype):
    dtypes = [dtype] * OPS[name].arity
    if name == "where":
        dtypes[0] = boolean
    try:
        result_dtype(name, tuple(dtypes))
    except DTypeError:
        return False
    # numpy adds bools to bools, a program has no use for that.
    return dtype != boolean or name not in ("add", "mul", "abs")


CASES = [(name, d) for name in OPS for d in DTYPES.values() if _takes(name, d)]


def _arguments(name, dtype):
    n = 40
    args = [_data(boolean if name == "where" and at == 0 else dtype, n, at) for at in range(OPS[name].arity)]
    if not dtype.is_float and name in ("floordiv", "mod", "quot", "rem"):
        args[1] = np.where(args[1] == 0, np.array(3, args[1].dtype), args[1])
    if name in ("shl", "shr"):
        args[1] = np.abs(args[1] % dtype.bits).astype(args[1].dtype)
    if not dtype.is_float and name == "pow":
        args[1] = np.abs(args[1] % 7).astype(args[1].dtype)
    return args


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=[f"{n}-{d}" for n, d in CASES])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operations_against_numpy(name, dtype):
    args = _arguments(name, dtype)
    result = _run(lambda *x: op(name, *x), args, [boolean if a.dtype == bool else dtype for a in args])
    if dtype.is_float and name in WIDE:
        expected = WIDE[name](*[a.astype(np.float64) for a in args]).astype(to_numpy(dtype))
    else:
        expected = NARROW[name](*args)
    # NaNs of bf16 do not compare as equal in numpy's tests.
    result, expected = [a.astype(np.float64) if a.dtype == to_numpy(bf16) else a for a in (result, expected)]
    assert result.dtype == expected.dtype
    if dtype.is_float and name in WIDE:
        # numpy's way from f64 to bf16 rounds twice, and its // and fma do in f32.
        loose = {bf16: 2**-7, f16: 2**-10}.get(dtype, 2**-22 if dtype == f32 else 2**-51)
        np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=loose, atol=0)
    else:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_each_operation_rounds_to_its_dtype(name, dtype):
    """(x op y) * z, each step rounded, bit for bit: nothing is kept in a wider type between operations."""
    x, y, z = [_data(dtype, 60, s) for s in range(3)]
    result = _run(lambda a, b, c: op("mul", op(name, a, b), c), [x, y, z], [dtype] * 3)
    expected = WIDE[name](x, y) * z
    assert expected.dtype == to_numpy(dtype)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    assert result[~np.isnan(result)].tobytes() == expected[~np.isnan(result)].tobytes()


@pytest.mark.parametrize("dtype", [f16, bf16, f32], ids=str)
def test_fma_rounds_once(dtype):
    """(1 + eps)^2 less its rounded value leaves the rounding error, which two roundings lose."""
    eps = {f16: 2.0**-10, bf16: 2.0**-7, f32: 2.0**-23}[dtype]
    x = np.array([1 + eps], to_numpy(dtype))
    z = -(x * x)
    assert float(_run(lambda a, b, c: op("fma", a, b, c), [x, x, z], [dtype] * 3)[0]) == eps * eps
    # 1 + 1.5 eps less eps^3 / 2: f64 (for f32) makes it a tie, which would round to the even neighbour above.
    y = np.array([eps / 2 * (1 - eps)], x.dtype)
    assert float(_run(lambda a, b, c: op("fma", a, b, c), [x, y, x], [dtype] * 3)[0]) == 1 + eps


def _expected_cast(x, source, target):
    if target == boolean:
        return x != 0
    kind = to_numpy(target)
    if source.is_float and target.is_integer:
        info = np.iinfo(kind)
        finite = np.clip(np.nan_to_num(x.astype(np.float64)), -(2.0**80), 2.0**80)
        exact = np.array([int(v) for v in finite.tolist()], object)
        return exact.clip(info.min, info.max).astype(kind)
    return x.astype(kind)


@pytest.mark.parametrize("target", DTYPES.values(), ids=str)
@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_casts(source, target):
    x = _data(source, 40, 5)
    result = _run(lambda a: Cast(a, target), [x], [source])
    expected = _expected_cast(x, source, target)
    assert result.dtype == to_numpy(target)
    np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))


def test_saturating_casts():
    """Kind J: float to integer truncates toward zero and stops at the ends of the range."""
    x = np.array([math.nan, math.inf, -math.inf, 300.7, -300.7, 1e30, -1e30, -0.9, 127.9], np.float32)
    for target, low, high in (
        (i8, -128, 127),
        (u8, 0, 255),
        (i32, -(2**31), 2**31 - 1),
        (i64, -(2**63), 2**63 - 1),
    ):
        result = _run(lambda a, t=target: Cast(a, t), [x], [f32]).tolist()
        fit = [min(max(v, low), high) for v in (300, -300)]
        assert result[:7] == [0, high, low, *fit, min(int(np.float32(1e30)), high), low]
        assert result[7:] == [0, 127]


def test_f64_to_bf16_rounds_once():
    """Just above the tie: through f32 it would fall back on the tie and round to even."""
    x = np.array([1 + 2**-8 + 2**-40, 1 + 2**-8, -1 - 2**-8 - 2**-40])
    assert _run(lambda a: Cast(a, bf16), [x], [f64]).tolist() == [1 + 2**-7, 1.0, -1 - 2**-7]


@pytest.mark.parametrize(
    ("dtype", "given", "want"),
    [
        (i32, 2**24 + 2**16 + 1, 2**24 + 2**17), (i32, -(2**24) - 2**16 - 1, -(2**24) - 2**17),
        (i32, 2**24 + 2**16, 2**24), (i64, 2**62 + 2**54 + 1, 2**62 + 2**55), (i64, 2**62 + 2**54, 2**62),
        (i64, -(2**62) - 2**54 - 1, -(2**62) - 2**55), (i64, 2**63 - 1, 2**63), (i64, -(2**63), -(2**63)),
        (i64, 2**53 + 1, 2**53), (i64, 5, 5), (i64, -2047, -2048),
    ],
)  # fmt: skip
def test_integers_to_bf16_round_once(dtype: DType, given: int, want: int):
    """Just above the tie, as above; of integers that f64 cannot hold, too."""
    x = np.array([given], to_numpy(dtype))
    assert _run(lambda a: Cast(a, bf16), [x], [dtype]).tolist() == [float(want)]


def test_floor_and_truncating_division():
    """Kind J: // and % floor, quot and rem truncate, in data and in indices."""
    a, b = np.array([-7, 7, -7, 7], np.int32), np.array([2, -2, -2, 2], np.int32)
    right = {"floordiv": [-4, -4, 3, 3], "mod": [1, -1, -1, 1], "quot": [-3, -3, 3, 3], "rem": [-1, 1, -1, 1]}
    for name, expected in right.items():
        assert _run(lambda x, y, name=name: op(name, x, y), [a, b], [i32, i32]).tolist() == expected
    in_indices = {
        "floordiv": [-2, -2, -1, -1],
        "mod": [0, 1, 0, 1],
        "quot": [-2, -1, -1, 0],
        "rem": [0, -1, 0, -1],
    }
    for name, expected in in_indices.items():
        build = Builder("indices")
        build.compute("y", (4,), lambda i, name=name: op(name, i - 4, const(2)), output=True)
        assert interpret(build.build(), [])[0].tolist() == expected


def test_not_a_number_is_kept():
    """Kind G: minimum, maximum and relu return NaN; x * 0, x - x and x / x are computed."""
    nan, inf = math.nan, math.inf
    x = np.array([nan, 1, nan, -1, inf], np.float32)
    y = np.array([1, nan, nan, 2, 3], np.float32)
    for name in ("minimum", "maximum"):
        result = _run(lambda a, b, name=name: op(name, a, b), [x, y], [f32, f32])
        np.testing.assert_array_equal(np.isnan(result), [True, True, True, False, False])
    np.testing.assert_array_equal(
        _run(lambda a: op("maximum", a, const(0, f32)), [x], [f32]), [nan, 1, nan, 0, inf]
    )
    np.testing.assert_array_equal(_run(lambda a: a * 0, [x], [f32]), [nan, 0, nan, 0, nan])
    np.testing.assert_array_equal(_run(lambda a: a - a, [x], [f32]), [nan, 0, nan, 0, nan])
    zero = np.array([0, 2], np.float32)
    np.testing.assert_array_equal(_run(lambda a: a / a, [zero], [f32]), [nan, 1])


def test_integers_wrap():
    for dtype in (i8, i16, i32, i64):
        top = np.array([np.iinfo(to_numpy(dtype)).max], to_numpy(dtype))
        assert _run(lambda a: a + 1, [top], [dtype])[0] == np.iinfo(to_numpy(dtype)).min
    assert _run(lambda a: a * a, [np.array([2**62 + 1], np.int64)], [i64])[0] == 1 - 2**63  # mod 2^64
    build = Builder("loop")
    build.compute("y", (3,), lambda i: (i + 2**62) * 4, output=True)
    assert interpret(build.build(), [])[0].tolist() == [0, 4, 8]
