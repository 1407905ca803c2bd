"""Reading a contraction out of a program: which loop indexes which operand, and how far apart neighbours lie.

Found from the structure of the statement, not from the operator's name: a sum of products of two loads is a
contraction. A loop that indexes the first operand and the result is a row axis (m), one of the second and the
result a column axis (n), one of both operands only is reduced (k), one of all three is a batch axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ..ir.affine import affine
from ..ir.dtypes import DType
from ..ir.exprs import Cast, Expr, Load, Op, Var
from ..ir.nodes import Alloc, Block, Buffer, For, Program, Stmt, Store, Update
from ..ir.walk import buffers, loads

Nest = tuple[tuple[For, ...], Store | Update]


def nests(stmt: Stmt, around: tuple[For, ...] = ()) -> Iterator[Nest]:
    """Every statement that writes, with the loops around it from the outside in, in running order."""
    match stmt:
        case For(body=body):
            yield from nests(body, (*around, stmt))
        case Block(stmts):
            for s in stmts:
                yield from nests(s, around)
        case Alloc(_, body):
            yield from nests(body, around)
        case Store() | Update():
            yield around, stmt


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer of a contraction, with the stride in elements of each loop that indexes it."""

    buffer: Buffer
    strides: tuple[tuple[str, int], ...]

    def stride(self, loop: str | None) -> int:
        return dict(self.strides).get(loop or "", 0)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A stage after the contraction, with its loops and extents from the outside in."""

    stage: str
    loops: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Contraction:
    """out[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n], then `epilogue` stages.

    `chained`: as the function of that name says, and at plain loop variables; other stages can only run in
    nests of their own.
    """

    stage: str
    out: Operand
    a: Operand
    b: Operand
    batch: tuple[str, ...]
    m: str
    n: str
    k: str
    extents: tuple[tuple[str, int], ...]
    epilogue: tuple[Elementwise, ...]
    chained: bool

    def extent(self, loop: str) -> int:
        return dict(self.extents)[loop]

    @property
    def dtype(self) -> DType:
        """The type in which products are summed."""
        return self.out.buffer.dtype

    @property
    def batches(self) -> int:
        return prod([self.extent(loop) for loop in self.batch])

    def swapped(self) -> Contraction:
        """The same contraction with rows and columns (and so the operands) exchanged."""
        return Contraction(
            self.stage,
            self.out,
            self.b,
            self.a,
            self.batch,
            self.n,
            self.m,
            self.k,
            self.extents,
            self.epilogue,
            self.chained,
        )


def strides_of(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[tuple[str, int], ...] | None:
    """Elements by which the address moves for each loop variable; None where an index is not affine."""
    total: dict[str, int] = {}
    for index, stride in zip(indices, buffer.element_strides, strict=True):
        form = affine(index)
        if form is None:
            return None
        for name, factor in form.terms:
            total[name] = total.get(name, 0) + factor * stride
    return tuple(sorted(total.items()))


def factors_of(value: Expr) -> tuple[Load, Load] | None:
    """What the two factors of a product read, converted or not; None for other values."""
    match value:
        case Op("mul", (x, y), _):
            found = [v.value if isinstance(v, Cast) else v for v in (x, y)]
            if isinstance(found[0], Load) and isinstance(found[1], Load):
                return found[0], found[1]
    return None


@lru_cache(maxsize=256)
def contraction(program: Program) -> Contraction | None:
    """The contraction that `program` starts with, followed only by elementwise stages; None otherwise."""
    stages = list(nests(program.body))
    if not stages:
        return None
    (around, update), rest = stages[0], stages[1:]
    if (
        not isinstance(update, Update)
        or update.combiner != "sum"
        or any(isinstance(s, Update) for _, s in rest)
    ):
        return None
    factors = factors_of(update.values[0])
    if factors is None or factors[0].buffer == factors[1].buffer:
        return None
    known = buffers(program)
    operands = []
    for name, indices in [(update.targets[0], update.indices), *((f.buffer, f.indices) for f in factors)]:
        strides = strides_of(known[name], indices)
        if strides is None:
            return None
        operands.append(Operand(known[name], strides))
    epilogue = [
        Elementwise(s.buffer, tuple([(f.var, f.extent) for f in fs]))
        for fs, s in rest
        if isinstance(s, Store)
    ]
    after = [s for _, s in rest]
    own = chained(update, after, known) and all(at_own_loops(s, known) for s in after)
    return _roles(around, update, operands, tuple(epilogue), own)


def at_own_loops(stage: Store | Update, known: Mapping[str, Buffer]) -> bool:
    """Whether a stage reads each temporary at plain loop variables, one a dimension."""
    return isinstance(stage, Store) and all(
        isinstance(index, Var) or extent == 1
        for e in loads(stage)
        if known[e.buffer].memory != "array"
        for index, extent in zip(e.indices, known[e.buffer].shape, strict=True)
    )


def chained(first: Update, stages: Sequence[Store | Update], known: Mapping[str, Buffer]) -> bool:
    """Whether each of `stages` reads the one before it (the first of them what `first` writes), and no other
    temporary, at the very element that it writes."""
    before = first.targets[0]
    for stage in stages:
        if not isinstance(stage, Store):
            return False
        read = {(e.buffer, e.indices) for e in loads(stage) if known[e.buffer].memory != "array"}
        if len(read) != 1:
            return False
        name, at = read.pop()
        if name != before or len(at) != len(stage.indices):
            return False
        shape = known[before].shape
        if any(x != y and n > 1 for x, y, n in zip(at, stage.indices, shape, strict=True)):
            return False
        before = stage.buffer
    return True


def _roles(
    around: tuple[For, ...],
    update: Update,
    operands: list[Operand],
    epilogue: tuple[Elementwise, ...],
    own: bool,
) -> Contraction | None:
    out, a, b = operands
    used = [{name for name, _ in o.strides} for o in operands]
    spatial = [f.var for f in around if f.var not in update.axes]
    rows = [v for v in spatial if v in used[1] and v not in used[2]]
    columns = [v for v in spatial if v in used[2] and v not in used[1]]
    extent = {f.var: f.extent for f in around}
    # Several axes of one side are blocked together: that is the space of convolutions, window or not.
    several = any(sum(extent[v] > 1 for v in side) > 1 for side in (rows, columns))
    if not rows or not columns or several or len(update.axes) != 1:
        return None
    if extent[update.axes[0]] > 1 and not all(update.axes[0] in u for u in used[1:]):
        return None
    m, n = rows[-1], columns[-1]
    batch = tuple([v for v in spatial if v not in (m, n)])
    extents = tuple([(f.var, f.extent) for f in around])
    return Contraction(update.targets[0], out, a, b, batch, m, n, update.axes[0], extents, epilogue, own)
