"""Elementwise functions on arrays, with broadcasting, by numpy's (scipy's, JAX's) names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError
from ..ir.build import Tensor
from ..ir.exprs import Expr, converted, op, together
from .axes import aligned, broadcast
from .dtypes import element_type
from .expressions import compute
from .functions import FUNCTIONS, number, rounded_once
from .operator import Beyond, FormulaOperator, operator

f = FUNCTIONS


def mapped(name: str, formula: Callable[..., Expr], *operands: Tensor) -> Tensor:
    """formula of the elements of operands that broadcast."""
    shape = broadcast(name, *[x.shape for x in operands])
    return compute(shape, lambda *at: formula(*[x[aligned(x.shape, at)] for x in operands]), name="Y")


def _one(name: str, formula: Callable[[Expr], Expr], says: str) -> FormulaOperator:
    def function(x: Tensor) -> Tensor:
        return mapped(name, formula, x)

    function.__doc__ = says
    return operator(name=name, scalars=True)(function)


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def _two(name: str, formula: Callable[[Expr, Expr], Expr], says: str) -> FormulaOperator:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return mapped(name, formula, x, y)

    function.__doc__ = says
    beyond: Beyond = "widen" if name in _COMPARISONS else "refuse"
    return operator(name=name, scalars=True, beyond=beyond)(function)


def _infix(symbol: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    return lambda x, y: symbol(*together(x, y))


def _numeric(name: str, symbol: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """Of numbers only: numpy has no such operation of two bools."""

    def formula(x: Expr, y: Expr) -> Expr:
        a, b = together(x, y)
        return symbol(number(name, a), b)

    return formula


def _bits(name: str) -> Callable[[Expr, Expr], Expr]:
    def formula(x: Expr, y: Expr) -> Expr:
        a, b = together(x, y)
        return op(name, a, b)

    return formula


_ULP = "Within 4 ulp (f32, f64), for every input and every number of elements."
_TRUE = {
    "exp": "e to the power of x.", "exp2": "2 to the power of x.", "expm1": "exp(x) - 1, exact near 0.",
    "log": "The natural logarithm.", "log2": "The logarithm to base 2.", "log1p": "log(1 + x), exact near 0.",
    "sin": "The sine of x in radians.", "cos": "The cosine of x in radians.", "tan": "The tangent of x.",
    "asin": "The arc sine.", "acos": "The arc cosine.", "atan": "The arc tangent.",
    "sinh": "The hyperbolic sine.", "cosh": "The hyperbolic cosine.", "tanh": "The hyperbolic tangent.",
    "erf": "The error function.", "erfc": "1 - erf(x), exact where it is small.", "cbrt": "The cube root.",
    "sqrt": "The square root, correctly rounded.", "rsqrt": "1 / sqrt(x).",
    "sigmoid": "1 / (1 + exp(-x)).",
}  # fmt: skip
_UNARY: dict[str, tuple[Callable[[Expr], Expr], str]] = {
    **{name: (f[name], f"{says} {_ULP} Integers compute in floats.") for name, says in _TRUE.items()},
    "silu": (f["silu"], "x * sigmoid(x), also called swish. Within 5 ulp. Integers compute in floats."),
    "relu": (f["relu"], "max(x, 0); NaN stays NaN."),
    "floor": (f["floor"], "The largest whole number not above x."),
    "ceil": (f["ceil"], "The smallest whole number not below x."),
    "round": (f["round"], "The nearest whole number, ties to even."),
    "trunc": (f["trunc"], "x without its fraction."),
    "abs": (f["abs"], "The absolute value."),
    "negative": (lambda x: -number("negative", x), "-x."),
    "sign": (f["sign"], "-1, 0 or 1 by the sign of x; NaN for NaN."),
    "square": (lambda x: x * x, "x * x."),
    "reciprocal": (lambda x: 1 / x, "1 / x; integers compute in floats."),
    "isnan": (f["isnan"], "Whether x is NaN."),
    "isfinite": (f["isfinite"], "Whether x is neither infinite nor NaN."),
    "isinf": (
        lambda x: f["logical_and"](f["logical_not"](f["isfinite"](x)), f["logical_not"](f["isnan"](x))),
        "Whether x is infinite.",
    ),
    "logical_not": (f["logical_not"], "Whether x is 0."),
    "bitwise_not": (lambda x: op("not", x), "Every bit turned."),
}  # fmt: skip
_BINARY: dict[str, tuple[Callable[[Expr, Expr], Expr], str]] = {
    "add": (_infix(lambda x, y: x + y), "x + y."),
    "subtract": (_numeric("subtract", lambda x, y: x - y), "x - y."),
    "multiply": (_infix(lambda x, y: x * y), "x * y."),
    "divide": (_infix(lambda x, y: x / y), "x / y; integers divide as floats."),
    "floor_divide": (_numeric("floor_divide", f["floor_divide"]), "x / y rounded down; 0 if integer y is 0."),
    "mod": (_numeric("mod", f["mod"]), "x modulo y, with the sign of y; 0 where an integer y is 0."),
    "fmod": (_numeric("fmod", f["fmod"]), "The remainder of x / y, with the sign of x."),
    "atan2": (f["atan2"], f"The angle of the point (y, x). {_ULP}"),
    "maximum": (f["maximum"], "The larger of x and y; NaN where either is NaN."),
    "minimum": (f["minimum"], "The smaller of x and y; NaN where either is NaN."),
    "equal": (f["equal"], "x == y."), "not_equal": (f["not_equal"], "x != y."),
    "less": (_infix(lambda x, y: x < y), "x < y."), "less_equal": (_infix(lambda x, y: x <= y), "x <= y."),
    "greater": (_infix(lambda x, y: x > y), "x > y."),
    "greater_equal": (_infix(lambda x, y: x >= y), "x >= y."),
    "logical_and": (f["logical_and"], "Whether both are true (not 0)."),
    "logical_or": (f["logical_or"], "Whether either is true (not 0)."),
    "logical_xor": (f["logical_xor"], "Whether exactly one is true (not 0)."),
    "bitwise_and": (_bits("and"), "The bits that both have."),
    "bitwise_or": (_bits("or"), "The bits that either has."),
    "bitwise_xor": (_bits("xor"), "The bits that exactly one has."),
    "left_shift": (_bits("shl"), "The bits of x moved up by y places."),
    "right_shift": (_bits("shr"), "The bits of x moved down by y places; the sign stays."),
}  # fmt: skip

OPERATORS: dict[str, FormulaOperator] = {
    **{name: _one(name, formula, says) for name, (formula, says) in _UNARY.items()},
    **{name: _two(name, formula, f"{says} Operands broadcast.") for name, (formula, says) in _BINARY.items()},
}


@operator
def gelu(x: Tensor, approximate: bool = True) -> Tensor:
    """x * Phi(x): in its tanh form (the default, as in JAX), or exactly by the error function.

    Both keep the digits of the left tail: 1 + tanh(u) is computed as 2 sigmoid(2u), 1 + erf(u) as erfc(-u).
    """

    def exact(v: Expr) -> Expr:
        return rounded_once(lambda u: u * 0.5 * op("erfc", u * -math.sqrt(0.5)), v)

    return mapped("gelu", f["gelu"] if approximate else exact, x)


@operator(scalars=("x", "y"))
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """x where `condition` is true (not 0), else y; all three broadcast.

    A number as x or y takes the dtype of the other.
    """
    return mapped("where", lambda c, a, b: f["where"](c, a, b), condition, x, y)


@operator(scalars=True, beyond="cut")
def clip(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """x cut to [min, max], either of which may be None; NaN stays NaN."""
    bounds = [(name, b) for name, b in (("maximum", min), ("minimum", max)) if b is not None]

    def formula(value: Expr, *limits: Expr) -> Expr:
        for (name, _), limit in zip(bounds, limits, strict=True):
            value = f[name](value, limit)
        return value

    return mapped("clip", formula, x, *[b for _, b in bounds])


@operator(scalars=True)
def pow(x: Tensor, y: Tensor | float) -> Tensor:
    """x to the power of y; both broadcast. Within 4 ulp (f32, f64). Integers wrap.

    A number as exponent is part of the kernel: whole ones up to 4 become products.
    """
    if isinstance(y, Tensor):
        return mapped("pow", _numeric("pow", f["pow"]), x, y)
    if isinstance(y, int) and y < 0 and not x.dtype.is_float:
        raise ArgumentError(f"pow of {x.dtype} to the power of {y}: integers have no negative powers")
    exponent = y
    if x.dtype.is_float:
        return mapped("pow", lambda v: rounded_once(lambda u: f["pow"](u, exponent), v), x)
    return mapped("pow", lambda v: f["pow"](v, exponent), x)


@operator
def astype(x: Tensor, dtype: Any) -> Tensor:
    """x as `dtype`. Float to integer truncates toward zero and saturates, NaN gives 0, as in JAX."""
    goal = element_type("astype", dtype)
    return mapped("astype", lambda v: converted(v, goal), x)
