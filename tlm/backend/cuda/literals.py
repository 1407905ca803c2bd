"""Constants as CUDA C, bit for bit."""

from __future__ import annotations

import math

import numpy as np

from ...ir.arithmetic import limits, scalar
from ...ir.dtypes import DType, boolean, f64, i64
from .device import STORED


def literal(value: float | bool, dtype: DType) -> str:
    """A constant."""
    if dtype == boolean:
        return "true" if value else "false"
    if not dtype.is_float:
        low = limits(dtype)[0]
        suffix = "LL" if dtype == i64 else ""
        text = (
            f"{int(value)}{suffix}"
            if value > low or dtype.kind == "uint"
            else f"{int(value) + 1}{suffix} - 1"
        )
        return f"({STORED[dtype.name]})({text})" if dtype.bytes < 4 else f"({text})" if value < 0 else text
    exact = float(scalar(dtype)(value))
    if math.isnan(exact):
        return "__int_as_float(0x7fc00000)" if dtype != f64 else "__longlong_as_double(0x7ff8000000000000LL)"
    if math.isinf(exact):
        if dtype == f64:
            return f"__longlong_as_double({'0xfff' if exact < 0 else '0x7ff'}0000000000000LL)"
        return f"__int_as_float({'0xff800000' if exact < 0 else '0x7f800000'})"
    text = repr(exact) if dtype == f64 else f"{np.float32(exact)!s}f"
    return f"({text})" if text.startswith("-") else text
