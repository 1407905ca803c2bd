"""Conversions of f16 and bf16, held as i16, to and from f32, to nearest even.

f16 without conversion instructions follows F. Giesen's integer method: scale the exponent with one
multiplication, and let the f32 adder do the rounding of subnormals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.dtypes import DType, bf16, f32, i16, i32
from .types import literal, vector

if TYPE_CHECKING:
    from .arith import Arithmetic


def from_half(a: Arithmetic, value: str, dtype: DType, lanes: int) -> str:
    """The f32 of a half value; exact."""
    short, half, single, word = (vector(t, lanes) for t in ("i16", "half", "float", "i32"))
    if dtype == bf16:
        wide = a.pure(f"zext {short} {value} to {word}")
        return a.pure(f"bitcast {word} {a.pure(f'shl {word} {wide}, {literal(16, i32, lanes)}')} to {single}")
    if a.f16c:
        return a.pure(f"fpext {half} {a.pure(f'bitcast {short} {value} to {half}')} to {single}")
    n = lanes
    wide = a.pure(f"zext {short} {value} to {word}")
    low = a.pure(f"and {word} {wide}, {literal(0x7FFF, i32, n)}")
    shifted = a.pure(f"shl {word} {low}, {literal(13, i32, n)}")
    scaled = a.pure(
        f"fmul {single} {a.pure(f'bitcast {word} {shifted} to {single}')}, {literal(2.0**112, f32, n)}"
    )
    special = a.pure(f"icmp uge {word} {low}, {literal(0x7C00, i32, n)}")
    bits = a.pure(f"bitcast {single} {scaled} to {word}")
    bits = a.select(special, n, a.pure(f"or {word} {bits}, {literal(0x7F800000, i32, n)}"), bits, word)
    sign = a.pure(f"and {word} {wide}, {literal(0x8000, i32, n)}")
    sign = a.pure(f"shl {word} {sign}, {literal(16, i32, n)}")
    return a.pure(f"bitcast {word} {a.pure(f'or {word} {bits}, {sign}')} to {single}")


def to_half(a: Arithmetic, value: str, dtype: DType, lanes: int) -> str:
    """The nearest half value of an f32, ties to even; NaN stays NaN."""
    short, half, single, word = (vector(t, lanes) for t in ("i16", "half", "float", "i32"))
    if dtype == bf16:
        return _to_bfloat(a, value, lanes)
    if a.f16c:
        return a.pure(f"bitcast {half} {a.pure(f'fptrunc {single} {value} to {half}')} to {short}")
    n = lanes
    raw = a.pure(f"bitcast {single} {value} to {word}")
    sign = a.pure(f"and {word} {raw}, {literal(-0x80000000, i32, n)}")
    size = a.pure(f"xor {word} {raw}, {sign}")
    # Subnormal: adding 0.5 aligns the bits so that the addition rounds them.
    magic = literal(0.5, f32, n)
    sub = a.pure(f"fadd {single} {a.pure(f'bitcast {word} {size} to {single}')}, {magic}")
    sub = a.pure(f"sub {word} {a.pure(f'bitcast {single} {sub} to {word}')}, {literal(0x3F000000, i32, n)}")
    odd = a.pure(f"and {word} {a.pure(f'lshr {word} {size}, {literal(13, i32, n)}')}, {literal(1, i32, n)}")
    moved = a.pure(f"add {word} {size}, {literal(((15 - 127) << 23) + 0xFFF, i32, n)}")
    normal = a.pure(f"lshr {word} {a.pure(f'add {word} {moved}, {odd}')}, {literal(13, i32, n)}")
    small = a.pure(f"icmp ult {word} {size}, {literal(113 << 23, i32, n)}")
    out = a.select(small, n, sub, normal, word)
    huge = a.pure(f"icmp uge {word} {size}, {literal(143 << 23, i32, n)}")
    nan = a.pure(f"icmp ugt {word} {size}, {literal(255 << 23, i32, n)}")
    top = a.select(nan, n, literal(0x7E00, i32, n), literal(0x7C00, i32, n), word)
    out = a.select(huge, n, top, out, word)
    out = a.pure(f"or {word} {out}, {a.pure(f'lshr {word} {sign}, {literal(16, i32, n)}')}")
    return a.pure(f"trunc {word} {out} to {short}")


def _to_bfloat(a: Arithmetic, value: str, n: int) -> str:
    short, single, word = (vector(t, n) for t in ("i16", "float", "i32"))
    raw = a.pure(f"bitcast {single} {value} to {word}")
    high = a.pure(f"lshr {word} {raw}, {literal(16, i32, n)}")
    odd = a.pure(f"and {word} {high}, {literal(1, i32, n)}")
    biased = a.pure(f"add {word} {a.pure(f'add {word} {raw}, {literal(0x7FFF, i32, n)}')}, {odd}")
    rounded = a.pure(f"trunc {word} {a.pure(f'lshr {word} {biased}, {literal(16, i32, n)}')} to {short}")
    nan = a.pure(f"fcmp uno {single} {value}, {value}")
    sign = a.pure(f"and {short} {a.pure(f'trunc {word} {high} to {short}')}, {literal(-0x8000, i16, n)}")
    quiet = a.pure(f"or {short} {sign}, {literal(0x7FC0, i16, n)}")
    return a.select(nan, n, quiet, rounded, short)
