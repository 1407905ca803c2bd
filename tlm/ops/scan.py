"""Running totals as sums over blocks, which run in vectors and threads where a recurrence could not."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from ..ir.build import Tensor, default_axes
from ..ir.dtypes import DType, accumulator, i64
from ..ir.exprs import Expr, const, converted
from .axes import one
from .dtypes import element_type
from .expressions import compute, sum
from .functions import where
from .operator import operator

BLOCK = 16
"""Elements of a block. Every element takes part in so many additions, most of them of zeros."""


@operator
def cumsum(x: Tensor, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """Running totals along `axis` (None: of a 1-D array), as numpy.cumsum.

    Integers and bools are added as int64, halves as f32. Totals of blocks of 16 elements are found first,
    those of blocks of 16 blocks of these and so on (Blelloch, 1990), so that digits of long sums are kept.
    """
    result = element_type("cumsum", dtype) if dtype is not None else x.dtype if x.dtype.is_float else i64
    acc = accumulator(result) if result.is_float else result
    if axis is None and x.ndim != 1:
        raise ArgumentError(
            f"cumsum of an array of {x.ndim} axes needs axis=; its elements in one row are x.ravel()"
        )
    along = one("cumsum", 0 if axis is None else axis, x.ndim)

    def element(*at: Expr) -> Expr:
        return converted(x[at], acc)

    return _running(x.shape, along, element, acc, result, 0)


def _running(
    shape: tuple[int, ...], along: int, element: Any, acc: DType, result: DType, level: int
) -> Tensor:
    """The inclusive running totals of element(*at) along an axis."""
    n = shape[along]
    names = default_axes(len(shape))
    label = "Y" if level == 0 else f"running{level}"
    if n <= BLOCK:

        def short(*at: Expr) -> Expr:
            *outer, k = at
            inner = (*outer[:along], k, *outer[along + 1 :])
            return where(k <= outer[along], element(*inner), const(0, acc))

        whole = sum(shape, short, {"k": n}, name=label if acc == result else "acc", axes=names, dtype=acc)
        return _as(whole, result) if level == 0 else whole
    blocks = -(-n // BLOCK)
    heads = tuple([blocks if d == along else s for d, s in enumerate(shape)])

    def inside(at: tuple[Expr, ...], k: Expr) -> Expr:
        position = at[along] * BLOCK + k
        found = element(*at[:along], position, *at[along + 1 :])
        return found if n % BLOCK == 0 else where(position < n, found, const(0, acc))

    totals = sum(
        heads, lambda *at: inside(at[:-1], at[-1]), {"k": BLOCK}, name=f"block{level}", axes=names, dtype=acc
    )
    before = _running(heads, along, lambda *at: totals[at], acc, acc, level + 1)

    def partial(*at: Expr) -> Expr:
        *outer, k = at
        position = outer[along] // BLOCK * BLOCK + k
        inner = (*outer[:along], position, *outer[along + 1 :])
        return where(position <= outer[along], element(*inner), const(0, acc))

    own = sum(shape, partial, {"k": BLOCK}, name=f"own{level}", axes=names, dtype=acc)

    def final(*at: Expr) -> Expr:
        block = at[along] // BLOCK
        first = converted(own[at], acc)
        head = before[(*at[:along], block - 1, *at[along + 1 :])]
        return converted(where(block > 0, first + head, first), result)

    return compute(shape, final, name=label, axes=names)


def _as(x: Tensor, dtype: DType) -> Tensor:
    return x if x.dtype == dtype else compute(x.shape, lambda *at: x[at], name="Y", dtype=dtype)
