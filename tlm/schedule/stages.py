"""Stages: the nest that computes one buffer, and what moving it must keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ir.affine import Affine, affine
from ..ir.exprs import Expr, Var
from ..ir.nodes import Alloc, Block, Buffer, For, Prefetch, Program, Stmt, Store, Update, block
from ..ir.paths import Path, extents_of, find_alloc, guards_on, loops_on, paths, put, rebuild, with_body
from ..ir.walk import free_vars, loads, parts, reads, rewrap, targets, writes
from .base import Step
from .rewriting import Extents, canonical, redirect

Place = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A nest with one statement. `path` leads to the statement, its first `head` + 1 nodes to the nest."""

    path: Path
    head: int

    @property
    def nest(self) -> Stmt:
        """The outermost statement of the nest."""
        return self.path[self.head]

    @property
    def leaf(self) -> Store | Update:
        """The statement that writes the buffer."""
        leaf = self.path[-1]
        assert isinstance(leaf, (Store, Update))
        return leaf

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops of the nest, outer first."""
        return loops_on(self.path[self.head :])

    @property
    def guards(self) -> tuple[Expr, ...]:
        """The guards inside the nest."""
        return guards_on(self.path[self.head :])

    @property
    def axes(self) -> tuple[str, ...]:
        """The reduction loops of the statement."""
        return self.leaf.axes if isinstance(self.leaf, Update) else ()


def stage_of(step: Step, program: Program, name: str) -> Stage:
    """The only nest that writes buffer `name`; ScheduleError where it is not one plain nest."""
    found = step.writers(program, name)
    if len(found) > 1:
        raise step.refuse(
            program, f"{len(found)} statements write {name}", "Move a stage before decomposing or peeling it."
        )
    path = found[0]
    head = max([at + 1 for at, s in enumerate(path) if isinstance(s, (Alloc, Block))], default=0)
    return Stage(path, head)


def common_block(step: Step, program: Program, stage: Stage, other: Path) -> tuple[Block, int, int]:
    """The Block in which the stage's nest stands, its position there, and that of what holds `other`."""
    parent = stage.path[stage.head - 1] if stage.head else None
    depth = stage.head - 1
    if not isinstance(parent, Block) or len(other) <= depth or other[depth] is not parent:
        reason = f"the nest of {targets(stage.leaf)[0]} does not stand beside the one that holds the loop"
        raise step.refuse(
            program,
            reason,
            "Only whole nests in the same sequence of statements can be moved into each other.",
        )
    at = [next(n for n, s in enumerate(parent.stmts) if s is p[depth + 1]) for p in (stage.path, other)]
    return parent, at[0], at[1]


def keeps_order(
    step: Step, program: Program, moved: Stmt, passed: Sequence[Stmt], shared: Iterable[str] = ()
) -> None:
    """Refuse where `moved` or `passed` writes what the other uses, but for `shared`: they cannot swap."""
    mine, ours, allowed = writes(moved), reads(moved), set(shared)
    for stmt in passed:
        clash = (writes(stmt) & (ours | mine)) | (reads(stmt) & mine)
        if clash - allowed:
            name = min(clash - allowed)
            raise step.refuse(
                program, f"{name} is written between the two places", "Move the stages in between first."
            )


def without(program: Program, stage: Stage) -> Program:
    """`program` without the nest of `stage`, which stands in a Block."""
    parent = stage.path[stage.head - 1]
    assert isinstance(parent, Block)
    rest = tuple([s for s in parent.stmts if s is not stage.nest])
    new = rest[0] if len(rest) == 1 else Block(rest)
    return with_body(program, rebuild(stage.path[: stage.head], new))


def without_alloc(program: Program, buffer: str) -> Program:
    """`program` without the Alloc of `buffer`, which at most prefetches still name."""
    path = find_alloc(program.body, buffer)
    if path is None:
        return program
    scope = path[-1]
    assert isinstance(scope, Alloc)
    return with_body(program, rebuild(path, _without_hints(scope.body, buffer)))


def _without_hints(root: Stmt, buffer: str, keep: Stmt | None = None) -> Stmt:
    """`root` without prefetches of `buffer`, but for those inside `keep`."""

    def unwanted(path: Path) -> bool:
        return all(s is not keep for s in path)

    while hint := next(
        filter(unwanted, paths(root, lambda s: isinstance(s, Prefetch) and s.buffer == buffer)), None
    ):
        at = max([n for n, s in enumerate(hint) if isinstance(s, Block)])
        parent = hint[at]
        assert isinstance(parent, Block)
        root = rebuild(hint[: at + 1], block(*[s for s in parent.stmts if s is not hint[at + 1]]))
    return root


def solve(indices: Place, loops: frozenset[str], place: Place, extents: Extents) -> dict[str, Expr] | None:
    """Values for one of `loops` in each dimension that make `indices` equal to `place`; the others stay free.

    For i.0*8 + i.1 at place p this is i.1 = p - i.0*8, so that i.0 cancels wherever the whole index is used.
    """
    values: dict[str, Expr] = {}
    seen: set[str] = set()
    for index, wanted in zip(indices, place, strict=True):
        form = affine(index)
        names = free_vars(index) & loops
        if form is None or names & seen:
            return None
        seen |= names
        if names:
            one = next((n for n, c in form.terms if n in names and c == 1), None)
            if one is None:
                return None
            rest = form - Affine(0, ((one, 1),))
            values[one] = canonical(wanted - rest.expr(), extents)
    return values


def shrink(
    program: Program, buffer: str, inside: For, origins: Sequence[Affine], shape: tuple[int, ...]
) -> Program:
    """`program` with `buffer` made anew in each iteration of `inside`, as the box of `shape` at `origins`."""
    alloc = find_alloc(program.body, buffer)
    assert alloc is not None
    scope = alloc[-1]
    assert isinstance(scope, Alloc)
    old = scope.buffer
    extents = extents_of(program.body)

    def moved(indices: Place) -> Place:
        return tuple([canonical(i - o.expr(), extents) for i, o in zip(indices, origins, strict=True)])

    made = Buffer(old.name, shape, old.dtype, old.memory)
    body = Alloc(made, redirect(inside.body, buffer, buffer, moved))
    new = rewrap(inside, body)
    return with_body(
        program, rebuild(alloc, _replaced(_without_hints(scope.body, buffer, inside), inside, new))
    )


def _replaced(stmt: Stmt, old: Stmt, new: Stmt) -> Stmt:
    if stmt is old:
        return new
    for part in parts(stmt):
        changed = _replaced(part, old, new)
        if changed is not part:
            return put(stmt, part, changed)
    return stmt


def plain(place: Place) -> dict[str, int]:
    """The dimension of each loop that alone is an index of `place`."""
    return {i.name: d for d, i in enumerate(place) if isinstance(i, Var)}


def reads_from(stmt: Stmt, buffer: str) -> bool:
    """Whether `stmt` reads `buffer`."""
    return any(e.buffer == buffer for e in loads(stmt))
