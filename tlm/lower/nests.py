"""Finding statements with the loops and guards around them, and copying those around another statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ..ir.affine import conjunction, conjuncts
from ..ir.nodes import Alloc, Block, Expr, For, If, Stmt, Var, block
from ..ir.walk import free_vars, map_stmt, substitute

Path = tuple[For | If | Alloc, ...]


def leaves(stmt: Stmt, path: Path = ()) -> Iterator[tuple[Path, Stmt]]:
    """Every Store, Update and Prefetch under `stmt`, with the loops, guards and allocations around it."""
    match stmt:
        case For() | Alloc():
            yield from leaves(stmt.body, (*path, stmt))
        case If(_, then, other):
            yield from leaves(then, (*path, stmt))
            if other is not None:
                yield from leaves(other, (*path, stmt))
        case Block(stmts):
            for s in stmts:
                yield from leaves(s, path)
        case _:
            yield path, stmt


def map_leaves(stmt: Stmt, f: Callable[[Stmt], Stmt]) -> Stmt:
    """`stmt` with every Store, Update and Prefetch replaced by f(it)."""
    match stmt:
        case For() | Alloc():
            body = map_leaves(stmt.body, f)
            return stmt if body is stmt.body else replace(stmt, body=body)
        case If(cond, then, other):
            return If(cond, map_leaves(then, f), None if other is None else map_leaves(other, f))
        case Block(stmts):
            return block(*[map_leaves(s, f) for s in stmts])
        case _:
            return f(stmt)


def map_loops(stmt: Stmt, f: Callable[[For], For]) -> Stmt:
    """`stmt` with every loop replaced by f(it), the inner ones first."""
    return map_stmt(stmt, lambda s: f(s) if isinstance(s, For) else s)


def spatial_copy(
    path: Path,
    axes: tuple[str, ...],
    suffix: str,
    build: Callable[[Mapping[str, Expr]], Stmt],
    used: frozenset[str],
) -> Stmt:
    """The loops of `path` that are not reduced over, as a nest of their own around build(renaming).

    Loops in `axes`, and conditions on them, are left out; so are loops that neither `used` nor a kept guard
    names. Every kept loop x becomes x@suffix.
    """
    guards: list[Expr] = []
    for node in path:
        if isinstance(node, If):
            guards += [c for c in conjuncts(node.cond) if not free_vars(c) & set(axes)]
    needed = used.union(*map(free_vars, guards))
    loops = [n for n in path if isinstance(n, For) and n.var not in axes and n.var in needed]
    names: dict[str, Expr] = {loop.var: Var(f"{loop.var}@{suffix}") for loop in loops}
    out = build(names)
    cond = conjunction([substitute(g, names) for g in guards])
    if guards:
        out = If(cond, out)
    for loop in reversed(loops):
        bound = None if loop.bound is None else substitute(loop.bound, names)
        out = For(f"{loop.var}@{suffix}", loop.extent, out, loop.kind, bound=bound)
    return out
