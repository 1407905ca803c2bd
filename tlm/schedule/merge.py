"""Loop fusion: two loops that stand side by side run as one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import ClassVar

from ..ir.exprs import Var
from ..ir.nodes import Alloc, Block, For, If, Program, Stmt, block
from ..ir.paths import Path, extents_of, find_loop, loops_on, rebuild, with_body
from ..ir.walk import parts, reads, statements, targets, writes
from .access import Access, accesses, conflicts, meet
from .base import Rewrite, Step
from .regions import box
from .rewriting import Extents, replace_in, split_axis
from .stages import Place, shrink


@dataclass(frozen=True, slots=True)
class Merge(Step):
    """Two loops of one extent in one sequence of statements run as one.

        for i in n: {m[i] = f(i)}; for j in n: Y[j] = g(m[j])
    ->  for i in n: {alloc m: m[0] = f(i); Y[i] = g(m[0])}

    Legal where an iteration of `second` touches what an iteration of `first` writes, or writes what it reads,
    only if both have the same number. Statements between the two stay on the side that they allow. A
    temporary that carries nothing from one iteration to the next becomes as small as what one of them uses.
    """

    primitive: ClassVar[str] = "merge"
    first: str
    second: str

    def plan(self, program: Program) -> Rewrite:
        path, first = self.serial(program, self.first)
        other, second = self.serial(program, self.second)
        around = path[-2] if len(path) > 1 else None
        if not isinstance(around, Block) or len(other) != len(path) or other[-2] is not around:
            reason = f"{self.first} and {self.second} are not loops of one sequence of statements"
            raise self.refuse(program, reason, "Merge the loops around them first.")
        at, to = (next(n for n, s in enumerate(around.stmts) if s is x) for x in (first, second))
        if at >= to:
            raise self.refuse(program, f"{self.second} does not run after {self.first}")
        if first.extent != second.extent:
            reason = f"{self.first} has {first.extent} iterations, {self.second} {second.extent}"
            raise self.refuse(program, reason, "Split both loops to one extent.")
        between = around.stmts[at + 1 : to]
        down = not any(_touch(first, s) for s in between)
        if not down and any(_touch(second, s) for s in between):
            raise self.refuse(program, "statements between the two depend on both", "Move these first.")
        extents = extents_of(program.body)
        moved = split_axis(
            replace_in(second.body, {second.var: Var(first.var)}, extents), (second.var,), (first.var,)
        )
        fixed = frozenset([f.var for f in loops_on(path[:-1])])
        self._same_iteration(program, first, moved, fixed, extents)

        def rewrite() -> Program:
            merged = For(first.var, first.extent, _joined(first.body, moved))
            middle = (*between, merged) if down else (merged, *between)
            rest = (*around.stmts[:at], *middle, *around.stmts[to + 1 :])
            out = with_body(program, rebuild(path[:-1], block(*rest)))
            return _private(out, first.var, _used(first) & _used(second))

        return rewrite

    def _same_iteration(
        self, program: Program, first: For, moved: Stmt, fixed: frozenset[str], extents: Extents
    ) -> None:
        left, right = (accesses(body, (first.var,)) for body in (first.body, moved))
        for a, b in product(left, right):
            if a.buffer != b.buffer or not (a.writes or b.writes):
                continue
            settled = meet(a, b, fixed, extents)
            if settled is not None and first.var not in settled:
                verb = "writes" if b.writes else "reads"
                reason = f"{self.second} {verb} {a.buffer} of other iterations of {self.first}"
                raise self.refuse(program, reason, "Merge loops that index it in the same way.")


def _joined(first: Stmt, second: Stmt) -> Stmt:
    """The one after the other, inside of the temporaries of both and of a guard that both have."""
    match first, second:
        case If(cond, left, None), If(same, right, None) if cond == same:
            return If(cond, _joined(left, right))
    for side, rest in ((first, second), (second, first)):
        if isinstance(side, Alloc):
            pair = (side.body, rest) if side is first else (rest, side.body)
            return Alloc(side.buffer, _joined(*pair))
    return block(first, second)


def _touch(a: Stmt, b: Stmt) -> bool:
    """Whether one of two statements writes what the other one uses."""
    return bool(writes(a) & (reads(b) | writes(b)) or reads(a) & writes(b))


def _private(program: Program, loop: str, shared: frozenset[str]) -> Program:
    """`program` with those of the temporaries `shared` that only one iteration of `loop` at a time uses made
    anew in each."""
    path = find_loop(program.body, loop)
    assert path is not None
    names = {s.buffer.name for s in path if isinstance(s, Alloc)} & shared
    if names:
        tuples = {t for s in statements(path[-1]) if len(targets(s)) > 1 for t in targets(s)}
        names -= tuples | _used_outside(path)
    for name in sorted(names):
        path = find_loop(program.body, loop)
        assert path is not None
        inside = path[-1]
        assert isinstance(inside, For)
        found = [a for a in accesses(inside) if a.buffer == name]
        if _carries(program, path, found, inside):
            continue
        buffer = next(s.buffer for s in path if isinstance(s, Alloc) and s.buffer.name == name)
        inner = frozenset([s.var for s in statements(inside.body) if isinstance(s, For)])
        places: Iterable[Place] = dict.fromkeys([a.indices for a in found])
        ranges = box(list(places), buffer.shape, inner, extents_of(program.body))
        shape = tuple([r.extent for r in ranges])
        program = shrink(program, name, inside, [r.origin for r in ranges], shape)
    return program


def _used(stmt: Stmt) -> frozenset[str]:
    return reads(stmt) | writes(stmt)


def _used_outside(path: Path) -> frozenset[str]:
    """Buffers that are used beside the statement at the end of `path`."""
    out: frozenset[str] = frozenset()
    for parent, part in pairwise(path):
        for other in parts(parent):
            if other is not part:
                out |= _used(other)
    return out


def _carries(program: Program, path: Path, found: list[Access], loop: For) -> bool:
    """Whether two iterations of `loop` touch one element."""
    fixed = frozenset([f.var for f in loops_on(path[:-1])])
    extents = extents_of(program.body)
    settled = [meet(a, b, fixed, extents) for a, b in conflicts(found)]
    return any(s is not None and loop.var not in s for s in settled)
