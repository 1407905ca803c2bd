"""Where a temporary lives, and how its dimensions are cut: what a schedule says of storage alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, cast

from ..ir.exprs import Expr, Load, const, op
from ..ir.nodes import Alloc, Memory, Prefetch, Program, Stmt, Store, Update
from ..ir.paths import Path, extents_of, find_alloc, loops_on, rebuild, with_body
from ..ir.simplify import simplify
from ..ir.walk import buffers, map_leaves, statements
from .base import Rewrite, Step, near
from .rewriting import map_reads
from .staging import MEMORIES


@dataclass(frozen=True, slots=True)
class SetScope(Step):
    """A temporary lives in another memory.

        alloc T: f32[8] heap: S    ->    alloc T: f32[8] shared: S

    What belongs to a block or a thread ("shared", "register") is made inside of a loop.
    """

    primitive: ClassVar[str] = "set_scope"
    buffer: str
    memory: str

    def plan(self, program: Program) -> Rewrite:
        path = _alloc(self, program, self.buffer)
        if self.memory not in MEMORIES:
            hint = near(self.memory, MEMORIES, "memories")
            raise self.refuse(program, f"there is no memory {self.memory!r}", hint)
        if self.memory in ("shared", "register") and not loops_on(path):
            reason = f"{self.buffer} is made outside of all loops"
            raise self.refuse(program, reason, f"Merge or move stages so that a loop makes {self.buffer}.")
        scope = path[-1]
        assert isinstance(scope, Alloc)
        made = replace(scope.buffer, memory=cast(Memory, self.memory))
        return lambda: with_body(program, rebuild(path, Alloc(made, scope.body)))


@dataclass(frozen=True, slots=True)
class SplitDimension(Step):
    """A dimension of a temporary becomes two, the second of `factor` elements.

        alloc T: f32[24]: T[i.0*8 + i.1] = v    ->    alloc T: f32[3, 8]: T[i.0, i.1] = v

    Always legal: the last row is filled up where the factor does not divide. Indices that are exactly loops
    tell a backend which loop an element belongs to.
    """

    primitive: ClassVar[str] = "split_dimension"
    buffer: str
    dimension: int
    factor: int

    def plan(self, program: Program) -> Rewrite:
        path = _alloc(self, program, self.buffer)
        scope = path[-1]
        assert isinstance(scope, Alloc)
        old, d = scope.buffer, self.positive(program, "the dimension", self.dimension, 0)
        if d >= len(old.shape):
            raise self.refuse(program, f"{self.buffer} has {len(old.shape)} dimensions, counted from 0")
        n = old.shape[d]
        factor = max(1, min(self.positive(program, "the factor", self.factor), n))
        if old.strides is not None or old.swizzle is not None:
            reason = f"where the elements of {self.buffer} lie is settled already"
            raise self.refuse(program, reason, "Cut dimensions first, then align or swizzle.")
        extents = extents_of(program.body)

        def cut(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            size = const(factor)
            pair = [simplify(op(name, indices[d], size), extents) for name in ("floordiv", "mod")]
            return (*indices[:d], *pair, *indices[d + 1 :])

        def leaf(stmt: Stmt) -> Stmt:
            match stmt:
                case Store(name, indices, value) if name == old.name:
                    return Store(name, cut(indices), value)
                case Update(names, indices, values, combiner, axes, init) if old.name in names:
                    return Update(names, cut(indices), values, combiner, axes, init)
                case Prefetch(name, indices, locality) if name == old.name:
                    return Prefetch(name, cut(indices), locality)
            return stmt

        def rewrite() -> Program:
            shape = (*old.shape[:d], -(-n // factor), factor, *old.shape[d + 1 :])
            body = map_reads(scope.body, lambda e: _cut_read(e, old.name, cut))
            return with_body(program, rebuild(path, Alloc(replace(old, shape=shape), map_leaves(body, leaf))))

        if any(
            isinstance(s, Update) and len(s.targets) > 1 and old.name in s.targets
            for s in statements(scope.body)
        ):
            raise self.refuse(program, f"{self.buffer} is one part of a reduction over tuples")
        return rewrite


def _cut_read(e: Load, name: str, cut: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]) -> Expr:
    return Load(name, cut(e.indices), e.dtype) if e.buffer == name else e


def _alloc(step: Step, program: Program, name: str) -> Path:
    path = find_alloc(program.body, name)
    if path is None:
        known = [n for n, b in buffers(program).items() if b.memory != "array"]
        raise step.refuse(program, f"there is no temporary {name!r}", near(name, known, "temporaries"))
    return path
