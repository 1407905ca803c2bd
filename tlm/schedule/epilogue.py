"""reverse_inline: an elementwise consumer computed where its producer is stored, so that the producer needs no memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.nodes import Alloc, Block, Expr, For, If, Program, Stmt, Store, Var
from ..ir.paths import extents_of, find_writers, loops_on, with_body
from ..ir.walk import loads, writes
from .base import Rewrite, Step
from .rewriting import map_loads, replace_all


@dataclass(frozen=True, slots=True)
class ReverseInline(Step):
    """alloc C: {for i: C[i] = v; for i': Y[i'] = f(C[i'])}  ->  for i: Y[i] = f(v)

    `stage` is Y. C must be a temporary that one statement stores (not a reduction: cache_write makes it a store) and
    only Y reads, once an element and under the same indices.
    """

    primitive: ClassVar[str] = "reverse_inline"
    stage: str

    def plan(self, program: Program) -> Rewrite:
        path = self.writers(program, self.stage)[0]
        consumer = path[-1]
        if len(find_writers(program.body, self.stage)) != 1 or not isinstance(consumer, Store):
            raise self.refuse(program, f"{self.stage} is not written by one plain store")
        nest = loops_on(path)
        names = tuple([f.var for f in nest])
        if consumer.indices != tuple([Var(n) for n in names]) or any(isinstance(s, If) for s in path):
            raise self.refuse(program, f"the nest of {self.stage} was shaped already", "Inline it before that.")
        temporaries = {s.buffer.name for s in path if isinstance(s, Alloc)}
        produced = [e for e in loads(consumer.value) if e.buffer in temporaries and e.indices == consumer.indices]
        if len({e.buffer for e in produced}) != 1:
            reason = f"{self.stage} must read exactly one temporary, at its own indices"
            raise self.refuse(program, reason, "Stages that read others cannot be inlined backwards.")
        source = produced[0].buffer
        producer = self._producer(program, source)
        readers = [e for e in loads(program.body) if e.buffer == source]
        if any(e not in produced for e in readers):
            raise self.refuse(program, f"{source} is also read elsewhere")

        def rewrite() -> Program:
            values: dict[str, Expr] = dict(zip(names, producer.indices, strict=True))
            moved = replace_all((consumer.value,), values, extents_of(program.body))[0]
            stored = Store(
                self.stage, producer.indices, map_loads(moved, lambda e: producer.value if e.buffer == source else e)
            )
            return with_body(program, _without(program.body, source, self.stage, stored))

        return rewrite

    def _producer(self, program: Program, source: str) -> Store:
        found = find_writers(program.body, source)
        last = found[0][-1]
        if len(found) != 1 or not isinstance(last, Store):
            reason = f"{source} is still being reduced where it is written"
            raise self.refuse(program, reason, "Apply cache_write around all of its reduction loops first.")
        return last


def _without(stmt: Stmt, source: str, stage: str, stored: Store) -> Stmt:
    """`stmt` with `source` and the nest of `stage` gone, and `stored` in place of the store to `source`."""
    match stmt:
        case Store(buffer=name):
            return stored if name == source else stmt
        case Alloc(buffer, body):
            inside = _without(body, source, stage, stored)
            return inside if buffer.name == source else Alloc(buffer, inside)
        case Block(stmts):
            kept = [_without(s, source, stage, stored) for s in stmts if writes(s) != {stage}]
            return kept[0] if len(kept) == 1 else Block(tuple(kept))
        case For(var, extent, body, kind, unroll, bound):
            return For(var, extent, _without(body, source, stage, stored), kind, unroll, bound)
        case If(cond, then, other):
            return If(cond, _without(then, source, stage, stored), other)
        case _:
            return stmt
