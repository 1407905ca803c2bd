"""Reading a convolution or a pool, or any product summed over several axes, out of a program.

Found from the structure of the statement: a reduction of a read, or of a product of two reads, each perhaps
only inside of an array (`where(inside, x[...], 0)`). A loop that indexes one operand and the result belongs
to the side of that operand, one of both operands only is summed, one of all three (or of extent 1) is a batch
axis. A stencil (a depthwise convolution, a pool) has windows but no second side: then the axis along which
the result is contiguous takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ..ir.affine import affine
from ..ir.combiners import COMBINERS
from ..ir.exprs import Cast, Const, Expr, Load, Op
from ..ir.nodes import Buffer, For, Program, Store, Update
from ..ir.walk import buffers
from ..schedule.steps import Fuse, Step
from .problem import Contraction, Elementwise, Operand, at_own_loops, chained, nests, strides_of


@dataclass(frozen=True, slots=True)
class Read:
    """A read with the condition under which it happens; elsewhere the value is the identity of the sum.

    `padded`: it is the read that is replaced, so that a copy of the operand with a border of zeros gives the
    same; not the whole product.
    """

    load: Load
    inside: Expr | None = None
    padded: bool = True


@dataclass(frozen=True, slots=True)
class Side:
    """An operand and the loops of the result that index it alone, from the outside in.

    The last one is cut into register tiles, the one before it (the rows of an image) into blocks. `slid`:
    windows slide over the operand, so that an index of it is moved by loops of the result and of the sum.
    """

    operand: Operand
    loops: tuple[str, ...]
    slid: bool

    @property
    def inner(self) -> str:
        return self.loops[-1]

    @property
    def blocked(self) -> str:
        return self.loops[-2] if len(self.loops) > 1 else self.loops[-1]


@dataclass(frozen=True, slots=True)
class Convolution:
    """out[batch, rows, columns] = sum over windows and k of a[batch, rows + windows, k] * b[batch, ...].

    `windows` are the summed loops but the last one, `k`, which is `deep` where no window slides along it.
    `guarded`: some reads have conditions; `padded`: zeros beyond the edge mean the same. `stencil`: the one
    column axis indexes both operands (or the only one). `elementwise`: the epilogue reads what it follows at
    its own loops; `chained`: each of its stages reads the one before it and no other, where it writes.
    `prepare` comes before all other steps.
    """

    stage: str
    out: Operand
    rows: Side
    columns: Side
    batch: tuple[str, ...]
    windows: tuple[str, ...]
    k: str
    deep: bool
    guarded: bool
    padded: bool
    stencil: bool
    extents: tuple[tuple[str, int], ...]
    epilogue: tuple[Elementwise, ...]
    elementwise: bool
    chained: bool
    prepare: tuple[Step, ...] = ()

    def extent(self, *loops: str) -> int:
        """Iterations of `loops` together."""
        known = dict(self.extents)
        return prod([known[loop] for loop in loops])

    @property
    def fusable(self) -> bool:
        """Whether the epilogue can run where what it follows is complete."""
        return self.elementwise and self.chained

    def swapped(self) -> Convolution:
        """The same with the sides exchanged."""
        return replace(self, rows=self.columns, columns=self.rows)

    def merged(self) -> Convolution | None:
        """The same with groups and the channels of a group as one column axis; None where they are not apart
        by the channels of a group."""
        if self.stencil or self.prepare or len(self.columns.loops) > 1:
            return None
        o, b = self.columns.inner, self.columns.operand
        names = [name for name, _ in self.extents]
        for g in self.batch:
            near = names.index(o) == names.index(g) + 1 and self.extent(g) > 1
            if near and all(x.stride(g) == self.extent(o) * x.stride(o) for x in (self.out, b)):
                return self._merged(g, o, names.index(g))
        return None

    def _merged(self, g: str, o: str, place: int) -> Convolution:
        both = f"{g}*{o}"
        prepare: list[Step] = [Fuse(g, o)]
        epilogue = []
        for e in self.epilogue:
            first, second = e.loops[place : place + 2]
            prepare.append(Fuse(first[0], second[0]))
            fused = (f"{first[0]}*{second[0]}", first[1] * second[1])
            epilogue.append(Elementwise(e.stage, (*e.loops[:place], fused, *e.loops[place + 2 :])))

        def renamed(x: Operand, step: int) -> Operand:
            kept = [(name, n) for name, n in x.strides if name not in (g, o)]
            return Operand(x.buffer, tuple(sorted([*kept, (both, step)])))

        a, b = self.rows, self.columns
        return replace(
            self,
            out=renamed(self.out, self.out.stride(o)),
            rows=replace(a, operand=renamed(a.operand, max(1, a.operand.stride(g) // self.extent(o)))),
            columns=replace(b, operand=renamed(b.operand, b.operand.stride(o)), loops=(both,)),
            batch=tuple([x for x in self.batch if x != g]),
            extents=(*self.extents, (both, self.extent(g, o))),
            epilogue=tuple(epilogue),
            # The loop of both is an index of its own only where both are in one index of the result.
            elementwise=not self.elementwise,
            prepare=tuple(prepare),
        )

    def product(self) -> Contraction:
        """Its innermost axes as a product, for what is asked of every product."""
        return Contraction(
            self.stage, self.out, self.rows.operand, self.columns.operand, self.batch, self.rows.inner,
            self.columns.inner, self.k, self.extents, self.epilogue, self.fusable,
        )  # fmt: skip


def read(value: Expr, identity: float) -> Read | None:
    """The single read that `value` is, under the condition that picks it over `identity`."""
    match value:
        case Op("where", (cond, picked, Const(other)), _) if other == identity:
            inner = read(picked, identity)
            return (
                None if inner is None or inner.inside is not None else Read(inner.load, cond, identity == 0)
            )
        case Cast(inside, _):
            return read(inside, identity)
        case Load():
            return Read(value)
    return None


def factors(value: Expr) -> tuple[Read, Read] | None:
    """The two reads whose product `value` is."""
    match value:
        case Op("where", (cond, Op("mul", _, _) as inside, Const(0)), _):
            pair = factors(inside)
            return None if pair is None else (Read(pair[0].load, cond, False), pair[1])
        case Op("mul", (x, y), _):
            left, right = read(x, 0), read(y, 0)
            return None if left is None or right is None else (left, right)
    return None


@lru_cache(maxsize=256)
def convolution(program: Program) -> Convolution | None:
    """What `program` starts with, if only elementwise stages follow; None for other programs."""
    stages = list(nests(program.body))
    if not stages or any(not isinstance(s, Store) for _, s in stages[1:]):
        return None
    around, update = stages[0]
    if not isinstance(update, Update) or len(update.targets) > 1:
        return None
    known = buffers(program)
    target = known[update.targets[0]]
    identity = COMBINERS[update.combiner].identity((target.dtype,))[0].value
    found = factors(update.values[0]) if update.combiner == "sum" else None
    one = read(update.values[0], identity)
    reads = found or ((one,) if one else ())
    if not reads or len({r.load.buffer for r in reads}) < len(reads):
        return None
    operands = [_operand(known, target.name, update.indices)]
    operands += [_operand(known, r.load.buffer, r.load.indices) for r in reads]
    plain = [o for o in operands if o is not None]
    if len(plain) < len(operands):
        return None
    loops = _Loops(around, update, reads, plain)
    sides = loops.product() if len(reads) == 2 else None
    sides, stencil = (sides, False) if sides else (loops.stencil(), True)
    if sides is None or not loops.summed:
        return None
    epilogue = tuple([Elementwise(s.buffer, _loops(fs)) for fs, s in stages[1:] if isinstance(s, Store)])
    own = all(at_own_loops(s, known) for _, s in stages[1:])
    return loops.problem(sides, stencil, epilogue, own, chained(update, [s for _, s in stages[1:]], known))


def _operand(known: dict[str, Buffer], name: str, indices: tuple[Expr, ...]) -> Operand | None:
    strides = strides_of(known[name], indices)
    return None if strides is None else Operand(known[name], strides)


def _loops(around: tuple[For, ...]) -> tuple[tuple[str, int], ...]:
    return tuple([(f.var, f.extent) for f in around])


class _Loops:
    """The loops of a reduction by their roles. `operands` are the result and what each of `reads` reads."""

    def __init__(
        self, around: tuple[For, ...], update: Update, reads: tuple[Read, ...], operands: list[Operand]
    ) -> None:
        self.around, self.reads, self.operands = around, reads, operands
        self.used = [{name for name, _ in o.strides} for o in operands]
        self.spatial = [f for f in around if f.var not in update.axes]
        self.wide = [f.var for f in self.spatial if f.extent > 1]
        self.summed = [f.var for f in around if f.var in update.axes]
        # A loop that moves both operands is a group: what shares an index with it does not slide.
        self.own = [v for v in self.wide if len(reads) == 1 or not (v in self.used[1] and v in self.used[2])]
        self.moved = [[_names(i) for i in r.load.indices] for r in reads]

    def slides(self, read: int, loop: str) -> bool:
        """Whether `loop` moves an index of a read together with a loop of the other kind."""
        others = set(self.own if loop in self.summed else self.summed)
        return any(loop in names and names & others for names in self.moved[read])

    def _side(self, read: int, loops: list[str]) -> Side:
        return Side(self.operands[1 + read], tuple(loops), any(self.slides(read, v) for v in self.summed))

    def product(self) -> tuple[Side, Side] | None:
        """Rows of the first operand, columns of the second."""
        sides = []
        for own in (1, 2):
            alone = self.used[own] - self.used[3 - own]
            units = [f.var for f in self.spatial if f.extent == 1 and f.var in alone]
            sides.append([v for v in self.wide if v in alone] or units[-1:])
        if not all(sides) or set(self.wide) - self.used[0]:
            return None
        if all(self.slides(1, v) or not self.slides(0, v) for v in self.summed) and any(
            self.slides(1, v) for v in self.summed
        ):
            return self._side(1, sides[1]), self._side(0, sides[0])
        return self._side(0, sides[0]), self._side(1, sides[1])

    def stencil(self) -> tuple[Side, Side] | None:
        """Rows of the operand under the windows; the contiguous axis of the result as the column axis."""
        under = [n for n in range(len(self.reads)) if any(self.slides(n, v) for v in self.summed)]
        if len(under) != 1 or set(self.wide) - self.used[0] or not self.wide:
            return None
        lane = next((v for v in self.wide if self.operands[0].stride(v) == 1), self.wide[-1])
        rest = [v for v in self.wide if v != lane] or [f.var for f in self.spatial if f.extent == 1][-1:]
        if not rest:
            return None
        rest.sort(key=lambda v: self.slides(under[0], v))
        other = [o for n, o in enumerate(self.operands[1:]) if n != under[0]]
        held = other[0] if other else Operand(self.operands[0].buffer, ())
        return self._side(under[0], rest), Side(held, (lane,), False)

    def problem(
        self,
        sides: tuple[Side, Side],
        stencil: bool,
        epilogue: tuple[Elementwise, ...],
        elementwise: bool,
        chained: bool,
    ) -> Convolution:
        """The problem with these sides."""
        slid = [v for v in self.summed if any(self.slides(n, v) for n in range(len(self.reads)))]
        plain = [v for v in self.summed if v not in slid]
        k = plain[-1] if plain and not stencil else self.summed[-1]
        inside = (*sides[0].loops, *sides[1].loops)
        guards = [r for r in self.reads if r.inside is not None]
        return Convolution(
            stage=self.operands[0].buffer.name,
            out=self.operands[0],
            rows=sides[0],
            columns=sides[1],
            batch=tuple([f.var for f in self.spatial if f.var not in inside]),
            windows=tuple([v for v in self.summed if v != k]),
            k=k,
            deep=k not in slid,
            guarded=bool(guards),
            padded=all(r.padded for r in guards),
            stencil=stencil,
            extents=_loops(self.around),
            epilogue=epilogue,
            elementwise=elementwise,
            chained=chained,
        )


def _names(index: Expr) -> frozenset[str]:
    form = affine(index)
    return frozenset() if form is None else form.names
