"""The element type that a caller names by dtype=."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import DTypeError
from ..ir.dtypes import DTYPES, DType, from_numpy


def element_type(name: str, dtype: Any) -> DType:
    """The DType of what numpy.dtype takes, or of a name of tlm's ("f32", "bf16").

    Names that both have are numpy's, as everywhere in calls with arrays: "i8" is int64. `name` is what the
    message begins with. DTypeError where there is no such type.
    """
    if isinstance(dtype, DType):
        return dtype
    found = None if dtype is None else _read(dtype)
    if found is None:
        supported = ", ".join([d.numpy for d in DTYPES.values()])
        raise DTypeError(f"{name}: dtype {dtype!r} is not supported; supported are {supported}")
    return found


def product_type(name: str, dtype: Any, operands: Iterable[DType]) -> DType:
    """As `element_type`, for sums of products of such operands: whole numbers do not take floats."""
    goal = element_type(name, dtype)
    cut = next((d for d in operands if d.is_float and goal.is_integer), None)
    if cut is not None:
        raise DTypeError(
            f"{name}: dtype {goal.numpy} cannot hold products of {cut.numpy}; cast the result with astype"
        )
    return goal


def formula_type(name: str, dtype: Any) -> DType:
    """As `element_type`, for the elements of formulas: names that both have are tlm's, as programs print."""
    known = DTYPES.get(dtype) if isinstance(dtype, str) else None
    return known or element_type(name, dtype)


def _read(dtype: Any) -> DType | None:
    import numpy as np

    known = DTYPES.get(dtype) if isinstance(dtype, str) else None
    if isinstance(dtype, str) and dtype == "bfloat16":
        return DTYPES["bf16"]
    # Only numpy knows which names and objects it takes.
    try:
        read = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        return known
    try:
        return from_numpy(read)
    except DTypeError:
        # numpy's f16 has 16 bytes, and nobody means it; its u8 has 8, and is another type than tlm's.
        return known if known is not None and known.is_float else None
