"""What every operation and cast computes, on numpy scalars: the tables behind the interpreter.

Values are numpy scalars of their dtype (ml_dtypes for bf16), so that each operation rounds or wraps on its
own. Functions without an exact rule (exp, sin, ...) are evaluated in f64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from .affine import truncated_quotient
from .dtypes import DType, bf16, boolean, f64, to_numpy

Function = Callable[..., Any]

# Operations that Python's operators already do right on numpy scalars.
INFIX = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "div": "({} / {})", "neg": "(-{})",
    "abs": "abs({})", "lt": "({} < {})", "le": "({} <= {})", "gt": "({} > {})", "ge": "({} >= {})",
    "eq": "({} == {})", "ne": "({} != {})", "and": "({} & {})", "or": "({} | {})", "xor": "({} ^ {})",
    "not": "(~{})", "shl": "({} << {})", "shr": "({} >> {})",
}  # fmt: skip


def scalar(dtype: DType) -> Any:
    """The numpy scalar type of `dtype`."""
    return to_numpy(dtype).type


def rounder(dtype: DType) -> Function:
    """The conversion of an f64 scalar to a float dtype, with one rounding."""
    return _to_bf16 if dtype == bf16 else scalar(dtype)


def _to_bf16(x: Any) -> Any:
    # ml_dtypes goes through f32 and so rounds twice; an f32 rounded to odd keeps the second rounding right.
    near = np.float32(x)
    if math.isfinite(near) and float(near) != float(x) and near.view(np.int32) % 2 == 0:
        near = np.nextafter(near, np.float32(math.copysign(math.inf, float(x) - float(near))))
    return scalar(bf16)(near)


def _odd(x: int) -> float:
    """An integer as f64, rounded to odd: a second rounding, to fewer bits, is right then."""
    near = np.float64(x)
    if int(near) != x and near.view(np.int64) % 2 == 0:
        near = np.nextafter(near, math.copysign(math.inf, x - int(near)))
    return float(near)


def limits(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer (or bool) dtype."""
    if dtype.kind == "int":
        return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
    return 0, 1 if dtype == boolean else 2**dtype.bits - 1


def poison(dtype: DType) -> Any:
    """What memory holds before it is written: NaN, or an integer nobody computes by accident."""
    if dtype.is_float:
        return scalar(dtype)(math.nan)
    if dtype == boolean:
        return np.bool_(True)
    return np.frombuffer(b"\xa5" * dtype.bytes, to_numpy(dtype))[0]


def minimum(x: Any, y: Any) -> Any:
    """The smaller one; NaN where either is NaN."""
    return x if x < y or x != x else y


def maximum(x: Any, y: Any) -> Any:
    """The larger one; NaN where either is NaN."""
    return x if x > y or x != x else y


def _wrap(value: int, dtype: DType) -> Any:
    low, high = limits(dtype)
    return scalar(dtype)((value - low) % (high - low + 1) + low)


def _quot(x: int, y: int) -> int:
    return truncated_quotient(x, y) if y else 0


def _int_pow(x: int, y: int, bits: int) -> int:
    if y >= 0:
        return int(pow(x, y, 2**bits))
    return 1 if x == 1 else (-1) ** (-y % 2) if x == -1 else 0


def _fma(x: Any, y: Any, z: Any, kind: Function) -> Any:
    """x * y + z with one rounding: rounded to odd in f64 first, which keeps the rounding after it right."""
    plain = float(x) * float(y) + float(z)
    if not math.isfinite(plain):
        return kind(plain)
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    near = float(exact)
    if exact == 0 or kind is np.float64:
        return kind(plain if exact == 0 else near)
    if Fraction(near) != exact and np.float64(near).view(np.int64) % 2 == 0:
        near = math.nextafter(near, math.inf if exact > Fraction(near) else -math.inf)
    return kind(near)


def _logistic(x: Any) -> Any:
    e = np.exp(-abs(x))
    return 1 / (1 + e) if x >= 0 else e / (1 + e)


_UNARY: dict[str, Function] = {
    **{n: getattr(np, n) for n in ("exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt")},
    **{n: getattr(np, n) for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "cbrt")},
    **{n: getattr(np, n) for n in ("floor", "ceil", "trunc")},
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "round": np.rint,
    "erf": math.erf, "erfc": math.erfc, "logistic": _logistic, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
_BINARY: dict[str, Function] = {
    "pow": np.power, "atan2": np.arctan2, "floordiv": np.floor_divide, "mod": np.mod, "rem": np.fmod,
}  # fmt: skip
_INTEGER: dict[str, Callable[[int, int, int], int]] = {
    "floordiv": lambda x, y, bits: x // y if y else 0,
    "mod": lambda x, y, bits: x % y if y else 0,
    "quot": lambda x, y, bits: _quot(x, y),
    "rem": lambda x, y, bits: x - y * _quot(x, y) if y else 0,
    "pow": _int_pow,
}
_TESTS: dict[str, Function] = {"isnan": math.isnan, "isfinite": math.isfinite}
_EITHER: dict[str, Function] = {"minimum": minimum, "maximum": maximum}


@cache
def function(name: str, dtype: DType) -> Function:
    """The function of an operation that INFIX lacks, on scalars of `dtype`."""
    kind = rounder(dtype) if dtype.is_float else scalar(dtype)
    if name in _EITHER:
        return _EITHER[name]
    if name in _TESTS:
        test = _TESTS[name]
        return lambda x: np.bool_(test(float(x)))
    if name == "sign":
        return lambda x: x if x == 0 or x != x else kind(1 if x > 0 else -1)
    if name == "fma":
        return lambda x, y, z: _fma(x, y, z, kind)
    if not dtype.is_float:
        whole, bits = _INTEGER[name], dtype.bits
        return lambda x, y: _wrap(whole(int(x), int(y), bits), dtype)
    if name in _UNARY:
        unary = _UNARY[name]
        return lambda x: kind(unary(np.float64(x)))
    pair = _BINARY[name]
    return lambda x, y: kind(pair(np.float64(x), np.float64(y)))


@cache
def cast(source: DType, target: DType) -> Function:
    """Conversion of scalars: rounds to floats, wraps between integers, saturates from float to integer."""
    kind = scalar(target)
    if target == boolean:
        return lambda x: np.bool_(x != 0)
    if target.is_float and source.is_float:
        return rounder(target) if source == f64 else kind
    if target.is_float:
        return (lambda x: _to_bf16(_odd(int(x)))) if target == bf16 else lambda x: x.astype(kind)
    if not source.is_float:
        return lambda x: _wrap(int(x), target)
    low, high = limits(target)

    def saturate(x: Any) -> Any:
        value = float(x)
        return kind(0 if value != value else low if value <= low else high if value >= high else int(value))

    return saturate
