"""How buffers lie in shared memory: strides and swizzles against bank conflicts, and copies filled ahead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..ir.nodes import Alloc, Block, Buffer, For, Program, Stmt, row_major
from ..ir.paths import Path, find_alloc, loops_on, rebuild, with_body
from ..ir.serialize import MAX_STAGES
from ..ir.walk import buffers, parts, reads, statements, writes
from .base import Rewrite, Step, near

# Padding beyond this many elements a row serves no banks.
MAX_ALIGNMENT = 1024
PIECE = 16
"""Bytes that a thread, an asynchronous copy and a row of a matrix move at once."""
_LINE = 8
"""Pieces that fall on all banks."""


def _shared(step: Step, program: Program, name: str) -> tuple[Path, Alloc]:
    """The path of a shared buffer's Alloc, and it."""
    path = find_alloc(program.body, name)
    if path is None:
        known = [b.name for b in buffers(program).values() if b.memory == "shared"]
        raise step.refuse(program, f"there is no temporary {name!r}", near(name, known, "shared buffers"))
    alloc = path[-1]
    assert isinstance(alloc, Alloc)
    if alloc.buffer.memory != "shared":
        raise step.refuse(program, f"{name} is in {alloc.buffer.memory}, not in shared memory")
    return path, alloc


def _with(program: Program, path: Path, alloc: Alloc, buffer: Buffer) -> Program:
    return with_body(program, rebuild(path, Alloc(buffer, alloc.body)))


@dataclass(frozen=True, slots=True)
class StorageAlign(Step):
    """The stride of dimension `axis` of a shared buffer becomes `offset` more than a multiple of `factor`.

        alloc A_s: f32[32, 32] shared
    ->  alloc A_s: f32[32, 32] shared strides (33, 1)        (axis 0, factor 32, offset 1)

    Columns then lie in different banks. Strides of the dimensions outside of `axis` follow.
    """

    primitive: ClassVar[str] = "storage_align"
    buffer: str
    axis: int
    factor: int
    offset: int

    def plan(self, program: Program) -> Rewrite:
        path, alloc = _shared(self, program, self.buffer)
        axis = self.positive(program, "the axis", self.axis, 0)
        factor = self.positive(program, "the factor", self.factor)
        offset = self.positive(program, "the offset", self.offset, 0)
        old = alloc.buffer
        if axis >= len(old.shape) - 1:
            reason = f"{self.buffer} has {len(old.shape)} dimensions, and the last one is contiguous"
            raise self.refuse(program, reason, f"The axis is 0 to {len(old.shape) - 2}.")
        if factor > MAX_ALIGNMENT or offset >= factor:
            raise self.refuse(
                program, f"the factor is at most {MAX_ALIGNMENT}, and the offset below the factor"
            )
        if old.swizzle is not None:
            legal = "Align first, then swizzle."
            raise self.refuse(program, f"{self.buffer} is swizzled by its strides already", legal)
        if old.strides is not None and old.strides != row_major(old.shape):
            raise self.refuse(program, f"{self.buffer} is aligned already: its strides are {old.strides}")
        strides = list(row_major(old.shape))
        for d in range(axis, -1, -1):
            step = strides[d + 1] * max(old.shape[d + 1], 1)
            strides[d] = step + (offset - step) % factor if d == axis else step
        return lambda: _with(program, path, alloc, replace(old, strides=tuple(strides)))


@dataclass(frozen=True, slots=True)
class Swizzle(Step):
    """Pieces of 16 bytes change places in their row: piece p of row r goes to p ^ r // rows % ways * stride.

        alloc A_s: bf16[128, 64] shared
    ->  alloc A_s: bf16[128, 64] shared swizzle (64, 8, 8)        (axis 0; rows 1, ways 8, stride 1)

    Dimension `axis` steps from row to row. Columns then lie in different banks as they do in padded rows,
    with no bytes in between: pieces stay whole and aligned for vectors, asynchronous copies and matrix loads
    (the XOR layouts of CUTLASS). What the program means stays.
    """

    primitive: ClassVar[str] = "swizzle"
    buffer: str
    axis: int
    rows: int = 1
    ways: int = 8
    stride: int = 1

    def plan(self, program: Program) -> Rewrite:
        path, alloc = _shared(self, program, self.buffer)
        axis = self.positive(program, "the axis", self.axis, 0)
        rows = self.positive(program, "the rows", self.rows)
        ways = self.positive(program, "the ways", self.ways, 2)
        stride = self.positive(program, "the stride", self.stride)
        old = alloc.buffer
        if axis >= len(old.shape) - 1:
            reason = f"{self.buffer} has {len(old.shape)} dimensions, and pieces lie along the last one"
            raise self.refuse(program, reason, f"The axis is 0 to {len(old.shape) - 2}.")
        if ways & (ways - 1) or stride & (stride - 1) or ways * stride > _LINE:
            reason = f"{ways} ways in strides of {stride} pieces are not powers of two within {_LINE} pieces"
            raise self.refuse(program, reason, f"{_LINE} pieces of {PIECE} bytes are all banks.")
        if old.swizzle is not None:
            raise self.refuse(program, f"{self.buffer} is swizzled already: {old.swizzle}")
        each, pitch = PIECE // old.dtype.bytes, old.element_strides[axis]
        if pitch < 1 or pitch % (ways * stride * each) or old.element_strides[-1] != 1:
            reason = f"rows of {self.buffer} are {pitch * old.dtype.bytes} bytes apart"
            legal = f"Pieces change places within {ways * stride * PIECE} bytes, which must divide that."
            raise self.refuse(program, reason, legal)
        made = replace(old, swizzle=(rows * pitch, ways, stride * each))
        return lambda: _with(program, path, alloc, made)


@dataclass(frozen=True, slots=True)
class DoubleBuffer(Step):
    """A shared buffer that a serial loop fills and uses gets `stages` copies: the next are filled meanwhile.

        for k: alloc A_s: f32[8, 128] shared: {A_s = ..; .. = A_s}
    ->  for k: alloc A_s: f32[8, 128] shared stages 2: {A_s = ..; .. = A_s}

    What the program means stays. The loop around the Alloc must fill the buffer before anything else that it
    does, from what it does not write.
    """

    primitive: ClassVar[str] = "double_buffer"
    buffer: str
    stages: int = 2

    def plan(self, program: Program) -> Rewrite:
        path, alloc = _shared(self, program, self.buffer)
        stages = self.positive(program, "the number of stages", self.stages, 2)
        if stages > MAX_STAGES:
            raise self.refuse(program, f"{stages} stages are more than {MAX_STAGES}")
        around = loops_on(path)
        if not around or around[-1].kind != "serial" or around[-1].extent < 2:
            legal = "Stage it at a serial loop of several iterations (cache_read(..., at=that loop))."
            raise self.refuse(program, f"no serial loop makes {self.buffer} anew", legal)
        self._filled_first(program, around[-1])
        return lambda: _with(program, path, alloc, replace(alloc.buffer, stages=stages))

    def _filled_first(self, program: Program, loop: For) -> None:
        """Refuse unless the loop first fills shared buffers, from what it does not write."""
        body = list(_sequence(loop.body))
        made = frozenset([s.buffer.name for s in statements(loop.body) if isinstance(s, Alloc)])
        written = writes(loop.body)
        filling = True
        for stmt in body:
            fills = writes(stmt) <= made and not reads(stmt) & written
            filling = filling and fills
            if not filling and self.buffer in writes(stmt):
                reason = (
                    f"{self.buffer} is filled from what loop {loop.var} writes, or after other work of it"
                )
                raise self.refuse(program, reason, "Only a copy at the head of the loop can run ahead.")


def _sequence(stmt: Stmt) -> list[Stmt]:
    """The statements that run in order in a loop's body, through its allocations."""
    if isinstance(stmt, Alloc | Block):
        return [s for p in parts(stmt) for s in _sequence(p)]
    return [stmt]
