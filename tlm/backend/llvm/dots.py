"""Dot-product instructions, and stores of the interleaved operands that they read.

unroll for q in 2: vectorize for l in 16: acc[l] (q)+= i32(x[q]) * i32(y[l * 2 + q])    -> one vpdpwssd
unroll for q in 2: vectorize for l in 16: y[l * 2 + q] = value(q, l)                    -> one store
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...ir.exprs import Cast, Expr, Load, Op
from ...ir.nodes import For, Store, Update
from ...lower.dots import Dot, find
from .access import Access, access
from .types import memory_type, vector

if TYPE_CHECKING:
    from ...target import Target
    from .leaves import Leaves

Run = Callable[[], None]


def group(e: Leaves, loop: For, target: Target) -> Run | None:
    """An emitter of a loop over the terms of a group around a vector loop; None where there is none."""
    inner = loop.body
    if loop.extent not in (2, 4) or loop.bound is not None or e.lane is not None or e.mask is not None:
        return None
    if not (
        isinstance(inner, For) and inner.kind == "vectorize" and inner.extent > 1 and inner.bound is None
    ):
        return None
    if isinstance(inner.body, Update):
        return _dot(e, loop, inner, inner.body, target)
    return _interleaved(e, loop, inner, inner.body) if isinstance(inner.body, Store) else None


def _inside(e: Leaves, loop: For, inner: For, make: Callable[[], Run | None]) -> Run | None:
    """`make()`, and what it makes, with the lanes of `inner` and the first term of `loop`."""

    def enter() -> None:
        e.lane, e.lanes, e.env[loop.var] = inner.var, inner.extent, 0

    def leave() -> None:
        e.lane, e.lanes = None, 1
        del e.env[loop.var]

    enter()
    made = make()
    leave()
    if made is None:
        return None

    def run() -> None:
        enter()
        made()
        leave()

    return run


def _place(e: Leaves, name: str, indices: tuple[Expr, ...], term: str) -> Access | None:
    """An access to memory whose terms lie side by side, None for any other."""
    found = access(e, name, indices)
    if not isinstance(found, Access) or found.others or found.varying:
        return None
    own = dict(found.terms).get(term)
    return found if own == found.place.buffer.dtype.bytes else None


def _dot(e: Leaves, loop: For, inner: For, update: Update, target: Target) -> Run | None:
    match update:
        case Update(
            (name,), indices, (Op("mul", (Cast(Load() as a), Cast(Load() as b)), acc),), "sum", _, False
        ):
            pass
        case _:
            return None
    assert isinstance(a, Load)
    assert isinstance(b, Load)
    found = find(target, loop.extent, a.dtype, b.dtype, acc, inner.extent)
    if found is None or e.places[name].buffer.dtype != acc:
        return None
    dot, call = found
    if a.dtype != dot.x:
        a, b = b, a

    def make() -> Run | None:
        into = access(e, name, indices)
        x, y = (_place(e, v.buffer, v.indices, loop.var) for v in (a, b))
        if x is None or y is None or loop.var in dict(into.terms):
            return None
        along = into.lanes == inner.extent and (not isinstance(into, Access) or into.step == 1)
        steps = {x.step, y.step}
        if not along or steps - {0, loop.extent} or steps == {0}:
            return None
        return lambda: into.store(_product(e, dot, call, (x, y), into.load(), inner.extent))

    return _inside(e, loop, inner, make)


def _product(e: Leaves, dot: Dot, call: str, factors: tuple[Access, Access], old: str, n: int) -> str:
    acc = vector("float" if dot.acc.is_float else "i32", n)
    part = vector(dot.part, n * (1 if dot.part == "i32" else dot.terms))
    words = vector("i32", n)
    args = []
    for x in factors:
        value = _read(e, x, words if x.step else "i32")
        value = value if x.step else e.arith.splat(value, "i32", n)
        args.append(f"{part} {value if part == words else e.pure(f'bitcast {words} {value} to {part}')}")
    listed = ", ".join(args)
    if dot.fused:
        return e.pure(f"call {acc} @{call}({acc} {old}, {listed})")
    return e.pure(f"add {acc} {old}, {e.pure(f'call {acc} @{call}({listed})')}")


def _read(e: Leaves, x: Access, type_: str) -> str:
    """The terms at the address of `x`, and of the lanes after it, as words."""
    buffer, pointer = x.place.buffer, x.address()
    memo = e.function.loads.setdefault(buffer.name, {})
    key = f"{type_} {pointer}"
    if key not in memo:
        memo[key] = e.function.value(f"load {type_}, ptr {pointer}, align {buffer.dtype.bytes}")
    return memo[key]


def _interleaved(e: Leaves, loop: For, inner: For, store: Store) -> Run | None:
    terms, lanes = loop.extent, inner.extent
    element = memory_type(e.places[store.buffer].buffer.dtype)
    wide = vector(element, lanes * terms)

    def make() -> Run | None:
        into = _place(e, store.buffer, store.indices, loop.var)
        code = e.code(store.value)
        if into is None or into.step != terms or code.dtype.kind == "bool":
            return None

        def run() -> None:
            values = []
            for term in range(terms):
                e.env[loop.var] = term
                values.append(e.text(code, lanes))
            e.env[loop.var] = 0
            half = lanes
            while len(values) > 1:
                # Pairs of neighbours one after the other: the last round leaves lane by lane, term by term.
                values = [
                    _joined(e, element, a, b, half) for a, b in zip(values[::2], values[1::2], strict=True)
                ]
                half *= 2
            order = [f"i32 {t * lanes + lane}" for lane in range(lanes) for t in range(terms)]
            lanewise = f"<{lanes * terms} x i32> <{', '.join(order)}>"
            mixed = e.pure(f"shufflevector {wide} {values[0]}, {wide} poison, {lanewise}")
            buffer = into.place.buffer
            e.function.loads.pop(buffer.name, None)
            e.function.line(f"store {wide} {mixed}, ptr {into.address()}, align {buffer.dtype.bytes}")

        return run

    return _inside(e, loop, inner, make)


def _joined(e: Leaves, element: str, a: str, b: str, n: int) -> str:
    """The elements of `a`, then those of `b`."""
    t, order = vector(element, n), ", ".join([f"i32 {i}" for i in range(2 * n)])
    return e.pure(f"shufflevector {t} {a}, {t} {b}, <{2 * n} x i32> <{order}>")
