"""The loop-nest IR: buffers, statements and programs, frozen nodes and nothing else.

A program is a nest of loops over buffers. Expressions (`exprs.py`) are values; statements write buffers.
`interpret.py` says what they mean, `printer.py` prints them.

    program matmul(A: f32[4, 6], B: f32[6, 5]) -> (C: f32[4, 5])
    for i in 4:
      for j in 5:
        for k in 6:
          C[i, j] (k)+= A[i, k] * B[k, j]        # starts from the identity of the sum where k == 0

Primitives keep every extent a constant; lowering adds run-time bounds (`For.bound`) and two-sided `If`s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .dtypes import DType
from .exprs import Expr

Memory = Literal["array", "heap", "stack", "register", "shared"]
LoopKind = Literal[
    "serial", "parallel", "vectorize", "unroll",
    "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread",
    "tensor", "warpgroup",
]  # fmt: skip


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a C-contiguous array; an empty axis counts as one of extent 1."""
    out, step = [], 1
    for extent in reversed(shape):
        out.append(step)
        step *= max(extent, 1)
    return tuple(reversed(out))


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage with a shape. `strides` are in elements; None means row-major (C-contiguous).

    `memory`: "array" is a parameter of the program; "heap" lives in the kernel's workspace; "stack" and
    "register" are private to one iteration of the loops around their Alloc; "shared" belongs to the threads
    of one GPU block. `stages` above 1 lets a backend keep so many copies, to fill the next ones while one is
    used; it means nothing. Nor does `swizzle`, (period, ways, step): a backend may keep the element at offset
    x at x ^ x // period % ways * step.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    memory: Memory = "array"
    strides: tuple[int, ...] | None = None
    stages: int = 1
    swizzle: tuple[int, int, int] | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Strides in elements, row-major where none are given."""
        return row_major(self.shape) if self.strides is None else self.strides


@dataclass(frozen=True, slots=True)
class For:
    """for var in range(extent): body.

    `kind` says how the iterations may run, never which there are: one after the other ("serial"; "unroll" as
    copies of the body; "tensor" and "warpgroup" as part of a matrix instruction of a warp or of four), on
    threads ("parallel"), as the lanes of vectors ("vectorize"), on a GPU's blocks and threads. All but the
    first four promise that no iteration
    touches what another one writes, except that an Update may reduce over its own vectorize or threadIdx
    loop. `unroll` asks the backend to repeat the body that many times in each step of a serial loop (with a
    remainder loop). `bound` (lowering only) is a run-time limit: the loop runs while var < min(extent,
    bound).
    """

    var: str
    extent: int
    body: Stmt
    kind: LoopKind = "serial"
    unroll: int = 1
    bound: Expr | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Statements in order."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If:
    """if cond: then, else other. Primitives make only one-sided guards; lowering makes both sides."""

    cond: Expr
    then: Stmt
    other: Stmt | None = None


@dataclass(frozen=True, slots=True)
class Alloc:
    """A temporary that lives for one run of `body`. Its contents start undefined."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[indices] = value."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Update:
    """targets[indices] = combiner(targets[indices], values): one step of a reduction.

    `targets` are one buffer for each part of the combiner's tuple (one for a plain sum), all under the same
    `indices`. `axes` names the loops around it over which it reduces. Where `init` is true and every one of
    `axes` is 0, the targets are first set to the combiner's identity.
    """

    targets: tuple[str, ...]
    indices: tuple[Expr, ...]
    values: tuple[Expr, ...]
    combiner: str
    axes: tuple[str, ...]
    init: bool = True


@dataclass(frozen=True, slots=True)
class Prefetch:
    """A hint that buffer[indices] is used soon; without meaning. `locality` 0 (use once) to 3 (keep in L1).

    Indices outside the shape are allowed here.
    """

    buffer: str
    indices: tuple[Expr, ...]
    locality: int = 3


Stmt = For | Block | If | Alloc | Store | Update | Prefetch


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel: parameters in calling order (inputs, then outputs) and a body. Outputs start undefined."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: Stmt

    @property
    def parameters(self) -> tuple[Buffer, ...]:
        return self.inputs + self.outputs

    def __str__(self) -> str:
        from .printer import text

        return text(self)


NOTHING = Block(())


def block(*stmts: Stmt) -> Stmt:
    """Statements in order, flattened; one statement stays itself, none are NOTHING."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Block) else (stmt,))
    return flat[0] if len(flat) == 1 else Block(tuple(flat))
