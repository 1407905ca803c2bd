"""Reading a chain of stages over rows out of a program: reductions over some axes, elementwise stages around.

Loops of different stages are one axis where they index the same dimension of a temporary (or, where nothing
speaks against it, of an input). Axes that every reduction keeps are the rows; stages over all of these can
run together, row by row. softmax, normalisations, plain reductions and their epilogues are such chains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ..ir.nodes import Cast, Const, Expr, Load, Op, Program, Store, Update, Var
from ..ir.walk import buffers, loads, statements, walk
from .problem import Nest, nests, strides_of

_COSTLY = ("exp", "log", "tanh", "erf", "pow", "sin", "cos", "div", "sqrt", "rsqrt", "logistic", "erfc")
_COST = 12
"""Vector instructions of an elementary function, roughly; all other operations count as one."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One nest: the buffers that it writes, and how its loops walk through memory.

    `axes` names the axis of each loop. `apart` are the temporaries that it reads elsewhere than at the
    element of its own loops. `strides` has, for each access with an affine place, the elements by which a
    step of each axis moves it; `work` is the number of vector instructions an element.
    """

    name: str
    targets: tuple[str, ...]
    loops: tuple[tuple[str, int], ...]
    axes: tuple[str, ...]
    reduced: tuple[str, ...]
    combiner: str
    reads: frozenset[str]
    apart: frozenset[str]
    strides: tuple[tuple[tuple[str, int], ...], ...]
    bytes: int
    work: int

    def loop(self, axis: str) -> str:
        """The loop over `axis`."""
        return self.loops[self.axes.index(axis)][0]

    def extent(self, axis: str) -> int:
        """Iterations of the loop over `axis`."""
        return self.loops[self.axes.index(axis)][1]


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
    if any(not _plain(nest) for nest in found):
        return None
    axes = _axes(program, found)
    if axes is None:
        return None
    homes = {t: leaf.indices for _, leaf in found for t in _targets(leaf)}
    stages = tuple([_stage(program, nest, axes, homes) for nest in found])
    return _grouped(program, stages, found)


def _targets(leaf: Store | Update) -> tuple[str, ...]:
    return (leaf.buffer,) if isinstance(leaf, Store) else leaf.targets


def _values(leaf: Store | Update) -> tuple[Expr, ...]:
    return (leaf.value,) if isinstance(leaf, Store) else leaf.values


def _plain(nest: Nest) -> bool:
    """Whether the kept loops of a nest, each once, are the indices of what it writes."""
    around, leaf = nest
    axes = leaf.axes if isinstance(leaf, Update) else ()
    kept = sorted([f.var for f in around if f.var not in axes])
    used = [i.name for i in leaf.indices if isinstance(i, Var)]
    rest = [i for i in leaf.indices if not isinstance(i, Var)]
    return sorted(used) == kept and all(isinstance(i, Const) for i in rest) and 0 not in _sizes(nest)


def _sizes(nest: Nest) -> list[int]:
    return [f.extent for f in nest[0]]


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
    writer = {t: leaf.indices for _, leaf in found for t in _targets(leaf)}

    def clash() -> bool:
        return any(len({union.find(f.var) for f in around}) < len(around) for around, _ in found)

    for _, leaf in found:
        for read in _reads(leaf):
            for x, y in zip(writer.get(read.buffer, ()), read.indices, strict=False):
                if isinstance(x, Var) and isinstance(y, Var) and extents[x.name] == extents[y.name]:
                    union.join(x.name, y.name)
    if clash():
        return None
    inputs = {b.name for b in program.inputs}
    first: dict[tuple[str, int], str] = {}
    for _, leaf in found:
        for read in _reads(leaf):
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


def _reads(leaf: Store | Update) -> Iterator[Load]:
    for value in _values(leaf):
        yield from loads(value)


def _stage(program: Program, nest: Nest, axes: dict[str, str], homes: dict[str, tuple[Expr, ...]]) -> Stage:
    around, leaf = nest
    known = buffers(program)
    accesses = [(t, leaf.indices) for t in _targets(leaf)] + [(e.buffer, e.indices) for e in _reads(leaf)]
    strides = [strides_of(known[name], indices) for name, indices in dict.fromkeys(accesses)]
    nodes = [n for v in _values(leaf) for n in walk(v)]
    wide = [known[t].dtype.bytes for t in _targets(leaf)] + [
        n.dtype.bytes
        for n in nodes
        if isinstance(n, (Load, Cast)) or (isinstance(n, Op) and n.dtype.is_float)
    ]
    work = sum(_COST if n.op in _COSTLY else 1 for n in nodes if isinstance(n, Op))
    return Stage(
        _targets(leaf)[0],
        _targets(leaf),
        tuple([(f.var, f.extent) for f in around]),
        tuple([axes[f.var] for f in around]),
        tuple([axes[a] for a in leaf.axes]) if isinstance(leaf, Update) else (),
        leaf.combiner if isinstance(leaf, Update) else "",
        frozenset(e.buffer for e in _reads(leaf)),
        frozenset(e.buffer for e in _reads(leaf) if e.buffer in homes and not _same(e, homes, axes)),
        tuple([tuple([(axes[v], c) for v, c in s]) for s in strides if s is not None]),
        max(4, *wide),
        work + 1,
    )


def _same(read: Load, homes: dict[str, tuple[Expr, ...]], axes: dict[str, str]) -> bool:
    """Whether a temporary is read at the element that its own stage writes for the same axes."""
    return all(
        axes[x.name] == axes[y.name] if isinstance(x, Var) and isinstance(y, Var) else x == y
        for x, y in zip(homes[read.buffer], read.indices, strict=True)
    )


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
        for read in _reads(found[n][1]):
            if read.buffer not in writer:
                continue
            home = found[writer[read.buffer]][1].indices
            for x, y in zip(home, read.indices, strict=True):
                if not isinstance(x, Var) or axis[x.name] not in common:
                    continue
                if not isinstance(y, Var) or axis[y.name] != axis[x.name]:
                    return False
    return True
