"""Instructions of one statement on a GPU, and those that keep its loops going.

The figures are counts in the machine code of tiled products for sm_80 and sm_90.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ..ir.exprs import Cast, Const, Expr, Load, Op
from ..ir.nodes import Buffer, For, Stmt, Store, Update
from ..ir.walk import walk
from ..target import Target
from .gpu_waits import copied

LOOP, PIPELINE, GUARD = 8, 32, 3
"""Instructions of a warp beside its work: in an iteration of a loop that is not written out (count, compare,
branch, addresses), more of them where copies run ahead in it, and of an access that is guarded."""
SPECIAL_COST = 8
"""Instructions of an elementary function, roughly."""

_SPECIAL = {"exp", "log", "tanh", "erf", "erfc", "pow", "sin", "cos", "div", "sqrt", "rsqrt", "logistic"}

Leaf = tuple[tuple[For, ...], Stmt]
"""A statement with the loops around it."""


def values(leaf: Store | Update) -> tuple[Expr, ...]:
    """What a statement computes."""
    return (leaf.value,) if isinstance(leaf, Store) else leaf.values


def operations(leaf: Store | Update) -> tuple[int, int, int]:
    """Plain operations, elementary functions, and products that a sum takes for nothing."""
    nodes = [n for v in values(leaf) for n in walk(v) if isinstance(n, Op) and n.dtype.is_float]
    special = sum(n.op in _SPECIAL for n in nodes)
    fused = isinstance(leaf, Update) and leaf.combiner == "sum" and any(n.op == "mul" for n in nodes)
    return len(nodes) - special + isinstance(leaf, Update), special, int(fused)


def casts(leaf: Store | Update) -> list[Expr]:
    """Conversions from or to types of less than 4 bytes, which have no arithmetic of their own."""
    nodes = dict.fromkeys([n for v in values(leaf) for n in walk(v)])
    return [n for n in nodes if isinstance(n, Cast) and min(_bytes(n.value), n.dtype.bytes) < 4]


def _bytes(value: Expr) -> int:
    return value.dtype.bytes if isinstance(value, Op | Load | Cast | Const) else 8


def guards(leaf: Store | Update) -> list[Expr]:
    """Conditions on which values are read."""
    nodes = dict.fromkeys([n for v in values(leaf) for n in walk(v)])
    return [n.args[0] for n in nodes if isinstance(n, Op) and n.op == "where"]


def overhead(found: Sequence[Leaf], known: Mapping[str, Buffer], target: Target, threads: int) -> float:
    """Instructions of warps that keep loops going, for one block of `threads`."""
    total, seen = 0.0, set[str]()
    for around, leaf in found:
        ahead = isinstance(leaf, Store | Update) and copied(leaf, known) is not None
        own = prod([f.extent for f in around if f.kind.startswith("thread")])
        times = max(1.0, (own if own > 1 else threads) / target.warp)
        for f in around:
            if f.kind in ("serial", "unroll", "vthread"):
                times *= f.extent
            if f.kind == "serial" and f.extent > f.unroll and f.var not in seen:
                seen.add(f.var)
                total += times / f.unroll * (LOOP + PIPELINE * ahead)
    return total
