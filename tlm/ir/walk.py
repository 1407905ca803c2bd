"""The only recursion over the IR: children and rebuilding, for expressions and statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from .nodes import (
    Alloc,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    If,
    Load,
    Op,
    Prefetch,
    Program,
    Stmt,
    Store,
    Update,
    Var,
)

Node = Expr | Stmt


def children(node: Node) -> tuple[Node, ...]:
    """Direct parts of a node, in the order in which they run."""
    match node:
        case Const() | Var():
            return ()
        case Load(_, indices, _) | Prefetch(_, indices, _):
            return indices
        case Op(_, args, _):
            return args
        case Cast(value, _):
            return (value,)
        case For(body=body, bound=bound):
            return (body,) if bound is None else (bound, body)
        case Block(stmts):
            return stmts
        case If(cond, then, other):
            return (cond, then) if other is None else (cond, then, other)
        case Alloc(_, body):
            return (body,)
        case Store(_, indices, value):
            return (*indices, value)
        case Update(indices=indices, values=values):
            return (*indices, *values)
    raise TypeError(f"not an IR node: {node!r}")


def walk(node: Node) -> Iterator[Node]:
    """Every node under `node`, itself first, in running order."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def map_expr(expr: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """Rebuild `expr` from the leaves up, replacing each node by f(node)."""
    match expr:
        case Load(buffer, indices, dtype):
            new = tuple([map_expr(i, f) for i in indices])
            return f(expr if new == indices else Load(buffer, new, dtype))
        case Op(name, args, dtype):
            new = tuple([map_expr(a, f) for a in args])
            return f(expr if new == args else Op(name, new, dtype))
        case Cast(value, dtype):
            return f(Cast(map_expr(value, f), dtype))
        case _:
            return f(expr)


def map_exprs(stmt: Stmt, f: Callable[[Expr], Expr]) -> Stmt:
    """Rebuild a statement with every whole expression x in it replaced by f(x); structure stays."""
    match stmt:
        case For(bound=bound):
            return replace(stmt, body=map_exprs(stmt.body, f), bound=None if bound is None else f(bound))
        case Block(stmts):
            return Block(tuple([map_exprs(s, f) for s in stmts]))
        case If(cond, then, other):
            return If(f(cond), map_exprs(then, f), None if other is None else map_exprs(other, f))
        case Alloc(buffer, body):
            return Alloc(buffer, map_exprs(body, f))
        case Store(buffer, indices, value):
            return Store(buffer, tuple([f(i) for i in indices]), f(value))
        case Update():
            return replace(
                stmt, indices=tuple([f(i) for i in stmt.indices]), values=tuple([f(v) for v in stmt.values])
            )
        case Prefetch(buffer, indices, locality):
            return Prefetch(buffer, tuple([f(i) for i in indices]), locality)
    raise TypeError(f"not a statement: {stmt!r}")


def map_stmt(stmt: Stmt, f: Callable[[Stmt], Stmt]) -> Stmt:
    """Rebuild `stmt` from the leaves up, replacing each statement by f(statement)."""
    match stmt:
        case For() | Alloc():
            body = map_stmt(stmt.body, f)
            return f(stmt if body is stmt.body else replace(stmt, body=body))
        case Block(stmts):
            new = tuple([map_stmt(s, f) for s in stmts])
            return f(stmt if all(a is b for a, b in zip(new, stmts, strict=True)) else Block(new))
        case If(cond, then, other):
            return f(If(cond, map_stmt(then, f), None if other is None else map_stmt(other, f)))
        case _:
            return f(stmt)


def substitute(node: Expr, values: Mapping[str, Expr]) -> Expr:
    """`node` with loop variables replaced by expressions."""
    return map_expr(node, lambda e: values.get(e.name, e) if isinstance(e, Var) else e)


def substitute_in(stmt: Stmt, values: Mapping[str, Expr]) -> Stmt:
    """Every expression of `stmt` with loop variables replaced; loops themselves stay."""
    return map_exprs(stmt, lambda e: substitute(e, values))


def loads(node: Node) -> Iterator[Load]:
    """Every read under `node`."""
    return (n for n in walk(node) if isinstance(n, Load))


def free_vars(expr: Expr) -> frozenset[str]:
    """Names of the loop variables that `expr` uses."""
    return frozenset(n.name for n in walk(expr) if isinstance(n, Var))


def reads(node: Node) -> frozenset[str]:
    """Names of the buffers read under `node`; an Update reads its targets."""
    names = {n.buffer for n in walk(node) if isinstance(n, Load)}
    return frozenset(names.union(*(n.targets for n in walk(node) if isinstance(n, Update))))


def writes(stmt: Stmt) -> frozenset[str]:
    """Names of the buffers written under `stmt`."""
    names: set[str] = set()
    for n in walk(stmt):
        match n:
            case Store(buffer=name):
                names.add(name)
            case Update(targets=targets):
                names.update(targets)
    return frozenset(names)


def loops(stmt: Stmt) -> Iterator[For]:
    """Every loop under `stmt`, outer first."""
    return (n for n in walk(stmt) if isinstance(n, For))


def buffers(program: Program) -> dict[str, Buffer]:
    """Every buffer of a program by name: parameters, then temporaries in order of allocation."""
    found = {b.name: b for b in program.parameters}
    found.update((n.buffer.name, n.buffer) for n in walk(program.body) if isinstance(n, Alloc))
    return found
