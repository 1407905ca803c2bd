"""Guards: which accesses need one, what one says for another statement, which ones can go."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.affine import Affine, affine, below, bound, conjuncts, implied
from ..ir.exprs import Const, Expr, Load, Op, Var, const, op
from ..ir.nodes import Alloc, If, Prefetch, Program, Store, Update
from ..ir.paths import (
    Path,
    extents_of,
    find_alloc,
    find_writers,
    guards_on,
    loops_on,
    paths,
    rebuild,
    with_body,
)
from ..ir.walk import buffers, free_vars, loads, parts, targets
from .access import linear
from .rewriting import Extents, Values, guarded, replace_cond


def bounds_guard(
    indices: Iterable[Expr], shape: Iterable[int], extents: Extents, facts: tuple[Expr, ...] = ()
) -> tuple[Expr, ...]:
    """The conditions under which `indices` are inside `shape`, without those that always hold."""
    out: list[Expr] = []
    for index, extent in zip(indices, shape, strict=True):
        form = affine(index)
        sides: tuple[Expr, Expr] = (op("lt", index, const(extent)), op("lt", const(-1), index))
        if form is not None:
            sides = (below(form, extent), below(form.scale(-1), 1))
        out.extend([side for side in sides if implied(side, extents, facts) is not True])
    return tuple(out)


def at_start(cond: Expr, axes: frozenset[str], values: Values, extents: Extents) -> tuple[Expr, ...] | None:
    """`cond` where all of `axes` are 0 and other loops are replaced by `values`, without what always holds.

    None where it may hold for other values of `axes` but not for 0: then 0 does not speak for the whole
    reduction.
    """
    if free_vars(cond) & axes and not _rising(cond, axes):
        return None
    zeros: dict[str, Expr] = {name: const(0) for name in axes}
    return conjuncts(replace_cond(cond, {**zeros, **values}, extents))


def _rising(cond: Expr, axes: frozenset[str]) -> bool:
    """Whether a limit that holds anywhere along `axes` holds at their start: its sum grows with them."""
    limit = bound(cond)
    if limit is not None:
        return all(c >= 0 for name, c in limit[0].terms if name in axes)
    match cond:
        case Op("lt", (left, Const())):
            # Digits of fused loops are opaque here: they may be in the sum, but not hide an axis.
            terms = linear(left)
            hidden = any(free_vars(k) & axes for k in terms if not isinstance(k, str | Affine))
            return not hidden and all(terms.get(name, 0) >= 0 for name in axes)
    return False


def relax(program: Program, target: str) -> Program:
    """`program` without guards that only kept values out of temporary `target` that nobody reads.

    A condition goes where the statements under it only write `target`, all of their accesses stay inside
    their (fully defined) buffers without it, it tells apart elements and not steps of a reduction, and every
    reader of `target` is under that condition itself.
    """
    alloc = find_alloc(program.body, target)
    if alloc is None:
        return program
    scope = alloc[-1]
    assert isinstance(scope, Alloc)
    around = guards_on(alloc)
    readers = [
        p for p in paths(scope.body, lambda s: not parts(s)) if any(e.buffer == target for e in loads(p[-1]))
    ]
    check = _Relaxation(program, scope, around, readers)
    body = scope.body
    for path in list(paths(body, lambda s: isinstance(s, If) and s.other is None)):
        kept, guard = check.kept(path), path[-1]
        assert isinstance(guard, If)
        if len(kept) < len(conjuncts(guard.cond)):
            new = rebuild(path, guarded(kept, guard.then))
            return relax(with_body(program, rebuild(alloc, Alloc(scope.buffer, new))), target)
    return program


class _Relaxation:
    """Which conditions of a guard inside the scope of one temporary have to stay."""

    def __init__(self, program: Program, scope: Alloc, around: tuple[Expr, ...], readers: list[Path]) -> None:
        self.program, self.scope, self.around, self.readers = program, scope, around, readers
        self.target = scope.buffer.name
        self.extents = extents_of(program.body)
        self.buffers = buffers(program)
        self.inner = frozenset(
            [f.var for p in paths(scope.body, lambda s: not parts(s)) for f in loops_on(p)]
        )

    def kept(self, path: Path) -> tuple[Expr, ...]:
        guard = path[-1]
        assert isinstance(guard, If)
        conds = list(conjuncts(guard.cond))

        def elsewhere(leaf: Path) -> list[Expr]:
            return [c for c in guards_on(leaf) if c not in conjuncts(guard.cond)]

        leaves = [(*path[:-1], *p) for p in paths(guard, lambda s: not parts(s))]
        if any(self.target not in targets(p[-1]) for p in leaves if not isinstance(p[-1], Prefetch)):
            return tuple(conds)
        for cond in list(conds):
            others = [c for c in conds if c is not cond]
            if all(
                self._free(cond, p, (*others, *elsewhere(p)))
                for p in leaves
                if not isinstance(p[-1], Prefetch)
            ):
                conds = others
        return tuple(conds)

    def _free(self, cond: Expr, path: Path, others: tuple[Expr, ...]) -> bool:
        leaf = path[-1]
        names = free_vars(cond) & self.inner
        facts = (*self.around, *others)
        assert isinstance(leaf, (Store, Update))
        if not names or (isinstance(leaf, Update) and names & frozenset(leaf.axes)):
            return False
        places = {i.name: at for at, i in enumerate(leaf.indices) if isinstance(i, Var)}
        if not names <= places.keys():
            return False
        reads = [
            e for part in (leaf.values if isinstance(leaf, Update) else (leaf.value,)) for e in loads(part)
        ]
        touched = [*reads, Load(self.target, leaf.indices, self.scope.buffer.dtype)]
        if any(bounds_guard(e.indices, self.buffers[e.buffer].shape, self.extents, facts) for e in touched):
            return False
        if not all(defined(self.program, e.buffer) for e in reads):
            return False
        return all(self._reader_has(cond, names, places, p) for p in self.readers)

    def _reader_has(self, cond: Expr, names: frozenset[str], places: dict[str, int], path: Path) -> bool:
        facts = (*self.around, *guards_on(path))
        for read in loads(path[-1]):
            if read.buffer == self.target:
                asked = replace_cond(cond, {n: read.indices[places[n]] for n in names}, self.extents)
                if implied(asked, self.extents, facts) is not True:
                    return False
        return True


def defined(program: Program, buffer: str) -> bool:
    """Whether every element of `buffer` has a value: an input, or a temporary that one unguarded nest
    fills."""
    if any(b.name == buffer for b in program.inputs):
        return True
    alloc = find_alloc(program.body, buffer)
    writers = find_writers(alloc[-1], buffer) if alloc else []
    if len(writers) != 1 or alloc is None:
        return False
    scope, path = alloc[-1], writers[0]
    assert isinstance(scope, Alloc)
    leaf = path[-1]
    if not isinstance(leaf, Store) or any(isinstance(s, If) for s in path):
        return False
    sizes = {f.var: f.extent for f in loops_on(path)}
    found = [sizes.pop(i.name, None) if isinstance(i, Var) else None for i in leaf.indices]
    return tuple(found) == scope.buffer.shape
