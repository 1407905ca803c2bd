"""Where temporaries can live: registers where every index is known, the stack where there is room."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from ..ir.affine import Affine, affine
from ..ir.exprs import Expr
from ..ir.nodes import NOTHING, Alloc, Block, Buffer, For, If, Prefetch, Stmt, Store, Update
from ..ir.walk import rewrap, statements, writes
from .nests import is_read, loads_in

# Bytes on the stack, as threads may have little: of one buffer, and of all that are alive at once.
STACK_BUFFER, STACK_TOTAL = 4096, 32768
# Temporaries of at most this size become registers where every place in them is known when compiling.
_REGISTER_BYTES = 512
# Elements that are worth holding in registers; a spilled register is worse than an array.
_REGISTER_SLOTS = 512


@dataclass(frozen=True, slots=True)
class Layout:
    """How a register buffer is cut into vectors: `lanes` elements each, `stride` apart (1 lane: scalars)."""

    lanes: int
    stride: int

    def slot(self, offset: int) -> tuple[int, int]:
        """(offset of the first lane, lane) of an element."""
        whole, part = divmod(offset, self.lanes * self.stride)
        return whole * self.lanes * self.stride + part % self.stride, part // self.stride

    def slots(self, size: int) -> list[int]:
        """Offsets of the first lanes of all vectors of a buffer of `size` elements, in order."""
        step = self.lanes * self.stride
        starts = range(0, size, step)
        return [first for at in starts for first in range(at, min(at + self.stride, size))]


def place(stmt: Stmt, room: int = STACK_TOTAL) -> Stmt:
    """`stmt` with dead temporaries gone and the others in the fastest memory that can hold them."""
    match stmt:
        case Alloc(buffer, body):
            if not is_read(body, buffer.name) and not _is_part(body, buffer.name):
                return place(without_writes(body, buffer.name), room)
            buffer = _placed(buffer, body, room)
            if buffer.memory == "stack":
                room -= buffer.size * buffer.dtype.bytes
            return Alloc(buffer, place(body, room))
        case For():
            body = place(stmt.body, room)
            return NOTHING if body == NOTHING else rewrap(stmt, body)
        case If(cond, then, other):
            return If(cond, place(then, room), None if other is None else place(other, room))
        case Block(stmts):
            new = [s for s in [place(s, room) for s in stmts] if s != NOTHING]
            return NOTHING if not new else new[0] if len(new) == 1 else Block(tuple(new))
    return stmt


def _is_part(stmt: Stmt, name: str) -> bool:
    """Whether a reduction over tuples has `name` among its targets: it compares with what is there."""
    return any(isinstance(s, Update) and name in s.targets and len(s.targets) > 1 for s in statements(stmt))


def without_writes(stmt: Stmt, name: str) -> Stmt:
    """`stmt` without the statements that only write buffer `name`."""
    match stmt:
        case Store(buffer=b) | Prefetch(buffer=b) if b == name:
            return NOTHING
        case Update(targets=targets) if set(targets) == {name}:
            return NOTHING
        case For() | Alloc():
            body = without_writes(stmt.body, name)
            return NOTHING if body == NOTHING else rewrap(stmt, body)
        case If(cond, then, other):
            left = without_writes(then, name)
            right = None if other is None else without_writes(other, name)
            return NOTHING if left == NOTHING and right in (None, NOTHING) else If(cond, left, right)
        case Block(stmts):
            new = [s for s in [without_writes(s, name) for s in stmts] if s != NOTHING]
            return NOTHING if not new else new[0] if len(new) == 1 else Block(tuple(new))
    return stmt


def _placed(buffer: Buffer, body: Stmt, room: int) -> Buffer:
    if buffer.memory == "register" and register_layout(buffer, body) is not None:
        return buffer
    small = buffer.size * buffer.dtype.bytes <= _REGISTER_BYTES
    if buffer.memory in ("heap", "stack") and small:
        private = replace(buffer, memory="register")
        if register_layout(private, body) is not None:
            return private
    if buffer.memory in ("register", "stack"):
        size = buffer.size * buffer.dtype.bytes
        return replace(buffer, memory="stack" if size <= min(STACK_BUFFER, room) else "heap")
    return buffer


def register_layout(buffer: Buffer, body: Stmt) -> Layout | None:
    """How `buffer` maps to SSA values under `body`; None where some access is not known when compiling."""
    if buffer.size > _REGISTER_SLOTS * 16:
        return None
    found: list[_Access] = []
    if not _accesses(body, buffer, {}, None, found):
        return None
    shapes = {(a.lanes, a.step) for a in found if a.lanes > 1}
    turned = _turned(buffer, found, shapes)
    lanes, step = (turned, 1) if turned else shapes.pop() if len(shapes) == 1 else (1, 1)
    layout = Layout(lanes, step)
    if (len(shapes) > 1 and not turned) or buffer.size > _REGISTER_SLOTS * lanes:
        return None
    along = [a for a in found if a.lanes > 1 and a.step == step]
    return layout if all(_aligned(a.form, a.extents, layout) for a in along) else None


def _turned(buffer: Buffer, found: list[_Access], shapes: set[tuple[int, int]]) -> int:
    """The size of the square tiles that are written row by row and read column by column; 0 for none."""
    n = min([lanes for lanes, _ in shapes], default=0)
    if shapes != {(n, 1), (n, n)} or n & (n - 1) or buffer.size % (n * n):
        return 0
    return 0 if any(a.writes and a.step == n for a in found if a.lanes > 1) else n


@dataclass(frozen=True, slots=True)
class _Access:
    """The offset of lane 0, the lanes and their stride, and the extents of the loops in the offset."""

    form: Affine
    lanes: int
    step: int
    extents: dict[str, int]
    writes: bool


def _aligned(form: Affine, extents: dict[str, int], layout: Layout) -> bool:
    """Whether every vector access at `form` starts at lane 0 of a slot."""
    if layout.stride == 1:
        return form.const % layout.lanes == 0 and all(c % layout.lanes == 0 for _, c in form.terms)
    offsets = (
        form.const + sum(c * i for (_, c), i in zip(form.terms, at, strict=True))
        for at in product(*[range(extents[n]) for n, _ in form.terms])
    )
    return all(layout.slot(o)[1] == 0 for o in offsets)


def flat_offset(indices: tuple[Expr, ...], buffer: Buffer) -> Affine | None:
    """The affine offset, in elements, of an access; None where an index is not affine."""
    total = Affine(0)
    for index, stride in zip(indices, buffer.element_strides, strict=True):
        form = affine(index)
        if form is None:
            return None
        total = total + form.scale(stride)
    return total


def _accesses(
    stmt: Stmt,
    buffer: Buffer,
    fixed: dict[str, int],
    lane: For | None,
    found: list[_Access],
) -> bool:
    """Collect the accesses to `buffer`; False to give up."""
    match stmt:
        case For(kind="unroll"):
            return _accesses(stmt.body, buffer, {**fixed, stmt.var: stmt.extent}, lane, found)
        case For(kind="vectorize"):
            return _accesses(stmt.body, buffer, fixed, stmt, found)
        case For(kind="parallel"):
            return not is_read(stmt, buffer.name) and buffer.name not in writes(stmt)
        case For():
            single = {**fixed, stmt.var: 1} if stmt.extent == 1 and stmt.bound is None else fixed
            return _accesses(stmt.body, buffer, single, lane, found)
        case Alloc(_, body):
            return _accesses(body, buffer, fixed, lane, found)
        case If(cond, then, other):
            # Both sides of a branch inside a vector loop run under masks, in the same layout.
            sides = (then,) if other is None else (then, other)
            return all(_accesses(s, buffer, fixed, lane, found) for s in sides) and all(
                _access(n.indices, buffer, fixed, lane, found) for n in loads_in(cond, buffer.name)
            )
        case Block(stmts):
            return all(_accesses(s, buffer, fixed, lane, found) for s in stmts)
        case Store(name, indices, value):
            own = [indices] if name == buffer.name else []
            values: tuple[Expr, ...] = (*indices, value)
        case Update(targets=targets, indices=indices):
            own = [indices] if buffer.name in targets else []
            values = (*indices, *stmt.values)
        case Prefetch(name, indices, _):
            return name != buffer.name
    read = [n.indices for v in values for n in loads_in(v, buffer.name)]
    return all(_access(at, buffer, fixed, lane, found, True) for at in own) and all(
        _access(at, buffer, fixed, lane, found) for at in read
    )


def _access(
    indices: tuple[Expr, ...],
    buffer: Buffer,
    fixed: dict[str, int],
    lane: For | None,
    found: list[_Access],
    writes: bool = False,
) -> bool:
    form = flat_offset(indices, buffer)
    if form is None:
        return False
    step, lanes = 0, 1
    if lane is not None:
        step = form.coefficient(lane.var)
        form = Affine(form.const, tuple([t for t in form.terms if t[0] != lane.var]))
    if step < 0 or any(n not in fixed for n, _ in form.terms):
        return False
    if step and lane is not None:
        lanes = lane.extent
    found.append(_Access(form, lanes, max(step, 1), fixed, writes))
    return True
