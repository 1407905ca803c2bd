"""Which iterations of a loop nest touch the same element: the dependence test behind every reordering.

Two accesses f(x) and g(y) of one buffer meet where every dimension of f(x) - g(y) is zero. A loop around both
is settled when that forces its two values to be equal: its coefficient is larger than all the rest of the
difference can reach (a mixed-radix argument, exact for the indices that splits make). Guards bound what a
group of terms reaches, and x // c and x % c count as variables that, once both are settled, settle x. So the
digits of a fused index, v // (b * c), v // c % b and v % c, settle v.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import gcd

from ..ir.affine import Affine, bound, conjuncts, interval
from ..ir.dtypes import i64
from ..ir.exprs import Const, Expr, Op, Var, const, op
from ..ir.nodes import Alloc, Block, For, If, Prefetch, Stmt, Store, Update
from ..ir.simplify import simplify
from ..ir.walk import free_vars, loads

Extents = Mapping[str, int]
# A variable, an opaque index expression, or the value of a guarded group of terms.
Key = str | Expr | Affine
Limit = tuple[Affine, int]
_UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write of a buffer by the statement `stmt`, with the loops and guards around it."""

    buffer: str
    indices: tuple[Expr, ...]
    writes: bool
    stmt: Stmt
    loops: tuple[str, ...]
    limits: tuple[Limit, ...]


def accesses(stmt: Stmt, loops: tuple[str, ...] = (), limits: tuple[Limit, ...] = ()) -> list[Access]:
    """Every access under `stmt` to buffers that outlive it, in running order, but for prefetches."""
    found: list[Access] = []
    _add_accesses(stmt, loops, limits, found)
    return found


def _add_accesses(stmt: Stmt, loops: tuple[str, ...], limits: tuple[Limit, ...], found: list[Access]) -> None:
    match stmt:
        case For(var=var, body=body):
            _add_accesses(body, (*loops, var), limits, found)
        case Block(stmts):
            for s in stmts:
                _add_accesses(s, loops, limits, found)
        case Alloc(buffer, body):
            start = len(found)
            _add_accesses(body, loops, limits, found)
            found[start:] = [a for a in found[start:] if a.buffer != buffer.name]
        case If(cond, then, other):
            found += [Access(e.buffer, e.indices, False, stmt, loops, limits) for e in loads(cond)]
            known = tuple([b for b in map(bound, conjuncts(cond)) if b is not None])
            _add_accesses(then, loops, limits + known, found)
            if other is not None:
                _add_accesses(other, loops, limits, found)
        case Store(buffer, indices, value):
            read = [e for part in (*indices, value) for e in loads(part)]
            found += [Access(e.buffer, e.indices, False, stmt, loops, limits) for e in read]
            found.append(Access(buffer, indices, True, stmt, loops, limits))
        case Update(targets, indices, values):
            read = [e for part in (*indices, *values) for e in loads(part)]
            found += [Access(e.buffer, e.indices, False, stmt, loops, limits) for e in read]
            found += [Access(t, indices, True, stmt, loops, limits) for t in targets]
        case Prefetch():
            return


def conflicts(found: Iterable[Access]) -> Iterator[tuple[Access, Access]]:
    """The pairs on one buffer of which the first writes; a write is paired with itself too."""
    by_buffer: dict[str, list[Access]] = {}
    for access in found:
        by_buffer.setdefault(access.buffer, []).append(access)
    for group in by_buffer.values():
        for at, a in enumerate(group):
            if a.writes:
                yield from ((a, b) for other, b in enumerate(group) if not b.writes or other >= at)


@dataclass(slots=True)
class _Equation:
    """0 in [lo, hi] + sum of coefficient * (key in one iteration - key in the other)."""

    lo: int
    hi: int
    terms: dict[Key, int] = field(default_factory=dict)


def meet(a: Access, b: Access, fixed: frozenset[str], extents: Extents) -> frozenset[str] | None:
    """The loops around both accesses that must have equal values where they touch one element.

    `fixed` are loops that have one value here anyway. None: the two never touch one element.
    """
    common = frozenset(a.loops) & frozenset(b.loops) | fixed
    if a.buffer == b.buffer and len(a.indices) != len(b.indices):
        return fixed
    equations = [
        _difference(x, y, a, b, common, fixed, extents) for x, y in zip(a.indices, b.indices, strict=True)
    ]
    limits = [limit for limit in a.limits if limit in b.limits]
    settled: set[Key] = set(fixed)
    at = 0
    while at < len(equations):
        new = _settle(equations[at], settled, limits, extents)
        if new is None:
            return None
        at += 1
        if new:
            settled |= new
            settled |= {_reduced(key, limits, extents) for key in new}
            for equation in _opened(settled, limits, extents):
                if equation not in equations:
                    equations.append(equation)
            # Those that this adds are joined in turn.
            for equation in equations:
                equations += [e for e in _joined(equation, settled) if e not in equations]
            at = 0
    return frozenset(k for k in settled if isinstance(k, str) and k in common)


def _difference(
    x: Expr, y: Expr, a: Access, b: Access, common: frozenset[str], fixed: frozenset[str], extents: Extents
) -> _Equation:
    left, right = linear(x), linear(y)
    start = left.pop("", 0) - right.pop("", 0)
    shared = {k: c for k, c in left.items() if right.get(k) == c and _names(k) <= common}
    one_side = [
        ({k: c for k, c in side.items() if k not in shared}, access)
        for side, access in ((left, a), (right, b))
    ]
    merged: dict[Key, int] = {}
    for sign, (terms, _) in zip((1, -1), one_side, strict=True):
        for key, c in terms.items():
            if _names(key) <= fixed:
                merged[key] = merged.get(key, 0) + sign * c
    lo = hi = start
    for key, c in merged.items():
        low, high = _range(key, extents)
        lo, hi = lo + min(c * low, c * high), hi + max(c * low, c * high)
    for sign, (terms, access) in zip((1, -1), one_side, strict=True):
        low, high = _reach(
            {k: sign * c for k, c in terms.items() if not _names(k) <= fixed}, access.limits, extents
        )
        lo, hi = lo + low, hi + high
    return _Equation(lo, hi, shared)


def linear(expr: Expr) -> dict[Key, int]:
    """Coefficients by key, the constant under ""; what is not affine counts as one opaque key."""
    terms: dict[Key, int] = {}
    _collect(expr, 1, terms)
    return {k: c for k, c in terms.items() if c or k == ""}


def _collect(expr: Expr, scale: int, terms: dict[Key, int]) -> None:
    match expr:
        case Var(name):
            terms[name] = terms.get(name, 0) + scale
        case Const(value, dtype) if dtype == i64:
            terms[""] = terms.get("", 0) + scale * int(value)
        case Op("add" | "sub" as name, (x, y), dtype) if dtype == i64:
            _collect(x, scale, terms)
            _collect(y, scale if name == "add" else -scale, terms)
        case Op("mul", (x, Const(value)), dtype) | Op("mul", (Const(value), x), dtype) if dtype == i64:
            _collect(x, scale * int(value), terms)
        case _:
            terms[expr] = terms.get(expr, 0) + scale


def _names(key: Key) -> frozenset[str]:
    if isinstance(key, str):
        return frozenset((key,))
    return key.names if isinstance(key, Affine) else free_vars(key)


def _range(key: Key, extents: Extents) -> tuple[int, int]:
    if isinstance(key, str):
        return 0, max(extents[key] - 1, 0)
    found = key.interval(extents) if isinstance(key, Affine) else interval(key, extents)
    data = not isinstance(key, Affine) and any(True for _ in loads(key))
    return (-_UNBOUNDED, _UNBOUNDED) if found is None or data else found


def _reach(terms: Mapping[Key, int], limits: Iterable[Limit], extents: Extents) -> tuple[int, int]:
    """Bounds of a sum of terms; a guard on a group of them bounds the group."""
    lo = hi = 0
    for key, c in terms.items():
        low, high = _range(key, extents)
        lo, hi = lo + min(c * low, c * high), hi + max(c * low, c * high)
    for group, scale, top in _groups(terms, limits, extents):
        slack = sum(abs(terms[v]) * _range(v, extents)[1] for v, _ in group.terms) - abs(scale) * top
        lo, hi = (lo, hi - slack) if scale > 0 else (lo + slack, hi)
    return lo, hi


def _groups(
    terms: Mapping[Key, int], limits: Iterable[Limit], extents: Extents
) -> Iterator[tuple[Affine, int, int]]:
    """Disjoint (group, scale, largest value): guards that bound scale * group among `terms` better than
    the extents."""
    left = set(terms)
    for form, n in sorted(limits, key=lambda limit: -len(limit[0].terms)):
        if len(form.terms) < 2 or not all(v in left and c > 0 for v, c in form.terms):
            continue
        first, c = form.terms[0]
        scale = terms[first] // c
        reach = form.interval(extents)
        if reach and n - 1 < reach[1] and scale and all(terms[v] == scale * k for v, k in form.terms):
            left -= form.names
            yield form, scale, max(n - 1, 0)


def _settle(equation: _Equation, settled: set[Key], limits: list[Limit], extents: Extents) -> set[Key] | None:
    """What `equation` newly settles; None where it has no solution."""
    live: dict[Key, int] = {k: c for k, c in equation.terms.items() if not _is_settled(k, settled)}
    spans = {k: abs(c) * _span(k, extents) for k, c in live.items()}
    inner = [limit for limit in limits if len(limit[0].terms) < len(live)]
    for group, scale, top in _groups(live, inner, extents):
        for name in group.names:
            del spans[name]
        live = {k: c for k, c in live.items() if k not in group.names}
        if group not in settled:
            live[group] = scale
            spans[group] = abs(scale) * top
    total = sum(spans.values())
    if equation.lo > total or equation.hi < -total:
        return None
    largest = max(abs(equation.lo), abs(equation.hi))
    return {k for k, c in live.items() if abs(c) > largest + total - spans[k]}


def _is_settled(key: Key, settled: set[Key]) -> bool:
    return key in settled or _names(key) <= settled


def _span(key: Key, extents: Extents) -> int:
    low, high = _range(key, extents)
    return high - low


def _opened(settled: set[Key], limits: list[Limit], extents: Extents) -> Iterator[_Equation]:
    """What follows from keys that are not plain variables being equal in both iterations."""
    for key in settled:
        match key:
            case Affine():
                yield _Equation(0, 0, dict(key.terms))
            case Op("mod", (x, Const(n))) if int(n) > 0:
                quotient = linear(simplify(_quotient(x, int(n)), extents))
                forms = {op("floordiv", x, const(int(n)))}, set(quotient) - {""}
                if any(
                    all(_is_settled(_reduced(k, limits, extents), settled) for k in form) for form in forms
                ):
                    yield _Equation(0, 0, {k: c for k, c in linear(x).items() if k != ""})


def _reduced(key: Key, limits: list[Limit], extents: Extents) -> Key:
    """(g * x + r) // (g * m) as x // m, for 0 <= r < g: the form in which quotients are compared. Loops of
    one iteration are left out, as digits that were simplified before a split made them lack them."""
    match key:
        case Op("floordiv", (y, Const(n))) if int(n) > 0:
            whole = linear(y)
            terms = {k: c for k, c in whole.items() if not isinstance(k, str) or extents.get(k) != 1}
            start = terms.pop("", 0)
            units = {gcd(c, int(n)) for c in terms.values()} - {1, n}
            for g in sorted(units | ({1} if len(terms) < len(whole.keys() - {""}) else set()), reverse=True):
                low, high = _reach({k: c for k, c in terms.items() if c % g}, limits, extents)
                if low + start % g >= 0 and high + start % g < g:
                    rest: Expr = const(start // g)
                    for k, c in terms.items():
                        atom = Var(k) if isinstance(k, str) else k
                        if c % g == 0 and not isinstance(atom, Affine):
                            rest = op("add", rest, op("mul", atom, const(c // g)))
                    return simplify(op("floordiv", rest, const(int(n) // g)), extents)
    return key


def _joined(e: _Equation, settled: set[Key]) -> Iterator[_Equation]:
    """`e` times p with y in place of p * (y // p), where y % p is settled: y is the sum of both."""
    for key, c in e.terms.items():
        match key:
            case Op("floordiv", (y, Const(n)), dtype) if Op("mod", (y, Const(n, dtype)), dtype) in settled:
                p = int(n)
                terms = {k: f * p for k, f in e.terms.items() if k != key}
                for k, f in linear(y).items():
                    terms[k] = terms.get(k, 0) + c * f
                yield _Equation(e.lo * p, e.hi * p, {k: f for k, f in terms.items() if f and k != ""})


def _quotient(x: Expr, n: int) -> Expr:
    """x // n as one division: floor((a + floor(y / p)) / n) = floor((p * a + y) / (p * n)), for integers a.

    The digits of a fused index have forms of their own (v // p % n is a remainder of v // p, or, after a
    split of v, of a sum with a quotient in it); the next digit is always a quotient of v.
    """
    for key, c in linear(x).items():
        match key:
            case Op("floordiv", (y, Const(p))) if c == 1 and int(p) > 0:
                rest = op("sub", x, key)
                return _quotient(op("add", op("mul", rest, const(int(p))), y), int(p) * n)
    return op("floordiv", x, const(n))
