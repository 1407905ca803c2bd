"""Walking and rebuilding the IR: over all nodes, or over statements only, which skips every expression.

What is rebuilt shares the parts that do not change with the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from .exprs import Cast, Const, Expr, Load, Op, Var
from .nodes import Alloc, Block, Buffer, For, If, Prefetch, Program, Stmt, Store, Update, block

Node = Expr | Stmt
Wrapper = TypeVar("Wrapper", bound=For | Alloc)


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


def parts(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside `stmt`."""
    match stmt:
        case For(body=body) | Alloc(body=body):
            return (body,)
        case Block(stmts):
            return stmts
        case If(_, then, other):
            return (then,) if other is None else (then, other)
    return ()


def statements(root: Stmt) -> Iterator[Stmt]:
    """Every statement under `root`, itself first, in running order."""
    stack = [root]
    while stack:
        stmt = stack.pop()
        yield stmt
        while isinstance(stmt, For | Alloc):
            stmt = stmt.body
            yield stmt
        stack.extend(reversed(parts(stmt)))


def walk(node: Node) -> Iterator[Node]:
    """Every node under `node`, itself first, in running order."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def deeper(expr: Expr, limit: int) -> bool:
    """Whether more than `limit` nodes of `expr` lie in each other."""
    level: list[Node] = [expr]
    for _ in range(limit):
        # Each once: what is shared is as deep wherever it is met.
        level = list({id(part): part for node in level for part in children(node)}.values())
        if not level:
            return False
    return True


def written_out(expr: Expr) -> int:
    """The nodes of `expr` where those that it shares count each time that they are met."""
    sizes: dict[int, int] = {}

    def size(node: Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = 1 + sum([size(part) for part in children(node)])
        return sizes[id(node)]

    return size(expr)


def map_expr(expr: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """Rebuild `expr` from the leaves up, replacing each node by f(node)."""
    match expr:
        case Load(buffer, indices, dtype):
            new = tuple([map_expr(i, f) for i in indices])
            return f(expr if _same(new, indices) else Load(buffer, new, dtype))
        case Op(name, args, dtype):
            new = tuple([map_expr(a, f) for a in args])
            return f(expr if _same(new, args) else Op(name, new, dtype))
        case Cast(value, dtype):
            inner = map_expr(value, f)
            return f(expr if inner is value else Cast(inner, dtype))
        case _:
            return f(expr)


def _same(new: tuple[Expr, ...], old: tuple[Expr, ...]) -> bool:
    # By identity: comparing what lies inside again at each level would cost the square of the depth.
    return all(a is b for a, b in zip(new, old, strict=True))


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
    return f(map_parts(stmt, lambda s: map_stmt(s, f)))


def map_leaves(stmt: Stmt, f: Callable[[Stmt], Stmt]) -> Stmt:
    """`stmt` with every Store, Update and Prefetch x replaced by f(x)."""
    if isinstance(stmt, Store | Update | Prefetch):
        return f(stmt)
    return map_parts(stmt, lambda s: map_leaves(s, f))


def map_parts(stmt: Stmt, f: Callable[[Stmt], Stmt]) -> Stmt:
    """`stmt` with each statement x directly inside it replaced by f(x); Blocks are flattened."""
    match stmt:
        case For() | Alloc():
            return rewrap(stmt, f(stmt.body))
        case If(cond, then, other):
            yes, no = f(then), None if other is None else f(other)
            return stmt if yes is then and no is other else If(cond, yes, no)
        case Block(stmts):
            new = [f(s) for s in stmts]
            return stmt if all(a is b for a, b in zip(new, stmts, strict=True)) else block(*new)
    return stmt


def rewrap(stmt: Wrapper, body: Stmt) -> Wrapper:
    """The loop or allocation `stmt` around another body."""
    if body is stmt.body:
        return stmt
    if isinstance(stmt, Alloc):
        return Alloc(stmt.buffer, body)  # type: ignore[return-value]
    return For(stmt.var, stmt.extent, body, stmt.kind, stmt.unroll, stmt.bound)  # type: ignore[return-value]


def substitute(node: Expr, values: Mapping[str, Expr]) -> Expr:
    """`node` with loop variables replaced by expressions."""
    return map_expr(node, lambda e: values.get(e.name, e) if isinstance(e, Var) else e)


def substitute_in(stmt: Stmt, values: Mapping[str, Expr]) -> Stmt:
    """Every expression of `stmt` with loop variables replaced; loops themselves stay."""
    return map_exprs(stmt, lambda e: substitute(e, values))


def loads(node: Node) -> Iterator[Load]:
    """Every read under `node`."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Var | Const):
            continue
        if isinstance(node, Load):
            yield node
        stack.extend(reversed(children(node)))


def free_vars(expr: Expr) -> frozenset[str]:
    """Names of the loop variables that `expr` uses."""
    names: set[str] = set()
    stack: list[Node] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Var):
            names.add(node.name)
        elif not isinstance(node, Const):
            stack.extend(children(node))
    return frozenset(names)


def reads(node: Node) -> frozenset[str]:
    """Names of the buffers read under `node`; an Update reads its targets."""
    names = {n.buffer for n in walk(node) if isinstance(n, Load)}
    return frozenset(names.union(*(n.targets for n in walk(node) if isinstance(n, Update))))


def targets(stmt: Stmt) -> tuple[str, ...]:
    """The buffers that a Store or an Update writes; none for other statements."""
    match stmt:
        case Store(buffer=name):
            return (name,)
        case Update(targets=names):
            return names
    return ()


def writes(stmt: Stmt) -> frozenset[str]:
    """Names of the buffers written under `stmt`."""
    return frozenset([name for s in statements(stmt) for name in targets(s)])


def loops(stmt: Stmt) -> Iterator[For]:
    """Every loop under `stmt`, outer first."""
    stack = [stmt]
    while stack:
        stmt = stack.pop()
        while isinstance(stmt, For | Alloc):
            if isinstance(stmt, For):
                yield stmt
            stmt = stmt.body
        stack.extend(reversed(parts(stmt)))


def buffers(program: Program) -> dict[str, Buffer]:
    """Every buffer of a program by name: parameters, then temporaries in order of allocation."""
    found = {b.name: b for b in program.parameters}
    found.update((s.buffer.name, s.buffer) for s in statements(program.body) if isinstance(s, Alloc))
    return found
