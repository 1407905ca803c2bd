"""What a GPU kernel is made of, between loop nests and text: code that all threads of a block walk through.

A block runs a sequence of nodes. Loops and branches are uniform (every thread takes them alike); a Nest is
code that each thread runs on its own, a Collective merges values of many threads, a Barrier waits for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..ir.exprs import Expr
from ..ir.nodes import Buffer, For, If, Stmt, Update
from ..ir.walk import statements

Axis = Literal["threadIdx.x", "threadIdx.y", "threadIdx.z"]
AXES: tuple[Axis, ...] = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
"""The fastest one first: 32 neighbours along it, then along the next, are a warp."""


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """`body`, without thread loops, for the threads of `threads`; axes without a loop run their thread 0."""

    threads: tuple[For, ...]
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """`update` over thread loops: for each of `rows`, the values of many threads are merged into one element.

    `guards`, the same for all threads that merge, say where the element is written.
    """

    threads: tuple[For, ...]
    rows: tuple[For, ...]
    guards: tuple[Expr, ...]
    update: Update


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A uniform loop; `loop` gives its head."""

    loop: For
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A uniform branch."""

    cond: Expr
    then: tuple[Node, ...]
    other: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """A uniform loop whose `buffers` are filled ahead of it, `stages` copies of each in turn.

    The fills are of iteration Var(ahead), `stages - 1` iterations later: `copies` go on by themselves;
    `early` nests read values into registers before the body, which `late` ones store after it. `body` uses
    the buffers of its own iteration.
    """

    loop: For
    ahead: str
    stages: int
    buffers: tuple[str, ...]
    copies: tuple[Node, ...]
    early: tuple[Node, ...]
    body: tuple[Node, ...]
    late: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Barrier:
    """Every thread of the block arrives before any goes on."""


Node = Nest | Collective | Loop | Branch | Pipeline | Barrier


@dataclass(frozen=True, slots=True)
class Place:
    """Where a temporary lives: in shared memory, or in each thread, with the dimensions `kept` (the others
    are the threads)."""

    buffer: Buffer
    memory: Literal["shared", "private"]
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch. `blocks` are its block loops; `parameters` the arrays it uses, in the program's order."""

    name: str
    blocks: tuple[For, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    body: tuple[Node, ...]
    places: dict[str, Place]
    parameters: tuple[Buffer, ...]
    written: frozenset[str]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]


def is_thread(stmt: Stmt) -> bool:
    """Whether `stmt` is a loop over the threads of an axis."""
    return isinstance(stmt, For) and stmt.kind in AXES


def has_threads(stmt: Stmt) -> bool:
    """Whether there is a thread loop in `stmt`."""
    return any(is_thread(s) for s in statements(stmt))


def thread_chain(stmt: Stmt) -> tuple[tuple[For, ...], tuple[Expr, ...], Stmt] | None:
    """(thread loops, guards between them, what is inside) of loops that are perfectly nested; else None."""
    threads: list[For] = []
    guards: list[Expr] = []
    while True:
        match stmt:
            case For() if is_thread(stmt):
                threads.append(stmt)
                stmt = stmt.body
            case If(cond, then, None) if threads and has_threads(then):
                guards.append(cond)
                stmt = then
            case _:
                return None if not threads or has_threads(stmt) else (tuple(threads), tuple(guards), stmt)
