"""From the loop nest of one launch to the tree of what its blocks do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..errors import BackendError
from ..ir.affine import conjuncts
from ..ir.exprs import Expr
from ..ir.nodes import Alloc, Block, Buffer, For, If, Stmt
from ..ir.walk import statements
from .gpu_threads import collective_path
from .gpu_tree import (
    AXES,
    Branch,
    Collective,
    Loop,
    Nest,
    Node,
    Pipeline,
    has_threads,
    is_thread,
    thread_chain,
)

_BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


@dataclass(slots=True)
class Build:
    """The nodes of a kernel, its temporaries that outlive a nest, and the loops whose body makes each."""

    threads: frozenset[str]
    allocs: dict[str, Buffer] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, For] = field(default_factory=dict)
    loops: list[str] = field(default_factory=list)

    def nodes(self, stmt: Stmt) -> tuple[Node, ...]:
        """The nodes of a statement that every thread of the block comes to."""
        match stmt:
            case Block(stmts):
                return tuple([n for s in stmts for n in self.nodes(s)])
            case For() if stmt.kind in _BLOCKS:
                return self._block(stmt)
            case For() if is_thread(stmt):
                return (self._nest(stmt),)
        if not has_threads(stmt) and not any(_is_block(s) for s in statements(stmt)):
            return (Nest((), stmt),)
        match stmt:
            case Alloc(buffer, body):
                if self.allocs.setdefault(buffer.name, buffer) != buffer:
                    raise BackendError(f"two different temporaries are called {buffer.name}")
                if self.loops:
                    self.homes[buffer.name] = self.loops[-1]
                return self.nodes(body)
            case For(body=body):
                self.loops.append(stmt.var)
                inside = self.nodes(body)
                self.loops.pop()
                return (Loop(replace(stmt, body=Block(())), inside),)
            case If(cond, then, other):
                rest = () if other is None else self.nodes(other)
                return (Branch(cond, self.nodes(then), rest),)
        raise TypeError(f"not a statement: {stmt!r}")

    def _block(self, loop: For) -> tuple[Node, ...]:
        taken = self.blocks.get(loop.kind)
        if taken is not None:
            raise BackendError(
                f"loops {taken.var} and {loop.var} of one launch are both bound to {loop.kind}"
            )
        if self.loops:
            raise BackendError(
                f"block loop {loop.var} is inside loop {self.loops[-1]}; block loops go outermost"
            )
        self.blocks[loop.kind] = replace(loop, body=Block(()))
        return self.nodes(loop.body)

    def _nest(self, stmt: Stmt) -> Node:
        chain = thread_chain(stmt)
        assert chain is not None, "thread loops are pushed inward first"
        threads, guards, inside = chain
        kinds = [x.kind for x in threads]
        if len(set(kinds)) < len(kinds):
            listed = ", ".join([f"{x.var} ({x.kind})" for x in threads])
            raise BackendError(f"two nested loops are bound to one thread axis: {listed}")
        heads = tuple([replace(x, body=Block(())) for x in threads])
        found = collective_path(inside, self.threads)
        if found is None:
            for cond in reversed(guards):
                inside = If(cond, inside)
            return Nest(heads, inside)
        path, update = found
        around = [*guards, *[n.cond for n in path if isinstance(n, If)]]
        conds: list[Expr] = [c for cond in around for c in conjuncts(cond)]
        rows = tuple([replace(n, body=Block(())) for n in path if isinstance(n, For)])
        return Collective(heads, rows, tuple(conds), update)


def _is_block(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind in _BLOCKS


def all_nodes(nodes: tuple[Node, ...]) -> list[Node]:
    """Every node, outer ones before what is in them."""
    out: list[Node] = []
    for node in nodes:
        out.append(node)
        match node:
            case Loop(_, body):
                out += all_nodes(body)
            case Branch(_, then, other):
                out += all_nodes(then) + all_nodes(other)
            case Pipeline():
                out += all_nodes((*node.copies, *node.early, *node.body, *node.late))
    return out


def block_shape(nodes: tuple[Node, ...]) -> tuple[int, int, int]:
    """Threads of a block along x, y and z: the largest loop on each."""
    sizes = dict.fromkeys(AXES, 1)
    for node in all_nodes(nodes):
        if isinstance(node, Nest | Collective):
            for loop in node.threads:
                sizes[loop.kind] = max(sizes[loop.kind], loop.extent)  # type: ignore[index]
    x, y, z = (sizes[a] for a in AXES)
    return x, y, z
