"""The closed table of elementwise operations: arity, result type, and how each one prints.

Meaning (numpy's, evaluated in the operands' dtype; integers wrap):
- div is true division on floats; integers have floordiv (floor), mod (sign of the divisor), and quot and rem
  (truncating).
- minimum and maximum return NaN where either operand is NaN; shifts and bit operations are for integers and
  bool.
- "where" picks args[1] where args[0] is true, else args[2].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import DTypeError
from .dtypes import DType, boolean

Rule = Literal["same", "number", "compare", "logic", "float", "integer", "where", "test"]


@dataclass(frozen=True, slots=True)
class OpInfo:
    """`symbol`: the infix form, or None for name(args). `rule`: what is accepted, and the result's dtype."""

    arity: int
    rule: Rule
    symbol: str | None = None


OPS: dict[str, OpInfo] = {
    "add": OpInfo(2, "same", "+"), "sub": OpInfo(2, "number", "-"), "mul": OpInfo(2, "same", "*"),
    "div": OpInfo(2, "float", "/"), "floordiv": OpInfo(2, "number", "//"), "mod": OpInfo(2, "number", "%"),
    "quot": OpInfo(2, "integer"), "rem": OpInfo(2, "number"),
    "pow": OpInfo(2, "number"), "atan2": OpInfo(2, "float"),
    "minimum": OpInfo(2, "same"), "maximum": OpInfo(2, "same"),
    "lt": OpInfo(2, "compare", "<"), "le": OpInfo(2, "compare", "<="), "gt": OpInfo(2, "compare", ">"),
    "ge": OpInfo(2, "compare", ">="), "eq": OpInfo(2, "compare", "=="), "ne": OpInfo(2, "compare", "!="),
    "and": OpInfo(2, "logic", "&"), "or": OpInfo(2, "logic", "|"), "xor": OpInfo(2, "logic", "^"),
    "shl": OpInfo(2, "integer", "<<"), "shr": OpInfo(2, "integer", ">>"),
    "not": OpInfo(1, "logic"), "neg": OpInfo(1, "number"), "abs": OpInfo(1, "same"),
    "sign": OpInfo(1, "number"),
    "fma": OpInfo(3, "float"), "where": OpInfo(3, "where"),
    "isnan": OpInfo(1, "test"), "isfinite": OpInfo(1, "test"),
    **{name: OpInfo(1, "float") for name in (
        "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan",
        "asin", "acos", "atan",
        "sinh", "cosh", "tanh", "erf", "erfc", "logistic", "floor", "ceil", "round", "trunc", "cbrt")},
}  # fmt: skip


def result_dtype(name: str, dtypes: tuple[DType, ...]) -> DType:
    """The dtype of OPS[name] on operands of `dtypes`; DTypeError where the operation does not take them."""
    info = OPS.get(name)
    if info is None:
        raise DTypeError(f"unknown operation {name!r}; known are {', '.join(OPS)}")
    if len(dtypes) != info.arity:
        raise DTypeError(f"{name} takes {info.arity} operands, got {len(dtypes)}")
    same = dtypes[1:] if info.rule == "where" else dtypes
    first = same[0]
    if any(d is not first for d in same):
        raise DTypeError(f"{name} needs operands of one dtype, got {_listed(dtypes)}; cast one of them")
    match info.rule:
        case "same":
            return first
        case "number":
            good = first != boolean
        case "compare":
            return boolean
        case "logic":
            good = first.kind in ("int", "uint", "bool")
        case "integer":
            good = first.is_integer
        case "float":
            good = first.is_float
        case "test":
            if not first.is_float:
                raise DTypeError(f"{name} needs a float operand, got {_listed(dtypes)}")
            return boolean
        case "where":
            if dtypes[0] != boolean:
                raise DTypeError(f"where needs a bool condition, got {_listed(dtypes)}")
            return first
    if not good:
        raise DTypeError(f"{name} does not take {_listed(dtypes)}")
    return first


def _listed(dtypes: tuple[DType, ...]) -> str:
    return ", ".join(map(str, dtypes))
