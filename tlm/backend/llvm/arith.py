"""Elementwise operations as LLVM instructions: one table from names to emitters, for any number of lanes.

An emitter gets the operands as text, all of one dtype and number of lanes. Results follow numpy: minimum and maximum
propagate NaN, integers wrap, division by an integer zero gives 0, shifts by the width or more push every bit out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.dtypes import DType, bf16, boolean, f16, f32, f64, i32, i64
from .builder import Function
from .halves import from_half, to_half
from .mathlib import Library
from .types import literal, scalar_type, suffix, value_type, vector

Emitter = Callable[["Arithmetic", DType, int, list[str]], str]


@dataclass(slots=True)
class Arithmetic:
    """Where operations go: the function being written, and what the target offers."""

    function: Function
    library: Library
    fma: bool
    f16c: bool

    def pure(self, text: str) -> str:
        return self.function.pure(text)

    def operation(self, name: str, dtype: DType, lanes: int, args: list[str]) -> str:
        """OPS[name] on `args` of `dtype`; the result is i1 for comparisons and tests."""
        if dtype in (f16, bf16):
            return self._half(name, dtype, lanes, args)
        table = _FLOAT if dtype.is_float else _BOOL if dtype == boolean else _INTEGER
        emit = table.get(name)
        if emit is None and dtype.is_float:
            return self.library.call(self, name, dtype, lanes, args)
        assert emit is not None, f"{name} of {dtype}"
        return emit(self, dtype, lanes, args)

    def _half(self, name: str, dtype: DType, lanes: int, args: list[str]) -> str:
        # Rounding the f32 result of +, -, *, / and sqrt to a half type rounds correctly (Figueroa 1995).
        wide = [self.cast(a, dtype, f32, lanes) for a in args]
        out = self.operation(name, f32, lanes, wide)
        return out if name in _TO_BOOL else self.cast(out, f32, dtype, lanes)

    def fused(self, dtype: DType, lanes: int, a: str, b: str, c: str) -> str:
        """a * b + c for f32 and f64, rounded once where the target can."""
        t = value_type(dtype, lanes)
        if self.fma:
            return self.pure(
                f"call {t} @llvm.fma.{suffix(scalar_type(dtype), lanes)}({t} {a}, {t} {b}, {t} {c})"
            )
        product = self.pure(f"fmul {t} {a}, {b}")
        return self.pure(f"fadd {t} {product}, {c}")

    def select(self, cond: str, cond_lanes: int, a: str, b: str, type_: str) -> str:
        cond_type = vector("i1", cond_lanes)
        return self.pure(f"select {cond_type} {cond}, {type_} {a}, {type_} {b}")

    def splat(self, value: str, element: str, lanes: int) -> str:
        """`value` in every lane."""
        t = vector(element, lanes)
        first = self.pure(f"insertelement {t} poison, {element} {value}, i64 0")
        return self.pure(f"shufflevector {t} {first}, {t} poison, <{lanes} x i32> zeroinitializer")

    def cast(self, value: str, source: DType, to: DType, lanes: int) -> str:
        """A conversion; float to integer truncates and saturates, NaN gives 0."""
        if source == to:
            return value
        if source in (f16, bf16):
            return self.cast(from_half(self, value, source, lanes), f32, to, lanes)
        if to in (f16, bf16):
            if source == f64 or source.is_integer:
                # Rounding twice could differ from rounding once: an odd last bit keeps what was cut off.
                return to_half(
                    self, _round_to_odd(self, self.cast(value, source, f64, lanes), lanes), to, lanes
                )
            return to_half(self, self.cast(value, source, f32, lanes), to, lanes)
        return _plain_cast(self, value, source, to, lanes)


def _round_to_odd(a: Arithmetic, value: str, lanes: int) -> str:
    """f64 to f32 with the last bit set where the conversion is inexact (Boldo and Melquiond 2008)."""
    wide, single = vector("double", lanes), vector("float", lanes)
    bits = vector("i32", lanes)
    near = a.pure(f"fptrunc {wide} {value} to {single}")
    back = a.pure(f"fpext {single} {near} to {wide}")
    exact = a.pure(f"fcmp ueq {wide} {back}, {value}")
    size_near = a.pure(f"call {wide} @llvm.fabs.{suffix('double', lanes)}({wide} {back})")
    size = a.pure(f"call {wide} @llvm.fabs.{suffix('double', lanes)}({wide} {value})")
    above = a.pure(f"fcmp ogt {wide} {size_near}, {size}")
    raw = a.pure(f"bitcast {single} {near} to {bits}")
    # Truncated toward zero: one less in magnitude where the conversion went away from zero.
    down = a.pure(f"zext {vector('i1', lanes)} {above} to {bits}")
    cut = a.pure(f"sub {bits} {raw}, {down}")
    one = literal(1, i32, lanes)
    odd = a.pure(f"or {bits} {cut}, {one}")
    out = a.select(exact, lanes, raw, odd, bits)
    return a.pure(f"bitcast {bits} {out} to {single}")


def _plain_cast(a: Arithmetic, value: str, source: DType, to: DType, lanes: int) -> str:
    old, new = value_type(source, lanes), value_type(to, lanes)
    if to == boolean:
        zero = literal(0, source, lanes)
        return a.pure(
            f"fcmp une {old} {value}, {zero}" if source.is_float else f"icmp ne {old} {value}, {zero}"
        )
    if source.is_float and to.is_float:
        return a.pure(f"{'fpext' if to.bytes > source.bytes else 'fptrunc'} {old} {value} to {new}")
    if source.is_float:
        kind = "ui" if to.kind == "uint" else "si"
        names = f"{suffix(scalar_type(to), lanes)}.{suffix(scalar_type(source), lanes)}"
        return a.pure(f"call {new} @llvm.fpto{kind}.sat.{names}({old} {value})")
    unsigned = source.kind in ("uint", "bool")
    if to.is_float:
        return a.pure(f"{'uitofp' if unsigned else 'sitofp'} {old} {value} to {new}")
    if source.bytes == to.bytes and source != boolean:
        return value
    if source != boolean and to.bytes < source.bytes:
        return a.pure(f"trunc {old} {value} to {new}")
    return a.pure(f"{'zext' if unsigned else 'sext'} {old} {value} to {new}")


def _infix(opcode: str) -> Emitter:
    return lambda a, d, n, x: a.pure(f"{opcode} {value_type(d, n)} {x[0]}, {x[1]}")


def _compare(ordered: str, signed: str, unsigned: str) -> Emitter:
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


def _reciprocal_root(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    root = intrinsic("sqrt")(a, d, n, x)
    return a.pure(f"fdiv {value_type(d, n)} {literal(1.0, d, n)}, {root}")


def _sign(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    """-1, 0 or 1 of x's type; NaN stays NaN and zeros stay themselves."""
    t, zero = value_type(d, n), literal(0, d, n)
    if not d.is_float:
        above = _compare("", "sgt", "ugt")(a, d, n, [x[0], zero])
        below = _compare("", "slt", "ult")(a, d, n, [x[0], zero])
        rest = a.select(below, n, literal(-1 if d.kind == "int" else 0, d, n), zero, t)
        return a.select(above, n, literal(1, d, n), rest, t)
    one = intrinsic("copysign")(a, d, n, [literal(1.0, d, n), x[0]])
    other = a.pure(f"fcmp une {t} {x[0]}, {zero}")
    number = a.pure(f"fcmp ord {t} {x[0]}, {x[0]}")
    nonzero = a.pure(f"and {vector('i1', n)} {other}, {number}")
    return a.select(nonzero, n, one, x[0], t)


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


def _is_nan(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    return a.pure(f"fcmp uno {value_type(d, n)} {x[0]}, {x[0]}")


def _is_finite(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    size = intrinsic("fabs")(a, d, n, x)
    return a.pure(f"fcmp olt {value_type(d, n)} {size}, {literal(float('inf'), d, n)}")


def _float_remainder(a: Arithmetic, d: DType, n: int, x: list[str]) -> tuple[str, str]:
    """(C's remainder, whether it is not 0 and has another sign than the divisor)."""
    t, zero = value_type(d, n), literal(0.0, d, n)
    left = a.library.call(a, "rem", d, n, x)
    some = a.pure(f"fcmp une {t} {left}, {zero}")
    negative = a.pure(f"fcmp olt {t} {left}, {zero}")
    other = a.pure(f"fcmp olt {t} {x[1]}, {zero}")
    mixed = a.pure(f"xor {vector('i1', n)} {negative}, {other}")
    return left, a.pure(f"and {vector('i1', n)} {some}, {mixed}")


def _float_mod(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    """numpy's %: the remainder with the sign of the divisor."""
    t, zero = value_type(d, n), literal(0.0, d, n)
    left, mixed = _float_remainder(a, d, n, x)
    moved = a.select(mixed, n, a.pure(f"fadd {t} {left}, {x[1]}"), left, t)
    signed = intrinsic("copysign")(a, d, n, [zero, x[1]])
    return a.select(a.pure(f"fcmp oeq {t} {left}, {zero}"), n, signed, moved, t)


def _float_floordiv(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    """numpy's //: the exact quotient of x less its remainder; x / y itself where y is 0."""
    t, zero = value_type(d, n), literal(0.0, d, n)
    left, mixed = _float_remainder(a, d, n, x)
    quotient = a.pure(f"fdiv {t} {a.pure(f'fsub {t} {x[0]}, {left}')}, {x[1]}")
    quotient = a.select(mixed, n, a.pure(f"fsub {t} {quotient}, {literal(1.0, d, n)}"), quotient, t)
    floor = intrinsic("floor")(a, d, n, [quotient])
    gap = a.pure(f"fsub {t} {quotient}, {floor}")
    up = a.pure(f"fcmp ogt {t} {gap}, {literal(0.5, d, n)}")
    near = a.select(up, n, a.pure(f"fadd {t} {floor}, {literal(1.0, d, n)}"), floor, t)
    plain = a.pure(f"fdiv {t} {x[0]}, {x[1]}")
    signed = intrinsic("copysign")(a, d, n, [zero, plain])
    is_zero = a.pure(f"fcmp oeq {t} {quotient}, {zero}")
    by_zero = a.pure(f"fcmp oeq {t} {x[1]}, {zero}")
    return a.select(by_zero, n, plain, a.select(is_zero, n, signed, near, t), t)


def _logistic(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    """1 / (1 + exp(-x)); exp overflows to inf for very negative x, and the quotient is then 0."""
    t = value_type(d, n)
    e = a.library.call(a, "exp", d, n, [a.pure(f"fneg {t} {x[0]}")])
    one = literal(1.0, d, n)
    return a.pure(f"fdiv {t} {one}, {a.pure(f'fadd {t} {one}, {e}')}")


_COMPARISONS: dict[str, Emitter] = {
    "lt": _compare("olt", "slt", "ult"), "le": _compare("ole", "sle", "ule"), "gt": _compare("ogt", "sgt", "ugt"),
    "ge": _compare("oge", "sge", "uge"), "eq": _compare("oeq", "eq", "eq"), "ne": _compare("une", "ne", "ne"),
}  # fmt: skip
_TO_BOOL = frozenset((*_COMPARISONS, "isnan", "isfinite"))

_FLOAT: dict[str, Emitter] = {
    **_COMPARISONS,
    "add": _infix("fadd"), "sub": _infix("fsub"), "mul": _infix("fmul"), "div": _infix("fdiv"),
    "mod": _float_mod, "floordiv": _float_floordiv,
    "minimum": intrinsic("minimum", "nsz "), "maximum": intrinsic("maximum", "nsz "),
    "neg": lambda a, d, n, x: a.pure(f"fneg {value_type(d, n)} {x[0]}"), "abs": intrinsic("fabs"), "sign": _sign,
    "fma": lambda a, d, n, x: a.fused(d, n, *x), "isnan": _is_nan, "isfinite": _is_finite,
    "sqrt": intrinsic("sqrt"), "rsqrt": _reciprocal_root, "logistic": _logistic,
    "floor": intrinsic("floor"), "ceil": intrinsic("ceil"), "round": intrinsic("roundeven"),
    "trunc": intrinsic("trunc"),
}  # fmt: skip

_INTEGER: dict[str, Emitter] = {
    **_COMPARISONS,
    "add": _infix("add"), "sub": _infix("sub"), "mul": _infix("mul"), "pow": _int_power,
    "floordiv": _quotient(True), "quot": _quotient(False), "mod": _remainder(True), "rem": _remainder(False),
    "minimum": lambda a, d, n, x: intrinsic("smin" if d.kind == "int" else "umin")(a, d, n, x),
    "maximum": lambda a, d, n, x: intrinsic("smax" if d.kind == "int" else "umax")(a, d, n, x),
    "and": _infix("and"), "or": _infix("or"), "xor": _infix("xor"), "shl": _shift(True), "shr": _shift(False),
    "not": _not, "neg": _negate, "abs": _int_abs, "sign": _sign,
}  # fmt: skip

_BOOL: dict[str, Emitter] = {
    **_COMPARISONS,
    "add": _infix("or"), "mul": _infix("and"), "minimum": _infix("and"), "maximum": _infix("or"),
    "and": _infix("and"), "or": _infix("or"), "xor": _infix("xor"), "sub": _infix("xor"), "not": _not,
    "abs": lambda a, d, n, x: x[0], "neg": lambda a, d, n, x: x[0], "sign": lambda a, d, n, x: x[0],
}  # fmt: skip
