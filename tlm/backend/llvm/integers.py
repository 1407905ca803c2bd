"""Operations on integers, which wrap, and on bool. Division by zero gives 0; nothing traps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.dtypes import DType, boolean, i64
from .emitters import COMPARISONS, Emitter, infix, intrinsic, sign
from .types import literal, scalar_type, suffix, value_type, vector

if TYPE_CHECKING:
    from .arith import Arithmetic


def _safe(a: Arithmetic, d: DType, n: int, x: list[str]) -> tuple[str, str, str]:
    """(divisor that cannot trap, whether it was 0, whether it was -1)."""
    t = value_type(d, n)
    zero = a.pure(f"icmp eq {t} {x[1]}, {literal(0, d, n)}")
    if d.kind == "uint":
        return a.select(zero, n, literal(1, d, n), x[1], t), zero, ""
    minus = a.pure(f"icmp eq {t} {x[1]}, {literal(-1, d, n)}")
    either = a.pure(f"or {vector('i1', n)} {zero}, {minus}")
    return a.select(either, n, literal(1, d, n), x[1], t), zero, minus


def _quotient(floor: bool) -> Emitter:
    def emit(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
        t = value_type(d, n)
        if d == i64 and n == 1 and x[1].isdigit() and int(x[1]) > 0:
            return _index_quotient(a, x[0], x[1], floor)
        by, zero, minus = _safe(a, d, n, x)
        if d.kind == "uint":
            return a.select(zero, n, literal(0, d, n), a.pure(f"udiv {t} {x[0]}, {by}"), t)
        out = a.pure(f"sdiv {t} {x[0]}, {by}")
        if floor:
            left = a.pure(f"srem {t} {x[0]}, {by}")
            out = _down(a, d, n, out, left, by)
        negated = a.pure(f"sub {t} {literal(0, d, n)}, {x[0]}")
        return a.select(zero, n, literal(0, d, n), a.select(minus, n, negated, out, t), t)

    return emit


def _down(a: Arithmetic, d: DType, n: int, quotient: str, left: str, by: str) -> str:
    """The quotient less 1 where the remainder is not 0 and has another sign than the divisor."""
    t, bits = value_type(d, n), vector("i1", n)
    some = a.pure(f"icmp ne {t} {left}, {literal(0, d, n)}")
    mixed = a.pure(f"icmp slt {t} {a.pure(f'xor {t} {left}, {by}')}, {literal(0, d, n)}")
    less = a.pure(f"and {bits} {some}, {mixed}")
    return a.pure(f"add {t} {quotient}, {a.pure(f'sext {bits} {less} to {t}')}")


def _index_quotient(a: Arithmetic, x: str, by: str, floor: bool) -> str:
    out = a.pure(f"sdiv i64 {x}, {by}")
    if not floor:
        return out
    left = a.pure(f"srem i64 {x}, {by}")
    return a.pure(f"add i64 {out}, {a.pure(f'ashr i64 {left}, 63')}")


def _remainder(floor: bool) -> Emitter:
    def emit(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
        t = value_type(d, n)
        if d == i64 and n == 1 and x[1].isdigit() and int(x[1]) > 0:
            left = a.pure(f"srem i64 {x[0]}, {x[1]}")
            sign = a.pure(f"ashr i64 {left}, 63")
            return a.pure(f"add i64 {left}, {a.pure(f'and i64 {sign}, {x[1]}')}") if floor else left
        by, zero, _ = _safe(a, d, n, x)
        left = a.pure(f"{'urem' if d.kind == 'uint' else 'srem'} {t} {x[0]}, {by}")
        if floor and d.kind == "int":
            some = a.pure(f"icmp ne {t} {left}, {literal(0, d, n)}")
            mixed = a.pure(f"icmp slt {t} {a.pure(f'xor {t} {left}, {by}')}, {literal(0, d, n)}")
            add = a.pure(f"and {vector('i1', n)} {some}, {mixed}")
            left = a.pure(f"add {t} {left}, {a.select(add, n, by, literal(0, d, n), t)}")
        # The remainder by -1 is 0, which the safe divisor 1 gives too.
        return a.select(zero, n, literal(0, d, n), left, t)

    return emit


def _shift(left: bool) -> Emitter:
    def emit(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
        t = value_type(d, n)
        fits = a.pure(f"icmp ult {t} {x[1]}, {literal(d.bits, d, n)}")
        if left or d.kind == "uint":
            shifted = a.pure(
                f"{'shl' if left else 'lshr'} {t} {x[0]}, {a.select(fits, n, x[1], literal(0, d, n), t)}"
            )
            return a.select(fits, n, shifted, literal(0, d, n), t)
        return a.pure(f"ashr {t} {x[0]}, {a.select(fits, n, x[1], literal(d.bits - 1, d, n), t)}")

    return emit


def _not(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    return a.pure(f"xor {value_type(d, n)} {x[0]}, {literal(True if d == boolean else -1, d, n)}")


def _negate(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    return a.pure(f"sub {value_type(d, n)} {literal(0, d, n)}, {x[0]}")


def _int_abs(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    t = value_type(d, n)
    if d.kind == "uint":
        return x[0]
    return a.pure(f"call {t} @llvm.abs.{suffix(scalar_type(d), n)}({t} {x[0]}, i1 false)")


def _int_power(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    """x ** y by squaring, unrolled over the bits of y; a negative y gives 0 except where x is 1 or -1."""
    t = value_type(d, n)
    zero, one = literal(0, d, n), literal(1, d, n)
    out, square = one, x[0]
    for bit in range(d.bits):
        shifted = a.pure(f"lshr {t} {x[1]}, {literal(bit, d, n)}")
        use = a.pure(f"icmp ne {t} {a.pure(f'and {t} {shifted}, {one}')}, {zero}")
        out = a.select(use, n, a.pure(f"mul {t} {out}, {square}"), out, t)
        square = a.pure(f"mul {t} {square}, {square}")
    return _negative_power(a, d, n, x, out)


def _negative_power(a: Arithmetic, d: DType, n: int, x: list[str], positive: str) -> str:
    if d.kind == "uint":
        return positive
    t, bits = value_type(d, n), vector("i1", n)
    negative = a.pure(f"icmp slt {t} {x[1]}, {literal(0, d, n)}")
    is_one = a.pure(f"icmp eq {t} {x[0]}, {literal(1, d, n)}")
    is_minus = a.pure(f"icmp eq {t} {x[0]}, {literal(-1, d, n)}")
    unit = a.pure(f"or {bits} {is_one}, {is_minus}")
    value = a.select(unit, n, positive, literal(0, d, n), t)
    return a.select(negative, n, value, positive, t)


INTEGER: dict[str, Emitter] = {
    **COMPARISONS,
    "add": infix("add"), "sub": infix("sub"), "mul": infix("mul"), "pow": _int_power,
    "floordiv": _quotient(True), "quot": _quotient(False), "mod": _remainder(True), "rem": _remainder(False),
    "minimum": lambda a, d, n, x: intrinsic("smin" if d.kind == "int" else "umin")(a, d, n, x),
    "maximum": lambda a, d, n, x: intrinsic("smax" if d.kind == "int" else "umax")(a, d, n, x),
    "and": infix("and"), "or": infix("or"), "xor": infix("xor"), "shl": _shift(True), "shr": _shift(False),
    "not": _not, "neg": _negate, "abs": _int_abs, "sign": sign,
}  # fmt: skip

BOOL: dict[str, Emitter] = {
    **COMPARISONS,
    "add": infix("or"), "mul": infix("and"), "minimum": infix("and"), "maximum": infix("or"),
    "and": infix("and"), "or": infix("or"), "xor": infix("xor"), "sub": infix("xor"), "not": _not,
    "abs": lambda a, d, n, x: x[0], "neg": lambda a, d, n, x: x[0], "sign": lambda a, d, n, x: x[0],
}  # fmt: skip
