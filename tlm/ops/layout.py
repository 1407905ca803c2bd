"""Moving elements: transposes, concatenations, padding, picking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..ir.build import Tensor
from ..ir.dtypes import promote
from ..ir.exprs import Expr, const, converted, op
from .axes import aligned, broadcast, one, several
from .expressions import compute, size_of
from .functions import both, index, where
from .operator import operator


@operator
def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """x with its axes in the order `axes` (reversed by default), as a new C-contiguous array."""
    order = tuple(reversed(range(x.ndim))) if axes is None else axes
    listed = order if isinstance(order, tuple) else (order,)
    found = tuple([one("transpose", a, x.ndim) for a in listed])
    if sorted(found) != list(range(x.ndim)):
        raise ArgumentError(f"transpose: axes {axes} are not a permutation of those of shape {x.shape}")
    place = [found.index(n) for n in range(x.ndim)]
    shape = tuple([x.shape[n] for n in found])
    return compute(shape, lambda *at: x[tuple([at[n] for n in place])], name="Y")


_CHAIN = 64
"""Arrays that are told apart one after the other; more of them by halves."""


@operator
def concatenate(arrays: Sequence[Tensor], axis: int | None = 0) -> Tensor:
    """The arrays one after the other along `axis` (None: each as one row), as numpy.concatenate."""
    if not arrays:
        raise ArgumentError("concatenate needs at least one array")
    if axis is None:
        if any(a.ndim != 1 for a in arrays):
            raise ArgumentError("concatenate with axis=None takes 1-D arrays; reshape them first")
        axis = 0
    first = arrays[0]
    along = one("concatenate", axis, first.ndim)
    dtype = first.dtype
    for a in arrays:
        dtype = promote(dtype, a.dtype)
        if a.ndim != first.ndim or any(
            m != n for d, (m, n) in enumerate(zip(a.shape, first.shape, strict=True)) if d != along
        ):
            raise ArgumentError(
                f"concatenate along axis {along}: shapes {', '.join(str(b.shape) for b in arrays)} differ "
                "in another axis"
            )
    starts = [sum([a.shape[along] for a in arrays[:n]]) for n in range(len(arrays))]
    total = starts[-1] + arrays[-1].shape[along]
    parts = [(s, a) for s, a in zip(starts, arrays, strict=True) if a.shape[along]] or [(0, first)]

    def value(*at: Expr) -> Expr:
        def part(start: int, x: Tensor) -> Expr:
            here = at[along] - start if start else at[along]
            return converted(x[(*at[:along], here, *at[along + 1 :])], dtype)

        def picked(among: Sequence[tuple[int, Tensor]]) -> Expr:
            if len(among) == 1:
                return part(*among[0])
            first = 1 if len(parts) <= _CHAIN else len(among) // 2
            return where(at[along] < among[first][0], picked(among[:first]), picked(among[first:]))

        return picked(parts)

    shape = tuple([total if n == along else s for n, s in enumerate(first.shape)])
    return compute(shape, value, name="Y")


def _edge(at: Expr, size: int) -> Expr:
    return op("minimum", op("maximum", at, const(0)), const(size - 1))


def _reflect(at: Expr, size: int) -> Expr:
    if size == 1:
        return const(0)
    period = 2 * (size - 1)
    inside = at % period
    return op("minimum", inside, const(period) - inside)


def _symmetric(at: Expr, size: int) -> Expr:
    inside = at % (2 * size)
    return op("minimum", inside, const(2 * size - 1) - inside)


_MODES: dict[str, Callable[[Expr, int], Expr]] = {
    "edge": _edge, "reflect": _reflect, "symmetric": _symmetric, "wrap": lambda at, size: at % size,
}  # fmt: skip


@operator
def pad(x: Tensor, pad_width: Any, mode: str = "constant", *, constant_values: float | bool = 0) -> Tensor:
    """x with elements added at both ends of its axes, as numpy.pad.

    `pad_width` is an integer, a pair for all axes, or a pair an axis. Modes: "constant" (with one value),
    "edge", "reflect", "symmetric", "wrap".
    """
    widths = _widths(x, pad_width)
    shape = tuple([low + n + high for n, (low, high) in zip(x.shape, widths, strict=True)])
    if mode == "constant":
        fill = converted(constant_values, x.dtype)

        def value(*at: Expr) -> Expr:
            inside: list[Expr] = []
            moved: list[Expr] = []
            for var, n, (low, high) in zip(at, x.shape, widths, strict=True):
                moved.append(var - low if low else var)
                inside += [moved[-1] >= 0] if low else []
                inside += [moved[-1] < n] if high else []
            condition = both(inside)
            found = x[tuple(moved)]
            return found if condition is None else where(condition, found, fill)

        return compute(shape, value, name="Y")
    if mode not in _MODES:
        raise ArgumentError(f"pad: mode is 'constant', {', '.join(map(repr, _MODES))}; got {mode!r}")
    if any(n == 0 and (low or high) for n, (low, high) in zip(x.shape, widths, strict=True)):
        raise ArgumentError(f"pad of shape {x.shape}: an empty axis can only be padded with a constant")

    def folded(*at: Expr) -> Expr:
        return x[
            tuple(
                [
                    _MODES[mode](var - low, n) if low or high else var
                    for var, n, (low, high) in zip(at, x.shape, widths, strict=True)
                ]
            )
        ]

    return compute(shape, folded, name="Y")


def _widths(x: Tensor, given: Any) -> list[tuple[int, int]]:
    listed = given if isinstance(given, tuple) else (given,)
    if listed and all(not isinstance(v, tuple) for v in listed):
        pairs = [(listed[0], listed[-1])] * x.ndim if len(listed) <= 2 else []
    elif len(listed) == 1:
        pairs = [tuple(listed[0])] * x.ndim
    else:
        pairs = list(listed)
    if len(pairs) != x.ndim or any(not isinstance(p, tuple) or len(p) not in (1, 2) for p in pairs):
        raise ArgumentError(
            f"pad of shape {x.shape}: pad_width is an integer, a pair, or a pair for each axis; got {given!r}"
        )
    return [(_width(given, p[0]), _width(given, p[-1])) for p in pairs]


def _width(given: Any, width: Any) -> int:
    if isinstance(width, bool) or not hasattr(width, "__index__"):
        raise ArgumentError(
            f"pad: pad_width is integers of at least 0, got {width!r}"
            + ("" if width is given else f" in {given!r}")
        )
    return size_of("pad: a padding", width)


def _in_range(x: Any, indices: Any, axis: Any = None, *, mode: str = "raise") -> None:
    """ArgumentError where an index of `take` is outside of its axis."""
    found, shape = np.asarray(indices), np.shape(x)
    if mode != "raise" or found.size == 0 or found.dtype.kind not in "iu":
        return
    size = int(np.prod(shape)) if axis is None else shape[one("take", axis, len(shape))]
    low, high = int(found.min()), int(found.max())
    if low < -size or high >= size:
        wrong = low if low < -size else high
        raise ArgumentError(f"take: index {wrong} is out of range for an axis of {size} elements")


@operator(check=_in_range)
def take(x: Tensor, indices: Tensor, axis: int | None = None, *, mode: str = "raise") -> Tensor:
    """The elements of x at `indices` (integers, negative ones from the end) along `axis`, as numpy.take.

    With axis=None x must be 1-D. An index outside is an ArgumentError (mode "raise"), the nearest one inside
    ("clip"), or counts on from the other end ("wrap"). A kernel that is called on its own, and calls on
    arrays of a GPU, take the nearest instead of raising: to look at indices there would be to wait for them.
    """
    if mode not in ("raise", "clip", "wrap"):
        raise ArgumentError(f"take: mode is 'raise', 'clip' or 'wrap', got {mode!r}")
    if not indices.dtype.is_integer:
        raise ArgumentError(f"take: indices are integers, got {indices.dtype}")
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"take of shape {x.shape} needs axis=")
    along = one("take", 0 if axis is None else axis, x.ndim)
    size = x.shape[along]
    if size == 0 and 0 not in indices.shape:
        raise ArgumentError(f"take from an empty axis of shape {x.shape}")

    def value(*at: Expr) -> Expr:
        at_index = index(indices[at[along : along + indices.ndim]])
        if mode == "wrap":
            at_index = at_index % size
        else:
            if mode == "raise":
                at_index = where(at_index < 0, at_index + size, at_index)
            at_index = _edge(at_index, size)
        return x[(*at[:along], at_index, *at[along + indices.ndim :])]

    return compute((*x.shape[:along], *indices.shape, *x.shape[along + 1 :]), value, name="Y")


@operator
def flip(x: Tensor, axis: Any = None) -> Tensor:
    """x with the order of its elements along `axis` (an integer, several, or None: all) reversed."""
    turned = several("flip", axis, x.ndim)

    def value(*at: Expr) -> Expr:
        return x[tuple([const(x.shape[n] - 1) - v if n in turned else v for n, v in enumerate(at)])]

    return compute(x.shape, value, name="Y")


@operator
def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """x repeated to `shape` by numpy's rules of broadcasting, as a new array."""
    listed = shape if isinstance(shape, tuple) else (shape,)
    wanted = tuple([size_of("an axis of the result", n) for n in listed])
    if broadcast("broadcast_to", x.shape, wanted) != wanted:
        raise ArgumentError(f"broadcast_to: shape {x.shape} does not broadcast to {wanted}")
    return compute(wanted, lambda *at: x[aligned(x.shape, at)], name="Y")
