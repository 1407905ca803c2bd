"""The part of a buffer that accesses cover in one iteration of the loops outside: a box, or an exact tile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ir.affine import Affine, affine, interval
from ..ir.dtypes import i64
from ..ir.exprs import Expr, Op
from .access import Limit
from .rewriting import Extents


@dataclass(frozen=True, slots=True)
class Range:
    """origin <= index < origin + extent, with an origin that only the loops outside decide."""

    origin: Affine
    extent: int


def box(
    places: Sequence[tuple[Expr, ...]], shape: tuple[int, ...], inner: frozenset[str], extents: Extents,
    clip: bool = True,
) -> list[Range]:  # fmt: skip
    """For each dimension, a range (perhaps too wide) that holds all of `places` as the loops `inner` run.

    With `clip`, places are inside of `shape`, and so is a range that would be as long.
    """
    return [_range([p[d] for p in places], n, inner, extents, clip) for d, n in enumerate(shape)]


def _range(indices: Iterable[Expr], size: int, inner: frozenset[str], extents: Extents, clip: bool) -> Range:
    unique = list(dict.fromkeys(indices))
    forms = [f for f in map(_leading, unique) if f is not None]
    base = next((o for f in forms if (o := outside(f, inner)).terms), Affine(0))
    spans = [_span(e, base, extents) for e in unique]
    known = [s for s in spans if s is not None]
    if len(known) < len(spans) or not known:
        return Range(Affine(0), size)
    lo, hi = min([s[0] for s in known]), max([s[1] for s in known])
    whole = clip and hi - lo + 1 >= size
    return Range(Affine(0), size) if whole else Range(base.shift(lo), hi - lo + 1)


def outside(form: Affine, inner: frozenset[str]) -> Affine:
    """The terms of `form` over loops that are not `inner`, without the constant."""
    return Affine(0, tuple([(n, c) for n, c in form.terms if n not in inner]))


def _leading(expr: Expr) -> Affine | None:
    """An affine part that `expr` follows: itself, or the first of a minimum's or maximum's operands that
    uses loops."""
    form = affine(expr)
    if form is not None or not isinstance(expr, Op) or expr.op not in ("minimum", "maximum"):
        return form
    return next((f for f in map(_leading, expr.args) if f is not None and f.terms), None)


def _span(expr: Expr, base: Affine, extents: Extents) -> tuple[int, int] | None:
    """Bounds of expr - base."""
    form = affine(expr)
    if form is not None:
        return (form - base).interval(extents)
    if isinstance(expr, Op) and expr.op in ("minimum", "maximum") and expr.dtype == i64:
        sides = [_span(a, base, extents) for a in expr.args]
        known = [s for s in sides if s is not None]
        pick = min if expr.op == "minimum" else max
        return (pick([s[0] for s in known]), pick([s[1] for s in known])) if len(known) == 2 else None
    reach, shift = interval(expr, extents), base.interval(extents)
    return None if reach is None or shift is None else (reach[0] - shift[1], reach[1] - shift[0])


def tile(
    form: Affine, inner: frozenset[str], limits: Sequence[Limit], extents: Extents
) -> tuple[Range, set[Limit]] | None:
    """The exact range that `form` covers as the loops `inner` run under `limits`, and the limits that made it
    exact.

    None where it leaves holes. The terms of `inner` are taken by rising coefficient: each must start where
    the ones before it reach to, and a limit on their sum cuts that reach.
    """
    used: set[Limit] = set()
    reach, partial = 1, Affine(0)
    for c, name in sorted([(c, n) for n, c in form.terms if n in inner]):
        steps = extents[name] - 1
        if steps > 0 and not 0 < c <= reach:
            return None
        reach += c * max(steps, 0)
        partial += Affine(0, ((name, c),))
        for limit in limits:
            if limit[0] == partial:
                reach = min(reach, limit[1])
                used.add(limit)
    return Range(outside(form, inner).shift(form.const), max(reach, 0)), used
