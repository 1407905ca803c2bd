"""From a scheduled program to the launches of a GPU, each a tree that the emitter writes as it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import BackendError
from ..ir.dtypes import DType
from ..ir.exprs import Expr, Load, const
from ..ir.nodes import Alloc, Block, Buffer, For, If, Program, Stmt, Store, Update
from ..ir.simplify import simplify_program
from ..ir.walk import free_vars, loops, map_stmt, reads, statements, substitute_in, walk, writes
from ..target import Target
from .gpu_barriers import with_barriers
from .gpu_build import Build, all_nodes, block_shape
from .gpu_collective import crosses
from .gpu_memory import places
from .gpu_pipeline import pipelined
from .gpu_threads import inward, partials
from .gpu_tree import AXES, Branch, Collective, Kernel, Loop, Nest, Node, Pipeline, Place
from .gpu_vectors import lane_guards
from .guards import bounds, hoist
from .initial import explicit_init
from .promote import promote
from .skip import skip_identities

GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
_BLOCK_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
ASYNC_COPIES = 80
"""The first architecture with asynchronous copies to shared memory."""
# Iterations of a loop over registers that are written out.
_MOST_UNROLLED = 64


@dataclass(frozen=True, slots=True)
class Launches:
    """The kernels of a program in running order, and the arrays that only pass values between them."""

    kernels: tuple[Kernel, ...]
    scratch: tuple[Buffer, ...]


def lower_gpu(program: Program, target: Target, copies: bool = True) -> Launches:
    """The launches of a scheduled program: one for each loop nest at its top.

    `copies`: whether memory may be filled by asynchronous copies where the target has them.
    BackendError where a nest cannot be a launch, or is above a limit of the target.
    """
    copies &= architecture(target) >= ASYNC_COPIES
    scratch: list[Buffer] = []
    nests = [n for n in _nests(program.body, scratch) if not _is_empty(n)]
    arrays = {b.name: b for b in (*program.parameters, *scratch)}
    names = [program.name] if len(nests) == 1 else [f"{program.name}_{n}" for n in range(len(nests))]
    kernels = [_kernel(name, nest, arrays, target, copies) for name, nest in zip(names, nests, strict=True)]
    return Launches(tuple(kernels), tuple(scratch))


def architecture(target: Target) -> int:
    """The number of a GPU's architecture: 90 for sm_90 and sm_90a."""
    found = re.fullmatch(r"sm_(\d+)[a-z]?", target.isa)
    if target.kind != "cuda" or found is None:
        raise BackendError(f"the CUDA backend compiles for GPUs such as sm_90, not for {target.isa}")
    return int(found.group(1))


def _nests(stmt: Stmt, scratch: list[Buffer]) -> list[Stmt]:
    """The nests at the top of a program; collects the temporaries around them."""
    match stmt:
        case Block(stmts):
            return [n for s in stmts for n in _nests(s, scratch)]
        case Alloc(buffer, body):
            scratch.append(replace(buffer, memory="heap"))
            return _nests(body, scratch)
    return [stmt]


def _is_empty(stmt: Stmt) -> bool:
    """Whether nothing runs: an outer loop has no iterations."""
    while isinstance(stmt, For | If | Alloc):
        if isinstance(stmt, For) and stmt.extent == 0:
            return True
        if isinstance(stmt, If) and stmt.other is not None:
            return False
        stmt = stmt.then if isinstance(stmt, If) else stmt.body
    return False


def prepared(stmt: Stmt, dtypes: dict[str, DType]) -> Stmt:
    """A nest with explicit starts of reductions, thread loops innermost, and guards where they cost least."""
    stmt = _without_singles(map_stmt(stmt, _plain_kind))
    threads = frozenset([x.var for x in loops(stmt) if x.kind in AXES])
    stmt = partials(inward(stmt, threads), threads, dtypes)
    stmt = skip_identities(explicit_init(stmt, dtypes), dtypes)
    stmt = bounds(hoist(promote(stmt, dtypes)), {})
    return _simple(lane_guards(stmt))


def _plain_kind(stmt: Stmt) -> Stmt:
    # Virtual threads are copies of the code; a parallel loop without a thread axis runs in order.
    if isinstance(stmt, For) and stmt.kind in ("vthread", "parallel"):
        return replace(stmt, kind="unroll" if stmt.kind == "vthread" else "serial")
    return stmt


def _without_singles(stmt: Stmt) -> Stmt:
    """`stmt` without loops of one iteration, and with simple index arithmetic; the loops of an instruction
    say what it is."""
    kept = (*_BLOCK_AXES, "warpgroup")
    found = {x.var for x in loops(stmt) if x.extent == 1 and x.bound is None and x.kind not in kept}
    zeros: dict[str, Expr] = dict.fromkeys(found, const(0))

    def without(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.var in found:
            return s.body
        if isinstance(s, Update):
            return replace(s, axes=tuple([a for a in s.axes if a not in found]))
        return s

    return _simple(map_stmt(substitute_in(stmt, zeros), without) if found else stmt)


def _simple(stmt: Stmt) -> Stmt:
    return simplify_program(Program("nest", (), (), stmt)).body


def _kernel(name: str, nest: Stmt, arrays: Mapping[str, Buffer], target: Target, copies: bool) -> Kernel:
    dtypes = {n: b.dtype for n, b in arrays.items()}
    dtypes.update({s.buffer.name: s.buffer.dtype for s in statements(nest) if isinstance(s, Alloc)})
    stmt = prepared(nest, dtypes)
    build = Build(frozenset([x.var for x in loops(stmt) if x.kind in AXES]))
    nodes = build.nodes(stmt)
    shape = block_shape(nodes)
    x, y, z = (build.blocks[k].extent if k in build.blocks else 1 for k in _BLOCK_AXES)
    grid = (x, y, z)
    _limits(name, grid, shape, target)
    found = places(nodes, build.allocs, shape)
    used = [b for n, b in arrays.items() if n in reads(stmt) | writes(stmt)]
    nodes = pipelined(nodes, build, found, {b.name: b for b in used}, copies)
    nodes = _unrolled(nodes, found)
    written = writes(stmt) & arrays.keys()
    shared = frozenset([n for n, p in found.items() if p.memory == "shared"])
    live = frozenset([a for a, n in zip(AXES, shape, strict=True) if n > 1])
    nodes = with_barriers(
        nodes,
        shared | written,
        frozenset([x.var for x in build.blocks.values()]),
        live,
        _extents(stmt, nodes, shape),
        frozenset([id(n) for n in all_nodes(nodes) if isinstance(n, Collective) and crosses(n, shape)]),
    )
    blocks = tuple(build.blocks.values())
    return Kernel(name, blocks, grid, shape, nodes, found, tuple(used), written)


def _extents(stmt: Stmt, nodes: tuple[Node, ...], shape: tuple[int, int, int]) -> dict[str, int]:
    out = {x.var: x.extent for x in loops(stmt)}
    out.update(zip(AXES, shape, strict=True))
    out.update({n.ahead: n.loop.extent for n in all_nodes(nodes) if isinstance(n, Pipeline)})
    return out


def _limits(name: str, grid: tuple[int, ...], shape: tuple[int, int, int], target: Target) -> None:
    threads = shape[0] * shape[1] * shape[2]
    most = target.block_threads
    if threads > most:
        raise BackendError(
            f"{name}: a block of {shape[0]} x {shape[1]} x {shape[2]} = {threads} threads is above the limit "
            f"of {target.name}, {most}: split a thread loop"
        )
    for what, sizes, limits in (("threadIdx", shape, BLOCK_LIMITS), ("blockIdx", grid, GRID_LIMITS)):
        for axis, size, limit in zip("xyz", sizes, limits, strict=True):
            if size > limit:
                raise BackendError(f"{name}: {size} is above the limit of {what}.{axis}, {limit}")


def _unrolled(nodes: tuple[Node, ...], found: dict[str, Place]) -> tuple[Node, ...]:
    """`nodes` with short loops that index registers written out, so that registers they stay."""
    private = frozenset([n for n, p in found.items() if p.memory == "private"])
    out: list[Node] = []
    for node in nodes:
        match node:
            case Nest(threads, body):
                out.append(Nest(threads, unroll_registers(body, private)))
            case Loop(loop, body):
                out.append(Loop(loop, _unrolled(body, found)))
            case Branch(cond, then, other):
                out.append(Branch(cond, _unrolled(then, found), _unrolled(other, found)))
            case Pipeline():
                early, inside, late = (_unrolled(x, found) for x in (node.early, node.body, node.late))
                out.append(replace(node, early=early, body=inside, late=late))
            case _:
                out.append(node)
    return tuple(out)


def unroll_registers(stmt: Stmt, private: frozenset[str]) -> Stmt:
    """`stmt` with short serial loops that index `private` buffers, or its own, written out."""
    private |= {s.buffer.name for s in statements(stmt) if isinstance(s, Alloc)}

    def unrolled(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind != "serial" or s.bound is not None or s.extent > _MOST_UNROLLED:
            return s
        return replace(s, kind="unroll", unroll=1) if _indexes(s, private) else s

    return map_stmt(stmt, unrolled)


def _indexes(loop: For, private: frozenset[str]) -> bool:
    """Whether the variable of `loop` is in an index of a `private` buffer."""
    found: list[tuple[str, tuple[Expr, ...]]] = []
    for node in walk(loop.body):
        match node:
            case Load(name, indices, _) | Store(name, indices, _):
                found.append((name, indices))
            case Update(targets, indices, _, _, _, _):
                found += [(t, indices) for t in targets]
    return any(n in private and any(loop.var in free_vars(i) for i in indices) for n, indices in found)
