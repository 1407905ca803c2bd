"""Elementary functions: from glibc's libmvec where it is, else own polynomials or scalar calls of libm."""

from __future__ import annotations

import ctypes
import ctypes.util
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from ...ir.dtypes import DType, f32, f64
from . import poly
from .types import scalar_type, vector

if TYPE_CHECKING:
    from .arith import Arithmetic

# Operations that libm knows under another name than ours.
_LIBM = {"rem": "fmod"}
_BINARY = ("pow", "atan2", "rem")
# In libmvec since glibc 2.22 and 2.35, at most 4 ulp wrong.
_LIBMVEC = ("exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
            "sinh", "cosh",
            "tanh", "erf", "erfc", "cbrt", "pow", "atan2")  # fmt: skip
# Where libmvec strays further: erfc in f64 by 4.5 ulp, so that it goes through libm, lane by lane.
_STRAYS = (("erfc", f64),)
# Where own polynomials, with FMA, are more exact than libmvec and twice as fast (measured on AVX-512); it
# has no logistic.
_INLINE = ("exp", "log", "tanh", "erf", "logistic")
# Bytes of a vector argument: the letter of the ABI, and the levels that have such vectors.
_ABI = {16: "b", 32: "d", 64: "e"}
_WIDTHS = {"avx512": (64, 32, 16), "avx2": (32, 16), "sse": (16,)}


@cache
def libmvec() -> ctypes.CDLL | None:
    """glibc's vector math library, None where there is none."""
    try:
        return ctypes.CDLL("libmvec.so.1")
    except OSError:
        return None


@cache
def libm() -> ctypes.CDLL:
    """The C library's scalar functions."""
    return ctypes.CDLL(ctypes.util.find_library("m") or None)


@cache
def has_symbol(name: str) -> bool:
    """Whether this machine's libmvec has a function."""
    return libmvec() is not None and hasattr(libmvec(), name)


@dataclass(slots=True)
class Library:
    """The functions that a kernel calls, `declarations` by symbol; libmvec's only where `vectors`."""

    isa: str
    vectors: bool = True
    declarations: dict[str, str] = field(default_factory=dict)

    def call(self, a: Arithmetic, name: str, dtype: DType, lanes: int, args: list[str]) -> str:
        """`name` of `args`, all of f32 or f64."""
        if lanes == 1:
            return self._scalar(a, name, dtype, args)
        if self.inlines(a, name, dtype, lanes):
            return poly.FUNCTIONS[name](a, lanes, args[0])
        known = self.vectors and name in _LIBMVEC and (name, dtype) not in _STRAYS
        widths = _WIDTHS.get(self.isa, ()) if known else ()
        for bytes in widths:
            width = bytes // dtype.bytes
            symbol = self._symbol(name, dtype, bytes)
            if (width <= lanes or bytes == 16) and has_symbol(symbol):
                return self._pieces(a, symbol, dtype, lanes, width, args)
        if dtype == f32 and name in poly.FUNCTIONS:
            return poly.FUNCTIONS[name](a, lanes, args[0])
        return self._lane_by_lane(a, name, dtype, lanes, args)

    def inlines(self, a: Arithmetic, name: str, dtype: DType, lanes: int) -> bool:
        """Whether `name` is written out as a polynomial, whatever other libraries have."""
        return lanes > 1 and dtype == f32 and name in _INLINE and a.fma

    def _symbol(self, name: str, dtype: DType, bytes: int) -> str:
        arity = "vv" if name in _BINARY else "v"
        return f"_ZGV{_ABI[bytes]}N{bytes // dtype.bytes}{arity}_{name}{'f' if dtype == f32 else ''}"

    def _declare(self, symbol: str, type_: str, arity: int) -> None:
        self.declarations[symbol] = f"declare {type_} @{symbol}({', '.join([type_] * arity)})"

    def _scalar(self, a: Arithmetic, name: str, dtype: DType, args: list[str]) -> str:
        t, symbol = scalar_type(dtype), _LIBM.get(name, name) + ("f" if dtype == f32 else "")
        self._declare(symbol, t, len(args))
        return a.pure(f"call {t} @{symbol}({', '.join([f'{t} {x}' for x in args])})")

    def _pieces(
        self, a: Arithmetic, symbol: str, dtype: DType, lanes: int, width: int, args: list[str]
    ) -> str:
        """Calls on vectors of `width` lanes, cut out of or filled up from `lanes`."""
        t, part = vector(scalar_type(dtype), lanes), vector(scalar_type(dtype), width)
        self._declare(symbol, part, len(args))
        if lanes == width:
            return a.pure(f"call {t} @{symbol}({', '.join([f'{t} {x}' for x in args])})")
        out = "poison"
        for start in range(0, lanes, width):
            picked = [min(start + i, lanes - 1) for i in range(width)]
            cut = [a.pure(f"shufflevector {t} {x}, {t} poison, {_indices(picked)}") for x in args]
            piece = a.pure(f"call {part} @{symbol}({', '.join([f'{part} {x}' for x in cut])})")
            count = min(width, lanes - start)
            wide = [i if i < count else 0 for i in range(lanes)]
            spread = a.pure(f"shufflevector {part} {piece}, {part} poison, {_indices(wide)}")
            if out == "poison":
                out = spread
            else:
                moved = [lanes + i - start if start <= i < start + count else i for i in range(lanes)]
                out = a.pure(f"shufflevector {t} {out}, {t} {spread}, {_indices(moved)}")
        return out

    def _lane_by_lane(self, a: Arithmetic, name: str, dtype: DType, lanes: int, args: list[str]) -> str:
        element = scalar_type(dtype)
        t, out = vector(element, lanes), "poison"
        for lane in range(lanes):
            one = [a.pure(f"extractelement {t} {x}, i64 {lane}") for x in args]
            out = a.pure(
                f"insertelement {t} {out}, {element} {self._scalar(a, name, dtype, one)}, i64 {lane}"
            )
        return out


def _indices(lanes: list[int]) -> str:
    return f"<{len(lanes)} x i32> <" + ", ".join([f"i32 {i}" for i in lanes]) + ">"
