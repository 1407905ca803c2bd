"""LLVM's names of types and literals. Half types travel as i16, bool as i1 (i8 in memory)."""

from __future__ import annotations

import math
import struct
from functools import cache

from ...ir.dtypes import DType, bf16, f16

Known = bool | tuple[bool, ...]

_SCALARS = {
    "f16": "i16", "bf16": "i16", "f32": "float", "f64": "double", "i8": "i8", "i16": "i16", "i32": "i32",
    "i64": "i64",
    "u8": "i8", "bool": "i1",
}  # fmt: skip


def scalar_type(dtype: DType) -> str:
    """The type of one value."""
    return _SCALARS[dtype.name]


def memory_type(dtype: DType) -> str:
    """The type of one element in memory."""
    return "i8" if dtype.kind == "bool" else _SCALARS[dtype.name]


@cache
def vector(element: str, lanes: int) -> str:
    """The type of `lanes` elements; the element itself for 1."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def value_type(dtype: DType, lanes: int) -> str:
    """The type of `lanes` values."""
    return vector(_SCALARS[dtype.name], lanes)


def suffix(element: str, lanes: int) -> str:
    """How overloaded intrinsics name a type: f32, v16f32, v8i64."""
    short = {"float": "f32", "double": "f64", "ptr": "p0", "half": "f16"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"


def literal(value: float | bool, dtype: DType, lanes: int = 1) -> str:
    """A constant, the same in every lane."""
    return _signed(value, math.copysign(1.0, value), dtype, lanes)


@cache
def _signed(value: float | bool, sign: float, dtype: DType, lanes: int) -> str:
    """`literal`, where `sign` tells -0.0 from 0.0, which are equal."""
    one = _literal(value, dtype)
    if lanes > 1 and one in _ZEROS:
        return "zeroinitializer"
    return one if lanes == 1 else splat_literal(one, scalar_type(dtype), lanes)


_ZEROS = frozenset(("0", "false", "0x0000000000000000"))


def splat_literal(one: str, element: str, lanes: int) -> str:
    """A vector with the constant `one` in each lane."""
    if one in _ZEROS:
        return "zeroinitializer"
    return "<" + ", ".join([f"{element} {one}"] * lanes) + ">"


def vector_literal(values: list[int], element: str) -> str:
    """A vector of integers."""
    return "<" + ", ".join([f"{element} {v}" for v in values]) + ">"


def _literal(value: float | bool, dtype: DType) -> str:
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype == f16:
        return str(half_bits(float(value)))
    if dtype == bf16:
        return str(bfloat_bits(float(value)))
    if dtype.is_float:
        return float_literal(float(value), dtype.bytes == 4)
    return str(int(value))


def float_literal(value: float, single: bool) -> str:
    """A float or double constant as LLVM reads it: the bits of the double, rounded to single where asked."""
    if single:
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def half_bits(value: float) -> int:
    """The bits of the nearest f16; infinity beyond its range."""
    try:
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    except OverflowError:
        return 0x7C00 if value > 0 else 0xFC00


def bfloat_bits(value: float) -> int:
    """The bits of the nearest bf16, ties to even; infinity beyond the range of f32."""
    if value != value:
        return 0x7FC0
    try:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0x7F80 if value > 0 else 0xFF80
    return int((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


def mask_literal(mask: tuple[bool, ...]) -> str:
    """A mask that is known when compiling."""
    return "<" + ", ".join(["i1 true" if m else "i1 false" for m in mask]) + ">"
