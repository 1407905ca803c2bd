"""Guards where they cost least: outside loops that they do not depend on, or as bounds of serial loops."""

from __future__ import annotations

from functools import reduce

from ..ir.affine import Affine, bound, conjunction, conjuncts, implied
from ..ir.exprs import Const, Expr, const, op
from ..ir.nodes import NOTHING, Alloc, Block, For, If, Stmt, block
from ..ir.walk import free_vars, loads, rewrap
from .nests import conditional


def hoist(stmt: Stmt) -> Stmt:
    """`stmt` with every condition moved out of the statements around it that do not bind what it uses."""
    match stmt:
        case For(var=var, body=body):
            body = hoist(body)
            if isinstance(body, If):
                return _out_of_loop(rewrap(stmt, body), var, body)
            return NOTHING if body == NOTHING else rewrap(stmt, body)
        case Alloc(buffer, body):
            body = hoist(body)
            if isinstance(body, If) and body.other is None:
                return If(body.cond, Alloc(buffer, body.then))
            return NOTHING if body == NOTHING else Alloc(buffer, body)
        case If(cond, then, other):
            return _tidy(cond, hoist(then), None if other is None else hoist(other))
        case Block(stmts):
            return _merged([hoist(s) for s in stmts])
    return stmt


def _tidy(cond: Expr, then: Stmt, other: Stmt | None) -> Stmt:
    other = None if other == NOTHING else other
    if isinstance(cond, Const):
        return then if cond.value else NOTHING if other is None else other
    if then == NOTHING:
        return NOTHING if other is None else If(op("not", cond), other)
    if other is None and isinstance(then, If) and then.other is None:
        return If(conjunction([cond, then.cond]), then.then)
    if other is None and isinstance(then, If) and not any(True for _ in loads(then.cond)):
        # Two versions on the outside can leave the loops that the guard has to stay in.
        return If(then.cond, _tidy(cond, then.then, None), _tidy(cond, then.other or NOTHING, None))
    return If(cond, then, other)


def _out_of_loop(loop: For, var: str, guard: If) -> Stmt:
    if guard.other is not None:
        if var in free_vars(guard.cond):
            return loop
        return If(guard.cond, hoist(rewrap(loop, guard.then)), hoist(rewrap(loop, guard.other)))
    parts = conjuncts(guard.cond)
    free = [c for c in parts if var not in free_vars(c)]
    if not free:
        return loop
    kept = [c for c in parts if var in free_vars(c)]
    body = If(conjunction(kept), guard.then) if kept else guard.then
    return If(conjunction(free), rewrap(loop, body))


def _merged(stmts: list[Stmt]) -> Stmt:
    """Statements in order; what all one-sided guards have in common is tested once around them."""
    stmts = [s for s in stmts if s != NOTHING]
    if len(stmts) > 1 and all(isinstance(s, If) and s.other is None for s in stmts):
        guards = [conjuncts(s.cond) for s in stmts if isinstance(s, If)]
        common = [c for c in guards[0] if all(c in g for g in guards)]
        if common:
            rest = [_without(s, common) for s in stmts if isinstance(s, If)]
            return If(conjunction(common), block(*rest))
    return block(*stmts) if stmts else NOTHING


def _without(guard: If, common: list[Expr]) -> Stmt:
    kept = [c for c in conjuncts(guard.cond) if c not in common]
    return If(conjunction(kept), guard.then) if kept else guard.then


def bounds(stmt: Stmt, extents: dict[str, int], facts: tuple[Expr, ...] = ()) -> Stmt:
    """`stmt` with guards of serial loops as bounds, and without conditions that loops and guards decide."""
    if not conditional(stmt):
        return stmt
    match stmt:
        case For():
            return _bounded(stmt, extents, facts)
        case Alloc(buffer, body):
            body = bounds(body, extents, facts)
            return NOTHING if body == NOTHING else Alloc(buffer, body)
        case If(cond, then, other):
            kept: list[Expr] = []
            for c in conjuncts(cond):
                known = implied(c, extents, (*facts, *kept))
                if known is False:
                    return NOTHING if other is None else bounds(other, extents, facts)
                if known is None:
                    kept.append(c)
            if not kept:
                return bounds(then, extents, facts)
            rest = None if other is None else bounds(other, extents, (*facts, *_negated(kept)))
            return _tidy(conjunction(kept), bounds(then, extents, (*facts, *kept)), rest)
        case Block(stmts):
            new = [s for s in [bounds(s, extents, facts) for s in stmts] if s != NOTHING]
            return block(*new) if new else NOTHING
    return stmt


def _negated(conds: list[Expr]) -> tuple[Expr, ...]:
    if len(conds) != 1 or (known := bound(conds[0])) is None:
        return ()
    form, limit = known
    return (op("lt", form.scale(-1).expr(), Affine(1 - limit).expr()),)


def _bounded(loop: For, extents: dict[str, int], facts: tuple[Expr, ...]) -> Stmt:
    var, body, extent = loop.var, loop.body, loop.extent
    limits: list[Affine | Expr] = []
    kept: list[Expr] = []
    if isinstance(body, If) and body.other is None:
        for c in conjuncts(body.cond):
            limit = _limit(c, var)
            if isinstance(limit, int) and loop.kind != "vectorize":
                extent = min(extent, limit)
            elif limit is not None and not isinstance(limit, int) and loop.kind == "serial":
                limits.append(limit)
                facts = (*facts, c)
            else:
                kept.append(c)
        body = If(conjunction(kept), body.then) if kept else body.then
    if extent <= 0:
        return NOTHING
    scope = {**extents, var: extent}
    inner = bounds(body, scope, facts)
    if inner == NOTHING:
        return NOTHING
    limit_exprs = [x.expr() if isinstance(x, Affine) else x for x in limits]
    if loop.bound is not None:
        limit_exprs.append(loop.bound)
    total = reduce(lambda a, b: op("minimum", a, b), limit_exprs) if limit_exprs else None
    return For(var, extent, inner, loop.kind, loop.unroll, total)


def _limit(cond: Expr, var: str) -> int | Affine | Expr | None:
    """x such that `cond` says var < x: a constant, or an expression of outer loops; None for other forms."""
    known = bound(cond)
    if known is None:
        return None
    form, n = known
    c = form.coefficient(var)
    if c <= 0:
        return None
    rest = Affine(n, tuple([(name, -k) for name, k in form.terms if name != var]))
    if not rest.terms:
        return -(-n // c)
    return rest if c == 1 else _ceildiv(rest, c)


def _ceildiv(form: Affine, c: int) -> Expr:
    if all(k % c == 0 for _, k in form.terms):
        return Affine(-(-form.const // c), tuple([(name, k // c) for name, k in form.terms])).expr()
    return op("floordiv", form.shift(c - 1).expr(), const(c))
