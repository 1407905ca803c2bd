"""How often a program starts a team of threads and waits for all of them."""

from __future__ import annotations

from .nodes import Alloc, Block, For, If, Stmt


def regions(stmt: Stmt) -> int:
    """Parallel regions that one run enters: a parallel loop counts once for every round of the loops around
    it, one inside another runs serially and does not count, a branch is taken to be entered."""
    match stmt:
        case For(kind="parallel"):
            return 1
        case For(extent=extent, body=body):
            return extent * regions(body)
        case Block(stmts):
            return sum(map(regions, stmts))
        case If(_, then, other):
            return regions(then) + (regions(other) if other is not None else 0)
        case Alloc(_, body):
            return regions(body)
    return 0
