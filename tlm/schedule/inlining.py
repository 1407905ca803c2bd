"""Joining stages: inline (a stage into its readers) and reverse_inline (a reader into its stage)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.affine import conjuncts
from ..ir.exprs import Expr, Load, Var
from ..ir.nodes import Block, Program, Stmt, Store
from ..ir.paths import Path, extents_of, find_alloc, find_writers, guards_on, paths, rebuild, with_body
from ..ir.walk import buffers, free_vars, loads, parts, walk
from .base import Rewrite, Step
from .guards import bounds_guard
from .rewriting import guarded, map_loads, map_reads, replace_all, replace_cond, replace_vars
from .stages import Stage, common_block, keeps_order, reads_from, solve, stage_of, without, without_alloc


@dataclass(frozen=True, slots=True)
class Inline(Step):
    """Each read of an elementwise stage computes it anew, and the stage goes away.

        for i: P[i] = f(i); for j: C[j] = g(P[h(j)])
    ->  for j: C[j] = g(f(h(j)))
    """

    primitive: ClassVar[str] = "inline"
    stage: str

    def plan(self, program: Program) -> Rewrite:
        stage = stage_of(self, program, self.stage)
        leaf = stage.leaf
        _temporary(self, program, self.stage)
        if not isinstance(leaf, Store):
            raise self.refuse(
                program, f"{self.stage} is a reduction", "Only elementwise stages can be inlined."
            )
        readers = [p for p in paths(program.body, lambda s: not parts(s)) if reads_from(p[-1], self.stage)]
        if not readers:
            raise self.refuse(program, f"nothing reads {self.stage}")
        extents = extents_of(program.body)
        for reader in readers:
            block, mine, other = common_block(self, program, stage, reader)
            keeps_order(self, program, Store("", (), leaf.value), block.stmts[mine : other + 1], ("",))
        names = frozenset([f.var for f in stage.loops])
        if any(e.buffer == self.stage for p in readers for e in _inside(p[-1], self.stage)):
            raise self.refuse(program, f"{self.stage} is read at a place that it tells itself")
        values: dict[tuple[Expr, ...], Expr] = {}
        for place in {e.indices: None for p in readers for e in loads(p[-1]) if e.buffer == self.stage}:
            solved = solve(leaf.indices, names, place, extents)
            value = leaf.value if solved is None else replace_vars(leaf.value, solved, extents)
            if solved is None or free_vars(value) & names - frozenset().union(*[free_vars(i) for i in place]):
                raise self.refuse(
                    program, f"{self.stage} is not computed element by element", "Inline before splitting."
                )
            values[place] = value

        def rewrite() -> Program:
            out = without(program, stage)
            body = map_reads(out.body, lambda e: values[e.indices] if e.buffer == self.stage else e)
            return without_alloc(with_body(out, body), self.stage)

        return rewrite


@dataclass(frozen=True, slots=True)
class ReverseInline(Step):
    """A reader is computed where what it reads is stored, under whatever loops.

        for i: P[h(i)] = v; for j: Y[j] = g(P[j])
    ->  for i: Y[h(i)] = g(v)

    `stage` reads one temporary, element by element, that nothing else reads and one plain store writes (for a
    reduction, the write-back that cache_write makes). The temporary goes away.
    """

    primitive: ClassVar[str] = "reverse_inline"
    stage: str

    def plan(self, program: Program) -> Rewrite:
        stage = stage_of(self, program, self.stage)
        leaf = stage.leaf
        if not isinstance(leaf, Store):
            raise self.refuse(
                program, f"{self.stage} is a reduction", "Only elementwise stages can be moved like this."
            )
        source, place, home = self._source(program, stage)
        store = home[-1]
        assert isinstance(store, Store)
        block, mine, other = common_block(self, program, stage, home)
        if other > mine:
            raise self.refuse(program, f"{source} is stored after {self.stage}")
        keeps_order(self, program, stage.nest, block.stmts[other:mine], (source,))
        alloc = find_alloc(program.body, self.stage)
        if alloc is not None and (len(home) <= len(alloc) or home[len(alloc) - 1] is not alloc[-1]):
            raise self.refuse(program, f"{self.stage} is made only after {source} is stored")
        extents = extents_of(program.body)
        values: dict[str, Expr] = {
            i.name: at for i, at in zip(place, store.indices, strict=True) if isinstance(i, Var)
        }

        def rewrite() -> Program:
            def inside(e: Load) -> Expr:
                return store.value if e.buffer == source else e

            value = map_loads(replace_vars(leaf.value, values, extents), inside)
            conds = [c for g in stage.guards for c in conjuncts(replace_cond(g, values, extents))]
            facts = guards_on(home)
            sizes = [f.extent for f in stage.loops]
            conds += bounds_guard([values[f.var] for f in stage.loops], sizes, extents, facts)
            new = guarded(tuple(conds), Store(self.stage, replace_all(leaf.indices, values, extents), value))
            at = next(n for n, s in enumerate(home) if s is block.stmts[other])
            inner = rebuild(home[at:], new)
            rest = tuple([inner if s is home[at] else s for s in block.stmts if s is not stage.nest])
            parent = rest[0] if len(rest) == 1 else Block(rest)
            return without_alloc(with_body(program, rebuild(home[:at], parent)), source)

        return rewrite

    def _source(self, program: Program, stage: Stage) -> tuple[str, tuple[Expr, ...], Path]:
        """The temporary to join with, its place in the stage, and the path of the store that writes it."""
        known = buffers(program)
        names = frozenset([f.var for f in stage.loops])
        reasons = []
        for name in dict.fromkeys([e.buffer for e in loads(stage.leaf)]):
            if known[name].memory == "array":
                continue
            places = list(dict.fromkeys([e.indices for e in loads(stage.leaf) if e.buffer == name]))
            homes = find_writers(program.body, name)
            elsewhere = any(
                reads_from(p[-1], name)
                for p in paths(program.body, lambda s: not parts(s))
                if p[-1] is not stage.leaf
            )
            if len(places) != 1 or elsewhere:
                reasons.append(f"{name} is read at more than one place")
            elif len(homes) != 1 or not isinstance(homes[0][-1], Store):
                reasons.append(
                    f"{name} is not written by one plain store (cache_write makes one of a reduction)"
                )
            elif not _covers(places[0], names, known[name].shape):
                reasons.append(f"{self.stage} does not read {name} element by element")
            else:
                return name, places[0], homes[0]
        raise self.refuse(program, "; ".join(reasons) or f"{self.stage} reads no temporary")


def _inside(stmt: Stmt, stage: str) -> list[Load]:
    """The reads in the indices of the reads of `stage`."""
    reads = [e for e in loads(stmt) if e.buffer == stage]
    return [x for e in reads for index in e.indices for x in walk(index) if isinstance(x, Load)]


def _covers(place: tuple[Expr, ...], names: frozenset[str], shape: tuple[int, ...]) -> bool:
    """Whether each of the loops `names` alone is an index, and all other dimensions have one element."""
    used = [i.name for i in place if isinstance(i, Var)]
    rest = [n for i, n in zip(place, shape, strict=True) if not isinstance(i, Var)]
    return sorted(used) == sorted(names) and all(n == 1 for n in rest)


def _temporary(step: Step, program: Program, name: str) -> None:
    if buffers(program)[name].memory == "array":
        raise step.refuse(program, f"{name} is an output", "Only temporaries can go away.")
