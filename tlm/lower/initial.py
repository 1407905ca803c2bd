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

from collections.abc import Mapping
from dataclasses import replace

from ..ir.affine import conjunction
from ..ir.combiners import COMBINERS
from ..ir.dtypes import DType
from ..ir.exprs import Expr, Var, const
from ..ir.nodes import For, If, Stmt, Store, Update, block
from ..ir.walk import free_vars, loads, loops, map_leaves, map_parts, statements, substitute
from .nests import Enclosing, leaves, spatial_copy

# Combiners whose merge(identity, x) is x, so that the first value can be stored as it is.
_PLAIN = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")


def explicit_init(stmt: Stmt, dtypes: dict[str, DType]) -> Stmt:
    """`stmt` without any Update that has `init`, but for those that merge the values of GPU threads: their
    backend starts them. `dtypes` gives the type of every buffer."""
    threads = frozenset([x.var for x in loops(stmt) if x.kind.startswith("threadIdx")])
    return _explicit(_first_rounds(stmt, (), dtypes), dtypes, threads)


def _first_rounds(stmt: Stmt, enclosing: tuple[For, ...], dtypes: dict[str, DType]) -> Stmt:
    """`stmt` where Updates of values that do not depend on their axes, or of no axes, store at first."""
    if isinstance(stmt, For):
        enclosing = (*enclosing, stmt)
    if not isinstance(stmt, Update) or not stmt.init:
        return map_parts(stmt, lambda s: _first_rounds(s, enclosing, dtypes))
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
    reduced = {t for n in statements(innermost.body) if isinstance(n, Update) for t in n.targets}
    return any(read.buffer in reduced for value in update.values for read in loads(value))


def _stores(update: Update, dtypes: dict[str, DType]) -> Stmt:
    values = update.values
    if update.combiner not in _PLAIN:
        combiner = COMBINERS[update.combiner]
        values = combiner.merge(combiner.identity(tuple(dtypes[t] for t in update.targets)), values)
    return block(*[Store(t, update.indices, v) for t, v in zip(update.targets, values, strict=True)])


def _explicit(stmt: Stmt, dtypes: dict[str, DType], threads: frozenset[str]) -> Stmt:
    found: list[tuple[Enclosing, Update]] = []
    if isinstance(stmt, For):
        inside = leaves(stmt.body)
        found = [
            (p, u)
            for p, u in inside
            if isinstance(u, Update) and u.init and stmt.var in u.axes and not threads.intersection(u.axes)
        ]
        done = {id(u) for _, u in found}
        stmt = map_leaves(stmt, lambda s: _continuing(s) if id(s) in done else s)
    nests = [init_nest(p, u, dtypes) for p, u in found]
    return block(*nests, map_parts(stmt, lambda s: _explicit(s, dtypes, threads)))


def init_nest(path: Enclosing, update: Update, dtypes: dict[str, DType]) -> Stmt:
    """Stores of the identity to everything that `update` writes under the loops of `path`."""
    identity = COMBINERS[update.combiner].identity(tuple(dtypes[t] for t in update.targets))
    typed = [const(c.value, dtypes[t]) for c, t in zip(identity, update.targets, strict=True)]

    def build(names: Mapping[str, Expr]) -> Stmt:
        at = tuple([substitute(i, names) for i in update.indices])
        return block(*[Store(t, at, c) for t, c in zip(update.targets, typed, strict=True)])

    used = frozenset().union(*map(free_vars, update.indices))
    return spatial_copy(path, update.axes, "init", build, used)


def _continuing(stmt: Stmt) -> Stmt:
    assert isinstance(stmt, Update)
    return replace(stmt, init=False)
