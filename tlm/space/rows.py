"""Reading a chain of stages over rows out of a program: reductions over some axes, elementwise stages around.

Loops of different stages are one axis where they index the same dimension of a temporary (or, where nothing
speaks against it, of an input). Axes that every reduction keeps are the rows; stages over all of these can
run together, row by row. softmax, normalisations, plain reductions and their epilogues are such chains.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..ir.exprs import Var
from ..ir.nodes import Program, Store, Update
from ..ir.walk import statements
from .problem import Nest, nests
from .stages import Stage, plain_nest, reads_of, stage_of, targets_of


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Stages of `program` in running order. Compared by identity.

    `rows` are the axes that all stages of `body` (by number) keep, from the outside in. `together` says
    whether these stages may run row by row.
    """

    program: Program
    stages: tuple[Stage, ...]
    rows: tuple[str, ...]
    body: tuple[int, ...]
    together: bool
    outputs: frozenset[str]

    @property
    def chain(self) -> tuple[Stage, ...]:
        """The stages of the body."""
        return tuple([self.stages[n] for n in self.body])

    @property
    def inner(self) -> tuple[str, ...]:
        """Axes of the body that are no rows, in the order in which stages have them."""
        return tuple(dict.fromkeys([a for s in self.chain for a in s.axes if a not in self.rows]))

    def extent(self, axis: str) -> int:
        """Iterations over `axis`."""
        return next(s.extent(axis) for s in self.stages if axis in s.axes)


@lru_cache(maxsize=256)
def rows(program: Program) -> Rows | None:
    """The chain of `program`; None where there is no reduction, or stages are no plain nests."""
    found = list(nests(program.body))
    leaves = [s for s in statements(program.body) if isinstance(s, (Store, Update))]
    if len(found) != len(leaves) or not any(isinstance(s, Update) for _, s in found):
        return None
    if any(not plain_nest(nest) for nest in found):
        return None
    axes = _axes(program, found)
    if axes is None:
        return None
    homes = {t: leaf.indices for _, leaf in found for t in targets_of(leaf)}
    stages = tuple([stage_of(program, nest, axes, homes) for nest in found])
    return _grouped(program, stages, found)


class _Union:
    """Loops that are one axis, named by the first of them."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def find(self, x: str) -> str:
        while (up := self.parent.get(x, x)) != x:
            x = up
        return x

    def join(self, a: str, b: str) -> None:
        self.parent[self.find(b)] = self.find(a)


def _axes(program: Program, found: list[Nest]) -> dict[str, str] | None:
    """The axis of every loop; None where two loops of one nest would be one axis."""
    union = _Union()
    extents = {f.var: f.extent for around, _ in found for f in around}
    writer = {t: leaf.indices for _, leaf in found for t in targets_of(leaf)}

    def clash() -> bool:
        return any(len({union.find(f.var) for f in around}) < len(around) for around, _ in found)

    for _, leaf in found:
        for read in reads_of(leaf):
            for x, y in zip(writer.get(read.buffer, ()), read.indices, strict=False):
                if isinstance(x, Var) and isinstance(y, Var) and extents[x.name] == extents[y.name]:
                    union.join(x.name, y.name)
    if clash():
        return None
    inputs = {b.name for b in program.inputs}
    first: dict[tuple[str, int], str] = {}
    for _, leaf in found:
        for read in reads_of(leaf):
            for d, index in enumerate(read.indices):
                if read.buffer not in inputs or not isinstance(index, Var):
                    continue
                old = first.setdefault((read.buffer, d), index.name)
                if union.find(old) != union.find(index.name) and extents[old] == extents[index.name]:
                    before = dict(union.parent)
                    union.join(old, index.name)
                    if clash():
                        union.parent = before
    return {v: union.find(v) for v in extents}


def _grouped(program: Program, stages: tuple[Stage, ...], found: list[Nest]) -> Rows:
    reductions = [s for s in stages if s.combiner]
    common = set(reductions[0].axes)
    for s in reductions:
        common &= set(s.axes) - set(s.reduced)
    common -= {a for s in reductions for a in s.reduced}
    body = tuple([n for n, s in enumerate(stages) if common <= set(s.axes)])
    order = tuple([a for a in stages[body[-1]].axes if a in common])
    outputs = frozenset(b.name for b in program.outputs)
    together = _may_run_together(stages, body, common, found)
    return Rows(program, stages, order, body, together, outputs)


def _may_run_together(
    stages: tuple[Stage, ...], body: tuple[int, ...], common: set[str], found: list[Nest]
) -> bool:
    """Whether rows depend on nothing but the same row of the other stages of the body."""
    writer = {t: n for n in body for t in stages[n].targets}
    for n in range(body[0], body[-1] + 1):
        if n not in body and stages[n].reads & writer.keys():
            return False
    axis = {v: a for s in stages for (v, _), a in zip(s.loops, s.axes, strict=True)}
    for n in body:
        for read in reads_of(found[n][1]):
            if read.buffer not in writer:
                continue
            home = found[writer[read.buffer]][1].indices
            for x, y in zip(home, read.indices, strict=True):
                if not isinstance(x, Var) or axis[x.name] not in common:
                    continue
                if not isinstance(y, Var) or axis[y.name] != axis[x.name]:
                    return False
    return True
