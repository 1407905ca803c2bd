"""Running error analysis: float64 values with a bound on how far a right kernel may be from them.

The rules are those of Wilkinson (Higham, Accuracy and Stability of Numerical Algorithms, section 3.3): each
operation passes on the errors of its operands and adds a rounding of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ..ir.dtypes import DType

_UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
# The smallest number of the type with that unit: below the normal numbers a rounding is as large as this.
_LEAST = {2.0**-11: 2.0**-24, 2.0**-8: 2.0**-133, 2.0**-24: 2.0**-149, 2.0**-53: 5e-324}
# Vector math functions are good to 4 units in the last place; twice that is still far from a wrong result.
_FUNCTION_ULPS = 8.0


@dataclass(frozen=True, slots=True)
class Bounded:
    """`value` (float64, or exact integers), and how far from it a right kernel's result may be.

    `grain`: all values, and so all sums of them, are multiples of this power of two; 0 where none is known.
    What is a multiple of the grain and small enough for the type is exact, in whatever order it is summed.
    """

    value: Any
    error: Any = 0.0
    grain: float = 0.0


def unit(dtype: DType) -> float:
    """The unit roundoff of a type; 0 for integers, which are exact."""
    return _UNIT.get(dtype.name, 0.0)


def summed(terms: int) -> float:
    """Roundings to allow for a sum of `terms` in any order.

    The worst case grows with `terms`, almost every sum only with their square root (Higham and Mary, 2019).
    """
    return min(float(terms), 6.0 * math.sqrt(terms) + 8.0)


def rounding(v: Any, u: float, ulps: float = 1.0) -> Any:
    """How far `v` may move when it is rounded to a type of unit roundoff `u`, `ulps` times."""
    return ulps * (u * np.abs(v) + _LEAST.get(u, 0.0))


def grain(values: np.ndarray) -> float:
    """The largest power of two from 1/8 to 1 that all of `values` are multiples of; 0 where there is none."""
    with np.errstate(all="ignore"):
        eighths = np.asarray(values, np.float64) * 8.0
        if not (np.isfinite(eighths).all() and (eighths == np.trunc(eighths)).all()):
            return 0.0
        return next(g / 8.0 for g in (8.0, 4.0, 2.0, 1.0) if not np.fmod(eighths, g).any())


def exact(largest: Any, grain: float, u: float) -> bool:
    """Whether multiples of `grain` up to `largest` in size are numbers of a type of unit roundoff `u`."""
    return grain >= _LEAST.get(u, 0.0) > 0.0 and bool(np.all(np.asarray(largest) <= grain / u))


def rounded(x: Bounded, dtype: DType) -> Bounded:
    """`x` after a conversion to `dtype`."""
    u = unit(dtype)
    return _settled(x.value, x.error, x.grain, u, rounding(x.value, u)) if u else x


def _settled(value: Any, error: Any, grain: float, u: float, more: Any) -> Bounded:
    """A result that is rounded by `more`, but where it is known to be exact."""
    if not u:
        return Bounded(value)
    return Bounded(value, error if exact(np.abs(value) + error, grain, u) else error + more, grain)


def _add(a: Bounded, b: Bounded, u: float) -> Bounded:
    v = a.value + b.value
    return _settled(v, a.error + b.error, min(a.grain, b.grain), u, u * np.abs(v))


def _sub(a: Bounded, b: Bounded, u: float) -> Bounded:
    v = a.value - b.value
    return _settled(v, a.error + b.error, min(a.grain, b.grain), u, u * np.abs(v))


def _mul(a: Bounded, b: Bounded, u: float) -> Bounded:
    v = a.value * b.value
    moved = np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error
    known = a.grain > 0.0 and b.grain > 0.0
    return _settled(v, moved, a.grain * b.grain if known else 0.0, u, rounding(v, u))


def _div(a: Bounded, b: Bounded, u: float) -> Bounded:
    v = a.value / b.value
    room = np.maximum(np.abs(b.value) - b.error, np.finfo(np.float64).tiny)
    return Bounded(v, (a.error + np.abs(v) * b.error) / room + rounding(v, u))


def _fma(a: Bounded, b: Bounded, c: Bounded, u: float) -> Bounded:
    return _add(_mul(a, b, u), c, u)


def _pow(a: Bounded, b: Bounded, u: float) -> Bounded:
    if not u:
        return Bounded(a.value**b.value)
    v = np.power(a.value, b.value)
    moved = np.abs(v * b.value / a.value) * a.error + np.abs(v * np.log(np.abs(a.value))) * b.error
    return Bounded(v, np.nan_to_num(moved, posinf=0.0) + rounding(v, u, _FUNCTION_ULPS))


def _atan2(a: Bounded, b: Bounded, u: float) -> Bounded:
    v = np.arctan2(a.value, b.value)
    far = np.maximum(np.hypot(a.value, b.value), np.finfo(np.float64).tiny)
    return Bounded(v, (a.error + b.error) / far + rounding(v, u, _FUNCTION_ULPS))


def _where(c: Bounded, a: Bounded, b: Bounded, u: float) -> Bounded:
    error = np.where(c.value, a.error, b.error) if u else 0.0
    return Bounded(np.where(c.value, a.value, b.value), error, min(a.grain, b.grain))


def _steady(f: Callable[..., Any]) -> Callable[..., Bounded]:
    """An operation that never amplifies the errors of its operands and rounds nothing."""

    def rule(*args: Any) -> Bounded:
        *operands, u = args
        worst: Any = 0.0
        for x in operands if u else ():
            worst = np.maximum(worst, x.error)
        return Bounded(f(*[x.value for x in operands]), worst, min([x.grain for x in operands]))

    return rule


def _stepped(f: Callable[[Any, Any], Any], rest: bool) -> Callable[[Bounded, Bounded, float], Bounded]:
    """The whole part of a quotient, or what it leaves (`rest`): where the operands' errors reach a step, what
    lies on both sides of it is right."""

    def rule(a: Bounded, b: Bounded, u: float) -> Bounded:
        v = f(a.value, b.value)
        if not u:
            return Bounded(v)
        quotients = [
            np.floor(x / y)
            for x in (a.value - a.error, a.value + a.error)
            for y in (b.value - b.error, b.value + b.error)
        ]
        most, least = (reduce(pick, quotients) for pick in (np.fmax, np.fmin))
        if rest:
            near = a.error + np.maximum(np.abs(most), np.abs(least)) * b.error
            moved = np.where(most > least, 2 * (np.abs(b.value) + b.error), near)
        else:
            moved = most - least
        moved = np.where(np.abs(b.value) <= b.error, np.where(b.error > 0, np.inf, 0.0), moved)
        return Bounded(v, np.nan_to_num(moved, nan=0.0, posinf=np.inf) + rounding(v, u))

    return rule


def _exact(f: Callable[..., Any]) -> Callable[..., Bounded]:
    """An operation with an exact result: on integers, or a comparison."""
    return lambda *args: Bounded(f(*[x.value for x in args[:-1]]))


def _function(f: Callable[[Any], Any]) -> Callable[..., Bounded]:
    """A function of one variable: it moves by what the operand's error makes of it, then it is rounded."""

    def rule(x: Bounded, u: float) -> Bounded:
        v = f(x.value)
        if np.any(x.error):
            moved = np.maximum(np.abs(f(x.value + x.error) - v), np.abs(f(x.value - x.error) - v))
            return Bounded(v, np.nan_to_num(moved, posinf=0.0) + rounding(v, u, _FUNCTION_ULPS))
        return Bounded(v, rounding(v, u, _FUNCTION_ULPS))

    return rule


def _each(f: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of Python's math module on every element: numpy has none of its own."""
    return np.vectorize(f, otypes=[np.float64])


def _quot(a: Any, b: Any) -> Any:
    q = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -q, q)


RULES: dict[str, Callable[..., Bounded]] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "fma": _fma, "pow": _pow, "atan2": _atan2,
    "where": _where, "minimum": _steady(np.minimum), "maximum": _steady(np.maximum),
    "abs": _steady(np.abs), "neg": _steady(np.negative),
    "mod": _stepped(np.mod, True), "rem": _stepped(np.fmod, True),
    "floordiv": _stepped(np.floor_divide, False),
    "lt": _exact(np.less), "le": _exact(np.less_equal),
    "gt": _exact(np.greater), "ge": _exact(np.greater_equal),
    "eq": _exact(np.equal), "ne": _exact(np.not_equal), "not": _exact(np.invert),
    "and": _exact(np.bitwise_and), "or": _exact(np.bitwise_or), "xor": _exact(np.bitwise_xor),
    "shl": _exact(np.left_shift), "shr": _exact(np.right_shift),
    "quot": _exact(_quot), "isnan": _exact(np.isnan), "isfinite": _exact(np.isfinite),
    "erf": _function(_each(math.erf)), "erfc": _function(_each(math.erfc)),
    "logistic": _function(lambda x: 1.0 / (1.0 + np.exp(-x))),
    "rsqrt": _function(lambda x: 1.0 / np.sqrt(x)),
    **{name: _function(getattr(np, name)) for name in (
        "sign", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh",
        "tanh", "floor", "ceil", "round", "trunc", "cbrt")},
    "asin": _function(np.arcsin), "acos": _function(np.arccos), "atan": _function(np.arctan),
}  # fmt: skip
