"""Loops whose shared buffers have several copies: the next ones are filled while the present one is used.

    for k: A_s = A[k]; use A_s     ->     pipeline for k: fill A_s of iteration k + stages - 1; use A_s of k

Only the order in which memory is filled changes. Where a buffer is filled by more than plain copies, by
copies that scatter what is read together, or where the machine has no asynchronous ones, values wait in
registers while the present copy is used.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.exprs import Expr, Load, Var
from ..ir.names import fresh
from ..ir.nodes import Block, Buffer, For, If, Stmt, Store, block
from ..ir.walk import reads, rewrap, statements, substitute_in, writes
from .gpu_build import Build, all_nodes
from .gpu_tree import Branch, Collective, Loop, Nest, Node, Pipeline, Place
from .gpu_vectors import all_copies, narrow

MOST_HELD = 64
"""Elements that a thread may hold in registers between reading and storing them."""


def pipelined(
    nodes: tuple[Node, ...], build: Build, places: dict[str, Place], sources: dict[str, Buffer], copies: bool
) -> tuple[Node, ...]:
    """`nodes` with pipelines in place of loops that fill buffers of several stages; extends `places`.

    sources: the buffers in global memory. copies: whether the machine copies asynchronously.
    """
    out: list[Node] = []
    for node in nodes:
        match node:
            case Loop(loop, body):
                body = pipelined(body, build, places, sources, copies)
                out.append(_pipeline(loop, body, build, places, sources, copies) or Loop(loop, body))
            case Branch(cond, then, other):
                sides = [pipelined(s, build, places, sources, copies) for s in (then, other)]
                out.append(Branch(cond, sides[0], sides[1]))
            case _:
                out.append(node)
    return tuple(out)


def _pipeline(
    loop: For,
    body: tuple[Node, ...],
    build: Build,
    places: dict[str, Place],
    sources: dict[str, Buffer],
    copies: bool,
) -> Pipeline | None:
    staged = {
        name: place.buffer
        for name, place in places.items()
        if place.memory == "shared" and place.buffer.stages > 1 and build.homes.get(name) == loop.var
    }
    if not staged or loop.kind != "serial" or loop.extent < 2:
        return None
    count = 0
    while count < len(body) and _is_fill(body[count], frozenset(staged)):
        count += 1
    fills, rest = body[:count], body[count:]
    written = frozenset().union(*map(_writes, body))
    if any(_writes(n) & staged.keys() for n in rest) or any(_reads(n) & written for n in fills):
        return None
    ahead = f"{loop.var}.ahead"
    moved = [_moved(n, loop.var, ahead) for n in fills]
    known = {**sources, **{name: place.buffer for name, place in places.items()}}
    by_copies = [n for n in moved if copies and _by_copies(n, known, frozenset(sources))]
    rest_of_fills = [n for n in moved if n not in by_copies]
    if not all(_simple(s) for n in rest_of_fills for s in _statements(n)):
        return None
    held: dict[str, Buffer] = {}
    pairs = [_halves(n, (), known, held) for n in rest_of_fills]
    if sum(b.size for b in held.values()) > MOST_HELD:
        return None
    for name, buffer in held.items():
        places[name] = Place(buffer, "private", tuple(range(len(buffer.shape))))
    early, late = (tuple([p[side] for p in pairs]) for side in (0, 1))
    stages = max(b.stages for b in staged.values())
    return Pipeline(loop, ahead, stages, tuple(staged), tuple(by_copies), early, rest, late)


def _by_copies(node: Node, known: dict[str, Buffer], sources: frozenset[str]) -> bool:
    """Whether a fill is asynchronous copies that are as wide as what a thread could read at once."""
    bodies = [n.body for n in all_nodes((node,)) if isinstance(n, Nest)]
    return all(all_copies(b, known, sources) and not narrow(b, known, sources) for b in bodies)


def _statements(node: Node) -> list[Stmt]:
    return [s for n in all_nodes((node,)) if isinstance(n, Nest) for s in statements(n.body)]


def _is_fill(node: Node, staged: frozenset[str]) -> bool:
    """Whether a nest, or a loop around nests alone, writes nothing but the buffers `staged`."""
    if isinstance(node, Loop):
        return node.loop.bound is None and all(_is_fill(n, staged) for n in node.body)
    return isinstance(node, Nest) and bool(writes(node.body)) and writes(node.body) <= staged


def _moved(node: Node, var: str, ahead: str) -> Node:
    """A fill of the iteration `ahead`."""
    if isinstance(node, Loop):
        return Loop(node.loop, tuple([_moved(n, var, ahead) for n in node.body]))
    assert isinstance(node, Nest)
    return Nest(node.threads, substitute_in(node.body, {var: Var(ahead)}))


def _writes(node: Node) -> frozenset[str]:
    found = [writes(n.body) for n in all_nodes((node,)) if isinstance(n, Nest)]
    found += [frozenset(n.update.targets) for n in all_nodes((node,)) if isinstance(n, Collective)]
    return frozenset().union(*found)


def _reads(node: Node) -> frozenset[str]:
    return frozenset().union(*[reads(n.body) for n in all_nodes((node,)) if isinstance(n, Nest)])


def _halves(
    node: Node, loops: tuple[For, ...], known: dict[str, Buffer], held: dict[str, Buffer]
) -> tuple[Node, Node]:
    """A fill that keeps what it would store in registers, and one that stores it; extends `held`."""
    if isinstance(node, Loop):
        whole = replace(node.loop, kind="unroll", unroll=1)
        pairs = [_halves(n, (*loops, whole), known, held) for n in node.body]
        return Loop(whole, tuple([p[0] for p in pairs])), Loop(whole, tuple([p[1] for p in pairs]))
    assert isinstance(node, Nest)
    first, second = _split(node.body, loops, known, held)
    return Nest(node.threads, first), Nest(node.threads, second)


def _simple(stmt: Stmt) -> bool:
    """Whether a statement of a fill can be taken apart: loops, guards and stores."""
    return isinstance(stmt, For | Block | Store) or (isinstance(stmt, If) and stmt.other is None)


def _split(
    stmt: Stmt, loops: tuple[For, ...], known: dict[str, Buffer], held: dict[str, Buffer]
) -> tuple[Stmt, Stmt]:
    match stmt:
        case For(kind=kind):
            whole = stmt if kind == "vectorize" else replace(stmt, kind="unroll", unroll=1, bound=None)
            first, second = _split(stmt.body, (*loops, whole), known, held)
            if stmt.bound is not None:
                inside = Var(stmt.var) < stmt.bound
                first, second = If(inside, first), If(inside, second)
            return rewrap(whole, first), rewrap(whole, second)
        case If(cond, then, _):
            first, second = _split(then, loops, known, held)
            return If(cond, first), If(cond, second)
        case Block(stmts):
            pairs = [_split(s, loops, known, held) for s in stmts]
            return block(*[p[0] for p in pairs]), block(*[p[1] for p in pairs])
        case Store(buffer, indices, value):
            name = fresh(f"{buffer}_next", {**known, **held})
            shape = tuple([x.extent for x in loops])
            held[name] = Buffer(name, shape, known[buffer].dtype, "register")
            at: tuple[Expr, ...] = tuple([Var(x.var) for x in loops])
            return Store(name, at, value), Store(buffer, indices, Load(name, at, held[name].dtype))
    raise TypeError(f"not a part of a fill: {stmt!r}")
