"""Replacing loop variables in statements, with index arithmetic kept in canonical form."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..ir.affine import affine, below, bound, conjunction, conjuncts, implied
from ..ir.dtypes import i64
from ..ir.exprs import Cast, Const, Expr, Load, Op, Var
from ..ir.nodes import Alloc, Block, Buffer, For, If, Prefetch, Stmt, Store, Update
from ..ir.simplify import simplify
from ..ir.walk import map_leaves

Extents = Mapping[str, int]
Values = Mapping[str, Expr]


def canonical(expr: Expr, extents: Extents) -> Expr:
    """The canonical form of an index expression."""
    form = affine(expr)
    return simplify(expr, extents) if form is None else form.expr()


def replace_vars(expr: Expr, values: Values, extents: Extents) -> Expr:
    """`expr` with loop variables replaced; every index that changes is brought into canonical form."""
    return _replace(expr, values, extents, True)


def _replace(expr: Expr, values: Values, extents: Extents, top: bool) -> Expr:
    match expr:
        case Const():
            return expr
        case Var(name):
            new = values.get(name)
            return expr if new is None else canonical(new, extents) if top else new
        case Load(buffer, indices, dtype):
            made = replace_all(indices, values, extents)
            return expr if made is indices else Load(buffer, made, dtype)
        case Op(name, args, dtype):
            index = dtype == i64
            parts = [_replace(a, values, extents, top and not index) for a in args]
            if all(p is a for p, a in zip(parts, args, strict=True)):
                return expr
            out = Op(name, tuple(parts), dtype)
            return canonical(out, extents) if index and top else out
        case Cast(value, dtype):
            inner = _replace(value, values, extents, True)
            return expr if inner is value else Cast(inner, dtype)


def replace_all(exprs: tuple[Expr, ...], values: Values, extents: Extents) -> tuple[Expr, ...]:
    """`replace_vars` on each; the same tuple where nothing changes."""
    out = tuple([_replace(e, values, extents, True) for e in exprs])
    return exprs if all(a is b for a, b in zip(out, exprs, strict=True)) else out


def replace_in(stmt: Stmt, values: Values, extents: Extents) -> Stmt:
    """`stmt` with loop variables replaced everywhere; guards that are then always true go away."""
    match stmt:
        case For(var, extent, body, kind, unroll, limit):
            new = replace_in(body, values, extents)
            return stmt if new is body else For(var, extent, new, kind, unroll, limit)
        case Block(stmts):
            parts = tuple([replace_in(s, values, extents) for s in stmts])
            return stmt if all(a is b for a, b in zip(parts, stmts, strict=True)) else Block(parts)
        case If(cond, then, other):
            new_cond = replace_cond(cond, values, extents)
            new_then = replace_in(then, values, extents)
            if new_cond is cond and new_then is then:
                return stmt
            return guarded(conjuncts(new_cond), new_then) if other is None else If(new_cond, new_then, other)
        case Alloc(buffer, body):
            new = replace_in(body, values, extents)
            return stmt if new is body else Alloc(buffer, new)
        case Store(buffer, indices, value):
            place, what = replace_all(indices, values, extents), replace_vars(value, values, extents)
            return stmt if place is indices and what is value else Store(buffer, place, what)
        case Update(targets, indices, vals, combiner, axes, init):
            place, made = replace_all(indices, values, extents), replace_all(vals, values, extents)
            same = place is indices and made is vals
            return stmt if same else Update(targets, place, made, combiner, axes, init)
        case Prefetch(buffer, indices, locality):
            place = replace_all(indices, values, extents)
            return stmt if place is indices else Prefetch(buffer, place, locality)


def replace_cond(cond: Expr, values: Values, extents: Extents) -> Expr:
    """A guard with loop variables replaced, in canonical form, without what always holds."""
    out = []
    for part in conjuncts(cond):
        new = replace_vars(part, values, extents)
        if new is part:
            out.append(part)
        elif implied(new, extents) is not True:
            limit = bound(new)
            out.append(new if limit is None else below(*limit))
    return cond if tuple(out) == conjuncts(cond) else conjunction(out)


def guarded(conds: tuple[Expr, ...], body: Stmt) -> Stmt:
    """`body` under all of `conds`; an If directly inside joins them."""
    if not conds:
        return body
    if isinstance(body, If) and body.other is None:
        return If(conjunction((*conds, body.cond)), body.then)
    return If(conjunction(conds), body)


def nest(loops: tuple[tuple[str, int], ...], body: Stmt) -> Stmt:
    """`body` under serial loops, given outer first as (name, extent)."""
    for name, extent in reversed(loops):
        body = For(name, extent, body)
    return body


def split_axis(stmt: Stmt, old: tuple[str, ...], new: tuple[str, ...]) -> Stmt:
    """`stmt` with the reduction axes `old` (all of them, where the first is one) replaced by `new`."""

    def leaf(s: Stmt) -> Stmt:
        if not isinstance(s, Update) or old[0] not in s.axes:
            return s
        at = s.axes.index(old[0])
        kept = [*s.axes[:at], *new, *s.axes[at + 1 :]]
        axes = tuple([a for a in kept if a in new or a not in old])
        return Update(s.targets, s.indices, s.values, s.combiner, axes, s.init)

    return map_leaves(stmt, leaf)


def rename_copy(stmt: Stmt, suffix: str, extents: Extents) -> Stmt:
    """A copy of `stmt` with fresh names: every loop and buffer made inside gets `suffix` after its name."""
    match stmt:
        case For(var, extent, body, kind, unroll, limit):
            name = f"{var}{suffix}"
            known = {**extents, name: extent}
            inner = split_axis(replace_in(body, {var: Var(name)}, known), (var,), (name,))
            return For(name, extent, rename_copy(inner, suffix, known), kind, unroll, limit)
        case Alloc(buffer, body):
            made = Buffer(f"{buffer.name}{suffix}", buffer.shape, buffer.dtype, buffer.memory, buffer.strides)
            return Alloc(made, rename_copy(rename_buffer(body, buffer.name, made.name), suffix, extents))
        case Block(stmts):
            return Block(tuple([rename_copy(s, suffix, extents) for s in stmts]))
        case If(cond, then, other):
            end = None if other is None else rename_copy(other, suffix, extents)
            return If(cond, rename_copy(then, suffix, extents), end)
        case _:
            return stmt


def rename_buffer(stmt: Stmt, old: str, new: str) -> Stmt:
    """`stmt` with every access to buffer `old` going to `new`, at the same indices."""
    return redirect(stmt, old, new, lambda indices: indices)


def redirect(stmt: Stmt, old: str, new: str, place: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]) -> Stmt:
    """`stmt` with every read and write of old[x] made one of new[place(x)]."""

    def value(expr: Expr) -> Expr:
        return map_loads(expr, lambda e: Load(new, place(e.indices), e.dtype) if e.buffer == old else e)

    def leaf(s: Stmt) -> Stmt:
        match s:
            case Store(buffer, indices, v):
                mine = buffer == old
                return Store(new if mine else buffer, place(indices) if mine else indices, value(v))
            case Update(targets, indices, values, combiner, axes, init):
                mine = old in targets
                names = tuple([new if t == old else t for t in targets])
                made = tuple([value(v) for v in values])
                return Update(names, place(indices) if mine else indices, made, combiner, axes, init)
            case Prefetch(buffer, indices, locality):
                return Prefetch(new, place(indices), locality) if buffer == old else s
        return s

    return map_leaves(stmt, leaf)


def map_reads(stmt: Stmt, f: Callable[[Load], Expr]) -> Stmt:
    """`stmt` with every read x in a value that it writes replaced by f(x)."""

    def leaf(s: Stmt) -> Stmt:
        match s:
            case Store(buffer, indices, value):
                made = map_loads(value, f)
                return s if made is value else Store(buffer, indices, made)
            case Update(targets, indices, values, combiner, axes, init):
                changed = tuple([map_loads(v, f) for v in values])
                same = all(a is b for a, b in zip(changed, values, strict=True))
                return s if same else Update(targets, indices, changed, combiner, axes, init)
        return s

    return map_leaves(stmt, leaf)


def map_loads(expr: Expr, f: Callable[[Load], Expr]) -> Expr:
    """`expr` with every read x replaced by f(x), inner ones first; unchanged parts are shared."""
    match expr:
        case Load(buffer, indices, dtype):
            places = tuple([map_loads(i, f) for i in indices])
            same = all(a is b for a, b in zip(places, indices, strict=True))
            return f(expr if same else Load(buffer, places, dtype))
        case Op(name, args, dtype):
            parts = tuple([map_loads(a, f) for a in args])
            return expr if all(a is b for a, b in zip(parts, args, strict=True)) else Op(name, parts, dtype)
        case Cast(value, dtype):
            inner = map_loads(value, f)
            return expr if inner is value else Cast(inner, dtype)
        case _:
            return expr
