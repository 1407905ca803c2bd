"""Random index expressions and conditions, and their values, for the property tests."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st

from tlm.ir.exprs import Cast, Const, Expr, Op, Var, const, op

quick = settings(max_examples=100, deadline=None, derandomize=True)
EXTENTS = {"i": 5, "j": 3, "k.0": 4, "one": 1}
NAMES = sorted(EXTENTS)
_TRUNCATE = {"quot": lambda a, b: int(a / b), "rem": lambda a, b: a - b * int(a / b)}
_VALUES = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "minimum": min, "maximum": max,
    "neg": lambda a: -a, "abs": abs,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "and": lambda a, b: a and b, "or": lambda a, b: a or b,
    "not": lambda a: not a, **_TRUNCATE,
}  # fmt: skip


def value(expr: Expr, point: Mapping[str, int]) -> int:
    """The value of a pure index expression or condition at one iteration, by the book."""
    match expr:
        case Const(x, _):
            return x
        case Var(name):
            return point[name]
        case Cast(x, _):
            return int(value(x, point))
        case Op("where", (cond, a, b), _):
            return value(a if value(cond, point) else b, point)
        case Op(name, args, _):
            return _VALUES[name](*[value(a, point) for a in args])
    raise TypeError(expr)


_leaves = st.one_of(st.sampled_from([Var(n) for n in NAMES]), st.integers(-9, 9).map(const))


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    divisor = st.integers(1, 9).map(const)
    return st.one_of(
        st.builds(op, st.sampled_from(["add", "sub"]), inner, inner),
        st.builds(op, st.sampled_from(["add", "sub"]), inner, inner),
        st.builds(op, st.just("mul"), inner, st.integers(-9, 9).map(const)),
        st.builds(op, st.sampled_from(["floordiv", "mod", "quot", "rem"]), inner, divisor),
        st.builds(op, st.sampled_from(["minimum", "maximum", "mul"]), inner, inner),
        st.builds(op, st.sampled_from(["neg", "abs"]), inner),
        st.builds(op, st.just("where"), _compare(inner), inner, inner),
    )


def _compare(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(op, st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), inner, inner)


indices = st.recursive(_leaves, _grow, max_leaves=8)
conditions = st.recursive(
    _compare(indices),
    lambda c: st.one_of(
        st.builds(op, st.sampled_from(["and", "or"]), c, c), st.builds(op, st.just("not"), c)
    ),
    max_leaves=4,
)
affine_indices = st.lists(st.integers(-6, 6), min_size=len(NAMES) + 1, max_size=len(NAMES) + 1).map(
    lambda c: sum((Var(n) * x for n, x in zip(NAMES, c, strict=False)), const(c[-1]))
)
guards = st.builds(
    op, st.sampled_from(["lt", "le", "gt", "ge"]), affine_indices, st.integers(-12, 20).map(const)
)
