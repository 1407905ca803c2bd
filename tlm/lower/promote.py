"""Sums in memory become sums in registers for the loops that do not move the target.

    for k in 6:                             alloc C_sum: f32[16] register:
      vectorize for j in 16:                  vectorize for j@C_sum.load in 16: C_sum[j] = C[i, j]
        C[i, j] (k; no init)+= ..      ->     for k in 6: vectorize for j in 16: C_sum[j] (k; no init)+= ..
                                              vectorize for j@C_sum in 16: C[i, j] = C_sum[j]

The order of the sum does not change. This is for schedules that do not say it themselves with cache_write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ir.dtypes import DType
from ..ir.exprs import Expr, Load, Var
from ..ir.names import fresh
from ..ir.nodes import Alloc, Buffer, For, If, Stmt, Store, Update, block
from ..ir.walk import free_vars, map_leaves, map_parts, substitute
from .lanes import alone
from .nests import Enclosing, leaves, spatial_copy

# Vectors (or scalars) that one nest may sum in.
_ROWS_LIMIT = 24


def promote(stmt: Stmt, dtypes: dict[str, DType], registers: frozenset[str] = frozenset()) -> Stmt:
    """`stmt` with register sums for every Update of memory that a serial loop repeats; extends `dtypes`."""
    match stmt:
        case For(kind="serial"):
            inside = list(leaves(stmt.body, (stmt,)))
            for path, leaf in inside:
                if isinstance(leaf, Update) and _fits(path, leaf, registers) and alone(leaf, inside):
                    names = tuple(fresh(f"{t}_sum", dtypes) for t in leaf.targets)
                    dtypes.update({n: dtypes[t] for n, t in zip(names, leaf.targets, strict=True)})
                    return promote(_rewrite(stmt, path, leaf, names, dtypes), dtypes, registers.union(names))
        case Alloc(buffer, _) if buffer.memory == "register":
            registers |= {buffer.name}
    return map_parts(stmt, lambda s: promote(s, dtypes, registers))


def _fits(path: Enclosing, update: Update, registers: frozenset[str]) -> bool:
    """Whether every loop of `path` either sums or runs over a few registers."""
    used = frozenset().union(*map(free_vars, update.indices))
    rows = 1
    if update.init or registers.intersection(update.targets):
        return False
    for node in path:
        match node:
            case Alloc(buffer, _) if buffer.name in update.targets:
                return False
            case If(other=other) if other is not None:
                return False
            case For(var=var, kind=kind) if var in used:
                if kind not in ("unroll", "vectorize"):
                    return False
                rows *= node.extent if kind == "unroll" else 1
            case For(var=var, kind=kind) if var not in update.axes or kind not in ("serial", "unroll"):
                return False
    return rows <= _ROWS_LIMIT


def _rewrite(
    outer: For, path: Enclosing, update: Update, names: tuple[str, ...], dtypes: Mapping[str, DType]
) -> Stmt:
    used = frozenset().union(*map(free_vars, update.indices))
    rows = [n for n in path if isinstance(n, For) and n.var in used]
    at: tuple[Expr, ...] = tuple([Var(n.var) for n in rows])
    pairs = list(zip(names, update.targets, strict=True))

    def moved(renamed: Mapping[str, Expr], into: bool) -> Stmt:
        here = tuple([substitute(i, renamed) for i in at])
        there = tuple([substitute(i, renamed) for i in update.indices])
        return block(*[
            Store(n, here, Load(t, there, dtypes[t])) if into else Store(t, there, Load(n, here, dtypes[n]))
            for n, t in pairs
        ])  # fmt: skip

    start = spatial_copy(path, update.axes, f"{names[0]}.load", lambda r: moved(r, True), used)
    end = spatial_copy(path, update.axes, names[0], lambda r: moved(r, False), used)
    partial = replace(update, targets=names, indices=at)
    out = block(start, map_leaves(outer, lambda s: partial if s is update else s), end)
    for name in reversed(names):
        out = Alloc(Buffer(name, tuple([n.extent for n in rows]), dtypes[name], "register"), out)
    return out
