"""Versions of a tile: whole, last (partial, with constant sizes), and none, chosen once outside the tile.

    for i.0 in 13:                              for i.0 in 12:
      unroll for i.1 in 8:                        unroll for i.1 in 8: ...
        if i.0 * 8 + i.1 < 100: ...      ->     unroll for i.1 in 8:
                                                  if i.1 < 4: ...

A guard is outer + inner < n, where `inner` runs over unrolled and vector loops and `outer` is constant inside
one round of a serial or parallel loop, the last that it uses. The values of `outer` that give a partial tile
are multiples of the common divisor of its coefficients within its bounds. Where they are few, each has a
version of its own, with a size that is known when compiling: one for the tail of a split, one or two for each
edge of an image under a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import gcd

from ..ir.affine import Affine, below, bound, conjunction, conjuncts, implied
from ..ir.dtypes import boolean
from ..ir.exprs import FALSE, TRUE, Const, Expr, Op, const
from ..ir.nodes import NOTHING, Alloc, Block, For, If, Stmt, Store, Update, block
from ..ir.walk import map_expr, map_exprs, map_leaves, map_parts, rewrap, substitute_in
from .nests import conditional, map_loops, picks

# How many guards one after the other may make versions of a nest; each version is compiled.
_VERSIONS = 8
# Values of the outer part of a guard that may have versions of their own.
_PARTIALS = 3


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a statement stands: extents of loops around it, known conditions, versions still allowed."""

    extents: dict[str, int]
    facts: tuple[Expr, ...] = ()
    budget: int = _VERSIONS

    def under(self, loop: For) -> Scope:
        facts = self.facts
        if loop.bound is not None:
            facts = (*facts, Op("lt", (_var(loop), loop.bound), boolean))
        return Scope({**self.extents, loop.var: loop.extent}, facts, self.budget)

    def knowing(self, *facts: Expr) -> Scope:
        return replace(self, facts=(*self.facts, *facts))


def _var(loop: For) -> Expr:
    return Affine(0, ((loop.var, 1),)).expr()


@dataclass(frozen=True, slots=True)
class Group:
    """All guards outer + inner < n with one outer part; `low` and `high` bound their inner parts, `reach`
    the outer one. `inner` has the extents of the loops of the inner parts."""

    outer: Affine
    limit: int
    low: int
    high: int
    reach: tuple[int, int]
    inner: dict[str, int]

    def partials(self) -> range:
        """The values of `outer` at which just some guards hold."""
        step = gcd(*[c for _, c in self.outer.terms])
        first = max(self.limit - self.high, self.reach[0])
        return range(-(-first // step) * step, min(self.limit - self.low, self.reach[1] + 1), step)


def partition(stmt: Stmt, scope: Scope) -> Stmt:
    """`stmt` with a version of each tile for each of its guards that depend on the loops outside the tile."""
    if not conditional(stmt):
        return stmt
    match stmt:
        case For(kind="serial" | "parallel"):
            body = _versions(stmt.var, stmt.body, scope.under(stmt))
            if body == NOTHING:
                return NOTHING
            loop = rewrap(stmt, body)
            return _peeled(loop) if stmt.kind == "serial" and stmt.bound is None else loop
        case For():
            return rewrap(stmt, partition(stmt.body, scope.under(stmt)))
        case If(cond, then, other):
            rest = None if other is None else partition(other, scope)
            return If(cond, partition(then, scope.knowing(cond)), rest)
    return map_parts(stmt, lambda s: partition(s, scope))


def _versions(var: str, body: Stmt, scope: Scope) -> Stmt:
    if not conditional(body):
        return body
    match body:
        case Block(stmts):
            return block(*[_versions(var, s, scope) for s in stmts])
        case Alloc(buffer, inner) if buffer.memory != "register":
            return Alloc(buffer, _versions(var, inner, scope))
        case If(cond, then, None):
            return If(cond, _versions(var, then, scope.knowing(cond)))
    groups = _groups(body, var, scope) if scope.budget > 1 else {}
    for group in groups.values():
        return _choose(group, var, body, scope)
    return partition(body, scope)


def _choose(group: Group, var: str, body: Stmt, scope: Scope) -> Stmt:
    full = below(group.outer, group.limit - group.high)
    some = below(group.outer, group.limit - group.low)
    holds = implied(full, scope.extents, scope.facts)
    any_holds = implied(some, scope.extents, scope.facts)
    partials = group.partials()
    single = holds is False and any_holds is True and len(partials) == 1
    few = scope if single else replace(scope, budget=scope.budget // 2)

    def version(known: Expr, how: Callable[[Affine, Expr], Expr], scope: Scope = few) -> Stmt:
        return _versions(var, _decided(body, group, how), scope.knowing(known))

    if holds is True:
        return version(full, lambda inner, cond: TRUE, scope)
    rest: Stmt | None = None
    if any_holds is not True:
        none = version(TRUE, lambda inner, cond: FALSE)
        rest = None if none == NOTHING else none
    if any_holds is not False and partials:
        parts = _parts(group, partials, version)
        if not single:
            # They are a small part of the work: unrolling them further would mostly cost compile time.
            parts = [map_loops(p, lambda loop: replace(loop, unroll=1)) for p in parts]
        rest = parts.pop() if any_holds is True else If(some, parts.pop(), rest)
        for value, part in zip(reversed(partials[: len(parts)]), reversed(parts), strict=True):
            rest = If(below(group.outer, value + 1), part, rest)
    if holds is False:
        return NOTHING if rest is None else rest
    return If(full, version(full, lambda inner, cond: TRUE, replace(scope, budget=scope.budget - 1)), rest)


def _parts(group: Group, partials: range, version: Callable[..., Stmt]) -> list[Stmt]:
    """A version for each partial tile, with constant sizes; one with run-time guards where they are many."""
    some = below(group.outer, group.limit - group.low)
    if len(partials) > _PARTIALS:
        return [version(some, lambda inner, cond: cond)]
    out = []
    for value in partials:
        known = (below(group.outer, value + 1), below(group.outer.scale(-1), 1 - value))
        left = group.limit - value
        out.append(version(conjunction((some, *known)), lambda inner, cond, n=left: _inner_guard(inner, n)))
    return out


def _inner_guard(inner: Affine, limit: int) -> Expr:
    if not inner.terms:
        return const(inner.const < limit, boolean)
    return below(inner, limit)


def _split(cond: Expr, scope: Scope, inner: dict[str, int], var: str) -> tuple[Affine, Affine, int] | None:
    """(outer, inner, n) with `cond` saying outer + inner < n; None if not over `var` and known loops."""
    known = bound(cond)
    if known is None:
        return None
    form, limit = known
    if not form.coefficient(var) or any(n not in inner and n not in scope.extents for n, _ in form.terms):
        return None
    outer = tuple([t for t in form.terms if t[0] not in inner])
    return Affine(0, outer), Affine(0, tuple([t for t in form.terms if t[0] in inner])), limit


def _groups(stmt: Stmt, var: str, scope: Scope) -> dict[tuple[Affine, int], Group]:
    found: dict[tuple[Affine, int], Group] = {}
    for cond, inner in _conditions(stmt, {}):
        parts = _split(cond, scope, inner, var)
        if parts is None:
            continue
        outer, form, limit = parts
        reach = form.interval(inner)
        assert reach is not None
        old = found.get((outer, limit))
        loops = {name: inner[name] for name in form.names} | ({} if old is None else old.inner)
        low, high = reach if old is None else (min(old.low, reach[0]), max(old.high, reach[1]))
        span = outer.interval(scope.extents)
        assert span is not None
        found[outer, limit] = Group(outer, limit, low, high, span, loops)
    return found


def _conditions(stmt: Stmt, inner: dict[str, int]) -> Iterator[tuple[Expr, dict[str, int]]]:
    """Conditions of guards and of "where"s, with the unrolled and vector loops inside `stmt` around each."""
    match stmt:
        case For():
            fixed = stmt.kind in ("unroll", "vectorize")
            # A serial loop inside hides its variable: what uses it is decided at that loop.
            yield from _conditions(stmt.body, {**inner, stmt.var: stmt.extent} if fixed else inner)
        case Alloc(_, body):
            yield from _conditions(body, inner)
        case If(cond, then, other):
            # Both sides are there already: a version of the nest for each would only be longer.
            if other is None:
                yield from ((c, inner) for c in conjuncts(cond))
            else:
                yield from _conditions(other, inner)
            yield from _conditions(then, inner)
        case Block(stmts):
            for s in stmts:
                yield from _conditions(s, inner)
        case Store(value=value):
            yield from _picked((value,), inner)
        case Update(values=values):
            yield from _picked(values, inner)


def _picked(values: tuple[Expr, ...], inner: dict[str, int]) -> Iterator[tuple[Expr, dict[str, int]]]:
    for value in values:
        for where in picks(value):
            yield from ((c, inner) for c in conjuncts(where.args[0]))


def _decided(stmt: Stmt, group: Group, how: Callable[[Affine, Expr], Expr]) -> Stmt:
    """`stmt` with each condition c of `group` replaced by how(its inner part, c)."""
    outer_names = group.outer.names

    def decide(cond: Expr) -> Expr:
        parts = []
        for c in conjuncts(cond):
            known = bound(c)
            if known is not None and known[1] == group.limit:
                outer = tuple([t for t in known[0].terms if t[0] in outer_names])
                rest = Affine(0, tuple([t for t in known[0].terms if t[0] not in outer_names]))
                # What a serial loop further in moves is decided there, though all else is the same. So is
                # what reaches further than the conditions that were counted: one in the index of a load.
                reach = rest.interval(group.inner) if rest.names <= group.inner.keys() else None
                if outer == group.outer.terms and reach is not None:
                    c = how(rest, c) if group.low <= reach[0] and reach[1] <= group.high else c
            if c == FALSE:
                return FALSE
            parts.append(c)
        return conjunction(parts)

    def inside(e: Expr) -> Expr:
        if isinstance(e, Op) and e.op == "where":
            cond = decide(e.args[0])
            if isinstance(cond, Const):
                return e.args[1] if cond.value else e.args[2]
            return Op("where", (cond, *e.args[1:]), e.dtype)
        return e

    def rewrite(s: Stmt) -> Stmt:
        match s:
            case For():
                body = rewrite(s.body)
                return NOTHING if body == NOTHING else rewrap(s, body)
            case Alloc(buffer, body):
                body = rewrite(body)
                return NOTHING if body == NOTHING else Alloc(buffer, body)
            case Block(stmts):
                new = [x for x in map(rewrite, stmts) if x != NOTHING]
                return block(*new) if new else NOTHING
            case If(cond, then, other):
                cond = decide(cond)
                if isinstance(cond, Const):
                    return rewrite(then) if cond.value else NOTHING if other is None else rewrite(other)
                return If(cond, rewrite(then), None if other is None else rewrite(other))
            case Store() | Update() if conditional(s):
                return map_exprs(s, lambda e: map_expr(e, inside))
        return s

    return rewrite(stmt)


def _peeled(loop: For) -> Stmt:
    """A loop over `if var < n: whole else: last` as a loop over whole rounds, then the last one."""
    if not isinstance(loop.body, If):
        return loop
    whole = _rounds(loop.body.cond, loop)
    if whole is None:
        return loop
    rest, left = loop.body.other, loop.extent - whole
    if isinstance(rest, If) and left > 1 and rest.other is None and _rounds(rest.cond, loop) == whole + 1:
        rest, left = rest.then, 1
    if rest is not None and left > 1:
        return loop
    pieces = [replace(loop, extent=whole, body=loop.body.then)] if whole else []
    if rest is None or left < 1:
        return block(*pieces) if pieces else NOTHING
    return block(*pieces, _at(rest, loop.var, whole))


def _rounds(cond: Expr, loop: For) -> int | None:
    """How many of the first rounds of `loop` satisfy `cond`, where it says no more than var < that number."""
    known = bound(cond)
    if known is None or len(known[0].terms) != 1:
        return None
    (name, c), limit = known[0].terms[0], known[1]
    return max(0, min(loop.extent, -(-limit // c))) if name == loop.var and c > 0 else None


def _at(stmt: Stmt, var: str, value: int) -> Stmt:
    """`stmt` for one value of the loop variable `var`."""

    def drop(s: Stmt) -> Stmt:
        return (
            replace(s, axes=tuple(a for a in s.axes if a != var))
            if isinstance(s, Update) and var in s.axes
            else s
        )

    return map_leaves(substitute_in(stmt, {var: const(value)}), drop)
