"""Finding a place in a loop nest, and rebuilding the nest around a change there.

A path is the tuple of statements from the root down to the place, both included. Statements are shared
between the programs before and after a change: only the nodes on the path are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from .affine import conjuncts
from .exprs import Expr
from .nodes import Alloc, Block, For, If, Program, Stmt, block
from .walk import loops, parts, rewrap, targets

Path = tuple[Stmt, ...]


def paths(root: Stmt, wanted: Callable[[Stmt], bool]) -> Iterator[Path]:
    """The paths of all statements under `root` that are `wanted`, in running order."""
    stack = [(0, root)]
    trail: list[Stmt] = []
    while stack:
        depth, stmt = stack.pop()
        trail[depth:] = [stmt]
        if wanted(stmt):
            yield tuple(trail)
        stack.extend([(depth + 1, part) for part in reversed(parts(stmt))])


def find(root: Stmt, wanted: Callable[[Stmt], bool]) -> Path | None:
    """The path of the first statement that is `wanted`."""
    return next(paths(root, wanted), None)


def find_loop(root: Stmt, name: str) -> Path | None:
    """The path of the loop over `name`."""
    stack = [(0, root)]
    trail: list[Stmt] = []
    while stack:
        depth, stmt = stack.pop()
        trail[depth:] = [stmt]
        # Every step looks for loops by name, mostly far down in chains of loops.
        while isinstance(stmt, For | Alloc):
            if isinstance(stmt, For) and stmt.var == name:
                return tuple(trail)
            stmt = stmt.body
            trail.append(stmt)
        stack.extend([(len(trail), part) for part in reversed(parts(stmt))])
    return None


def find_alloc(root: Stmt, buffer: str) -> Path | None:
    """The path of the Alloc of `buffer`."""
    return find(root, lambda s: isinstance(s, Alloc) and s.buffer.name == buffer)


def find_writers(root: Stmt, buffer: str) -> list[Path]:
    """The paths of all statements that write `buffer`, in running order."""
    return list(paths(root, lambda s: buffer in targets(s)))


def rebuild(path: Path, new: Stmt) -> Stmt:
    """The root of `path` with the last statement of the path replaced by `new`."""
    for at in range(len(path) - 2, -1, -1):
        new = put(path[at], path[at + 1], new)
    return new


def put(parent: Stmt, old: Stmt, new: Stmt) -> Stmt:
    """`parent` with its part `old` (that very object) replaced by `new`; Blocks are flattened."""
    match parent:
        case For() | Alloc():
            return rewrap(parent, new)
        case If(cond, then, other):
            return If(cond, new, other) if then is old else If(cond, then, new)
        case Block(stmts):
            return block(*[new if stmt is old else stmt for stmt in stmts])
    raise TypeError(f"{type(parent).__name__} has no part to replace")


def with_body(program: Program, body: Stmt) -> Program:
    """`program` with another body."""
    return Program(program.name, program.inputs, program.outputs, body)


def loops_on(path: Path) -> tuple[For, ...]:
    """The loops on a path, outer first."""
    return tuple([s for s in path if isinstance(s, For)])


def guards_on(path: Path) -> tuple[Expr, ...]:
    """The conditions that hold at the end of a path, outer first."""
    out: list[Expr] = []
    for parent, part in pairwise(path):
        if isinstance(parent, If) and parent.then is part:
            out.extend(conjuncts(parent.cond))
    return tuple(out)


def extents_of(root: Stmt) -> dict[str, int]:
    """The extent of every loop under `root` by name."""
    return {loop.var: loop.extent for loop in loops(root)}
