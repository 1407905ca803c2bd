"""compute_at: a stage is computed where it is read, on the part that is read there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..ir.affine import Affine, affine, conjuncts, implied
from ..ir.exprs import Expr
from ..ir.nodes import For, Program, Stmt, Store, Update, block
from ..ir.paths import Path, extents_of, find_loop, guards_on, loops_on, paths, rebuild, with_body
from ..ir.walk import buffers, free_vars, loads, parts, rewrap, statements, targets
from .base import Rewrite, Step
from .guards import bounds_guard
from .regions import Range, box
from .rewriting import guarded, nest, replace_cond, replace_in
from .stages import Stage, common_block, keeps_order, reads_from, shrink, solve, stage_of


def destination(step: Step, program: Program, stage: Stage, loop: str) -> Path:
    """The path of the loop to move `stage` into, checked for what no move may do."""
    path = step.locate(program, loop)
    name = targets(stage.leaf)[0]
    if any(s is stage.nest for s in path):
        raise step.refuse(program, f"{loop} is a loop of {name} itself", "Name a loop of another stage.")
    for f in loops_on(path):
        if f.kind == "vectorize":
            raise step.refuse(
                program, f"loop {f.var} is vectorised", "Move stages before vectorising, or further out."
            )
    last = path[-1]
    assert isinstance(last, For)
    if last.kind.startswith("block"):
        inner = next(
            (s.var for s in statements(last.body) if isinstance(s, For) and s.kind.startswith("block")), None
        )
        if inner is not None:
            raise step.refuse(program, f"loop {inner} inside {loop} is bound to blocks too", f"Name {inner}.")
    return path


@dataclass(frozen=True, slots=True)
class ComputeAt(Step):
    """A stage is computed where it is read, part by part.

        for p: P[p] = f(p); for loop: C reads P[...]
    ->  for loop: {alloc P': for p': P'[p'] = f(the part read there); C reads P'[...]}

    The temporary becomes as small as that part and is made anew in each iteration; parts that overlap are
    computed again. All readers of the stage must be under `loop`.
    """

    primitive: ClassVar[str] = "compute_at"
    stage: str
    loop: str

    def plan(self, program: Program) -> Rewrite:
        stage = stage_of(self, program, self.stage)
        path = destination(self, program, stage, self.loop)
        loop = path[-1]
        assert isinstance(loop, For)
        buffer = buffers(program)[self.stage]
        if buffer.memory == "array":
            raise self.refuse(
                program, f"{self.stage} is an output", "Only temporaries can be computed in parts."
            )
        if len(targets(stage.leaf)) > 1:
            raise self.refuse(program, "a reduction over tuples stays where it is")
        readers = [p for p in paths(program.body, lambda s: not parts(s)) if reads_from(p[-1], self.stage)]
        under = [p for p in readers if len(p) >= len(path) and p[len(path) - 1] is loop]
        if not under:
            raise self.refuse(program, f"{self.stage} is not read under {self.loop}", self._loops(readers))
        if len(under) < len(readers):
            raise self.refuse(
                program, f"{self.stage} is also read outside of {self.loop}", self._loops(readers)
            )
        around, mine, other = common_block(self, program, stage, path)
        keeps_order(self, program, stage.nest, around.stmts[mine + 1 : other + 1], (self.stage,))
        inner = frozenset([s.var for s in statements(loop.body) if isinstance(s, For)])
        places = list(
            dict.fromkeys([e.indices for p in under for e in loads(p[-1]) if e.buffer == self.stage])
        )
        extents = extents_of(program.body)
        ranges = box(places, buffer.shape, inner, extents)
        made = _part(self, program, stage, ranges, buffer.shape, guards_on(path), extents)

        def rewrite() -> Program:
            grown = rewrap(loop, block(made, loop.body))
            at = next(n for n, s in enumerate(path) if s is around.stmts[other])
            holder = rebuild(path[at:], grown)
            rest = [holder if s is path[at] else s for s in around.stmts if s is not stage.nest]
            out = with_body(program, rebuild(path[:at], block(*rest)))
            moved = find_loop(out.body, self.loop)
            assert moved is not None
            last = moved[-1]
            assert isinstance(last, For)
            return shrink(
                out, self.stage, last, [r.origin for r in ranges], tuple([r.extent for r in ranges])
            )

        return rewrite

    def _loops(self, readers: Sequence[Path]) -> str:
        common = [f.var for f in loops_on(readers[0])] if readers else []
        for reader in readers[1:]:
            names = {f.var for f in loops_on(reader)}
            common = [n for n in common if n in names]
        return f"Loops around all of its readers: {', '.join(common) or 'none'}."


def _part(
    step: Step, program: Program, stage: Stage, ranges: Sequence[Range], shape: tuple[int, ...],
    facts: tuple[Expr, ...], extents: dict[str, int],
) -> Stmt:  # fmt: skip
    """The nest of `stage` on `ranges` of its buffer only."""
    leaf = stage.leaf
    spatial = frozenset([f.var for f in stage.loops if f.var not in stage.axes])
    names = [_name(i, spatial) for i in leaf.indices]
    known = {**extents, **{n: r.extent for n, r in zip(names, ranges, strict=True) if n}}
    place: list[Expr] = [
        (r.origin + Affine(0, ((n, 1),) if n else ())).expr() for n, r in zip(names, ranges, strict=True)
    ]
    solved = solve(leaf.indices, spatial, tuple(place), known)
    made = None if solved is None else replace_in(leaf, solved, known)
    left = spatial - set(names)
    if made is None or solved is None or any(free_vars(e) & left for e in _exprs(made)):
        raise step.refuse(
            program, f"{targets(leaf)[0]} is not computed element by element", "Move it before splitting it."
        )
    conds = [c for g in stage.guards for c in conjuncts(replace_cond(g, solved, known))]
    if any(free_vars(c) & left for c in conds):
        raise step.refuse(
            program, f"the guards of {targets(leaf)[0]} do not fit the part", "Move it before splitting it."
        )
    conds += bounds_guard(place, shape, known, (*facts, *conds))
    new: Stmt = guarded(tuple([c for c in conds if implied(c, known, facts) is not True]), made)
    loops = [(n, r.extent) for n, r in zip(names, ranges, strict=True) if n]
    order = {f.var: at for at, f in enumerate(stage.loops)}
    loops += [(f.var, f.extent) for f in stage.loops if f.var in stage.axes]
    return nest(tuple(sorted(loops, key=lambda item: order[item[0]])), new)


def _name(index: Expr, spatial: frozenset[str]) -> str:
    """The loop of a dimension that goes on as the loop over the part: the one with coefficient 1."""
    form = affine(index)
    return next((n for n, c in form.terms if n in spatial and c == 1), "") if form is not None else ""


def _exprs(leaf: Stmt) -> tuple[Expr, ...]:
    match leaf:
        case Store(_, indices, value):
            return (*indices, value)
        case Update(_, indices, values):
            return (*indices, *values)
    return ()
