"""Whether a factor lies in shared memory as a matrix descriptor of a warpgroup's instruction says.

The instruction reads a factor by itself, from a start address and two offsets, in rows of 128 bytes whose
pieces of 16 bytes change places: element (r, s) of a factor whose rows of 64 elements run along s is at

    x = start + r % 8 * 64 + r // 8 * stride + s % 64 + s // 64 * leading,     x ^ x // 64 % 8 * 8

with elements of 2 bytes and `start` of the first one, counted from a multiple of 1024 bytes. Rows run along k
(s below 16, nothing leads), or across (r is the step of k) where the instruction turns the factor.
(PTX ISA, "Shared Memory Matrix Layout" of wgmma: canonical layouts of 128B swizzling.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError
from ..ir.affine import interval
from ..ir.exprs import Const, Expr, Node, Op, Var, const, op
from ..ir.nodes import Buffer
from ..ir.simplify import simplify
from ..ir.walk import free_vars, substitute
from ..schedule.access import Key, linear
from ..schedule.matrix import WARP
from ..schedule.warpgroup import COLUMNS, DEPTH, WARPS, GroupProduct
from .gpu_vectors import divisor, flat

ROW, PATTERN = 64, 512
"""Elements of a row, and of the eight rows after which places repeat: 1024 bytes."""
ALIGNMENT = 1024
"""Bytes of which a buffer that descriptors point into starts at a multiple."""
SWIZZLE = (ROW, 8, 8)
_BYTES = 2

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A factor as an instruction reads it: offsets in bytes, whether it is turned, and the indices of its
    first element, of the running thread's warpgroup."""

    leading: int
    stride: int
    turned: bool
    start: tuple[Expr, ...]


def descriptor(
    p: GroupProduct, side: str, buffer: Buffer, warps: str, lane: str, extents: Mapping[str, int]
) -> Descriptor | str:
    """How the factor on the left or right `side` of `p`, in `buffer`, is described; or why it cannot be."""
    load = p.left if side == "left" else p.right
    if buffer.memory != "shared":
        return f"{buffer.name} is not in shared memory"
    if buffer.swizzle != SWIZZLE:
        return f"the places of {buffer.name} are {buffer.swizzle or 'not swizzled'}, those it reads {SWIZZLE}"
    group, warp = "group ", "warp "
    known = {**extents, group: extents[warps] // WARPS, warp: WARPS}
    moved: dict[str, Expr] = {warps: Var(group) * WARPS + Var(warp)}
    indices = tuple([simplify(substitute(i, moved), known) for i in load.indices])
    inside = {warp: WARPS, lane: WARP, **{x.var: x.extent for x in (p.k, p.j, p.m, p.n)}}
    terms = linear(simplify(flat(buffer, indices), {**known, **inside}))
    rest = {k: c for k, c in terms.items() if not _names(k) & inside.keys()}
    moves = {k: c for k, c in terms.items() if k not in rest}
    if any(not _names(k) <= inside.keys() for k in moves):
        return f"where {buffer.name} is read is no sum of where a matrix starts and of places in it"
    at = {
        name: np.arange(n).reshape([-1 if d == own else 1 for d in range(len(inside))])
        for own, (name, n) in enumerate(inside.items())
    }
    across = at[warp] * 16 + at[p.m.var] * 8 + at[lane] // 4
    if side == "right":
        across = at[p.j.var] * COLUMNS + at[lane] % 4 * 2 + at[p.n.var]
    found = np.zeros((), np.int64) + sum([c * _evaluated(k, at) for k, c in moves.items()])
    rows, deep, places = np.broadcast_arrays(across, at[p.k.var], found)
    offsets = _offsets(rows, deep, places, rest, known)
    if offsets is None:
        return f"{buffer.name} is not in rows of {ROW} elements as a matrix descriptor reads it"
    leading, stride, turned = offsets
    first: dict[str, Expr] = {
        **dict.fromkeys([lane, p.k.var, p.j.var, p.m.var, p.n.var], const(0)),
        warps: op("floordiv", Var(warps), const(WARPS)) * WARPS,
    }
    start = tuple([simplify(substitute(i, first), extents) for i in load.indices])
    return Descriptor(leading * _BYTES, stride * _BYTES, turned, start)


def _offsets(
    across: Numbers, deep: Numbers, found: Numbers, rest: Mapping[Key, int], extents: Mapping[str, int]
) -> tuple[int, int, bool] | None:
    """(leading, stride, turned) with which `found`, beside a start that sums up `rest`, is where every
    element of a matrix lies."""
    low = {k: c for k, c in rest.items() if c * divisor(k) % PATTERN}
    for row, column, turned in ((across, deep, False), (deep, across, True)):
        stride = _first(found, (row == 8) & (column == 0))
        leading = _first(found, (row == 0) & (column == ROW))
        says = row % 8 * ROW + row // 8 * stride + column % ROW + column // ROW * leading
        fits = not low if turned else _within(low, extents)
        if fits and not (found - says).any() and not (stride % PATTERN or leading % PATTERN):
            return leading, stride, turned
    return None


def _within(low: Mapping[Key, int], extents: Mapping[str, int]) -> bool:
    """Whether a sum is always a step along k from which 16 elements are in one piece of a row."""
    most = 0
    for key, c in low.items():
        reach = (0, extents[key] - 1) if isinstance(key, str) and key else (1, 1)
        if isinstance(key, Node):
            reach = interval(key, extents) or (-1, -1)
        if c < 0 or reach[0] < 0 or c * divisor(key) % DEPTH:
            return False
        most += c * reach[1]
    return most + DEPTH <= ROW


def _first(found: Numbers, where: NDArray[np.bool_]) -> int:
    """The place of an element of a matrix; that of the next pattern where the matrix has no such element."""
    return int(found[where][0]) if where.any() else PATTERN


def _names(key: Key) -> frozenset[str]:
    if isinstance(key, str):
        return frozenset((key,)) if key else frozenset()
    return free_vars(key) if isinstance(key, Node) else key.names


_NUMPY = {"floordiv": np.floor_divide, "mod": np.mod, "add": np.add, "sub": np.subtract, "mul": np.multiply,
          "minimum": np.minimum, "maximum": np.maximum}  # fmt: skip


def _evaluated(key: Key, at: Mapping[str, Numbers]) -> Numbers:
    """The values of an index expression, one for each combination of its variables."""
    match key:
        case str():
            return at[key]
        case Var(name):
            return at[name]
        case Const(value):
            return np.asarray(int(value))
        case Op(name, args) if name in _NUMPY:
            made: Numbers = _NUMPY[name](*[_evaluated(a, at) for a in args])
            return made
    raise BackendError(f"no matrix instruction: {key} is no index that a matrix descriptor can step along")
