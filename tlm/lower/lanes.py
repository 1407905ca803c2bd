"""Vectorised reduction axes: a partial sum in each lane, merged once after the reduction.

    for k.0 in 6:                                alloc s_lanes: f32[16] register:
      vectorize for k.1 in 16:                     vectorize for k.1@lanes.init in 16: s_lanes[..] = 0
        s (k.0, k.1)+= x[k.0 * 16 + k.1]    ->     for k.0 in 6:
                                                     vectorize for k.1 in 16: s_lanes[k.1] (k.0; no init)+=
                                                     x[..]
                                                   vectorize for k.1@lanes in 16: s (k.1@lanes)+=
                                                   s_lanes[k.1@lanes]

Legal because combiners are associative and commutative up to rounding; the same rule lets a schedule split
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ir.dtypes import DType
from ..ir.exprs import Expr, Load, Var
from ..ir.names import fresh
from ..ir.nodes import Alloc, Buffer, For, If, Stmt, Update, block
from ..ir.walk import free_vars, map_leaves, map_parts, reads, substitute, writes
from .initial import init_nest
from .nests import Enclosing, leaves, spatial_copy

# Lanes' worth of partial results that are kept; more than this would not stay in registers.
_ROWS_LIMIT = 64


def lane_partials(stmt: Stmt, dtypes: dict[str, DType]) -> Stmt:
    """`stmt` with partial results per lane for every reduction over a vectorised axis; extends `dtypes`."""
    if isinstance(stmt, For):
        inside = list(leaves(stmt.body, (stmt,)))
        for path, leaf in inside:
            if isinstance(leaf, Update) and _starts_here(path, leaf) and alone(leaf, inside):
                return lane_partials(_rewrite(stmt, path, leaf, dtypes), dtypes)
    return map_parts(stmt, lambda s: lane_partials(s, dtypes))


def _starts_here(path: Enclosing, update: Update) -> bool:
    """Whether the outermost loop of `path` is where the partial results of `update` should begin."""
    first = path[0]
    lane = next((n for n in path if isinstance(n, For) and n.kind == "vectorize"), None)
    if lane is None or lane is first or lane.var not in update.axes:
        return False
    used = frozenset().union(*map(free_vars, update.indices))
    if lane.var in used or not isinstance(first, For) or first.var not in update.axes:
        return False
    rows = 1
    for node in path:
        if isinstance(node, Alloc) and node.buffer.name in update.targets:
            return False
        if isinstance(node, If) and node.other is not None:
            return False
        if isinstance(node, For) and node.var in used:
            rows *= node.extent
            if node.kind not in ("serial", "unroll"):
                return False
    return rows <= _ROWS_LIMIT


def alone(update: Update, inside: list[tuple[Enclosing, Stmt]]) -> bool:
    """Whether no other statement of the nest touches the targets, which are only merged into after it."""
    others = [s for _, s in inside if s is not update]
    return not any((reads(s) | writes(s)).intersection(update.targets) for s in others)


def _rewrite(outer: For, path: Enclosing, update: Update, dtypes: dict[str, DType]) -> Stmt:
    used = frozenset().union(*map(free_vars, update.indices))
    loops = [n for n in path if isinstance(n, For)]
    lane = next(n for n in loops if n.kind == "vectorize")
    rows = [n for n in loops if n.var in used]
    inside = {n.var for n in loops}
    shape = (*[n.extent for n in rows], lane.extent)
    at: tuple[Expr, ...] = (*[Var(n.var) for n in rows], Var(lane.var))
    names = tuple(fresh(f"{t}_lanes", dtypes) for t in update.targets)
    for name, target in zip(names, update.targets, strict=True):
        dtypes[name] = dtypes[target]
    # The lane loop is an axis of the target but indexes the partial results: it is no axis of their update.
    inner_axes = tuple(a for a in update.axes if a in inside and a != lane.var)
    outer_axes = tuple(a for a in update.axes if a not in inside)
    partial = replace(update, targets=names, indices=at, axes=inner_axes, init=False)
    nest = map_leaves(outer, lambda s: partial if s is update else s)

    def merge(renamed: Mapping[str, Expr]) -> Stmt:
        values = tuple(Load(n, tuple([substitute(i, renamed) for i in at]), dtypes[n]) for n in names)
        indices = tuple([substitute(i, renamed) for i in update.indices])
        lane_axis = f"{lane.var}@{names[0]}"
        return replace(update, indices=indices, values=values, axes=(*outer_axes, lane_axis))

    start = init_nest(path, replace(partial, indices=at), dtypes)
    end = spatial_copy(path, inner_axes, names[0], merge, used | {lane.var})
    out = block(start, nest, end)
    for name in reversed(names):
        out = Alloc(Buffer(name, shape, dtypes[name], "register"), out)
    return out
