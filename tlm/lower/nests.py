"""Finding statements with the loops and guards around them, and copying those around another statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..ir.affine import conjunction, conjuncts
from ..ir.exprs import Cast, Expr, Load, Op, Var
from ..ir.nodes import Alloc, Block, For, If, Prefetch, Stmt, Store, Update
from ..ir.walk import free_vars, map_stmt, substitute

Enclosing = tuple[For | If | Alloc, ...]
"""What is around a statement, outer first; unlike a `paths.Path` without Blocks and the statement itself."""


def loads_in(expr: Expr, name: str) -> list[Load]:
    """Every read of buffer `name` in an expression."""
    match expr:
        case Load(buffer, indices, _):
            inner = [n for i in indices for n in loads_in(i, name)] if indices else []
            return [expr, *inner] if buffer == name else inner
        case Op(_, args, _):
            return [n for a in args for n in loads_in(a, name)]
        case Cast(value, _):
            return loads_in(value, name)
    return []


def is_read(stmt: Stmt, name: str) -> bool:
    """Whether the values of buffer `name` are used under `stmt`; an Update alone does not use its target."""
    match stmt:
        case For(body=body, bound=bound):
            return is_read(body, name) or (bound is not None and bool(loads_in(bound, name)))
        case Alloc(_, body):
            return is_read(body, name)
        case Block(stmts):
            return any(is_read(s, name) for s in stmts)
        case If(cond, then, other):
            return (
                bool(loads_in(cond, name))
                or is_read(then, name)
                or (other is not None and is_read(other, name))
            )
        case Store(_, indices, value):
            return any(loads_in(e, name) for e in (*indices, value))
        case Update(indices=indices, values=values):
            return any(loads_in(e, name) for e in (*indices, *values))
        case Prefetch(_, indices, _):
            return any(loads_in(e, name) for e in indices)
    raise TypeError(f"not a statement: {stmt!r}")


def picks(expr: Expr) -> list[Op]:
    """Every "where" in a value, outside the indices of its loads."""
    match expr:
        case Op(name, args, _):
            found = [w for a in args for w in picks(a)]
            return [expr, *found] if name == "where" else found
        case Cast(value, _):
            return picks(value)
    return []


def conditional(stmt: Stmt) -> bool:
    """Whether there is any guard or "where" under `stmt`."""
    match stmt:
        case For(body=body) | Alloc(body=body):
            return conditional(body)
        case Block(stmts):
            return any(conditional(s) for s in stmts)
        case If():
            return True
        case Store(_, _, value):
            return bool(picks(value))
        case Update(values=values):
            return any(picks(v) for v in values)
    return False


def leaves(stmt: Stmt, path: Enclosing = ()) -> Iterator[tuple[Enclosing, Stmt]]:
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


def map_loops(stmt: Stmt, f: Callable[[For], For]) -> Stmt:
    """`stmt` with every loop replaced by f(it), the inner ones first."""
    return map_stmt(stmt, lambda s: f(s) if isinstance(s, For) else s)


def spatial_copy(
    path: Enclosing,
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
