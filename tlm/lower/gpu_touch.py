"""What the nodes of a kernel touch, with one name for the thread of each axis, to compare nests."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.exprs import Expr, Var
from ..ir.nodes import For, Stmt, Store, block
from ..ir.walk import substitute_in
from ..schedule.access import Access, accesses
from .gpu_tree import Collective, Nest


@dataclass(frozen=True, slots=True)
class Touch:
    """An access, and the thread axes whose index it has; on the others thread 0 makes it."""

    access: Access
    axes: frozenset[str]


def touches(node: Nest | Collective, around: tuple[str, ...]) -> tuple[list[Touch], list[Touch]]:
    """What `node` touches, under the uniform loops `around`.

    A collective reads the values that it merges first, and its target after that; a nest has one part.
    """
    axes = frozenset([x.kind for x in node.threads])
    loops = (*around, *sorted(axes))
    if isinstance(node, Nest):
        body = _named(node.body, node.threads)
        return [Touch(a, axes) for a in accesses(body, loops)], []
    update = node.update
    values: Stmt = block(*[Store("", (), v) for v in update.values])
    first, second = _named(values, node.threads), _named(update, node.threads)
    for row in reversed(node.rows):
        first, second = For(row.var, row.extent, first), For(row.var, row.extent, second)
    leaders = frozenset([x.kind for x in node.threads if x.var not in update.axes])
    return (
        [Touch(a, axes) for a in accesses(first, loops) if not a.writes],
        [Touch(a, leaders) for a in accesses(second, loops) if a.writes],
    )


def _named(stmt: Stmt, threads: tuple[For, ...]) -> Stmt:
    names: dict[str, Expr] = {x.var: Var(x.kind) for x in threads}
    return substitute_in(stmt, names)
