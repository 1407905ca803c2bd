"""Which accesses of a vectorised loop are vectors of 4, 8 or 16 bytes, and which copies go on by themselves.

A thread moves up to 16 bytes at once where they are contiguous and aligned. Arrays and every buffer of the
kernel start at multiples of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from ..ir.affine import Affine, conjunction, conjuncts
from ..ir.dtypes import i64
from ..ir.exprs import Const, Expr, Load, Op, Var, const, op
from ..ir.nodes import Block, Buffer, For, If, Stmt, Store
from ..ir.simplify import simplify
from ..ir.walk import free_vars, map_expr, map_exprs, map_parts, parts, rewrap, substitute, walk
from ..schedule.access import Key, linear

MAX_BYTES = 16


def vector_width(buffer: Buffer, indices: tuple[Expr, ...], lane: str, extent: int) -> int:
    """Elements that one access may move along the loop `lane` of `extent` iterations; 1 for scalars."""
    terms = linear(flat(buffer, indices))
    if any(not isinstance(key, str | Affine) and lane in free_vars(key) for key in terms):
        return 1
    if terms.pop(lane, 0) != 1:
        return 1
    width = MAX_BYTES // buffer.dtype.bytes
    steps = [c * divisor(k) for k, c in terms.items()]
    while width > 1 and (extent % width or any(s % width for s in steps)):
        width //= 2
    return width if width * buffer.dtype.bytes >= 4 else 1


def flat(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The offset of an element, in elements; x // n * n + x % n is x."""
    total: Expr = const(0)
    for index, stride in zip(indices, buffer.element_strides, strict=True):
        total = op("add", total, op("mul", index, const(stride)))
    return simplify(total, {})


def divisor(key: Key) -> int:
    """A number that divides every value of what a coefficient multiplies: (8 * x) % 32 is a multiple of 8."""
    match key:
        case Op("mod", (a, Const(m)), _):
            return gcd(int(m), *[c * divisor(k) if k else c for k, c in linear(a).items()])
    return 1


def lane_free(cond: Expr, lane: str, extent: int) -> Expr | None:
    """A condition without `lane` that says the same for all of its `extent` values; None where none does."""
    out = []
    for c in conjuncts(cond):
        if lane in free_vars(c):
            if not _edge_between(c, lane, extent):
                return None
            c = substitute(c, {lane: const(0)})
        out.append(c)
    return conjunction(out)


# Comparisons as "difference < limit": whether the operands swap, and the limit.
_LESS = {"lt": (False, 0), "le": (False, 1), "gt": (True, 0), "ge": (True, 1)}


def _edge_between(cond: Expr, lane: str, extent: int) -> bool:
    """Whether a comparison changes only from one group of `extent` lanes to the next."""
    if not isinstance(cond, Op) or cond.op not in _LESS or cond.args[0].dtype != i64:
        return False
    swap, limit = _LESS[cond.op]
    a, b = cond.args[::-1] if swap else cond.args
    terms = linear(op("sub", a, b))
    limit -= terms.pop("", 0)
    factor = terms.pop(lane, 0)
    if any(not isinstance(k, str | Affine) and lane in free_vars(k) for k in terms):
        return False
    edge = limit if factor == 1 else 1 - limit
    return (
        abs(factor) == 1
        and edge % extent == 0
        and all(c * divisor(k) % extent == 0 for k, c in terms.items())
    )


def lane_guards(stmt: Stmt) -> Stmt:
    """`stmt` with guards that all lanes of a vectorised loop pass or fail alike outside of it."""
    if not isinstance(stmt, For) or stmt.kind != "vectorize":
        return map_parts(stmt, lane_guards)

    def free(e: Expr) -> Expr:
        if isinstance(e, Op) and e.op == "where" and stmt.var in free_vars(e.args[0]):
            cond = lane_free(e.args[0], stmt.var, stmt.extent)
            return e if cond is None else Op("where", (cond, *e.args[1:]), e.dtype)
        return e

    body = map_exprs(
        stmt.body, lambda whole: map_expr(whole, lambda e: _digits(free(e), stmt.var, stmt.extent))
    )
    if isinstance(body, If) and body.other is None:
        cond = lane_free(body.cond, stmt.var, stmt.extent)
        if cond is not None:
            return If(cond, rewrap(stmt, body.then))
    return rewrap(stmt, body)


def _digits(expr: Expr, lane: str, extent: int) -> Expr:
    """`expr` with `lane` outside of a quotient or remainder that cuts no vector: (8 * x + lane) // 16 is
    8 * x // 16, and (8 * x + lane) % 16 is 8 * x % 16 + lane, for fewer than 9 lanes."""
    match expr:
        case Op("floordiv" | "mod" as name, (a, Const(m)), dtype) if (
            lane in free_vars(a) and int(m) % extent == 0
        ):
            terms = linear(a)
            if terms.pop(lane, 0) != 1 or any(c * divisor(k) % extent for k, c in terms.items()):
                return expr
            if any(not isinstance(k, str | Affine) and lane in free_vars(k) for k in terms):
                return expr
            rest = Op(name, (substitute(a, {lane: const(0)}), const(int(m))), dtype)
            return rest if name == "floordiv" else Op("add", (rest, Var(lane)), dtype)
    return expr


@dataclass(frozen=True, slots=True)
class Copy:
    """One asynchronous copy of `bytes` to buffer[indices] from `source`; zeros where `cond` fails."""

    buffer: str
    indices: tuple[Expr, ...]
    source: Load
    cond: Expr | None
    bytes: int


def copies(stmt: Stmt, known: dict[str, Buffer], sources: frozenset[str]) -> tuple[Copy, ...] | None:
    """The copies that a Store, or a vectorised loop around one, is; None where it computes or cannot be.

    `known` are the buffers by name, `sources` those in global memory. Hardware copies 4, 8 or 16 bytes.
    """
    loop = stmt if isinstance(stmt, For) and stmt.kind == "vectorize" else None
    store = loop.body if loop is not None else stmt
    if not isinstance(store, Store):
        return None
    value, cond = store.value, None
    match value:
        case Op("where", (c, Load() as inside, Const(zero)), _) if not zero and str(zero)[0] != "-":
            value, cond = inside, c
    if not isinstance(value, Load) or value.buffer not in sources:
        return None
    target, source = known[store.buffer], known[value.buffer]
    if loop is None:
        whole = Copy(store.buffer, store.indices, value, cond, target.dtype.bytes)
        return (whole,) if whole.bytes in (4, 8) else None
    if cond is not None and loop.var in free_vars(cond):
        return None
    width = min(
        vector_width(target, store.indices, loop.var, loop.extent),
        vector_width(source, value.indices, loop.var, loop.extent),
    )
    size = width * target.dtype.bytes
    if size not in (4, 8, 16) or loop.extent // width > 8:
        return None
    out = []
    for start in range(0, loop.extent, width):
        at: dict[str, Expr] = {loop.var: const(start)}
        moved = tuple([substitute(i, at) for i in store.indices])
        read = replace(value, indices=tuple([substitute(i, at) for i in value.indices]))
        out.append(Copy(store.buffer, moved, read, cond, size))
    return tuple(out)


def all_copies(stmt: Stmt, known: dict[str, Buffer], sources: frozenset[str]) -> bool:
    """Whether `stmt` is made of asynchronous copies only, in loops and under guards."""
    if copies(stmt, known, sources) is not None:
        return True
    match stmt:
        case For(body=body):
            return all_copies(body, known, sources)
        case If(_, then, None):
            return all_copies(then, known, sources)
        case Block(stmts):
            return all(all_copies(s, known, sources) for s in stmts)
    return False


def narrow(stmt: Stmt, known: dict[str, Buffer], sources: frozenset[str]) -> bool:
    """Whether a copy in `stmt` moves less at once than what a thread could read there at once."""
    found = copies(stmt, known, sources)
    if found is not None and isinstance(stmt, For):
        source = known[found[0].source.buffer]
        read = [e for e in walk(stmt.body) if isinstance(e, Load) and e.buffer == source.name]
        widest = max(vector_width(source, e.indices, stmt.var, stmt.extent) for e in read)
        return widest * source.dtype.bytes > found[0].bytes
    return found is None and any(narrow(s, known, sources) for s in parts(stmt))
