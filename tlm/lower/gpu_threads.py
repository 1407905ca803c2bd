"""Thread loops where each surrounds the code of one thread, and reductions over threads on their own.

Iterations of a thread loop are independent, so it may be shared out among the statements inside it, and
exchanged with serial loops, until threads meet only between nests:

    threadIdx.y for i: for k:                  for k:
      s[i] = ..                          ->      threadIdx.y for i: s[i] = ..
      threadIdx.x for j: c[i, j] = ..            threadIdx.y for i: threadIdx.x for j: c[i, j] = ..

What a reduction over a thread loop sums inside each thread, or skips, becomes a partial result there:

    threadIdx.x for t: for k:             threadIdx.x for t: s_part[t] = 0
      if g: s[0] (k, t)+= A[k, t]   ->    threadIdx.x for t: for k: if g: s_part[t] (k; no init)+= A[k, t]
                                          threadIdx.x for t: s[0] (t)+= s_part[t]
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import BackendError
from ..ir.affine import conjunction, conjuncts
from ..ir.combiners import COMBINERS
from ..ir.dtypes import DType
from ..ir.exprs import Expr, Load, Var, const
from ..ir.names import fresh
from ..ir.nodes import Alloc, Block, Buffer, For, If, Stmt, Store, Update, block
from ..ir.walk import free_vars, loads, map_parts, rewrap, statements
from .gpu_tree import has_threads, is_thread, thread_chain
from .vectors import with_index


def inward(stmt: Stmt, threads: frozenset[str]) -> Stmt:
    """`stmt` with thread loops only around code of one thread or around one reduction over them.

    `threads` are the names of all thread loops.
    """
    stmt = map_parts(stmt, lambda s: inward(s, threads))
    return _distributed(stmt, stmt.body, threads) if isinstance(stmt, For) and is_thread(stmt) else stmt


def collective(stmt: Stmt, threads: frozenset[str]) -> bool:
    """Whether `stmt` is a reduction over some of the loops `threads`."""
    return isinstance(stmt, Update) and not threads.isdisjoint(stmt.axes)


def collective_path(stmt: Stmt, threads: frozenset[str]) -> tuple[tuple[For | If, ...], Update] | None:
    """The loops and guards around a lone reduction over threads, and it; None for anything else."""
    path: list[For | If] = []
    while isinstance(stmt, For | If):
        if is_thread(stmt) or (isinstance(stmt, If) and stmt.other is not None):
            return None
        path.append(stmt)
        stmt = stmt.then if isinstance(stmt, If) else stmt.body
    return (tuple(path), stmt) if isinstance(stmt, Update) and collective(stmt, threads) else None


def _kept(stmt: Stmt, threads: frozenset[str]) -> bool:
    """Whether a thread loop may stay around `stmt`."""
    match stmt:
        case For(body=body) if is_thread(stmt):
            return _kept(body, threads)
        case If(_, then, None) if has_threads(then):
            return _kept(then, threads)
    if not any(is_thread(s) or collective(s, threads) for s in statements(stmt)):
        return True
    return collective_path(stmt, threads) is not None


def _distributed(loop: For, body: Stmt, threads: frozenset[str]) -> Stmt:
    """The thread loop `loop` around `body`, as far inside as it has to go."""
    if _kept(body, threads):
        return rewrap(loop, body)
    match body:
        case Block(stmts):
            return block(*[_distributed(loop, s, threads) for s in stmts])
        case For(bound=bound) if bound is None or loop.var not in free_vars(bound):
            return rewrap(body, _distributed(loop, body.body, threads))
        case If(cond, then, other) if loop.var not in free_vars(cond):
            rest = None if other is None else _distributed(loop, other, threads)
            return If(cond, _distributed(loop, then, threads), rest)
        case If(cond, then, None) if not any(True for _ in loads(cond)):
            return _distributed(loop, _sunk(cond, then), threads)
        case Alloc(buffer, inner):
            wide = replace(buffer, shape=(*buffer.shape, loop.extent), strides=None)
            inner = with_index(inner, frozenset((buffer.name,)), Var(loop.var))
            return Alloc(wide, _distributed(loop, inner, threads))
    raise BackendError(
        f"thread loop {loop.var} is around loops over other threads that depend on it: "
        "bind threads inside of what they share"
    )


def _sunk(cond: Expr, stmt: Stmt) -> Stmt:
    """`if cond: stmt` with the condition one statement further inside."""
    match stmt:
        case Block(stmts):
            return block(*[If(cond, s) for s in stmts])
        case For() | Alloc():
            return rewrap(stmt, If(cond, stmt.body))
        case If(inner, then, None):
            return _sunk(conjunction((cond, inner)), then)
    raise BackendError("a condition on a thread is around a two-sided one over other threads")


def partials(stmt: Stmt, threads: frozenset[str], dtypes: dict[str, DType]) -> Stmt:
    """`stmt` (after `inward`) with reductions over threads of one value a thread; extends `dtypes`."""
    chain = thread_chain(stmt) if is_thread(stmt) else None
    if chain is None:
        return map_parts(stmt, lambda s: partials(s, threads, dtypes))
    loops, guards, inside = chain
    found = collective_path(inside, threads)
    if found is None:
        return stmt
    path, update = found
    own = [n.var for n in path if isinstance(n, For)]
    if not guards and not any(isinstance(n, If) for n in path) and not set(own).intersection(update.axes):
        return stmt
    return _partial(loops, guards, path, update, dtypes)


def _partial(
    threads: tuple[For, ...],
    guards: tuple[Expr, ...],
    path: tuple[For | If, ...],
    update: Update,
    dtypes: dict[str, DType],
) -> Stmt:
    used = frozenset().union(*map(free_vars, update.indices))
    rows = tuple([n for n in path if isinstance(n, For) and n.var in used])
    axes = tuple([n.var for n in path if isinstance(n, For) and n.var in update.axes])
    names = tuple([fresh(f"{t}_part", dtypes) for t in update.targets])
    dtypes.update({n: dtypes[t] for n, t in zip(names, update.targets, strict=True)})
    at: tuple[Expr, ...] = tuple([Var(x.var) for x in (*threads, *rows)])
    identity = COMBINERS[update.combiner].identity(tuple([dtypes[n] for n in names]))
    start = [Store(n, at, const(c.value, dtypes[n])) for n, c in zip(names, identity, strict=True)]
    own = Update(names, at, update.values, update.combiner, axes, False)
    step: Stmt = own if axes else block(*[Store(n, at, v) for n, v in zip(names, own.values, strict=True)])
    for node in reversed(path):
        step = If(node.cond, step) if isinstance(node, If) else rewrap(node, step)
    if guards:
        step = If(conjunction(guards), step)
    conds = [c for g in (*guards, *[n.cond for n in path if isinstance(n, If)]) for c in conjuncts(g)]
    shared = [c for c in conds if free_vars(c).isdisjoint(update.axes)]
    merged = tuple([Load(n, at, dtypes[n]) for n in names])
    left = tuple([a for a in update.axes if a not in axes])
    end: Stmt = replace(update, values=merged, axes=left)
    if shared:
        end = If(conjunction(shared), end)
    shape = tuple([x.extent for x in (*threads, *rows)])
    out = block(
        _around(threads, _around(rows, block(*start))),
        _around(threads, step),
        _around(threads, _around(rows, end)),
    )
    for name in reversed(names):
        out = Alloc(Buffer(name, shape, dtypes[name], "register"), out)
    return out


def _around(loops: tuple[For, ...], body: Stmt) -> Stmt:
    for loop in reversed(loops):
        body = rewrap(loop, body)
    return body
