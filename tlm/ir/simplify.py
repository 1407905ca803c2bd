"""Simplification of index arithmetic, conditions and whole programs. Values keep every bit.

Index expressions (i64, of loop variables only) become sums of multiples; divisions, remainders, min, max,
comparisons and guards are decided where the extents of the loops decide them. Nothing is assumed of floats:
x * 0 and x - x stay. Index arithmetic is taken to fit in 64 bits; what reads a buffer may wrap, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import gcd

from .affine import affine, below, conjunction, conjuncts, implied
from .dtypes import boolean, i64
from .exprs import FALSE, TRUE, Cast, Const, Expr, Load, Op, Var, const, op
from .nodes import NOTHING, Alloc, Block, For, If, Prefetch, Program, Stmt, Store, Update, block
from .printer import text
from .sums import Sum, divided, expression, named, renamed
from .walk import walk

_COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True, slots=True)
class _Context:
    """What is known where an expression stands."""

    extents: Mapping[str, int]
    facts: tuple[Expr, ...] = ()

    def implied(self, cond: Expr) -> bool | None:
        return implied(cond, self.extents, self.facts)


def simplify(expr: Expr, extents: Mapping[str, int], facts: Iterable[Expr] = ()) -> Expr:
    """An equal, canonical expression, where 0 <= var < extents[var] and the conditions `facts` hold."""
    return _simplify(expr, _Context(extents, _usable(facts)))


def simplify_program(program: Program) -> Program:
    """The program with its expressions simplified, decided Ifs resolved, and loops that never run dropped."""
    return replace(program, body=_stmt(program.body, _Context({})))


def _usable(facts: Iterable[Expr]) -> tuple[Expr, ...]:
    """The conjuncts without reads: a buffer may change between the test and the use."""
    return tuple([c for f in facts for c in conjuncts(f) if _pure(c)])


def _pure(expr: Expr) -> bool:
    return not any(isinstance(n, Load) for n in walk(expr))


def _simplify(expr: Expr, c: _Context) -> Expr:
    match expr:
        case Const() | Var():
            return expr
        case Load(buffer, indices, dtype):
            return Load(buffer, tuple([_simplify(i, c) for i in indices]), dtype)
        case Cast(value, dtype):
            inner = _simplify(value, c)
            return inner if inner.dtype == dtype else Cast(inner, dtype)
        case Op("where", (cond, a, b), dtype):
            return _where(cond, a, b, c)
        case Op("and" | "or" | "not", _, dtype) if dtype == boolean:
            return _logic(expr, c)
        case Op(name, (a, _), _) if name in _COMPARE and a.dtype == i64 and _pure(expr):
            return _compare(expr, c)
        case Op(_, _, dtype) if dtype == i64 and _pure(expr):
            form = affine(expr)
            return form.expr() if form is not None else expression(_sum(expr, c))
        case Op(name, args, dtype):
            return Op(name, tuple([_simplify(a, c) for a in args]), dtype)
    raise TypeError(f"not an expression: {expr!r}")


# Index arithmetic


def _sum(expr: Expr, c: _Context) -> Sum:
    """The sum that a pure i64 expression is."""
    match expr:
        case Const(value, _):
            return Sum(int(value), {})
        case Op("add", (a, b), _):
            return _recombine(_sum(a, c).plus(_sum(b, c)), c)
        case Op("sub", (a, b), _):
            return _recombine(_sum(a, c).plus(_sum(b, c), -1), c)
        case Op("neg", (a,), _):
            return Sum(0, {}).plus(_sum(a, c), -1)
        case Op("mul", (a, b), _):
            left, right = _sum(a, c), _sum(b, c)
            if left.atoms and right.atoms:
                return Sum(0, {op("mul", *sorted((expression(left), expression(right)), key=text)): 1})
            return Sum(0, {}).plus(right, left.const) if right.atoms else Sum(0, {}).plus(left, right.const)
        case Op("floordiv" | "mod" | "quot" | "rem" as name, (a, b), _):
            return divided(name, _sum(a, c), _sum(b, c), c.extents)
        case Op("minimum" | "maximum" as name, (a, b), _):
            return _extreme(name, _simplify(a, c), _simplify(b, c), c)
        case Op("where", (cond, a, b), _):
            return _atom(_where(cond, a, b, c), c)
        case Op(name, args, dtype):
            return Sum(0, {Op(name, tuple([_simplify(a, c) for a in args]), dtype): 1})
        case Cast():
            return _atom(_simplify(expr, c), c)
    return Sum(0, {expr: 1})


def _atom(expr: Expr, c: _Context) -> Sum:
    """`expr` is simplified: only a remaining `where` or cast stays whole."""
    keep = isinstance(expr, Cast) or (isinstance(expr, Op) and expr.op == "where")
    return Sum(0, {expr: 1}) if keep else _sum(expr, c)


def _recombine(total: Sum, c: _Context) -> Sum:
    """x // n * n + x % n is x."""
    for atom, factor in total.atoms.items():
        match atom:
            case Op("mod", (x, Const(n, _)), _) if (
                total.atoms.get(op("floordiv", x, const(n)), 0) == factor * n
            ):
                rest = {a: f for a, f in total.atoms.items() if a not in (atom, op("floordiv", x, const(n)))}
                return _recombine(Sum(total.const, rest).plus(_sum(x, c), factor), c)
    return total


def _extreme(name: str, a: Expr, b: Expr, c: _Context) -> Sum:
    first = c.implied(op("le" if name == "minimum" else "ge", a, b))
    if first is None and c.implied(op("ge" if name == "minimum" else "le", a, b)):
        first = False
    if first is None:
        return Sum(0, {op(name, a, b): 1})
    picked = a if first else b
    return Sum(0, {picked: 1}) if isinstance(picked, Op) and picked.op == name else _atom(picked, c)


def _where(cond: Expr, a: Expr, b: Expr, c: _Context) -> Expr:
    test = _simplify(cond, c)
    if isinstance(test, Const):
        return _simplify(a if test.value else b, c)
    under = _Context(c.extents, c.facts + _usable((test,)))
    return op("where", test, _simplify(a, under), _simplify(b, c))


# Conditions


def _compare(expr: Op, c: _Context) -> Expr:
    """A comparison of index expressions: decided, or "terms < constant" without a common factor."""
    (a, b), name = expr.args, expr.op
    if _decided(expr, c) != expr:
        return _decided(expr, c)
    difference = _sum(b, c).plus(_sum(a, c), -1) if name in ("gt", "ge") else _sum(a, c).plus(_sum(b, c), -1)
    if not difference.atoms:
        left = {"eq": difference.const == 0, "ne": difference.const != 0}
        return const(left.get(name, difference.const < (1 if name in ("le", "ge") else 0)), boolean)
    g = gcd(*difference.atoms.values())
    atoms = {x: f // g for x, f in difference.atoms.items()}
    if name in ("eq", "ne"):
        if difference.const % g:
            return const(name == "ne", boolean)
        return _decided(op(name, expression(Sum(0, atoms)), const(-difference.const // g)), c)
    limit = -((difference.const - (1 if name in ("le", "ge") else 0)) // g)
    # sum(g * x) < n holds exactly where sum(x) < ceil(n / g).
    form, names = named(Sum(0, atoms))
    return _decided(renamed(below(form, limit), names), c)


def _decided(cond: Expr, c: _Context) -> Expr:
    known = c.implied(cond)
    return cond if known is None else const(known, boolean)


def _logic(expr: Op, c: _Context) -> Expr:
    match expr:
        case Op("not", (Op(name, (x, y), _) as a,), _) if name in _OPPOSITE and x.dtype == i64 and _pure(a):
            return _compare(op(_OPPOSITE[name], x, y), c)
        case Op("not", (a,), _):
            inner = _simplify(a, c)
            match inner:
                case Const(value, _):
                    return const(not value, boolean)
                case Op("not", (x,), _):
                    return x
            return op("not", inner)
        case Op("and", _, _):
            return _conjunction(conjuncts(expr), c)
    a, b = [_simplify(x, c) for x in expr.args]
    if TRUE in (a, b):
        return TRUE
    return b if a in (FALSE, b) else a if b == FALSE else op("or", a, b)


def _conjunction(conds: Iterable[Expr], c: _Context) -> Expr:
    """The conditions without those that the others imply."""
    kept: list[Expr] = []
    for cond in [x for whole in conds for x in conjuncts(_simplify(whole, c))]:
        known = implied(cond, c.extents, (*c.facts, *_usable(kept)))
        if cond == FALSE or known is False:
            return FALSE
        if known is None and cond not in kept:
            kept = [k for k in kept if not (_pure(cond) and implied(k, c.extents, (cond,)))]
            kept.append(cond)
    return conjunction(kept)


# Statements


def _stmt(stmt: Stmt, c: _Context) -> Stmt:
    match stmt:
        case For():
            return _loop(stmt, c)
        case Block(stmts):
            return block(*[_stmt(s, c) for s in stmts])
        case If(cond, then, other):
            return _if(_simplify(cond, c), then, other, c)
        case Alloc(buffer, body):
            inner = _stmt(body, c)
            return NOTHING if inner == NOTHING else Alloc(buffer, inner)
        case Store(buffer, indices, value):
            return Store(buffer, tuple([_simplify(i, c) for i in indices]), _simplify(value, c))
        case Update(indices=indices, values=values):
            return replace(
                stmt,
                indices=tuple([_simplify(i, c) for i in indices]),
                values=tuple([_simplify(v, c) for v in values]),
            )
        case Prefetch(buffer, indices, locality):
            return Prefetch(buffer, tuple([_simplify(i, c) for i in indices]), locality)
    raise TypeError(f"not a statement: {stmt!r}")


def _loop(loop: For, c: _Context) -> Stmt:
    limit = None if loop.bound is None else _simplify(loop.bound, c)
    if limit is not None and c.implied(op("ge", limit, const(loop.extent))):
        limit = None
    facts = c.facts if limit is None else c.facts + _usable((op("lt", Var(loop.var), limit),))
    body = _stmt(loop.body, _Context({**c.extents, loop.var: loop.extent}, facts))
    never = loop.extent == 0 or (limit is not None and c.implied(op("le", limit, const(0))))
    return NOTHING if never or body == NOTHING else replace(loop, body=body, bound=limit)


def _if(cond: Expr, then: Stmt, other: Stmt | None, c: _Context) -> Stmt:
    if isinstance(cond, Const):
        return _stmt(then, c) if cond.value else NOTHING if other is None else _stmt(other, c)
    under = _stmt(then, _Context(c.extents, c.facts + _usable((cond,))))
    rest = None if other is None else _stmt(other, c)
    if rest == NOTHING:
        rest = None
    return NOTHING if under == NOTHING and rest is None else If(cond, under, rest)
