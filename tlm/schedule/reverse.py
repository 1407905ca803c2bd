"""reverse_compute_at: a stage is computed where what it reads is completed, tile by tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.affine import Affine, affine, below, bound, implied
from ..ir.exprs import Expr
from ..ir.nodes import For, Program, Stmt, Store, Update, block
from ..ir.paths import (
    Path,
    extents_of,
    find_loop,
    find_writers,
    guards_on,
    loops_on,
    paths,
    rebuild,
    with_body,
)
from ..ir.walk import buffers, free_vars, loads, parts, rewrap, statements, targets
from .base import Rewrite, Step
from .guards import at_start
from .placement import destination
from .regions import Range, box, tile
from .rewriting import Extents, guarded, replace_in
from .stages import Place, Stage, common_block, keeps_order, plain, reads_from, shrink, stage_of


@dataclass(frozen=True, slots=True)
class ReverseComputeAt(Step):
    """A stage is computed where what it reads is completed, tile by tile.

        for loop: P[tile] = ...; for y: Y[y] = g(P[y])
    ->  for loop: {P[tile] = ...; for y in tile: Y[y] = g(P[y])}

    Legal where an iteration of `loop` completes a tile of every temporary that `stage` reads from its nest:
    all of their reduction loops are inside. A temporary that only the stage reads becomes as small as the
    tile.
    """

    primitive: ClassVar[str] = "reverse_compute_at"
    stage: str
    loop: str

    def plan(self, program: Program) -> Rewrite:
        stage = stage_of(self, program, self.stage)
        path = destination(self, program, stage, self.loop)
        loop = path[-1]
        assert isinstance(loop, For)
        around, mine, other = common_block(self, program, stage, path)
        if other > mine:
            raise self.refuse(
                program, f"{self.loop} runs after {self.stage}", "Name a loop of a stage that it reads."
            )
        producer = around.stmts[other]
        sources = [
            n for n in dict.fromkeys([e.buffer for e in loads(stage.leaf)]) if find_writers(producer, n)
        ]
        if not sources:
            raise self.refuse(
                program, f"{self.stage} reads nothing that is computed in the nest of {self.loop}"
            )
        keeps_order(self, program, stage.nest, [producer], sources)
        keeps_order(self, program, stage.nest, around.stmts[other + 1 : mine])
        extents = extents_of(program.body)
        ranges: dict[str, Range] = {}
        conds: list[Expr] = []
        for source in sources:
            self._tile(program, stage, path, source, ranges, conds, extents)
        self._reduction(program, stage, ranges)
        values: dict[str, Expr] = {n: (r.origin + Affine(0, ((n, 1),))).expr() for n, r in ranges.items()}
        known = {**extents, **{n: r.extent for n, r in ranges.items()}}
        facts = guards_on(path)
        for f in stage.loops:
            if f.var in ranges:
                conds.append(below(ranges[f.var].origin + Affine(0, ((f.var, 1),)), f.extent))
        kept = tuple([c for c in dict.fromkeys(conds) if implied(c, known, facts) is not True])

        def rewrite() -> Program:
            moved = guarded(kept, replace_in(guarded(stage.guards, stage.leaf), values, known))
            for f in reversed(stage.loops):
                extent = ranges[f.var].extent if f.var in ranges else f.extent
                moved = For(f.var, extent, moved, f.kind, f.unroll)
            grown = rewrap(loop, block(loop.body, moved))
            at = next(n for n, s in enumerate(path) if s is producer)
            holder = rebuild(path[at:], grown)
            rest = [holder if s is producer else s for s in around.stmts if s is not stage.nest]
            out = with_body(program, rebuild(path[:at], block(*rest)))
            for source in sources:
                out = _private(out, source, self.loop, self.stage)
            return out

        return rewrite

    def _tile(
        self,
        program: Program,
        stage: Stage,
        path: Path,
        source: str,
        ranges: dict[str, Range],
        conds: list[Expr],
        extents: dict[str, int],
    ) -> None:
        """Add what an iteration completes of `source`: ranges of the stage's loops, and their conditions."""
        places = list(dict.fromkeys([e.indices for e in loads(stage.leaf) if e.buffer == source]))
        if len(places) != 1:
            raise self.refuse(program, f"{self.stage} reads {source} at {len(places)} different places")
        dims = plain(places[0])
        own = {f.var for f in stage.loops}
        shape = buffers(program)[source].shape
        for writer in find_writers(program.body, source):
            found = self._written(program, path, source, writer, extents)
            conds.extend(found[1])
            for name, d in dims.items():
                if name not in own:
                    self._same(program, source, name, found[0][d])
                elif ranges.setdefault(name, found[0][d]) != found[0][d]:
                    raise self.refuse(
                        program, f"the parts of {source} that {self.loop} completes differ for {name}"
                    )
            for d, extent in enumerate(shape):
                if d not in dims.values() and found[0][d].extent < extent:
                    reason = (
                        f"{self.stage} needs all of dimension {d} of {source}; {self.loop} completes a part"
                    )
                    raise self.refuse(program, reason, "Name a loop further out.")

    def _same(self, program: Program, source: str, name: str, completed: Range) -> None:
        """Refuse where a loop around both stages moves what is read in another way than what is completed."""
        if completed != Range(Affine(0, ((name, 1),)), 1):
            reason = f"{self.stage} reads {source} at {name}, around both; {self.loop} completes others"
            raise self.refuse(program, reason, f"Name a loop outside of {name}.")

    def _written(
        self, program: Program, path: Path, source: str, writer: Path, extents: dict[str, int]
    ) -> tuple[list[Range], list[Expr]]:
        if len(writer) <= len(path) or writer[len(path) - 1] is not path[-1]:
            raise self.refuse(
                program, f"{source} is also written outside of {self.loop}", "Name a loop further out."
            )
        leaf = writer[-1]
        below_loop = writer[len(path) :]
        inner = frozenset([f.var for f in loops_on(below_loop)])
        if isinstance(leaf, Update) and not set(leaf.axes) <= inner:
            outer = ", ".join([a for a in leaf.axes if a not in inner])
            reason = f"an iteration of {self.loop} does not complete {source}, which is reduced over {outer}"
            raise self.refuse(program, reason, f"Name a loop outside of {outer}.")
        axes = frozenset(leaf.axes if isinstance(leaf, Update) else ())
        conds = [at_start(c, axes, {}, extents) for c in guards_on(below_loop)]
        if None in conds:
            raise self.refuse(program, f"a guard of {source} may leave out its first step")
        return self._exact(
            program, source, leaf, inner - axes, [c for cs in conds for c in cs or ()], extents
        )

    def _exact(
        self,
        program: Program,
        source: str,
        leaf: Stmt,
        inner: frozenset[str],
        conds: list[Expr],
        extents: dict[str, int],
    ) -> tuple[list[Range], list[Expr]]:
        """The exact ranges that a statement writes, and on which conditions of the loops outside."""
        assert isinstance(leaf, (Store, Update))
        limits = {c: b for c in conds if (b := bound(c)) is not None}
        ranges: list[Range] = []
        explained: set[Expr] = {c for c in conds if not free_vars(c) & inner}
        outer = sorted(explained, key=str)
        for index in leaf.indices:
            form = affine(index)
            found = None if form is None else tile(form, inner, list(limits.values()), extents)
            if form is None or found is None:
                reason = f"the part of {source} that an iteration of {self.loop} writes has holes"
                raise self.refuse(
                    program, reason, "Order the loops so that the inner ones make a whole tile."
                )
            ranges.append(found[0])
            explained |= {c for c, limit in limits.items() if limit in found[1]}
            explained |= {c for c, (left, _) in limits.items() if _ends(form, left, conds, extents)}
        rest = [c for c in conds if c not in explained]
        facts = [c for c in conds if c in explained]
        if any(implied(c, extents, facts) is not True for c in rest):
            reason = f"a guard of {source} inside {self.loop} leaves out elements of the tile"
            raise self.refuse(program, reason, "Name a loop further out.")
        return ranges, outer

    def _reduction(self, program: Program, stage: Stage, ranges: dict[str, Range]) -> None:
        for f in stage.loops:
            part = ranges.get(f.var)
            if f.var in stage.axes and part and (part.origin != Affine(0) or part.extent < f.extent):
                reason = (
                    f"{self.stage} reduces over {f.var}, of which an iteration of {self.loop} has a part only"
                )
                raise self.refuse(program, reason, "Name a loop further out.")


def _ends(form: Affine, left: Affine, conds: list[Expr], extents: Extents) -> bool:
    """Whether a limit on `left` is one on the index `form`: form = scale * left + something in [0, scale)."""
    name, c = left.terms[0] if left.terms else ("", 1)
    scale = form.coefficient(name) // c
    low = form - left.scale(scale)
    if scale < 1 or low.names & left.names:
        return False
    low = Affine(0, low.terms)
    others = [x for x in conds if (b := bound(x)) is None or b[0] != left]
    return all(implied(x, extents, others) is True for x in (below(low, scale), below(low.scale(-1), 1)))


def _private(program: Program, buffer: str, loop: str, reader: str) -> Program:
    """`program` with `buffer` shrunk to what one iteration of `loop` uses, if only `reader` reads it."""
    path = find_loop(program.body, loop)
    assert path is not None
    last = path[-1]
    assert isinstance(last, For)
    known = buffers(program)[buffer]
    leaves = list(
        paths(program.body, lambda s: not parts(s) and (reads_from(s, buffer) or buffer in targets(s)))
    )
    inside = all(any(s is last for s in p) for p in leaves)
    if known.memory == "array" or not inside or any(len(targets(p[-1])) > 1 for p in leaves):
        return program
    if any(reads_from(p[-1], buffer) and reader not in targets(p[-1]) for p in leaves):
        return program
    inner = frozenset([s.var for s in statements(last.body) if isinstance(s, For)])
    places = [_place(p[-1], buffer) for p in leaves]
    ranges = box([x for xs in places for x in xs], known.shape, inner, extents_of(program.body))
    return shrink(program, buffer, last, [r.origin for r in ranges], tuple([r.extent for r in ranges]))


def _place(leaf: Stmt, buffer: str) -> list[Place]:
    found = [e.indices for e in loads(leaf) if e.buffer == buffer]
    if buffer in targets(leaf):
        assert isinstance(leaf, (Store, Update))
        found.append(leaf.indices)
    return found
