"""What a block of a GPU waits for when it is alone: barriers, and reads of the device's memory.

A copy into shared memory that is made while it is needed costs a latency each time. Where a loop keeps
several copies (stages), the reads of all but the present one are under way at a time: a latency is spread
over them, and passes while the present one is used (software pipelining, Lam, PLDI 1988).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ..ir.exprs import Expr, Load, Op
from ..ir.nodes import Alloc, Block, Buffer, For, If, Stmt, Store, Update
from ..ir.walk import loads, statements
from ..lower.gpu import ASYNC_COPIES, architecture
from ..target import Target

MEMORY_LATENCY, BARRIER_LATENCY = 600, 30
"""Cycles until a read of the device's memory arrives, and until a block is past a barrier."""

UNROLLED = 4
"""Iterations of a serial loop that the compiler writes out unasked, where it can."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Cycles of one block: `alone`, in which it does nothing else, and `ahead`, of reads that go on while it
    works."""

    alone: float = 0.0
    ahead: float = 0.0


@dataclass(frozen=True, slots=True)
class _Nest:
    """A nest of threads, and the loops around it that all threads run together."""

    around: tuple[For, ...]
    body: For


def waits(nest: Stmt, known: Mapping[str, Buffer]) -> Waits:
    """The waits of one launch."""
    groups: dict[tuple[str, ...], list[_Nest]] = {}
    for found in _nests(nest):
        groups.setdefault(tuple([f.var for f in found.around]), []).append(found)
    alone = ahead = 0.0
    for members in groups.values():
        times = prod([f.extent for f in members[0].around])
        fills = [(n, _filled(n.body, known)) for n in members]
        # Copies that follow each other read at one time; what threads read for themselves comes in turn.
        now = max([_rounds(n.body, known) for n, b in fills if b is not None and b.stages == 1], default=0.0)
        now += sum([_rounds(n.body, known) for n, b in fills if b is None])
        stages = [b.stages - 1 for _, b in fills if b is not None and b.stages > 1]
        meet = len(members) - len(stages) if stages else len(members)
        alone += times * (BARRIER_LATENCY * max(1, meet) + MEMORY_LATENCY * now)
        ahead += times * max([MEMORY_LATENCY / n for n in stages], default=0.0)
    return Waits(alone, ahead)


def _nests(stmt: Stmt, around: tuple[For, ...] = ()) -> Iterator[_Nest]:
    match stmt:
        case For(kind=kind, body=body):
            if kind.startswith("thread"):
                yield _Nest(around, stmt)
            else:
                yield from _nests(body, around if kind.startswith("block") else (*around, stmt))
        case Block(stmts):
            for s in stmts:
                yield from _nests(s, around)
        case If(_, then, other):
            yield from _nests(then, around)
            if other is not None:
                yield from _nests(other, around)
        case Alloc(_, body):
            yield from _nests(body, around)


def _filled(nest: For, known: Mapping[str, Buffer]) -> Buffer | None:
    """The shared buffer that a nest copies from global memory; None of others."""
    stores = [s for s in statements(nest) if isinstance(s, Store | Update)]
    if len(stores) != 1 or not isinstance(stores[0], Store):
        return None
    buffer = known[stores[0].buffer]
    return buffer if buffer.memory == "shared" and _global_reads(stores[0], known) else None


def _global_reads(leaf: Store | Update, known: Mapping[str, Buffer]) -> list[Load]:
    values = (leaf.value,) if isinstance(leaf, Store) else leaf.values
    return [e for v in values for e in loads(v) if known[e.buffer].memory in ("array", "heap")]


def _rounds(stmt: Stmt, known: Mapping[str, Buffer]) -> float:
    """Times that a thread of a nest waits for reads: those of copies of the code are under way together."""
    match stmt:
        case For(kind=kind, extent=extent, unroll=unroll, body=body):
            turns = -(-extent // max(UNROLLED, unroll)) if kind == "serial" else 1
            return turns * _rounds(body, known)
        case Block(stmts):
            return sum(_rounds(s, known) for s in stmts)
        case If(_, then, other):
            return _rounds(then, known) + (0.0 if other is None else _rounds(other, known))
        case Alloc(_, body):
            return _rounds(body, known)
        case Store() | Update():
            return 1.0 if _global_reads(stmt, known) else 0.0
    return 0.0


def copied(leaf: Store | Update, known: Mapping[str, Buffer]) -> Load | None:
    """What a store puts into a shared buffer of several stages, where it is a plain copy."""
    if not isinstance(leaf, Store) or known[leaf.buffer].memory != "shared" or known[leaf.buffer].stages < 2:
        return None
    value: Expr = leaf.value
    if isinstance(value, Op) and value.op == "where":
        value = value.args[1]
    return value if isinstance(value, Load) and known[value.buffer].memory in ("array", "heap") else None


def asynchronous(target: Target, bytes: int, read: int) -> bool:
    """Whether the machine copies `bytes` at a time by itself, of which a thread could read `read` at once."""
    return architecture(target) >= ASYNC_COPIES and bytes in (4, 8, 16) and read <= bytes
