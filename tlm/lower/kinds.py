"""What a CPU makes of the marks on loops: GPU axes run serially, threads do not nest, expansion is capped."""

from __future__ import annotations

from dataclasses import replace

from ..errors import BackendError
from ..ir.nodes import Alloc, Block, For, If, Stmt
from ..ir.walk import map_parts, rewrap

# Statements that one loop nest may be expanded into: LLVM takes about 0.1 ms for each.
EXPANSION_LIMIT = 2048
_CPU_KINDS = ("serial", "parallel", "vectorize", "unroll")


def cpu_kinds(stmt: Stmt, threaded: bool = False) -> Stmt:
    """`stmt` with only the kinds serial, parallel (not nested), vectorize and unroll."""
    match stmt:
        case For(kind=kind):
            inside = threaded or kind == "parallel"
            serial = kind not in _CPU_KINDS or (kind == "parallel" and threaded)
            loop = rewrap(stmt, cpu_kinds(stmt.body, inside))
            return replace(loop, kind="serial") if serial else loop
        case Alloc(buffer, _) if buffer.memory == "shared":
            raise BackendError(
                f"buffer {buffer.name} is shared between GPU threads; a CPU has none: "
                "schedule it on the heap, on the stack or in registers"
            )
    return map_parts(stmt, lambda s: cpu_kinds(s, threaded))


def cap_expansion(stmt: Stmt, lanes: int) -> Stmt:
    """`stmt` with the outer unrolled loops made serial where all of them together would expand it too far."""
    return _capped(stmt, lanes)[0]


def _capped(stmt: Stmt, lanes: int) -> tuple[Stmt, int]:
    match stmt:
        case For():
            body, size = _capped(stmt.body, lanes)
            copies = {"unroll": stmt.extent, "vectorize": -(-stmt.extent // lanes)}.get(
                stmt.kind, stmt.unroll
            )
            if copies * size <= EXPANSION_LIMIT:
                return rewrap(stmt, body), copies * size
            if stmt.kind == "unroll":
                return replace(stmt, body=body, kind="serial"), size
            unroll = max(1, EXPANSION_LIMIT // size // 4) if stmt.kind == "serial" else 1
            return replace(stmt, body=body, unroll=unroll), unroll * size
        case Alloc():
            body, size = _capped(stmt.body, lanes)
            return rewrap(stmt, body), size
        case If(cond, then, other):
            left, size = _capped(then, lanes)
            if other is None:
                return If(cond, left), size
            right, more = _capped(other, lanes)
            return If(cond, left, right), size + more
        case Block(stmts):
            pairs = [_capped(s, lanes) for s in stmts]
            return Block(tuple([p[0] for p in pairs])), sum(p[1] for p in pairs)
        case _:
            return stmt, 1
