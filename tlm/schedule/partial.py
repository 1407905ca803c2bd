"""What cache_write and rfactor share: results go to a new buffer, and a second nest brings them home."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from ..ir.exprs import Expr, Load, Var
from ..ir.names import loop_names
from ..ir.nodes import Alloc, Block, Buffer, For, If, Memory, Program, Stmt, Store, Update
from ..ir.paths import Path, extents_of, guards_on, loops_on, rebuild, with_body
from ..ir.walk import buffers, free_vars, targets
from .access import accesses, meet
from .base import Step
from .guards import at_start, relax
from .rewriting import guarded, nest, replace_all

_NESTED = (Alloc, If, Block)


@dataclass(slots=True)
class Accumulation:
    """A statement under a spot, the loops between, and how its results get home from the new buffers."""

    path: Path
    spot: int
    names: tuple[str, ...]
    spatial: tuple[For, ...]
    inside: tuple[str, ...]
    outside: tuple[str, ...]
    dims: tuple[str, ...] = ()
    factored: tuple[str, ...] = ()
    guards: tuple[Expr, ...] = ()

    @classmethod
    def of(
        cls, step: Step, program: Program, path: Path, start: int, word: str, name: str | None
    ) -> Accumulation:
        """The accumulation of the statement at the end of `path`, below the loop at path[start - 1]."""
        leaf = path[-1]
        assert isinstance(leaf, (Store, Update))
        spot = start
        while isinstance(path[spot], _NESTED):
            spot += 1
        loops = loops_on(path[spot:])
        axes = leaf.axes if isinstance(leaf, Update) else ()
        inner = [f.var for f in loops]
        around = [f.var for f in loops if f.kind == "vectorize"]
        if around:
            raise step.refuse(
                program, f"loop {around[0]} is vectorised already", "Stage first, then mark loops."
            )
        old = targets(leaf)
        wanted = [f"{t}_{word}" if name is None else name if len(old) == 1 else f"{name}.{t}" for t in old]
        made = cls(
            path,
            spot,
            tuple([step.new_name(program, w) for w in wanted]),
            tuple([f for f in loops if f.var not in axes]),
            tuple([a for a in axes if a in inner]),
            tuple([a for a in axes if a not in inner]),
        )
        made._independent(step, program, leaf)
        return made

    def _independent(self, step: Step, program: Program, leaf: Store | Update) -> None:
        """Refuse where anything else under the spot uses the targets, or two iterations one element."""
        old = targets(leaf)
        if any(isinstance(s, Alloc) and s.buffer.name in old for s in self.path[self.spot :]):
            raise step.refuse(
                program, f"{old[0]} is made inside these loops", "Name a loop inside its alloc."
            )
        node = self.path[self.spot]
        found = [a for a in accesses(node) if a.buffer in old]
        other = next((a for a in found if a.stmt is not leaf or not a.writes), None)
        if other is not None:
            raise step.refuse(program, f"{other.buffer} is used in another way in the same loops")
        fixed = frozenset([f.var for f in loops_on(self.path[: self.spot])])
        extents = extents_of(program.body)
        settled = meet(found[0], found[0], fixed, extents) or frozenset()
        shared = next((f.var for f in self.spatial if f.var not in settled), None)
        if shared is not None:
            reason = f"iterations of {shared}, no reduction loop of {old[0]}, write the same element of it"
            raise step.refuse(program, reason)

    def choose(self, step: Step, program: Program, layout: tuple[str, ...]) -> None:
        """Set the dimensions: `layout`, or nest order where that is empty."""
        nested = tuple([f.var for f in self.spatial])
        dims = layout or nested
        if sorted(dims) != sorted(nested):
            reason = "the layout must name each loop there that is no reduction loop, once"
            raise step.refuse(program, reason, f"These are {', '.join(nested) or 'none'}.")
        self.dims = dims
        self.prepare(step, program)

    def factor(self, step: Step, program: Program, loop: str, first: bool) -> None:
        """Give `loop`, one of the reduction loops inside, a dimension of its own: the first, or the last."""
        nested = tuple([f.var for f in self.spatial])
        self.dims = (loop, *nested) if first else (*nested, loop)
        self.factored = (loop,)
        self.inside = tuple([a for a in self.inside if a != loop])
        self.prepare(step, program)

    def prepare(self, step: Step, program: Program) -> None:
        """Names of the loops that bring the results home, and their guards."""
        clash = set(self._copies().values()) & set(loop_names(program))
        if clash:
            raise step.refuse(
                program, f"loop {min(clash)} exists already", "Give the new buffer another name."
            )
        out: list[Expr] = []
        extents = self._extents(program)
        values: dict[str, Expr] = {n: Var(new) for n, new in self._copies().items()}
        for cond in guards_on(self.path[self.spot :]):
            left = at_start(cond, frozenset(self.inside), values, extents)
            if left is None:
                on = ", ".join(sorted(free_vars(cond)))
                reason = f"a guard on {on} may leave out the first step of the reduction"
                raise step.refuse(program, reason)
            out.extend(left)
        self.guards = tuple(out)

    def _copies(self) -> dict[str, str]:
        return {n: f"{n}@{self.names[0]}" for n in self.dims}

    def _extents(self, program: Program) -> dict[str, int]:
        extents = extents_of(program.body)
        extents.update({new: extents[old] for old, new in self._copies().items()})
        return extents

    def apply(self, program: Program, memory: str) -> Program:
        """`program` with the statement writing the new buffers, and the second nest right after its own."""
        leaf = self.path[-1]
        assert isinstance(leaf, (Store, Update))
        extents = self._extents(program)
        known = buffers(program)
        shape = tuple([extents[n] for n in self.dims])
        made = [
            Buffer(n, shape, known[t].dtype, cast(Memory, memory))
            for n, t in zip(self.names, targets(leaf), strict=True)
        ]
        body = rebuild(self.path[self.spot :], self._partial(leaf))
        new: Stmt = Block((body, self._home(leaf, extents, made)))
        for buffer in reversed(made):
            new = Alloc(buffer, new)
        out = with_body(program, rebuild(self.path[: self.spot + 1], new))
        return relax(out, self.names[0]) if len(self.names) == 1 else out

    def _partial(self, leaf: Store | Update) -> Stmt:
        place = tuple([Var(n) for n in self.dims])
        if isinstance(leaf, Store):
            return Store(self.names[0], place, leaf.value)
        if self.inside:
            return Update(self.names, place, leaf.values, leaf.combiner, self.inside)
        stores = [Store(n, place, v) for n, v in zip(self.names, leaf.values, strict=True)]
        return stores[0] if len(stores) == 1 else Block(tuple(stores))

    def _home(self, leaf: Store | Update, extents: dict[str, int], made: list[Buffer]) -> Stmt:
        copies = self._copies()
        values: dict[str, Expr] = {n: Var(new) for n, new in copies.items()}
        place = replace_all(leaf.indices, values, extents)
        read = tuple([Load(b.name, tuple([values[n] for n in self.dims]), b.dtype) for b in made])
        axes = (*self.outside, *[copies[n] for n in self.factored])
        if isinstance(leaf, Update) and (axes or not leaf.init):
            home: Stmt = Update(leaf.targets, place, read, leaf.combiner, axes, leaf.init)
        else:
            stores = [Store(t, place, r) for t, r in zip(targets(leaf), read, strict=True)]
            home = stores[0] if len(stores) == 1 else Block(tuple(stores))
        # The factored loop goes innermost, so that each element is finished in one go.
        order = [n for n in self.dims if n not in self.factored] + list(self.factored)
        return nest(tuple([(copies[n], extents[n]) for n in order]), guarded(self.guards, home))
