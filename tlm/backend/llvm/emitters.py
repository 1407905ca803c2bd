"""Emitters that floats and integers share. An emitter writes one operation on operands of one dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...ir.dtypes import DType
from .types import literal, scalar_type, suffix, value_type, vector

if TYPE_CHECKING:
    from .arith import Arithmetic

Emitter = Callable[["Arithmetic", DType, int, list[str]], str]


def infix(opcode: str) -> Emitter:
    """An instruction on two operands of one type."""
    return lambda a, d, n, x: a.pure(f"{opcode} {value_type(d, n)} {x[0]}, {x[1]}")


def compare(ordered: str, signed: str, unsigned: str) -> Emitter:
    """A comparison by LLVM's predicates for floats, signed and unsigned integers; i1 for each lane."""

    def emit(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
        how = f"fcmp {ordered}" if d.is_float else f"icmp {signed if d.kind == 'int' else unsigned}"
        return a.pure(f"{how} {value_type(d, n)} {x[0]}, {x[1]}")

    return emit


def intrinsic(name: str, flags: str = "") -> Emitter:
    """A call of llvm.`name` overloaded on the type of its operands."""

    def emit(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
        t = value_type(d, n)
        args = ", ".join([f"{t} {v}" for v in x])
        return a.pure(f"call {flags}{t} @llvm.{name}.{suffix(scalar_type(d), n)}({args})")

    return emit


def sign(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    """-1, 0 or 1 of x's type; NaN stays NaN and zeros stay themselves."""
    t, zero = value_type(d, n), literal(0, d, n)
    if not d.is_float:
        above = compare("", "sgt", "ugt")(a, d, n, [x[0], zero])
        below = compare("", "slt", "ult")(a, d, n, [x[0], zero])
        rest = a.select(below, n, literal(-1 if d.kind == "int" else 0, d, n), zero, t)
        return a.select(above, n, literal(1, d, n), rest, t)
    one = intrinsic("copysign")(a, d, n, [literal(1.0, d, n), x[0]])
    other = a.pure(f"fcmp une {t} {x[0]}, {zero}")
    number = a.pure(f"fcmp ord {t} {x[0]}, {x[0]}")
    nonzero = a.pure(f"and {vector('i1', n)} {other}, {number}")
    return a.select(nonzero, n, one, x[0], t)


COMPARISONS: dict[str, Emitter] = {
    "lt": compare("olt", "slt", "ult"), "le": compare("ole", "sle", "ule"),
    "gt": compare("ogt", "sgt", "ugt"),
    "ge": compare("oge", "sge", "uge"), "eq": compare("oeq", "eq", "eq"), "ne": compare("une", "ne", "ne"),
}  # fmt: skip
