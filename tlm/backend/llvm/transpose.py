"""Transposing a square tile in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .types import vector

if TYPE_CHECKING:
    from .arith import Arithmetic


def transposed(a: Arithmetic, rows: list[str], element: str) -> list[str]:
    """The columns of n vectors of n elements, n a power of two, in log2(n) rounds of n shuffles.

    Each round interleaves vector i with vector i + n / 2, a perfect shuffle of the whole tile (Stone 1971):
    it turns the bits of an element's number (row, column) by one place, so that log2(n) rounds swap the two.
    """
    n = len(rows)
    t = vector(element, n)
    halves = [", ".join([f"i32 {i // 2 + start + n * (i % 2)}" for i in range(n)]) for start in (0, n // 2)]
    size = n
    while size > 1:
        rows = [
            a.pure(f"shufflevector {t} {rows[i]}, {t} {rows[i + n // 2]}, <{n} x i32> <{picked}>")
            for i in range(n // 2)
            for picked in halves
        ]
        size //= 2
    return rows
