"""Explicit initialisation: every Update with `init` becomes stores of the identity and an Update without it.

    for k in 6: for j in 5:                 for j@init in 5:
      C[j] (k)+= A[k] * B[k, j]      ->       C[j@init] = 0
                                            for k in 6: for j in 5:
                                              C[j] (k; no init)+= A[k] * B[k, j]

A value that does not depend on the reduction's loops (the write-back of a tile summed inside them) is stored
in the first round instead, which saves a pass over the target:

    for k.0 in 4: for j in 5:               for k.0 in 4: for j in 5:
      C[j] (k.0)+= acc[j]            ->       if k.0 < 1: C[j] = acc[j]
                                              else: C[j] (k.0; no init)+= acc[j]
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.affine import conjunction
from ..ir.combiners import COMBINERS
from ..ir.dtypes import DType
from ..ir.nodes import Alloc, Block, Expr, For, If, Stmt, Store, Update, Var, block, const
from ..ir.walk import free_vars, loads, substitute, walk
from .nests import Path, leaves, map_leaves, spatial_copy, with_body

# Combiners whose merge(identity, x) is x, so that the first value can be stored as it is.
_PLAIN = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")


def explicit_init(stmt: Stmt, dtypes: dict[str, DType]) -> Stmt:
    """`stmt` without any Update that has `init`. `dtypes` gives the type of every buffer."""
    return _explicit(_first_rounds(stmt, (), dtypes), dtypes)


def _first_rounds(stmt: Stmt, enclosing: tuple[For, ...], dtypes: dict[str, DType]) -> Stmt:
    """Updates whose values do not depend on their axes, or that have no axis around them, store in the
    first round."""
    match stmt:
        case For():
            return with_body(stmt, _first_rounds(stmt.body, (*enclosing, stmt), dtypes))
        case Alloc():
            return with_body(stmt, _first_rounds(stmt.body, enclosing, dtypes))
        case If(cond, then, other):
            rest = None if other is None else _first_rounds(other, enclosing, dtypes)
            return If(cond, _first_rounds(then, enclosing, dtypes), rest)
        case Block(stmts):
            return block(*[_first_rounds(s, enclosing, dtypes) for s in stmts])
        case Update(init=True):
            around = [loop for loop in enclosing if loop.var in stmt.axes]
            axes = [loop.var for loop in around]
            if not axes:
                return _stores(stmt, dtypes)
            if all(loop.kind != "vectorize" for loop in around) and _is_partial_sum(stmt, axes, around[-1]):
                first = conjunction([Var(a) < 1 for a in axes])
                return If(first, _stores(stmt, dtypes), replace(stmt, init=False))
    return stmt


def _is_partial_sum(update: Update, axes: list[str], innermost: For) -> bool:
    """Whether `update` merges what other reductions inside `innermost` have computed."""
    if not frozenset().union(*map(free_vars, update.values)).isdisjoint(axes):
        return False
    reduced = {t for n in walk(innermost.body) if isinstance(n, Update) for t in n.targets}
    return any(read.buffer in reduced for value in update.values for read in loads(value))


def _stores(update: Update, dtypes: dict[str, DType]) -> Stmt:
    values = update.values
    if update.combiner not in _PLAIN:
        combiner = COMBINERS[update.combiner]
        values = combiner.merge(combiner.identity(tuple(dtypes[t] for t in update.targets)), values)
    return block(*[Store(t, update.indices, v) for t, v in zip(update.targets, values, strict=True)])


def _explicit(stmt: Stmt, dtypes: dict[str, DType]) -> Stmt:
    match stmt:
        case For(var=var):
            found = [
                (p, u) for p, u in leaves(stmt.body) if isinstance(u, Update) and u.init and var in u.axes
            ]
            if not found:
                return with_body(stmt, _explicit(stmt.body, dtypes))
            done = {id(u) for _, u in found}
            body = map_leaves(stmt.body, lambda s: _continuing(s) if id(s) in done else s)
            nests = [init_nest(p, u, dtypes) for p, u in found]
            return block(*nests, with_body(stmt, _explicit(body, dtypes)))
        case Alloc():
            return with_body(stmt, _explicit(stmt.body, dtypes))
        case If(cond, then, other):
            return If(cond, _explicit(then, dtypes), None if other is None else _explicit(other, dtypes))
        case Block(stmts):
            return block(*[_explicit(s, dtypes) for s in stmts])
    return stmt


def init_nest(path: Path, update: Update, dtypes: dict[str, DType]) -> Stmt:
    """Stores of the identity to everything that `update` writes under the loops of `path`."""
    identity = COMBINERS[update.combiner].identity(tuple(dtypes[t] for t in update.targets))
    typed = [const(c.value, dtypes[t]) for c, t in zip(identity, update.targets, strict=True)]

    def build(names: dict[str, Expr]) -> Stmt:
        at = tuple([substitute(i, names) for i in update.indices])
        return block(*[Store(t, at, c) for t, c in zip(update.targets, typed, strict=True)])

    used = frozenset().union(*map(free_vars, update.indices))
    return spatial_copy(path, update.axes, "init", build, used)  # type: ignore[arg-type]


def _continuing(stmt: Stmt) -> Stmt:
    assert isinstance(stmt, Update)
    return replace(stmt, init=False)
