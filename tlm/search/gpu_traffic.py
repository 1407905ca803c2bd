"""What the addresses of one warp cost: the banks and sectors that they fall on, and the part of a buffer that
a block touches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.affine import interval
from ..ir.dtypes import i64
from ..ir.exprs import Const, Expr, Op, Var
from ..ir.nodes import Buffer, For
from ..ir.walk import free_vars

BANKS, WORD = 32, 4
"""Banks of shared memory, and bytes that each gives in one pass."""


def free_vars_of(indices: tuple[Expr, ...]) -> frozenset[str]:
    return frozenset().union(*[free_vars(i) for i in indices])


def wavefronts(starts: set[int], width: int) -> int:
    """Passes over the banks: in each, a bank gives one word."""
    words: dict[int, set[int]] = {}
    for start in starts:
        for byte in range(0, max(width, WORD), WORD):
            word = (start + byte) // WORD
            words.setdefault(word % BANKS, set()).add(word)
    return max([len(w) for w in words.values()], default=1)


def addresses(
    around: tuple[For, ...], buffer: Buffer, indices: tuple[Expr, ...], shape: Mapping[str, int], warp: int
) -> Iterator[tuple[int, dict[str, int]]]:
    """(address in elements, values of the loops) of each thread of the first warp; all other loops at 0."""
    names = {f.kind: f for f in around if f.kind.startswith("thread")}
    zeros = {f.var: 0 for f in around}
    for lane in range(min(warp, prod(shape.values()))):
        values, rest = dict(zeros), lane
        inside = True
        for axis in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
            rest, at = divmod(rest, shape[axis])
            if axis in names:
                values[names[axis].var] = at
                inside &= at < names[axis].extent
            else:
                inside &= at == 0
        if inside:
            yield address(buffer, indices, values), values


def address(buffer: Buffer, indices: tuple[Expr, ...], values: Mapping[str, int]) -> int:
    """The offset of an element, in elements, as it lies in memory."""
    at = sum(
        _value(index, values) * step for index, step in zip(indices, buffer.element_strides, strict=True)
    )
    return at if buffer.swizzle is None else swizzled(at, buffer.swizzle)


def swizzled(at: int, swizzle: tuple[int, int, int]) -> int:
    """Where the element at offset `at` of a swizzled buffer lies."""
    period, ways, step = swizzle
    return at ^ at // period % ways * step


def _value(expr: Expr, values: Mapping[str, int]) -> int:
    """An index where its loops have `values`; what is read from memory counts as 0."""
    match expr:
        case Const(value):
            return int(value)
        case Var(name):
            return values[name]
        case Op(name, (x, y), dtype) if dtype == i64:
            a, b = _value(x, values), _value(y, values)
            match name:
                case "add":
                    return a + b
                case "sub":
                    return a - b
                case "mul":
                    return a * b
                case "floordiv":
                    return a // b if b else 0
                case "mod":
                    return a % b if b else 0
                case "minimum":
                    return min(a, b)
                case "maximum":
                    return max(a, b)
    return 0


def places(buffer: Buffer, indices: tuple[Expr, ...], order: Sequence[For], blocks: int) -> int:
    """At how many places of a buffer the first `blocks` blocks start, by the block loops, slowest first; all
    other loops are at 0."""
    rest, values = np.arange(blocks), dict[str, NDArray[np.int64]]()
    for f in reversed(order):
        rest, values[f.var] = np.divmod(rest, f.extent)
    zero = np.zeros(1, np.int64)
    starts = zero
    for index, step in zip(indices, buffer.element_strides, strict=True):
        starts = starts + step * _values(index, values, zero)
    return len(np.unique(starts))


def _values(
    expr: Expr, values: Mapping[str, NDArray[np.int64]], zero: NDArray[np.int64]
) -> NDArray[np.int64]:
    """`_value` for many values of the loops; a loop without values is at 0."""
    match expr:
        case Const(value):
            return zero + int(value)
        case Var(name):
            return values.get(name, zero)
        case Op(name, (x, y), dtype) if dtype == i64 and name in _MANY:
            a, b = _values(x, values, zero), _values(y, values, zero)
            return np.asarray(_MANY[name](a, b), np.int64)
    return zero


def _where_not_zero(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: np.where(b == 0, 0, operation(a, np.where(b == 0, 1, b)))


_MANY: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
    "floordiv": _where_not_zero(np.floor_divide), "mod": _where_not_zero(np.remainder),
}  # fmt: skip


def box(indices: tuple[Expr, ...], buffer: Buffer, loops: Mapping[str, For]) -> int:
    """Elements of the part of a buffer that one block touches, about."""
    extents = {v: 1 if f.kind.startswith("block") else f.extent for v, f in loops.items()}
    size = 1
    for index, n in zip(indices, buffer.shape, strict=True):
        reach = interval(index, extents)
        size *= n if reach is None else max(1, min(n, reach[1] - reach[0] + 1))
    return size
