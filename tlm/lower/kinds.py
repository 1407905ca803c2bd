"""What a CPU makes of the marks on loops: GPU axes run serially, threads do not nest, expansion is capped."""

from __future__ import annotations

from dataclasses import replace

from ..errors import BackendError
from ..ir.nodes import Alloc, Block, For, If, Stmt
from .nests import with_body

# Statements that one loop nest may be expanded into: LLVM takes about 0.1 ms for each.
EXPANSION_LIMIT = 2048


def cpu_kinds(stmt: Stmt, threaded: bool = False) -> Stmt:
    """`stmt` with only the kinds serial, parallel (not nested), vectorize and unroll."""
    match stmt:
        case For(kind="parallel"):
            loop = with_body(stmt, cpu_kinds(stmt.body, True))
            return replace(loop, kind="serial") if threaded else loop
        case For(kind="serial" | "vectorize" | "unroll"):
            return with_body(stmt, cpu_kinds(stmt.body, threaded))
        case For():
            return replace(stmt, kind="serial", body=cpu_kinds(stmt.body, threaded))
        case Alloc(buffer, _) if buffer.memory == "shared":
            raise BackendError(
                f"buffer {buffer.name} is shared between GPU threads; a CPU has none: "
                "schedule it on the heap, on the stack or in registers"
            )
        case Alloc():
            return with_body(stmt, cpu_kinds(stmt.body, threaded))
        case If(cond, then, other):
            return If(cond, cpu_kinds(then, threaded), None if other is None else cpu_kinds(other, threaded))
        case Block(stmts):
            return Block(tuple([cpu_kinds(s, threaded) for s in stmts]))
        case _:
            return stmt


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
                return with_body(stmt, body), copies * size
            if stmt.kind == "unroll":
                return replace(stmt, body=body, kind="serial"), size
            unroll = max(1, EXPANSION_LIMIT // size // 4) if stmt.kind == "serial" else 1
            return replace(stmt, body=body, unroll=unroll), unroll * size
        case Alloc():
            body, size = _capped(stmt.body, lanes)
            return with_body(stmt, body), size
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
