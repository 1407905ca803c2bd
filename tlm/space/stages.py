"""One stage of a program as spaces see it: its loops, what it reads and writes, and in what strides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..ir.exprs import Cast, Const, Expr, Load, Op, Var
from ..ir.nodes import Program, Store, Update
from ..ir.walk import buffers, loads, walk
from .problem import Nest, strides_of

_COSTLY = ("exp", "log", "tanh", "erf", "pow", "sin", "cos", "div", "sqrt", "rsqrt", "logistic", "erfc")
_COST = 12
"""Vector instructions of an elementary function, roughly; all other operations count as one."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One nest: the buffers that it writes, and how its loops walk through memory.

    `axes` names the axis of each loop. `apart` are the temporaries that it reads elsewhere than at the
    element of its own loops. `strides` has, for each access with an affine place (what is written first), the
    elements by which a step of each axis moves it; `scattered` says that there are other accesses. `work` is
    the number of vector instructions an element.
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
    scattered: bool
    bytes: int
    work: int

    def loop(self, axis: str) -> str:
        """The loop over `axis`."""
        return self.loops[self.axes.index(axis)][0]

    def extent(self, axis: str) -> int:
        """Iterations of the loop over `axis`."""
        return self.loops[self.axes.index(axis)][1]


def targets_of(leaf: Store | Update) -> tuple[str, ...]:
    """The buffers that a statement writes."""
    return (leaf.buffer,) if isinstance(leaf, Store) else leaf.targets


def _values(leaf: Store | Update) -> tuple[Expr, ...]:
    return (leaf.value,) if isinstance(leaf, Store) else leaf.values


def plain_nest(nest: Nest) -> bool:
    """Whether the kept loops of a nest, each once, are the indices of what it writes, and all loops run."""
    around, leaf = nest
    axes = leaf.axes if isinstance(leaf, Update) else ()
    kept = sorted([f.var for f in around if f.var not in axes])
    used = [i.name for i in leaf.indices if isinstance(i, Var)]
    rest = [i for i in leaf.indices if not isinstance(i, Var)]
    some = all(f.extent > 0 for f in around)
    return some and sorted(used) == kept and all(isinstance(i, Const) for i in rest)


def reads_of(leaf: Store | Update) -> Iterator[Load]:
    """Every read in what a statement writes."""
    for value in _values(leaf):
        yield from loads(value)


def stage_of(
    program: Program, nest: Nest, axes: Mapping[str, str], homes: Mapping[str, tuple[Expr, ...]]
) -> Stage:
    """The stage of a nest. `axes` names the axis of each loop, `homes` has the places that stages write."""
    around, leaf = nest
    known = buffers(program)
    accesses = [(t, leaf.indices) for t in targets_of(leaf)] + [(e.buffer, e.indices) for e in reads_of(leaf)]
    strides = [strides_of(known[name], indices) for name, indices in dict.fromkeys(accesses)]
    nodes = [n for v in _values(leaf) for n in walk(v)]
    wide = [known[t].dtype.bytes for t in targets_of(leaf)] + [
        n.dtype.bytes
        for n in nodes
        if isinstance(n, (Load, Cast)) or (isinstance(n, Op) and n.dtype.is_float)
    ]
    work = sum(_COST if n.op in _COSTLY else 1 for n in nodes if isinstance(n, Op))
    return Stage(
        targets_of(leaf)[0],
        targets_of(leaf),
        tuple([(f.var, f.extent) for f in around]),
        tuple([axes[f.var] for f in around]),
        tuple([axes[a] for a in leaf.axes]) if isinstance(leaf, Update) else (),
        leaf.combiner if isinstance(leaf, Update) else "",
        frozenset(e.buffer for e in reads_of(leaf)),
        frozenset(e.buffer for e in reads_of(leaf) if e.buffer in homes and not _same(e, homes, axes)),
        tuple([tuple([(axes[v], c) for v, c in s]) for s in strides if s is not None]),
        None in strides,
        max(4, *wide),
        work + 1,
    )


def _same(read: Load, homes: Mapping[str, tuple[Expr, ...]], axes: Mapping[str, str]) -> bool:
    """Whether a temporary is read at the element that its own stage writes for the same axes."""
    return all(
        axes[x.name] == axes[y.name] if isinstance(x, Var) and isinstance(y, Var) else x == y
        for x, y in zip(homes[read.buffer], read.indices, strict=True)
    )
