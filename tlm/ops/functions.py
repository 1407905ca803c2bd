"""Elementwise functions on the elements of formulas, by numpy's names and rules of dtype.

Each takes expressions and Python numbers. True functions (exp, sqrt, ...) of integers compute in floats, as
numpy's do. In kernels for f32 and f64 each elementary function is within 4 ulp of the exact value, for every
input and every number of elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError
from ..ir.activations import ACTIVATIONS
from ..ir.dtypes import accumulator, boolean, floating, i64
from ..ir.exprs import Expr, Op, binary, const, converted, op, power, together
from .dtypes import formula_type

Number = Expr | float

_UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "erf", "erfc", "floor", "ceil", "round", "trunc",
)  # fmt: skip
_KEEP_INTEGERS = ("floor", "ceil", "round", "trunc")


def _unary(name: str) -> Callable[[Number], Expr]:
    def function(x: Number) -> Expr:
        (value,) = together(x)
        if name in _KEEP_INTEGERS and not value.dtype.is_float:
            return value
        return op(name, converted(value, floating(value.dtype)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name} of an element, as numpy (or scipy.special) computes it."
    return function


def _binary(name: str, says: str) -> Callable[[Number, Number], Expr]:
    def function(x: Number, y: Number) -> Expr:
        a, b = together(x, y)
        return binary(name, a, b)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = says
    return function


FUNCTIONS: dict[str, Callable[..., Expr]] = {name: _unary(name) for name in _UNARY}

FUNCTIONS |= {
    name: _binary(known, says)
    for name, known, says in (
        ("maximum", "maximum", "The larger element; NaN where either is NaN."),
        ("minimum", "minimum", "The smaller element; NaN where either is NaN."),
        ("equal", "eq", "Whether two elements are equal (== is refused in formulas)."),
        ("not_equal", "ne", "Whether two elements differ (!= is refused in formulas)."),
        ("floor_divide", "floordiv", "x / y, rounded down."),
        ("mod", "mod", "x modulo y, with the sign of y."),
        ("fmod", "rem", "The remainder of x / y, with the sign of x."),
    )
}


def _floats(name: str) -> Callable[[Number, Number], Expr]:
    def function(x: Number, y: Number) -> Expr:
        a, b = together(x, y)
        dtype = floating(a.dtype)
        return op(name, converted(a, dtype), converted(b, dtype))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name} of two elements, as numpy computes it."
    return function


def cast(x: Number, dtype: Any) -> Expr:
    """An element as `dtype`. Float to integer truncates toward zero and saturates; NaN gives 0."""
    return converted(x, formula_type("cast", dtype))


def pow(x: Number, y: Number) -> Expr:
    """x to the power of y; small whole numbers as exponent become products."""
    return power(x, y)


def where(condition: Number, x: Number, y: Number) -> Expr:
    """x where `condition` holds, else y; only the side that is picked is evaluated."""
    a, b = together(x, y)
    return op("where", truth(condition), a, b)


def truth(x: Number) -> Expr:
    """Whether an element is not 0."""
    return converted(x, boolean)


def logical_and(x: Number, y: Number) -> Expr:
    """Whether both are true."""
    return op("and", truth(x), truth(y))


def logical_or(x: Number, y: Number) -> Expr:
    """Whether either is true."""
    return op("or", truth(x), truth(y))


def logical_xor(x: Number, y: Number) -> Expr:
    """Whether exactly one is true."""
    return op("xor", truth(x), truth(y))


def logical_not(x: Number) -> Expr:
    """Whether an element is 0."""
    return op("not", truth(x))


def _test(name: str, of_integers: bool) -> Callable[[Number], Expr]:
    def function(x: Number) -> Expr:
        (value,) = together(x)
        return op(name, value) if value.dtype.is_float else const(of_integers, boolean)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name} of an element."
    return function


def number(name: str, value: Expr) -> Expr:
    """`value`; ArgumentError for a bool, of which numpy has no such operation."""
    if value.dtype == boolean:
        raise ArgumentError(f"{name} is not for bools; cast them, or use a logical function")
    return value


def same(name: str) -> Callable[[Number], Expr]:
    """An operation of numbers that keeps the dtype."""

    def function(x: Number) -> Expr:
        (value,) = together(x)
        return op(name, number(name, value))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name} of an element."
    return function


def absolute(x: Number) -> Expr:
    """The absolute value (of a bool, itself)."""
    (value,) = together(x)
    return value if value.dtype == boolean else op("abs", value)


# Of several operations, each of which would round a half.
_COMPOSED = ("gelu", "silu")


def rounded_once(formula: Callable[[Expr], Expr], value: Expr) -> Expr:
    """formula(value) as a float: a half is computed in f32 and rounded at the end."""
    result = floating(value.dtype)
    return converted(formula(converted(value, accumulator(result))), result)


def activation(name: str) -> Callable[[Number], Expr]:
    """An activation of `tlm.ops.linear` as a function; integers compute in floats."""

    def function(x: Number) -> Expr:
        (value,) = together(x)
        if name in _COMPOSED:
            return rounded_once(ACTIVATIONS[name], value)
        whole = name == "relu" and value.dtype.is_integer
        return ACTIVATIONS[name](value if whole else converted(value, floating(value.dtype)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The activation {name!r}."
    return function


FUNCTIONS |= {
    "atan2": _floats("atan2"), "cast": cast, "pow": pow, "where": where, "abs": absolute,
    "sign": same("sign"),
    "isnan": _test("isnan", False), "isfinite": _test("isfinite", True), "logical_and": logical_and,
    "logical_or": logical_or, "logical_xor": logical_xor, "logical_not": logical_not,
    **{name: activation(name) for name in ACTIVATIONS},
}  # fmt: skip
"""Name -> function; `tlm.<name>` is each of these."""


def index(x: Number) -> Expr:
    """An integer element as an index."""
    return converted(x, i64)


def both(conditions: list[Expr]) -> Expr | None:
    """All conditions joined; None where there are none."""
    out: Expr | None = None
    for c in conditions:
        out = c if out is None else Op("and", (out, c), boolean)
    return out
