"""Staging in faster memory: cache_read for what a loop reads, cache_write for what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from ..ir.affine import conjunction, conjuncts, implied
from ..ir.exprs import Cast, Const, Expr, Load, Op, Var, const
from ..ir.names import loop_names
from ..ir.nodes import Alloc, Block, Buffer, If, Memory, Program, Stmt, Store
from ..ir.paths import Path, extents_of, guards_on, loops_on, paths, rebuild, with_body
from ..ir.walk import (
    buffers,
    free_vars,
    loads,
    map_expr,
    map_exprs,
    map_leaves,
    parts,
    statements,
    targets,
    walk,
    writes,
)
from .base import Rewrite, Step, near
from .guards import bounds_guard, relax
from .partial import Accumulation
from .regions import box
from .rewriting import canonical, guarded, map_reads, nest, replace_all

MEMORIES = ("heap", "stack", "register", "shared")


def staged(step: Step, program: Program, at: str, memory: str) -> Path:
    """The path of the loop `at` (empty: the whole program), checked as a place for a buffer in `memory`."""
    if memory not in MEMORIES:
        raise step.refuse(program, f"there is no memory {memory!r}", near(memory, MEMORIES, "memories"))
    if not at:
        return ()
    path = step.locate(program, at)
    marked = next((f.var for f in loops_on(path) if f.kind == "vectorize"), None)
    if marked is not None:
        raise step.refuse(program, f"loop {marked} is vectorised", "Stage outside of it.")
    return path


@dataclass(frozen=True, slots=True)
class CacheRead(Step):
    """What a loop reads is copied to faster memory first.

        for at: for x: S reads B[...]
    ->  for at: alloc new: {for x@new: new[x@new] = B[...]; for x: S reads new[x]}

    With `layout`, a dimension for each loop named, in that order, indexed by exactly these loops (packing
    along the loops that use it); every loop inside `at` on which the place depends must be named. Without,
    the box that is read, with a dimension for each of B's. The copy is guarded where it could leave B;
    `pad=True` stores zero there instead, and drops guards around the readers that nothing else needs. Readers
    of where(inside, B[...], 0) then read the zeros of the copy, which is as large as the place may run. With
    `stage`, only the statement that writes it reads the copy.
    """

    primitive: ClassVar[str] = "cache_read"
    buffer: str
    at: str = ""
    memory: str = "heap"
    layout: tuple[str, ...] = ()
    name: str | None = None
    pad: bool = False
    stage: str = ""

    def plan(self, program: Program) -> Rewrite:
        above = staged(self, program, self.at, self.memory)
        root = above[-1] if above else program.body
        source = buffers(program).get(self.buffer)
        if source is None:
            raise self.refuse(program, f"there is no buffer {self.buffer!r}", self._hint(root))
        leaves = [(*above[:-1], *p) for p in paths(root, lambda s: not parts(s) and self._reads(s))]
        if not leaves:
            place = f"under {self.at}" if self.at else "anywhere"
            who = f" by {self.stage}" if self.stage else ""
            raise self.refuse(program, f"{self.buffer} is not read {place}{who}", self._hint(root))
        spot = _spot(leaves, len(above))
        if self.buffer in writes(spot[-1]):
            raise self.refuse(program, f"{self.buffer} is also written there", "Stage what is only read.")
        kind = "pack" if self.layout else "cache"
        name = self.new_name(program, self.name or f"{self.buffer}_{kind}")
        places = list(
            dict.fromkeys([e.indices for p in leaves for e in loads(p[-1]) if e.buffer == self.buffer])
        )
        extents = extents_of(program.body)
        inner = frozenset([f.var for p in leaves for f in loops_on(p[len(spot) - 1 :])])
        zeros = self._zeros(source, leaves, extents) if self.pad else frozenset()
        loops, indices, moved = (
            self._packed(program, name, places, inner, extents)
            if self.layout
            else self._boxed(source, name, places, inner, extents, not zeros)
        )
        clash = set(loop_names(program)) & {n for n, _ in loops}
        if clash:
            raise self.refuse(program, f"loop {min(clash)} exists already", "Give the copy another name.")

        def rewrite() -> Program:
            shape = tuple([n for _, n in loops])
            new = Buffer(name, shape, source.dtype, cast(Memory, self.memory))
            conds = bounds_guard(indices, source.shape, {**extents, **dict(loops)}, guards_on(spot))
            copy = self._copy(
                new, tuple([Var(n) for n, _ in loops]), Load(self.buffer, indices, source.dtype), conds
            )
            readers = {id(p[-1]) for p in leaves}

            def staging(s: Stmt) -> Stmt:
                picked = _picked(s, zeros) if zeros else s
                return map_reads(picked, lambda e: self._moved(e, name, moved)) if id(s) in readers else s

            body = map_leaves(spot[-1], staging)
            rest = body.stmts if isinstance(body, Block) else (body,)
            out = with_body(program, rebuild(spot, Alloc(new, Block((nest(loops, copy), *rest)))))
            if not self.pad:
                return out
            for target in dict.fromkeys([t for p in leaves for t in targets(p[-1])]):
                out = relax(out, target)
            return out

        return rewrite

    def _zeros(self, source: Buffer, leaves: Sequence[Path], extents: dict[str, int]) -> frozenset[Expr]:
        """The reads where(inside, B[...], 0) that only take zero outside of B, as a padded copy has it,
        wherever they stand."""
        out: set[Expr] = set()
        others: set[Expr] = set()
        for path in leaves:
            for e in walk(path[-1]):
                match e:
                    case Op("where", (cond, Load() | Cast(Load()) as value, Const(0) as zero), _):
                        if zero != const(0, zero.dtype):  # the copy holds no negative zeros
                            continue
                        load = value.value if isinstance(value, Cast) else value
                        if not isinstance(load, Load) or load.buffer != self.buffer:
                            continue
                        inside = (*bounds_guard(load.indices, source.shape, extents), *guards_on(path))
                        known = all(implied(c, extents, inside) is True for c in conjuncts(cond))
                        (out if known else others).add(e)
        return frozenset(out - others)

    def _moved(self, e: Load, name: str, moved: dict[tuple[Expr, ...], tuple[Expr, ...]]) -> Expr:
        return Load(name, moved[e.indices], e.dtype) if e.buffer == self.buffer and e.indices in moved else e

    def _reads(self, stmt: Stmt) -> bool:
        mine = not self.stage or self.stage in targets(stmt)
        return mine and any(e.buffer == self.buffer for e in loads(stmt))

    def _hint(self, root: Stmt) -> str:
        return near(
            self.buffer,
            dict.fromkeys([e.buffer for s in statements(root) if not parts(s) for e in loads(s)]),
            "buffers read there",
        )

    def _packed(
        self, program: Program, name: str, places: list[tuple[Expr, ...]], inner: frozenset[str],
        extents: dict[str, int],
    ) -> _Staging:  # fmt: skip
        """One place: a dimension of the new buffer for each loop of the layout."""
        if len(places) > 1:
            reason = f"{self.buffer} is read at {len(places)} different places there"
            raise self.refuse(program, reason, "Leave out the layout to stage the box that holds them all.")
        if any(isinstance(e, Load) for index in places[0] for e in walk(index)):
            reason = f"the place in {self.buffer} is itself read from memory"
            raise self.refuse(program, reason, "Leave out the layout to stage the box that holds them all.")
        used = frozenset().union(*[free_vars(i) for i in places[0]]) & inner
        if set(self.layout) != used or len(self.layout) != len(used):
            ordered = [n for n in loop_names(program) if n in used]
            reason = f"the layout must name each loop that the place in {self.buffer} depends on there, once"
            raise self.refuse(program, reason, f"These are {', '.join(ordered) or 'none'}.")
        loops = tuple([(f"{n}@{name}", extents[n]) for n in self.layout])
        values: dict[str, Expr] = {n: Var(new) for n, (new, _) in zip(self.layout, loops, strict=True)}
        moved = tuple([Var(n) for n in self.layout])
        return loops, replace_all(places[0], values, {**extents, **dict(loops)}), {places[0]: moved}

    def _boxed(
        self, source: Buffer, name: str, places: list[tuple[Expr, ...]], inner: frozenset[str],
        extents: dict[str, int], clip: bool,
    ) -> _Staging:  # fmt: skip
        """Any places: a dimension of the new buffer for each one of the source, no larger if `clip`."""
        ranges = box(places, source.shape, inner, extents, clip)
        loops = tuple([(f"ax{d}@{name}", r.extent) for d, r in enumerate(ranges)])
        known = {**extents, **dict(loops)}
        indices = tuple(
            [canonical(r.origin.expr() + Var(n), known) for r, (n, _) in zip(ranges, loops, strict=True)]
        )
        moved = {
            p: tuple([canonical(i - r.origin.expr(), extents) for i, r in zip(p, ranges, strict=True)])
            for p in places
        }
        return loops, indices, moved

    def _copy(self, new: Buffer, at: tuple[Expr, ...], read: Load, conds: tuple[Expr, ...]) -> Stmt:
        if not self.pad or not conds:
            return guarded(conds, Store(new.name, at, read))
        zero = const(0, new.dtype)
        return Store(new.name, at, Op("where", (conjunction(conds), read, zero), new.dtype))


# Loops of the copy, the place it reads, and the new place of every place that was read.
_Staging = tuple[tuple[tuple[str, int], ...], tuple[Expr, ...], dict[tuple[Expr, ...], tuple[Expr, ...]]]


def _picked(stmt: Stmt, wheres: frozenset[Expr]) -> Stmt:
    """`stmt` with the first side of each of `wheres` in its place."""
    return map_exprs(
        stmt, lambda whole: map_expr(whole, lambda e: e.args[1] if isinstance(e, Op) and e in wheres else e)
    )


def _spot(leaves: Sequence[Path], start: int) -> Path:
    """From the body of the loop at start - 1 down through allocations and guards that hold all leaves."""
    path = leaves[0]
    at = start
    while isinstance(path[at], (Alloc, If)) and at + 1 < len(path):
        at += 1
    return path[: at + 1]


@dataclass(frozen=True, slots=True)
class CacheWrite(Step):
    """What a loop writes is accumulated in faster memory, and written back once.

        for at: for i: for k: C[..i..] (k)+= v
    ->  for at: alloc acc: {for i: for k: acc[i] (k)+= v}; for i@acc: C[..i@acc..] = acc[i@acc]

    `layout` orders the dimensions of the new buffer: the loops inside `at` that C's place depends on, in nest
    order where none are given. Where C is also reduced over loops outside `at`, the write-back adds to C over
    these, and starts C with them. Guards that only kept the result inside C move to the write-back.
    """

    primitive: ClassVar[str] = "cache_write"
    buffer: str
    at: str = ""
    memory: str = "register"
    layout: tuple[str, ...] = ()
    name: str | None = None

    def plan(self, program: Program) -> Rewrite:
        above = staged(self, program, self.at, self.memory)
        root = above[-1] if above else program.body
        self.writers(program, self.buffer)
        found = [(*above[:-1], *p) for p in paths(root, lambda s: self.buffer in targets(s))]
        if len(found) != 1:
            place = f"under {self.at}" if self.at else "in the program"
            reason = f"{len(found)} statements write {self.buffer} {place}"
            raise self.refuse(program, reason, "One is needed: stage before decomposing or peeling.")
        made = Accumulation.of(self, program, found[0], len(above), "acc", self.name)
        made.choose(self, program, self.layout)
        return lambda: made.apply(program, self.memory)
