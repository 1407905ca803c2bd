"""Combiners of reductions: an identity and an associative merge, over tuples where one value is not enough.

A merge is written once, as expressions; the interpreter and every backend build their code from it.
Associativity (in real arithmetic) is what makes splitting, reordering and factoring of a reduction legal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .dtypes import DType, boolean
from .exprs import Const, Expr, const, op

Parts = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Combiner:
    """`identity(dtypes)` and `merge(a, b)` return one expression for each part of the tuple.

    `adds`: parts are running totals, which lose digits where they take very many terms.
    """

    name: str
    parts: int
    identity: Callable[[tuple[DType, ...]], tuple[Const, ...]]
    merge: Callable[[Parts, Parts], Parts]
    adds: bool = False


_LOWEST = {("int", 1): -(2**7), ("int", 2): -(2**15), ("int", 4): -(2**31), ("int", 8): -(2**63)}


def lowest(dtype: DType) -> Const:
    """The identity of max: -inf, or the smallest integer."""
    if dtype.is_float:
        return const(-math.inf, dtype)
    return const(_LOWEST[dtype.kind, dtype.bytes] if dtype.kind == "int" else 0, dtype)


def highest(dtype: DType) -> Const:
    """The identity of min: inf, or the largest integer."""
    if dtype.is_float:
        return const(math.inf, dtype)
    if dtype == boolean:
        return const(True, dtype)
    return const(-1 - _LOWEST[dtype.kind, dtype.bytes] if dtype.kind == "int" else 2**dtype.bits - 1, dtype)


def _arg(better: str) -> Callable[[Parts, Parts], Parts]:
    # A NaN wins over every number, and the smaller index wins a tie, as in numpy and JAX.
    def merge(a: Parts, b: Parts) -> Parts:
        (x, i), (y, j) = a, b
        nan_x = op("ne", x, x) if x.dtype.is_float else const(False, boolean)
        nan_y = op("ne", y, y) if y.dtype.is_float else const(False, boolean)
        wins = op("or", op(better, y, x), op("and", nan_y, op("not", nan_x)))
        ties = op("and", op("or", op("eq", x, y), op("and", nan_x, nan_y)), op("lt", j, i))
        take = op("or", op("and", wins, op("not", nan_x)), ties)
        return op("where", take, y, x), op("where", take, j, i)

    return merge


def _welford(a: Parts, b: Parts) -> Parts:
    """(count, mean, sum of squared deviations): the pairwise update of Chan, Golub and LeVeque (1979)."""
    (n, mean, m2), (k, other, q2) = a, b
    total = n + k
    safe = op("where", total > 0, total, const(1, total.dtype))
    delta = other - mean
    return total, mean + delta * (k / safe), m2 + q2 + delta * delta * (n * k / safe)


def _logsumexp(a: Parts, b: Parts) -> Parts:
    """(running max, sum of exp(x - max)): the online softmax of Milakov and Gimelshein (2018)."""
    (m, s), (n, t) = a, b
    top = op("maximum", m, n)
    # inf - inf is NaN: a side that is empty or all -inf must contribute nothing, and inf must stay.
    floor = op("where", op("isfinite", top), top, const(0, top.dtype))
    return top, s * op("exp", m - floor) + t * op("exp", n - floor)


COMBINERS: dict[str, Combiner] = {
    c.name: c
    for c in (
        Combiner("sum", 1, lambda d: (const(0, d[0]),), lambda a, b: (op("add", a[0], b[0]),), True),
        Combiner("prod", 1, lambda d: (const(1, d[0]),), lambda a, b: (op("mul", a[0], b[0]),)),
        Combiner("max", 1, lambda d: (lowest(d[0]),), lambda a, b: (op("maximum", a[0], b[0]),)),
        Combiner("min", 1, lambda d: (highest(d[0]),), lambda a, b: (op("minimum", a[0], b[0]),)),
        Combiner("any", 1, lambda d: (const(0, d[0]),), lambda a, b: (op("or", a[0], b[0]),)),
        Combiner("all", 1, lambda d: (const(True, d[0]),), lambda a, b: (op("and", a[0], b[0]),)),
        Combiner("argmax", 2, lambda d: (lowest(d[0]), highest(d[1])), _arg("gt")),
        Combiner("argmin", 2, lambda d: (highest(d[0]), highest(d[1])), _arg("lt")),
        Combiner("welford", 3, lambda d: (const(0, d[0]), const(0, d[1]), const(0, d[2])), _welford, True),
        Combiner("logsumexp", 2, lambda d: (lowest(d[0]), const(0, d[1])), _logsumexp, True),
    )
}
