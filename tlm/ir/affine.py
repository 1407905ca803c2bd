"""Affine forms of index expressions, their bounds, and what conditions imply: the base of legality checks.

Everything here is exact arithmetic on loop variables, each of which runs over 0 <= var < extent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import gcd

from .dtypes import boolean, i64
from .exprs import Cast, Const, Expr, Op, Var, const, op

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Affine:
    """const + sum of coefficient * variable; `terms` is sorted by name and has no zero coefficient."""

    const: int
    terms: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: Affine) -> Affine:
        merged = dict(self.terms)
        for name, c in other.terms:
            merged[name] = merged.get(name, 0) + c
        return _of(self.const + other.const, merged)

    def __sub__(self, other: Affine) -> Affine:
        return self + other.scale(-1)

    def shift(self, by: int) -> Affine:
        """self + by."""
        return Affine(self.const + by, self.terms)

    def scale(self, by: int) -> Affine:
        """self * by."""
        return Affine(self.const * by, tuple([(n, c * by) for n, c in self.terms]) if by else ())

    def coefficient(self, name: str) -> int:
        """The factor of `name`, 0 where it does not occur."""
        return next((c for n, c in self.terms if n == name), 0)

    @property
    def names(self) -> frozenset[str]:
        """The variables that occur."""
        return frozenset(n for n, _ in self.terms)

    def interval(self, extents: Mapping[str, int]) -> Interval | None:
        """Inclusive bounds over all iterations; None where the extent of a variable is unknown."""
        lo = hi = self.const
        for name, c in self.terms:
            extent = extents.get(name)
            if extent is None:
                return None
            reach = c * max(extent - 1, 0)
            lo, hi = lo + min(reach, 0), hi + max(reach, 0)
        return lo, hi

    def expr(self) -> Expr:
        """The canonical expression: positive terms by name, the constant, then what is subtracted."""
        pieces = [_times(n, c) for n, c in self.terms if c > 0]
        if self.const > 0 or (self.const and not pieces):
            pieces.append(const(self.const))
        negative = [_times(n, -c) for n, c in self.terms if c < 0]
        if self.const < 0 and pieces and not isinstance(pieces[0], Const):
            negative.append(const(-self.const))
        if not pieces:
            pieces = [const(0)]
        out = pieces[0]
        for piece in pieces[1:]:
            out = Op("add", (out, piece), i64)
        for piece in negative:
            out = Op("sub", (out, piece), i64)
        return out


def _times(name: str, c: int) -> Expr:
    return Var(name) if c == 1 else Op("mul", (Var(name), const(c)), i64)


def _of(const: int, terms: Mapping[str, int]) -> Affine:
    kept = [(n, c) for n, c in terms.items() if c]
    return Affine(const, tuple(kept if len(kept) < 2 else sorted(kept)))


def affine(expr: Expr) -> Affine | None:
    """The affine form of an i64 expression of loop variables, or None where it has none."""
    terms: dict[str, int] = {}
    total = _collect(expr, 1, terms)
    return None if total is None else _of(total, terms)


def _collect(expr: Expr, scale: int, terms: dict[str, int]) -> int | None:
    """Add scale * expr to `terms`; returns its constant part, None where `expr` is not affine."""
    # The hottest code of scheduling: classes are told apart before anything is taken out of them.
    if isinstance(expr, Var):
        terms[expr.name] = terms.get(expr.name, 0) + scale
        return 0
    if expr.dtype is not i64:
        return None
    if isinstance(expr, Const):
        return scale * int(expr.value)
    if not isinstance(expr, Op):
        return None
    match expr.op, expr.args:
        case "mul", (a, Const(value, _)):
            return _collect(a, scale * int(value), terms)
        case ("add" | "sub") as name, (a, b):
            left = _collect(a, scale, terms)
            right = None if left is None else _collect(b, scale if name == "add" else -scale, terms)
            return None if left is None or right is None else left + right
        case "mul", (a, b):
            for factor, rest in ((b, a), (a, b)):
                known = affine(factor)
                if known is not None and not known.terms:
                    return _collect(rest, scale * known.const, terms)
        case "neg", (a,):
            return _collect(a, -scale, terms)
    return None


def interval(expr: Expr, extents: Mapping[str, int]) -> Interval | None:
    """Inclusive bounds of an i64 (or bool, as 0 and 1) expression over all iterations; None where unknown.

    Exact for affine expressions; safe, perhaps wide, for min, max, //, %, where and products.
    """
    form = affine(expr)
    if form is not None:
        return form.interval(extents)
    match expr:
        case Op("where", (cond, a, b), dtype) if dtype == i64:
            # Deeper conditions would be decided again at every level around them.
            known = implied(cond, extents) if bound(cond) else None
            sides = [interval(x, extents) for x in ((a, b) if known is None else (a,) if known else (b,))]
            return None if None in sides else (min(s[0] for s in sides if s), max(s[1] for s in sides if s))
        case Cast(value, dtype) if dtype == i64 and value.dtype == boolean:
            return interval(value, extents)
        case Op(name, args, dtype) if dtype == i64 and name in _BOUNDS:
            parts = [interval(a, extents) for a in args]
            return None if None in parts else _BOUNDS[name](*parts)
    if expr.dtype == boolean:
        known = implied(expr, extents) if bound(expr) else None
        return (0, 1) if known is None else (int(known), int(known))
    return None


def _corners(f: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    def bounds(a: Interval, b: Interval) -> Interval:
        values = [f(x, y) for x, y in product(a, b)]
        return min(values), max(values)

    return bounds


def truncated_quotient(a: int, b: int) -> int:
    """a / b rounded toward zero."""
    return a // b if (a < 0) == (b < 0) or a % b == 0 else a // b + 1


def _divided(f: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval | None]:
    # Both divisions are monotone in each operand as long as the divisor keeps its sign.
    corners = _corners(f)
    return lambda a, b: corners(a, b) if b[0] > 0 or b[1] < 0 else None


def _mod(a: Interval, b: Interval) -> Interval | None:
    if b[0] <= 0:
        return None
    if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
        return a[0] % b[0], a[1] % b[0]
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 else (0, b[1] - 1)


def _rem(a: Interval, b: Interval) -> Interval | None:
    if b[0] <= 0:
        return None
    return max(min(a[0], 0), 1 - b[1]), min(max(a[1], 0), b[1] - 1)


def _abs(a: Interval) -> Interval:
    return (0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))), max(abs(a[0]), abs(a[1]))


_BOUNDS: dict[str, Callable[..., Interval | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "neg": lambda a: (-a[1], -a[0]),
    "mul": _corners(lambda x, y: x * y),
    "minimum": _corners(min),
    "maximum": _corners(max),
    "floordiv": _divided(lambda x, y: x // y),
    "quot": _divided(truncated_quotient),
    "mod": _mod,
    "rem": _rem,
    "abs": _abs,
}


def conjuncts(cond: Expr) -> tuple[Expr, ...]:
    """The conditions that `cond` joins with "and", in order; none for a constant true."""
    match cond:
        case Op("and", (a, b), dtype) if dtype == boolean:
            return conjuncts(a) + conjuncts(b)
        case Const(True, dtype) if dtype == boolean:
            return ()
    return (cond,)


def conjunction(conds: Iterable[Expr]) -> Expr:
    """The conditions joined with "and", each once; a constant true where there are none."""
    out: Expr | None = None
    for cond in dict.fromkeys(c for whole in conds for c in conjuncts(whole)):
        out = cond if out is None else Op("and", (out, cond), boolean)
    return const(True, boolean) if out is None else out


def below(form: Affine, limit: int) -> Expr:
    """The canonical guard form < limit: "terms < constant", or "constant < terms" if all are negative."""
    limit -= form.const
    if form.terms and all(c < 0 for _, c in form.terms):
        return op("lt", const(-limit), Affine(0, form.terms).scale(-1).expr())
    return op("lt", Affine(0, form.terms).expr(), const(limit))


def bound(cond: Expr) -> tuple[Affine, int] | None:
    """(a, n) such that `cond` says a < n, with no constant in a; None if it is not an affine inequality."""
    if not isinstance(cond, Op) or cond.op not in _LESS or cond.args[0].dtype != i64:
        return None
    a, b = affine(cond.args[0]), affine(cond.args[1])
    if a is None or b is None:
        return None
    flip, slack = _LESS[cond.op]
    difference = b - a if flip else a - b
    return Affine(0, difference.terms), slack - difference.const


# Operation: whether its operands swap to make it "less", and 1 where equality is allowed.
_LESS = {"lt": (False, 0), "le": (False, 1), "gt": (True, 0), "ge": (True, 1)}


def implied(cond: Expr, extents: Mapping[str, int], facts: Iterable[Expr] = ()) -> bool | None:
    """Whether `cond` holds in every iteration (True), in none (False), or is undecided (None).

    `facts` are conditions known to hold where `cond` is asked: the guards around it.
    """
    known = [f for whole in facts for f in conjuncts(whole)]
    limits = [b for b in map(bound, known) if b is not None][-_MOST_LIMITS:]
    return _decide(cond, extents, known, limits)


_Limits = list[tuple[Affine, int]]

# How many facts are looked at (the innermost ones), and how many of them one conclusion may combine.
_MOST_LIMITS = 16
_MOST_FACTS = 3


def _decide(cond: Expr, extents: Mapping[str, int], known: list[Expr], limits: _Limits) -> bool | None:
    if cond in known:
        return True
    match cond:
        case Const(value, _):
            return bool(value)
        case Op("not", (a,), dtype) if dtype == boolean:
            inner = _decide(a, extents, known, limits)
            return None if inner is None else not inner
        case Op("and" | "or" as name, args, dtype) if dtype == boolean:
            sides = [_decide(a, extents, known, limits) for a in args]
            absorbing = name == "or"
            return absorbing if absorbing in sides else None if None in sides else not absorbing
        case Op("eq" | "ne" as name, (a, b), _) if a.dtype == i64:
            return _decide_equal(op("sub", a, b), name == "eq", extents, limits)
        case Op(name, (a, b), _) if name in _LESS and a.dtype == i64:
            flip, slack = _LESS[name]
            difference = op("sub", b, a) if flip else op("sub", a, b)
            if _always_below(difference, slack, extents, limits):
                return True
            return False if _always_below(op("neg", difference), 1 - slack, extents, limits) else None
    return None


def _decide_equal(difference: Expr, equal: bool, extents: Mapping[str, int], limits: _Limits) -> bool | None:
    up = _always_below(difference, 1, extents, limits)
    down = _always_below(op("neg", difference), 1, extents, limits)
    if up and down:
        return equal
    sides = (difference, op("neg", difference))
    return not equal if any(_always_below(side, 0, extents, limits) for side in sides) else None


def _always_below(expr: Expr, limit: int, extents: Mapping[str, int], limits: _Limits) -> bool:
    reach = interval(expr, extents)
    if reach is not None and reach[1] < limit:
        return True
    form = affine(expr)
    return form is not None and _bounded(form, limit, extents, limits)


def _bounded(
    form: Affine, limit: int, extents: Mapping[str, int], limits: _Limits, facts: int = _MOST_FACTS
) -> bool:
    """Whether form < limit follows: a < n gives s * form <= s * form - c * (a - n + 1) for all s, c > 0."""
    reach = form.interval(extents)
    if reach is not None and reach[1] < limit:
        return True
    if facts == 0:
        return False
    for at, (a, n) in enumerate(limits):
        # Only the multiples that make a variable of both disappear are worth a try.
        pairs = [(form.coefficient(name), g) for name, g in a.terms]
        for s, c in {(abs(g) // gcd(f, g), abs(f) // gcd(f, g)) for f, g in pairs if f * g > 0}:
            rest = form.scale(s) - a.scale(c).shift(c * (1 - n))
            if _bounded(rest, limit * s, extents, limits[:at] + limits[at + 1 :], facts - 1):
                return True
    return False
