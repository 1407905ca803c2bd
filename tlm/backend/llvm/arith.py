"""Elementwise operations as LLVM instructions: one table from names to emitters, for any number of lanes.

An emitter gets the operands as text, all of one dtype and number of lanes. Results follow numpy: minimum and
maximum propagate NaN, integers wrap, division by an integer zero gives 0, shifts by the width or more push
every bit out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...ir.dtypes import DType, bf16, boolean, f16, f32, f64, i32, i64
from .builder import Function
from .emitters import COMPARISONS
from .floats import FLOAT
from .halves import from_half, to_half
from .integers import BOOL, INTEGER
from .mathlib import Library
from .types import literal, scalar_type, suffix, value_type, vector

_TO_BOOL = frozenset((*COMPARISONS, "isnan", "isfinite"))


@dataclass(slots=True)
class Arithmetic:
    """Where operations go: the function being written, and what the target offers."""

    function: Function
    library: Library
    fma: bool
    f16c: bool

    def pure(self, text: str) -> str:
        """See `Function.pure`."""
        return self.function.pure(text)

    def operation(self, name: str, dtype: DType, lanes: int, args: list[str]) -> str:
        """OPS[name] on `args` of `dtype`; the result is i1 for comparisons and tests."""
        if dtype in (f16, bf16):
            return self._half(name, dtype, lanes, args)
        table = FLOAT if dtype.is_float else BOOL if dtype == boolean else INTEGER
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
        """`a` where `cond` holds, else `b`, both of `type_`; a condition of one lane picks whole vectors."""
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
                if source == i64:
                    value = _sticky(self, value, lanes)
                wide = self.cast(value, source, f64, lanes)
                return to_half(self, _round_to_odd(self, wide, lanes), to, lanes)
            return to_half(self, self.cast(value, source, f32, lanes), to, lanes)
        return _plain_cast(self, value, source, to, lanes)


def _sticky(a: Arithmetic, value: str, lanes: int) -> str:
    """An i64 that f64 holds exactly, between the same two neighbours of fewer than 43 bits: beyond 2**53 the
    lowest 11 bits become one that says whether any of them was set."""
    whole, number = vector("i64", lanes), partial(literal, dtype=i64, lanes=lanes)
    low = a.pure(f"and {whole} {value}, {number(2**11 - 1)}")
    some = a.pure(f"icmp ne {whole} {low}, {number(0)}")
    bit = a.select(some, lanes, number(2**10), number(0), whole)
    high = a.pure(f"and {whole} {value}, {number(-(2**11))}")
    cut = a.pure(f"or {whole} {high}, {bit}")
    moved = a.pure(f"add {whole} {value}, {number(2**53)}")
    large = a.pure(f"icmp ugt {whole} {moved}, {number(2**54)}")
    return a.select(large, lanes, cut, value, whole)


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
