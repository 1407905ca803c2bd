"""Shaping loops: split, fuse, reorder, tile. They change the order of the iterations, not which there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

from ..ir.affine import Affine, below, conjuncts, implied
from ..ir.exprs import Expr, Var, const
from ..ir.nodes import Alloc, Block, For, If, Program, Stmt, Update
from ..ir.paths import extents_of, find_loop, guards_on, rebuild, with_body
from ..ir.walk import free_vars, map_leaves, statements
from .access import Access, accesses, conflicts, meet
from .base import Rewrite, Step
from .rewriting import Extents, guarded, rename_copy, replace_in, split_axis

Tail = Literal["guard", "peel", "exact"]


@dataclass(frozen=True, slots=True)
class Split(Step):
    """One loop into two: the outer one over blocks of `factor`, the inner one within a block.

        for k in n: S(k)
    ->  for k.0 in ceil(n / factor): for k.1 in factor: if k.0 * factor + k.1 < n: S(k.0 * factor + k.1)

    No guard is made where the factor divides n. `tail="peel"` runs the rest in a loop k.t of its own instead;
    `tail="exact"` refuses a factor that does not divide. A factor above n is taken as n.
    """

    primitive: ClassVar[str] = "split"
    loop: str
    factor: int
    tail: Tail = "guard"

    def plan(self, program: Program) -> Rewrite:
        path, loop = self.serial(program, self.loop)
        n = loop.extent
        factor = max(min(self.positive(program, "the factor", self.factor), n), 1)
        if self.tail not in ("guard", "peel", "exact"):
            raise self.refuse(program, f"unknown tail {self.tail!r}", "Tails are guard, peel and exact.")
        if self.tail == "exact" and n % factor:
            divisors = [d for d in range(max(1, factor // 2), min(n, 2 * factor) + 1) if n % d == 0]
            near_by = f"Divisors of {n} near it: {', '.join(map(str, divisors)) or f'1, {n}'}."
            raise self.refuse(program, f"{factor} does not divide the extent {n} of {loop.var}", near_by)
        names = tuple([f"{loop.var}.{part}" for part in ("0", "1", "t")])
        taken = [x for x in names if find_loop(program.body, x)]
        if taken:
            raise self.refuse(program, f"loop {taken[0]} exists already")
        peel = self.tail == "peel" and n % factor != 0

        def rewrite() -> Program:
            extents = extents_of(program.body)
            new = _peeled(loop, factor, extents) if peel else _split(loop, factor, guards_on(path), extents)
            return with_body(program, rebuild(path, new))

        return rewrite


def _split(loop: For, factor: int, facts: tuple[Expr, ...], extents: Extents) -> Stmt:
    outer, inner, count = f"{loop.var}.0", f"{loop.var}.1", -(-loop.extent // factor)
    form = Affine(0, ((outer, factor), (inner, 1)) if factor else ())
    known = {**extents, outer: count, inner: factor}
    body = split_axis(replace_in(loop.body, {loop.var: form.expr()}, known), (loop.var,), (outer, inner))
    if loop.extent % factor:
        guard = below(form, loop.extent)
        if implied(guard, known, facts) is not True:
            body = guarded((guard,), body)
    return For(outer, count, For(inner, factor, body))


def _peeled(loop: For, factor: int, extents: Extents) -> Stmt:
    full = loop.extent // factor * factor
    name = f"{loop.var}.t"
    main = _split(For(loop.var, full, loop.body), factor, (), extents)
    known = {**extents, name: loop.extent - full}
    rest = replace_in(loop.body, {loop.var: Affine(full, ((name, 1),)).expr()}, known)
    rest = _continued(split_axis(rest, (loop.var,), (name,)), name)
    return Block((main, For(name, loop.extent - full, rename_copy(rest, f"@{name}", known))))


def _continued(stmt: Stmt, axis: str) -> Stmt:
    """`stmt` with reductions over `axis` going on from what an earlier part of them has left."""

    def leaf(s: Stmt) -> Stmt:
        if not isinstance(s, Update) or axis not in s.axes:
            return s
        return Update(s.targets, s.indices, s.values, s.combiner, s.axes, False)

    return map_leaves(stmt, leaf)


@dataclass(frozen=True, slots=True)
class Fuse(Step):
    """Two loops into one. Nothing but guards may be between them; these go inside.

        for i in n: for j in m: S(i, j)
    ->  for i*j in n * m: S(i*j // m, i*j % m)
    """

    primitive: ClassVar[str] = "fuse"
    outer: str
    inner: str

    def plan(self, program: Program) -> Rewrite:
        path, outer = self.serial(program, self.outer)
        _, inner = self.serial(program, self.inner)
        conds, body = [], outer.body
        while isinstance(body, If) and body.other is None:
            conds.append(body.cond)
            body = body.then
        if body is not inner:
            reason = f"loop {self.inner} is not directly inside {self.outer}"
            raise self.refuse(
                program, reason, "Only two loops with nothing but guards between them can be fused."
            )
        for s in statements(inner.body):
            if isinstance(s, Update) and (outer.var in s.axes) != (inner.var in s.axes):
                summed, other = (outer.var, inner.var) if outer.var in s.axes else (inner.var, outer.var)
                reason = f"{'/'.join(s.targets)} reduces over {summed} but not over {other}"
                raise self.refuse(program, reason, "Fuse two reduction loops, or two others.")
        fused = f"{outer.var}*{inner.var}"
        if find_loop(program.body, fused):
            raise self.refuse(program, f"loop {fused} exists already")

        def rewrite() -> Program:
            extent = outer.extent * inner.extent
            extents = {**extents_of(program.body), fused: extent}
            whole, step = Var(fused), const(inner.extent)
            values: dict[str, Expr] = {outer.var: whole // step, inner.var: whole % step}
            if inner.extent <= 1:
                values = {outer.var: whole, inner.var: const(0)}
            elif outer.extent <= 1:
                values = {outer.var: const(0), inner.var: whole}
            inside = split_axis(inner.body, (outer.var, inner.var), (fused,))
            new = replace_in(guarded(tuple(conds), inside), values, extents)
            return with_body(program, rebuild(path, For(fused, extent, new)))

        return rewrite


@dataclass(frozen=True, slots=True)
class Reorder(Step):
    """Loops change places, here those of `loops=("k", "i")`.

        for i: for j: for k: S
    ->  for k: for j: for i: S

    The loops named take the named order in the positions that they hold in one chain of loops with nothing
    but guards between; a guard goes right inside the innermost loop that it depends on. Legal where every
    value is still computed before it is used.
    """

    primitive: ClassVar[str] = "reorder"
    loops: tuple[str, ...]

    def plan(self, program: Program) -> Rewrite:
        if len(set(self.loops)) != len(self.loops):
            raise self.refuse(program, "a loop is named twice")
        found = [self.locate(program, name) for name in self.loops]
        if len(found) < 2:
            return lambda: program
        deepest, first = max(found, key=len), min(found, key=len)
        if any(p[-1] is not deepest[len(p) - 1] for p in found):
            raise self.refuse(program, "the loops are not nested in each other", "Name loops of one nest.")
        chain = self._chain(program, deepest[len(first) - 1 :])
        order = _permuted([f.var for f in chain], self.loops)
        conds, innermost = list(guards_on(deepest[len(first) - 1 :])), chain[-1].body
        while isinstance(innermost, If) and innermost.other is None:
            conds += conjuncts(innermost.cond)
            innermost = innermost.then
        extents = extents_of(program.body)
        self._marks(program, chain, order)
        pairs = conflicts(accesses(first[-1]))
        fixed = frozenset([s.var for s in first[:-1] if isinstance(s, For)])
        positions = {name: at for at, name in enumerate(order)}
        for a, b in pairs:
            blocked = _blocking(a, b, chain, positions, fixed, extents)
            if blocked:
                what = f"{a.buffer} keeps iterations of {blocked[0]} and {blocked[1]} in their order"
                raise self.refuse(program, what, "Keep these two loops in their order.")

        def rewrite() -> Program:
            by_name = {f.var: f for f in chain}
            levels = [max([positions.get(n, -1) for n in free_vars(c)], default=-1) for c in conds]
            new = innermost
            for level in range(len(order) - 1, -1, -1):
                f = by_name[order[level]]
                new = guarded(tuple([c for c, at in zip(conds, levels, strict=True) if at == level]), new)
                new = For(f.var, f.extent, new, f.kind, f.unroll)
            above = tuple([c for c, at in zip(conds, levels, strict=True) if at < 0])
            return with_body(program, rebuild(first, guarded(above, new)))

        return rewrite

    def _chain(self, program: Program, path: tuple[Stmt, ...]) -> list[For]:
        for stmt in path:
            if isinstance(stmt, Alloc):
                raise self.refuse(
                    program, f"buffer {stmt.buffer.name} is made between these loops", _REORDER_HINT
                )
            if isinstance(stmt, Block):
                raise self.refuse(program, "there are other statements between these loops", _REORDER_HINT)
        return [s for s in path if isinstance(s, For)]

    def _marks(self, program: Program, chain: list[For], order: list[str]) -> None:
        for at, loop in enumerate(chain):
            # A parallel mark was checked for the loops around it: it may sink, but not rise.
            moved = order.index(loop.var) - at
            if (moved < 0 and loop.kind not in ("serial", "unroll")) or (moved and loop.kind == "vectorize"):
                raise self.refuse(
                    program, f"loop {loop.var} is marked {loop.kind}", "Shape loops first, then mark them."
                )


_REORDER_HINT = (
    "Reorder before staging buffers and before decomposing reductions, or name loops above or below this."
)


def _permuted(chain: list[str], wanted: Iterable[str]) -> list[str]:
    names = set(wanted)
    new = iter(wanted)
    return [next(new) if name in names else name for name in chain]


def _blocking(
    a: Access, b: Access, chain: list[For], positions: dict[str, int], fixed: frozenset[str], extents: Extents
) -> tuple[str, str] | None:
    """Two loops that a dependence between `a` and `b` keeps in order but the new positions swap."""
    settled = meet(a, b, fixed, extents)
    if settled is None:
        return None
    free = [f.var for f in chain if f.var not in settled]
    if a.stmt is b.stmt and b.writes and isinstance(a.stmt, Update) and set(free) <= set(a.stmt.axes):
        return None
    swapped = ((x, y) for x, y in pairwise(free) if positions[x] > positions[y])
    return next(swapped, None)


@dataclass(frozen=True, slots=True)
class Tile(Step):
    """A split of each loop, and a reorder: blocks outside, the inside of a block inside.

        for i: for j: S
    ->  for i.0: for j.0: for i.1: for j.1: S
    """

    primitive: ClassVar[str] = "tile"
    loops: tuple[str, ...]
    factors: tuple[int, ...]
    tail: Tail = "guard"

    def plan(self, program: Program) -> Rewrite:
        if len(self.loops) != len(self.factors) or not self.loops:
            reason = f"{len(self.loops)} loops but {len(self.factors)} factors"
            raise self.refuse(program, reason, "Give one factor a loop.")
        if self.tail == "peel" and len(self.loops) > 1:
            raise self.refuse(program, "peeled tails cannot be tiled together", "Split one loop at a time.")
        new = program
        for name, factor in zip(self.loops, self.factors, strict=True):
            new = Split(name, factor, self.tail).rewrite(new)
        if len(self.loops) > 1:
            new = Reorder(tuple([f"{x}.{part}" for part in "01" for x in self.loops])).rewrite(new)
        return lambda: new
