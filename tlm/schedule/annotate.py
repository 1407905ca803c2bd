"""Marking loops: how their iterations may run. The order of the loops stays."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, cast

from ..ir.affine import affine
from ..ir.exprs import Expr, Var, const
from ..ir.names import fresh, loop_names
from ..ir.nodes import Alloc, Block, For, LoopKind, Prefetch, Program, Stmt, Update
from ..ir.paths import Path, extents_of, find, loops_on, rebuild, with_body
from ..ir.walk import free_vars, loads, parts, statements
from .access import accesses, conflicts, meet
from .base import Rewrite, Step, near
from .rewriting import replace_all

# A kernel with more copies of its statements than this takes seconds to compile.
MAX_COPIES = 4096
# Lanes beyond this many are statements in all but name.
MAX_LANES = 512
_LANES_A_COPY = 16


def copies(stmt: Stmt) -> int:
    """How many statements `stmt` becomes once its unroll and vectorize marks are followed."""
    match stmt:
        case For(extent=extent, body=body, kind=kind, unroll=unroll):
            times = extent if kind == "unroll" else min(unroll, extent)
            if kind == "vectorize":
                times = -(-extent // _LANES_A_COPY)
            return max(times, 1) * copies(body)
        case _:
            inside = parts(stmt)
            return sum([copies(s) for s in inside]) if inside else 1


def _bounded(step: Step, program: Program, path: Path, new: For) -> None:
    """Refuse a mark that makes the code too long to compile."""
    whole = copies(_marked_around(path, new))
    if whole > MAX_COPIES:
        reason = f"loop {new.var} would make {whole} copies of statements; the limit is {MAX_COPIES}"
        raise step.refuse(
            program, reason, "Split the loop and mark the inner part, or unroll by a small factor."
        )


def _marked_around(path: Path, new: For) -> Stmt:
    # The outermost marked loop decides: the loops around it do not multiply code.
    for at, stmt in enumerate(path[:-1]):
        if isinstance(stmt, For) and (stmt.kind == "unroll" or stmt.unroll > 1):
            return rebuild(path[at:], new)
    return new


def marked(loop: For, kind: LoopKind, unroll: int = 1) -> For:
    """`loop` with another mark."""
    return For(loop.var, loop.extent, loop.body, kind, unroll, loop.bound)


@dataclass(frozen=True, slots=True)
class Unroll(Step):
    """The backend writes out the iterations: all of them, or `factor` of them in each turn of the loop.

        for k in n: S(k)
    ->  unroll for k in n: S(k)         (factor 0: runs as S(0); S(1); ...)
    ->  for k in n unroll factor: S(k)
    """

    primitive: ClassVar[str] = "unroll"
    loop: str
    factor: int = 0

    def plan(self, program: Program) -> Rewrite:
        path, loop = self.serial(program, self.loop)
        factor = self.positive(program, "the factor", self.factor, 0)
        inside = next(
            (s.var for s in statements(loop.body) if isinstance(s, For) and s.kind == "parallel"), None
        )
        if inside is not None:
            raise self.refuse(
                program, f"the parallel loop {inside} is inside", "Unroll loops inside parallel ones."
            )
        new = marked(loop, "serial", min(factor, loop.extent)) if factor else marked(loop, "unroll")
        if new.unroll < 1:
            new = loop
        _bounded(self, program, path, new)
        return lambda: with_body(program, rebuild(path, new))


@dataclass(frozen=True, slots=True)
class Vectorize(Step):
    """The iterations run at once, one in each lane of a vector.

        for j in n: S(j)
    ->  vectorize for j in n: S(j)

    The loop must be innermost and its iterations independent, or be the axis of a reduction whose target
    nothing else in the loop uses: then the lanes are combined in a tree, which associativity allows.
    """

    primitive: ClassVar[str] = "vectorize"
    loop: str

    def plan(self, program: Program) -> Rewrite:
        path, loop = self.serial(program, self.loop)
        inside = next((s.var for s in statements(loop.body) if isinstance(s, For)), None)
        if inside is not None:
            reason = f"loop {inside} is inside {loop.var}"
            raise self.refuse(program, reason, "Only an innermost loop can be vectorised: reorder first.")
        around = next((f.var for f in loops_on(path[:-1]) if f.kind == "vectorize"), None)
        if around is not None:
            raise self.refuse(program, f"it is inside the vectorised loop {around}")
        if loop.extent > MAX_LANES:
            reason = f"{loop.extent} lanes are more than {MAX_LANES}"
            raise self.refuse(program, reason, f"Split {loop.var} and vectorise the inner part.")
        independent(self, program, path, lanes=True)
        new = marked(loop, "vectorize")
        _bounded(self, program, path, new)
        return lambda: with_body(program, rebuild(path, new))


@dataclass(frozen=True, slots=True)
class Parallel(Step):
    """The iterations, which must be independent, run on the threads of the target, in any order.

        for i in n: S(i)
    ->  parallel for i in n: S(i)
    """

    primitive: ClassVar[str] = "parallel"
    loop: str

    def plan(self, program: Program) -> Rewrite:
        path, loop = self.serial(program, self.loop)
        marks = [
            f"{f.var} is marked {f.kind}" for f in loops_on(path[:-1]) if f.kind not in ("serial", "parallel")
        ]
        if marks:
            raise self.refuse(program, f"around it, {marks[0]}", "Parallel loops go outside of marked ones.")
        independent(self, program, path)
        return lambda: with_body(program, rebuild(path, marked(loop, "parallel")))


def independent(step: Step, program: Program, path: Path, lanes: bool = False) -> None:
    """Refuse where two iterations of the loop at the end of `path` touch one element and one of them writes
    it.

    With `lanes`, for vectors and GPU threads, a reduction over the loop itself is allowed where nothing else
    in the loop uses its target.
    """
    loop = path[-1]
    assert isinstance(loop, For)
    found = accesses(loop)
    fixed = frozenset([f.var for f in loops_on(path[:-1])])
    extents = extents_of(program.body)
    for a, b in conflicts(found):
        settled = meet(a, b, fixed, extents)
        if settled is None or loop.var in settled:
            continue
        reduces = isinstance(a.stmt, Update) and loop.var in a.stmt.axes
        if reduces and lanes and all(x.stmt is a.stmt and x.writes for x in found if x.buffer == a.buffer):
            continue
        if reduces:
            legal = f"Use rfactor({loop.var}) first, to give each iteration a partial result of its own."
            raise step.refuse(program, f"{a.buffer} is reduced over {loop.var}", legal)
        reason = f"two iterations of {loop.var} may touch one element of {a.buffer}, and one writes it"
        raise step.refuse(
            program, reason, f"Choose a loop that indexes {a.buffer}, or give each iteration its own buffer."
        )


# GPU axes with the largest extent that a launch may have.
_GPU_LIMITS = {
    "blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535,
    "threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64, "vthread": 64,
}  # fmt: skip
_MAX_THREADS = 1024


@dataclass(frozen=True, slots=True)
class Bind(Step):
    """Iteration i runs on block or thread i of a GPU axis. The iterations must be independent.

        for i in n: S(i)
    ->  blockIdx.x for i in n: S(i)     (axis "blockIdx.x")

    A loop on threads may be the axis of a reduction whose target nothing else in the loop uses: then the
    threads combine their values in a tree, which associativity allows.
    """

    primitive: ClassVar[str] = "bind"
    loop: str
    axis: str

    def plan(self, program: Program) -> Rewrite:
        path, loop = self.serial(program, self.loop)
        limit = _GPU_LIMITS.get(self.axis)
        if limit is None:
            raise self.refuse(
                program, f"there is no axis {self.axis!r}", near(self.axis, _GPU_LIMITS, "axes")
            )
        if loop.extent > limit:
            reason = f"the extent {loop.extent} of {loop.var} is above the limit of {self.axis}, {limit}"
            raise self.refuse(program, reason, "Split the loop, or bind it to another axis.")
        inside = [s for s in statements(loop.body) if isinstance(s, For)]
        taken = next((f.var for f in (*loops_on(path[:-1]), *inside) if f.kind == self.axis), None)
        if taken is not None and self.axis != "vthread":
            raise self.refuse(
                program, f"{self.axis} is taken by loop {taken} of the same nest", "Bind to a free axis."
            )
        self._order(program, path, loop, inside)
        independent(self, program, path, lanes=self.axis.startswith("threadIdx"))
        kind = cast(LoopKind, self.axis)
        return lambda: with_body(program, rebuild(path, marked(loop, kind)))

    def _order(self, program: Program, path: Path, loop: For, inside: list[For]) -> None:
        if self.axis.startswith("block"):
            around = next((f.var for f in loops_on(path[:-1]) if not f.kind.startswith("block")), None)
            if around is not None:
                raise self.refuse(
                    program, f"loop {around} around it is not bound to blocks", "Block loops go outermost."
                )
        if not self.axis.startswith("thread"):
            return
        sizes = {f.kind: f.extent for f in (*loops_on(path[:-1]), *inside) if f.kind.startswith("thread")}
        threads = loop.extent * prod(sizes.values())
        if threads > _MAX_THREADS:
            reason = f"{threads} threads a block are more than {_MAX_THREADS}"
            raise self.refuse(program, reason, "Split the loop and bind a smaller part.")


@dataclass(frozen=True, slots=True)
class PrefetchAhead(Step):
    """A hint, without meaning, that brings what a later iteration reads nearer.

        for k: for j: S reads B[k, j]
    ->  for k: {for j@B.prefetch: prefetch B[k + distance, j@B.prefetch]; for j: S reads B[k, j]}

    The lines are those that the loops inside `loop` read; a vectorised loop among them is one line.
    `locality` is 0 (used once) to 3 (keep in the nearest cache).
    """

    primitive: ClassVar[str] = "prefetch_ahead"
    buffer: str
    loop: str
    distance: int
    locality: int = 3

    def plan(self, program: Program) -> Rewrite:
        path = self.locate(program, self.loop)
        loop = path[-1]
        assert isinstance(loop, For)
        distance = self.positive(program, "the distance", self.distance)
        if self.positive(program, "locality", self.locality, 0) > 3:
            raise self.refuse(program, f"locality is 0 to 3, got {self.locality}")
        if loop.kind in ("vectorize", "parallel"):
            raise self.refuse(
                program, f"loop {self.loop} is marked {loop.kind}", "Prefetch ahead of a serial loop."
            )
        found = find(loop, lambda s: not parts(s) and any(e.buffer == self.buffer for e in loads(s)))
        if found is None:
            names = {e.buffer for s in statements(loop) if not parts(s) for e in loads(s)}
            raise self.refuse(
                program, f"{self.buffer!r} is not read under {self.loop}", near(self.buffer, names, "buffers")
            )
        if any(isinstance(s, Alloc) and s.buffer.name == self.buffer for s in found):
            raise self.refuse(program, f"{self.buffer} is made anew in each iteration of {self.loop}")
        read = next(e for e in loads(found[-1]) if e.buffer == self.buffer)
        if any(affine(i) is None for i in read.indices):
            raise self.refuse(program, f"the place read in {self.buffer} is not affine in the loops")

        def rewrite() -> Program:
            return with_body(
                program, rebuild(path, self._with_hint(program, loop, found, read.indices, distance))
            )

        return rewrite

    def _with_hint(
        self, program: Program, loop: For, found: Path, indices: tuple[Expr, ...], distance: int
    ) -> For:
        used = frozenset().union(*[free_vars(i) for i in indices])
        inner = [f for f in loops_on(found[1:]) if f.var in used]
        taken = loop_names(program)
        extents = extents_of(program.body)
        values: dict[str, Expr] = {self.loop: Var(self.loop) + distance}
        kept: list[tuple[str, For]] = []
        for f in inner:
            name = fresh(f"{f.var}@{self.buffer}.prefetch", taken)
            if f.kind == "vectorize":
                values[f.var] = const(0)
            else:
                values[f.var] = Var(name)
                extents[name] = f.extent
                kept.append((name, f))
        hint: Stmt = Prefetch(self.buffer, replace_all(indices, values, extents), self.locality)
        for name, f in reversed(kept):
            hint = For(name, f.extent, hint, f.kind if f.kind == "unroll" else "serial")
        body = loop.body.stmts if isinstance(loop.body, Block) else (loop.body,)
        return For(loop.var, loop.extent, Block((hint, *body)), loop.kind, loop.unroll)
