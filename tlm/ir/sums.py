"""Sums of multiples of index expressions, in one canonical form, and their quotients and remainders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from .affine import Affine, interval
from .exprs import Const, Expr, Op, Var, const, op
from .printer import text


@dataclass(slots=True)
class Sum:
    """const + sum of factor * atom, where an atom is a Var or an expression that is no sum itself."""

    const: int
    atoms: dict[Expr, int]

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        atoms = dict(self.atoms)
        for atom, c in other.atoms.items():
            atoms[atom] = atoms.get(atom, 0) + c * factor
        return Sum(self.const + other.const * factor, {a: c for a, c in atoms.items() if c})


def expression(total: Sum) -> Expr:
    """The canonical expression of a sum: positive terms by text, the constant, then what is subtracted."""
    form, atoms = named(total)
    return renamed(form.expr(), atoms)


def named(total: Sum) -> tuple[Affine, dict[str, Expr]]:
    """A sum over names that sort as the texts of its atoms do, so that affine.py can write it."""
    atoms = {f"{n:06d}": atom for n, atom in enumerate(sorted(total.atoms, key=text))}
    return Affine(total.const, tuple([(name, total.atoms[atom]) for name, atom in atoms.items()])), atoms


def renamed(expr: Expr, atoms: Mapping[str, Expr]) -> Expr:
    """`expr` with atoms in place of their names."""
    match expr:
        case Var(name):
            return atoms[name]
        case Op(name, args, dtype):
            return Op(name, tuple([renamed(a, atoms) for a in args]), dtype)
    return expr


def divided(name: str, a: Sum, b: Sum, extents: Mapping[str, int]) -> Sum:
    """Floor division and remainder by a positive constant n: multiples of n leave the fraction."""
    n = b.const
    reach = interval(expression(a), extents)
    if name in ("quot", "rem"):
        if reach is None or reach[0] < 0 or b.atoms or n <= 0:
            return Sum(0, {op(name, expression(a), expression(b)): 1})
        name = "floordiv" if name == "quot" else "mod"
    if b.atoms or n <= 0:
        return Sum(0, {op(name, expression(a), expression(b)): 1})
    whole = Sum(a.const // n, {x: f // n for x, f in a.atoms.items() if f % n == 0})
    rest = Sum(a.const % n, {x: f for x, f in a.atoms.items() if f % n})
    reach = interval(expression(rest), extents)
    if reach is not None and reach[0] // n == reach[1] // n:
        block_number = reach[0] // n
        return (
            whole.plus(Sum(block_number, {})) if name == "floordiv" else rest.plus(Sum(-block_number * n, {}))
        )
    return whole.plus(_fraction(_coarse(rest, n, extents), n)) if name == "floordiv" else _remainder(rest, n)


def _coarse(rest: Sum, n: int, extents: Mapping[str, int]) -> Sum:
    """`rest` without the part that does not change rest // n: floor((g * x + r) / (g * m)) = floor(x / m) for
    0 <= r < g."""
    for g in sorted({gcd(n, f) for f in rest.atoms.values()}, reverse=True):
        fine = Sum(rest.const % g, {x: f for x, f in rest.atoms.items() if f % g})
        reach = interval(expression(fine), extents) if fine.atoms else None
        if reach is not None and reach[0] >= 0 and reach[1] < g:
            return Sum(rest.const - fine.const, {x: f for x, f in rest.atoms.items() if x not in fine.atoms})
    return rest


def _fraction(rest: Sum, n: int) -> Sum:
    # floor((g * x + r) / (g * m)) = floor((x + floor(r / g)) / m); floor(floor(x / p) / q) = floor(x / pq).
    g = gcd(n, *rest.atoms.values())
    if g == n:
        return Sum(rest.const // g, {x: f // g for x, f in rest.atoms.items()})
    reduced = Sum(rest.const // g, {x: f // g for x, f in rest.atoms.items()})
    match expression(reduced):
        case Op("floordiv", (x, Const(p, _)), _) if p > 0:
            return Sum(0, {op("floordiv", x, const(p * (n // g))): 1})
        case x:
            return Sum(0, {op("floordiv", x, const(n // g)): 1})


def _remainder(rest: Sum, n: int) -> Sum:
    # (g * x + r) mod (g * m) = g * (x mod m) + r, for 0 <= r < g.
    g = gcd(n, *rest.atoms.values())
    reduced = Sum(rest.const // g, {x: f // g for x, f in rest.atoms.items()})
    return Sum(rest.const % g, {op("mod", expression(reduced), const(n // g)): g})
