"""Reads of formulas kept inside of their arrays, where no check before the run can promise it.

An index that depends on data, or that only a condition on data keeps inside, is cut to its axis. An index of
loops alone stays as it is where that is known to be inside: `verify` checks those that are affine, and the
others are tried here. Where there are too many values to try, it is cut too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .affine import affine, conjuncts, implied, interval
from .dtypes import DType, boolean, i64
from .exprs import Cast, Const, Expr, Load, Op, Var, const, op
from .printer import text
from .walk import free_vars, loads

Reach = tuple[int, int]
"""The lowest and the highest value."""

MOST_TRIED = 2**20
"""Values of one index that are tried."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known where an expression stands: `facts` hold; `picked`, where it is a side of a where."""

    shapes: Mapping[str, tuple[int, ...]]
    extents: Mapping[str, int]
    facts: tuple[Expr, ...] = ()
    picked: bool = False

    def under(self, cond: Expr) -> _Scope:
        pure = tuple([c for c in conjuncts(cond) if not _reads(c)])
        return _Scope(self.shapes, self.extents, self.facts + pure, True)


def clamped(value: Expr, shapes: Mapping[str, tuple[int, ...]], extents: Mapping[str, int]) -> Expr:
    """`value` with reads that might leave their arrays cut to them, by min(max(index, 0), size - 1).

    shapes: of the buffers. extents: of the loops around. Indices that stay inside whatever the data are, such
    as those cut already, stay as they are. ArgumentError for an axis without elements, which has no index at
    all, and for an index of loops that leaves its axis.
    """
    return value if 0 in extents.values() else _inside(value, _Scope(shapes, extents))


def _inside(expr: Expr, s: _Scope) -> Expr:
    args: tuple[Expr, ...]
    match expr:
        case Load(buffer, indices, dtype):
            new = tuple([_inside(i, s) for i in indices])
            cut = tuple([_cut(expr, i, n, s) for i, n in zip(new, s.shapes.get(buffer, ()), strict=False)])
            return expr if cut == indices or len(cut) != len(indices) else Load(buffer, cut, dtype)
        case Op("where", (cond, a, b), dtype):
            args = (_inside(cond, s), _inside(a, s.under(cond)), _inside(b, s.under(_negated(cond))))
        case Op(_, given, dtype):
            args = tuple([_inside(a, s) for a in given])
        case Cast(value, dtype):
            inner = _inside(value, s)
            return expr if inner is value else Cast(inner, dtype)
        case _:
            return expr
    same = all(a is b for a, b in zip(args, expr.args, strict=True))
    return expr if same else Op(expr.op, args, dtype)


_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def _negated(cond: Expr) -> Expr:
    if isinstance(cond, Op) and cond.op in _OPPOSITE:
        return op(_OPPOSITE[cond.op], *cond.args)
    return const(True, boolean)


def _reads(expr: Expr) -> bool:
    return any(True for _ in loads(expr))


def _cut(load: Load, index: Expr, size: int, s: _Scope) -> Expr:
    data = _reads(index)
    reach = _reach(index, s.extents) if data else interval(index, s.extents)
    if reach is not None and reach[0] >= 0 and reach[1] < size:
        return index
    if not data:
        fits = (op("ge", index, const(0)), op("lt", index, const(size)))
        if affine(index) is not None and not s.picked:
            return index
        if s.picked and all(implied(f, s.extents, s.facts) for f in fits):
            return index
        if affine(index) is None and _tried(load, index, size, s):
            return index
    if size == 0:
        raise ArgumentError(f"{text(load)} reads an axis of no elements; there is nothing to index")
    return op("minimum", op("maximum", index, const(0)), const(size - 1))


def _reach(expr: Expr, extents: Mapping[str, int]) -> Reach:
    """Safe bounds of an integer expression, whatever the arrays hold."""
    match expr:
        case Const(value, _):
            return int(value), int(value)
        case Var(name) if name in extents:
            return 0, extents[name] - 1
        case Op("minimum" | "maximum" as name, (a, b), _):
            pick = min if name == "minimum" else max
            (low, high), (other, last) = _reach(a, extents), _reach(b, extents)
            return pick(low, other), pick(high, last)
        case Op("mod", (_, Const(n, _)), _) if n > 0:
            return 0, int(n) - 1
        case Op("where", (_, a, b), _):
            sides = _reach(a, extents), _reach(b, extents)
            return min(x[0] for x in sides), max(x[1] for x in sides)
        case Op("add" | "sub" as name, (a, b), dtype) if dtype == i64:
            left, right = _reach(a, extents), _reach(b, extents)
            if name == "sub":
                right = -right[1], -right[0]
            return _without_wrap(left[0] + right[0], left[1] + right[1])
        case Op("mul", (a, b), dtype) if dtype == i64:
            ends = [x * y for x in _reach(a, extents) for y in _reach(b, extents)]
            return _without_wrap(min(ends), max(ends))
        case Cast(value, dtype) if dtype == i64 and not value.dtype.is_float:
            return _reach(value, extents)
    return _whole(expr.dtype)


def _whole(dtype: DType) -> Reach:
    if dtype == boolean:
        return 0, 1
    if dtype.kind == "uint":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def _without_wrap(low: int, high: int) -> Reach:
    """Bounds of an i64 result; beyond them it wraps, and may be anything."""
    whole = _whole(i64)
    return (low, high) if whole[0] <= low and high <= whole[1] else whole


_TRIED: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs,
    "floordiv": np.floor_divide, "mod": np.mod, "rem": np.fmod, "minimum": np.minimum, "maximum": np.maximum,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.invert, "where": np.where,
}  # fmt: skip


def _tried(load: Load, index: Expr, size: int, s: _Scope) -> bool:
    """Whether an index of loops, computed for each of their iterations, stays inside of its axis; False where
    that is too much to compute. ArgumentError where it does not, and no side of a where hides it."""
    facts = [f for f in s.facts if free_vars(f) & free_vars(index)]
    names = sorted(set().union(*[free_vars(e) for e in (index, *facts)]))
    if not s.extents.keys() >= set(names) or prod([s.extents[n] for n in names]) > MOST_TRIED:
        return False
    grid = dict(zip(names, np.ix_(*[np.arange(s.extents[n]) for n in names]), strict=True))
    with np.errstate(all="ignore"):
        found, *held = [_values(e, grid) for e in (index, *facts)]
    if found is None:
        return False
    # A condition that is not computed here holds back nothing.
    for holds in held:
        if holds is not None:
            found, holds = np.broadcast_arrays(found, holds)
            found = np.where(holds, found, 0)
    if found.min() >= 0 and found.max() < size:
        return True
    if not s.picked:
        raise ArgumentError(
            f"index {text(index)} reaches {found.min()}..{found.max()}, outside of an axis of {size}: "
            f"{text(load)}"
        )
    return False


def _values(expr: Expr, grid: Mapping[str, Any]) -> Any:
    """The values of an expression of loops; None where it has an operation that is not tried."""
    match expr:
        case Const(value, _):
            return np.asarray(value)
        case Var(name):
            return grid[name]
        case Op(name, args, dtype) if name in _TRIED and (dtype in (i64, boolean)):
            parts = [_values(a, grid) for a in args]
            return None if any(p is None for p in parts) else _TRIED[name](*parts)
        case Cast(value, dtype) if dtype == i64 and not value.dtype.is_float:
            inner = _values(value, grid)
            return None if inner is None else inner.astype(np.int64)
    return None
