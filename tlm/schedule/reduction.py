"""Taking reductions apart: the start from the steps, and one result into partial results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.combiners import COMBINERS
from ..ir.dtypes import boolean
from ..ir.exprs import Const, Expr, Op, Var, const
from ..ir.names import fresh, loop_names
from ..ir.nodes import Alloc, Block, For, Program, Stmt, Store, Update
from ..ir.paths import Path, extents_of, find, guards_on, loops_on, paths, rebuild, with_body
from ..ir.walk import buffers
from .access import accesses, meet
from .base import Rewrite, Step
from .guards import at_start
from .partial import Accumulation
from .rewriting import guarded, replace_all
from .staging import staged


@dataclass(frozen=True, slots=True)
class DecomposeReduction(Step):
    """The start of a reduction becomes a statement of its own.

        for at: for i: for k: C[i] (k)+= v
    ->  for i@init: C[i@init] = identity; for at: for i: for k: C[i] (k; no init)+= v

    The start is placed right before loop `at`, which must be around the reduction of `stage`; where a
    reduction loop is outside of `at`, it runs in the first iteration of that loop only.
    """

    primitive: ClassVar[str] = "decompose_reduction"
    stage: str
    at: str

    def plan(self, program: Program) -> Rewrite:
        self.writers(program, self.stage)
        above = self.locate(program, self.at)
        inner = find(above[-1], lambda s: isinstance(s, Update) and self.stage in s.targets and s.init)
        if inner is None:
            reason = f"no reduction into {self.stage} starts under {self.at}"
            raise self.refuse(program, reason, "Name a loop around the reduction.")
        update = inner[-1]
        assert isinstance(update, Update)
        if any(isinstance(s, Alloc) and s.buffer.name in update.targets for s in inner):
            raise self.refuse(
                program, f"{self.stage} is made inside loop {self.at}", "Name a loop inside its alloc."
            )
        extents = extents_of(program.body)
        self._alone(program, above, update, extents)
        names = self._names(program, inner, update)
        values: dict[str, Expr] = {old: Var(new) for old, new in names.items()}
        extents.update({new: extents[old] for old, new in names.items()})
        conds: list[Expr] = []
        for cond in guards_on(inner):
            left = at_start(cond, frozenset(update.axes), values, extents)
            if left is None:
                raise self.refuse(program, "a guard may leave out the first step of the reduction")
            conds.extend(left)

        def rewrite() -> Program:
            inside = {f.var for f in loops_on(inner)}
            first = tuple([Op("lt", (Var(a), const(1)), boolean) for a in update.axes if a not in inside])
            zeros: dict[str, Expr] = {a: const(0) for a in update.axes}
            place = replace_all(update.indices, {**zeros, **values}, extents)
            start: Stmt = guarded(tuple(conds), _identity(program, update, place))
            for f in reversed(loops_on(inner)):
                if f.var in names:
                    start = For(
                        names[f.var],
                        f.extent,
                        start,
                        f.kind if f.kind in ("unroll", "vectorize") else "serial",
                    )
            going = rebuild(
                inner,
                Update(update.targets, update.indices, update.values, update.combiner, update.axes, False),
            )
            return with_body(program, rebuild(above, Block((guarded(first, start), going))))

        return rewrite

    def _alone(self, program: Program, above: Path, update: Update, extents: dict[str, int]) -> None:
        """Nothing between the new start and the old one may use the targets."""
        found = [a for a in accesses(above[-1]) if a.buffer in update.targets]
        mine = next(a for a in found if a.stmt is update and a.writes)
        fixed = frozenset([f.var for f in loops_on(above[:-1])])
        loops = [n for n in mine.loops if n not in update.axes]
        settled = meet(mine, mine, fixed, extents) or frozenset()
        shared = next((n for n in loops if n not in settled), None)
        if shared is not None:
            reason = f"{self.stage} starts again in every iteration of {shared}, whose element is the same"
            raise self.refuse(program, reason, f"Name a loop inside {shared}.")
        started = False
        for other in found:
            started = started or other.stmt is update
            if other.stmt is update and other.writes:
                continue
            met = meet(mine, other, fixed, extents)
            common = [n for n in mine.loops if n in other.loops]
            if met is not None and (not started or any(n not in met for n in common)):
                raise self.refuse(program, f"{other.buffer} is used inside {self.at} before it starts")

    def _names(self, program: Program, inner: Path, update: Update) -> dict[str, str]:
        taken = loop_names(program)
        kept = [f.var for f in loops_on(inner) if f.var not in update.axes]
        short = {n: f"{n}@init" for n in kept}
        if not set(short.values()) & set(taken):
            return short
        return {n: fresh(f"{n}@{self.stage}.init", taken) for n in kept}


def _identity(program: Program, update: Update, place: tuple[Expr, ...]) -> Stmt:
    known = buffers(program)
    dtypes = tuple([known[t].dtype for t in update.targets])
    values: tuple[Const, ...] = COMBINERS[update.combiner].identity(dtypes)
    stores = [Store(t, place, v) for t, v in zip(update.targets, values, strict=True)]
    return stores[0] if len(stores) == 1 else Block(tuple(stores))


@dataclass(frozen=True, slots=True)
class RFactor(Step):
    """Each iteration of reduction loop `loop` gets a partial result of its own; a second nest combines them.

        for i: for k.0: for k.1: C[i] (k.0, k.1)+= v
    ->  alloc rf: {for i: for k.0: for k.1: rf[i, k.1] (k.0)+= v};
        for i@rf: for k.1@rf: C[i@rf] (k.1@rf)+= rf[i@rf, k.1@rf]

    Then `loop` can be parallel (a split reduction) or vectorised (lanes). It becomes the first dimension of
    the new buffer on the heap (whole partial results apart), the last in other memory (lanes side by side).
    Both nests stand under loop `at`; empty means the whole nest of the reduction.
    """

    primitive: ClassVar[str] = "rfactor"
    loop: str
    memory: str = "heap"
    at: str = ""
    name: str | None = None

    def plan(self, program: Program) -> Rewrite:
        inner = self.locate(program, self.loop)
        above = staged(self, program, self.at, self.memory)
        found = list(paths(inner[-1], lambda s: isinstance(s, Update) and self.loop in s.axes))
        if len(found) != 1:
            reason = f"{self.loop} is the reduction loop of {len(found)} statements"
            raise self.refuse(program, reason, "Name a loop over which exactly one statement reduces.")
        path = (*inner[:-1], *found[0])
        if above and (len(above) >= len(inner) or path[len(above) - 1] is not above[-1]):
            raise self.refuse(
                program, f"loop {self.at} is not around {self.loop}", "Name a loop around it, or none."
            )
        made = Accumulation.of(self, program, path, len(above), "rf", self.name)
        made.factor(self, program, self.loop, self.memory == "heap")
        return lambda: made.apply(program, self.memory)
