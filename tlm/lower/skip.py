"""Steps of a reduction that add nothing are left out: a value that is the identity outside of a condition.

    for r in 3: m[y] (r; no init)= max(where(0 < y + r, x[y + r - 1], -inf))
    ->  for r in 3: if 0 < y + r: m[y] (r; no init)= max(x[y + r - 1])

As a guard the condition can leave loops, bound them, or divide them into versions. Conditions on the lanes of
a vector stay where they are, but for products, whose masked form is one instruction. The sum of a number and
0 is the number, but for -0, which no sum that starts at 0 can be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ..ir.affine import bound, conjunction, conjuncts
from ..ir.combiners import COMBINERS
from ..ir.dtypes import DType
from ..ir.exprs import Const, Expr, Op
from ..ir.nodes import For, If, Stmt, Update
from ..ir.walk import free_vars, map_parts


def skip_identities(stmt: Stmt, dtypes: Mapping[str, DType], lanes: frozenset[str] = frozenset()) -> Stmt:
    """`stmt` with a guard around every Update whose values are the identity where a condition fails."""
    match stmt:
        case For(var, kind="vectorize"):
            return map_parts(stmt, lambda s: skip_identities(s, dtypes, lanes | {var}))
        case Update(init=False):
            return _guarded(stmt, dtypes, lanes)
    return map_parts(stmt, lambda s: skip_identities(s, dtypes, lanes))


def _guarded(update: Update, dtypes: Mapping[str, DType], lanes: frozenset[str]) -> Stmt:
    identity = COMBINERS[update.combiner].identity(tuple([dtypes[t] for t in update.targets]))
    picked: list[Expr] = []
    conds: set[Expr] = set()
    for value, empty in zip(update.values, identity, strict=True):
        match value:
            case Op("where", (cond, inside, Const(other)), _) if _same(other, empty.value):
                conds.add(cond)
                picked.append(inside)
    if len(picked) < len(update.values) or len(conds) != 1:
        return update
    parts = conjuncts(conds.pop())
    product = all(isinstance(p, Op) and p.op == "mul" for p in picked)
    guards = [c for c in parts if bound(c) is not None and (product or not free_vars(c) & lanes)]
    if not guards:
        return update
    left = [c for c in parts if c not in guards]
    values = tuple(picked)
    if left:
        cond = conjunction(left)
        pairs = zip(picked, identity, strict=True)
        values = tuple([Op("where", (cond, v, Const(e.value, v.dtype)), v.dtype) for v, e in pairs])
    return If(conjunction(guards), replace(update, values=values))


def _same(a: float, b: float) -> bool:
    """Whether two constants are one value; 0 and -0 are not."""
    return a == b and math.copysign(1, a) == math.copysign(1, b)
