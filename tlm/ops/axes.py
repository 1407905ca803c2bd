"""Axes of operators: normalising what a caller names, and taking indices apart by them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from ..ir.build import default_axes
from ..ir.exprs import Expr


def _no_bool(axis: Any) -> Any:
    # A bool has an index, but True is no axis.
    return None if isinstance(axis, bool) else axis


def one(name: str, axis: Any, rank: int) -> int:
    """`axis` as a number from 0 on; ArgumentError where an array of `rank` dimensions has none such."""
    try:
        found = operator.index(_no_bool(axis))
    except TypeError:
        raise ArgumentError(f"{name}: axis is an integer, got {axis!r}") from None
    if not -rank <= found < rank:
        raise ArgumentError(f"{name}: axis {found} is out of range for {rank} dimensions")
    return found % rank


def several(name: str, axis: Any, rank: int) -> tuple[int, ...]:
    """The axes that `axis` names, in ascending order: an integer, several, or None for all."""
    if axis is None:
        return tuple(range(rank))
    listed = axis if isinstance(axis, (tuple, list)) else (axis,)
    found = [one(name, a, rank) for a in listed]
    if len(set(found)) != len(found):
        raise ArgumentError(f"{name}: axis {axis} names an axis twice")
    return tuple(sorted(found))


def kept(rank: int, reduced: Sequence[int]) -> tuple[int, ...]:
    """The axes that are not reduced."""
    return tuple([n for n in range(rank) if n not in reduced])


def names(rank: int) -> tuple[str, ...]:
    """Loop names of all axes of an array of `rank` dimensions."""
    return default_axes(rank)


def merged(
    rank: int, reduced: Sequence[int], outer: Sequence[Expr], inner: Sequence[Expr]
) -> tuple[Expr, ...]:
    """The index of a whole array from those of its kept and of its reduced axes."""
    rest, gone = iter(outer), iter(inner)
    return tuple([next(gone) if n in reduced else next(rest) for n in range(rank)])


def broadcast(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which `shapes` broadcast by numpy's rules."""
    import numpy as np

    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ArgumentError(
            f"{name} of shapes {', '.join(map(str, shapes))}: they do not broadcast"
        ) from None
    except RuntimeError:
        most = max(map(len, shapes))
        raise ArgumentError(f"{name} of arrays with {most} axes; numpy broadcasts at most 32") from None


def aligned(shape: tuple[int, ...], at: Sequence[Expr]) -> tuple[Expr | int, ...]:
    """The index of an array of `shape` that element `at` of a broadcast result reads."""
    own = at[len(at) - len(shape) :]
    return tuple([0 if extent == 1 else index for extent, index in zip(shape, own, strict=True)])
