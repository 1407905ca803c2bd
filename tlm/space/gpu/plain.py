"""The GPU space of any program: outer independent loops on blocks and threads, else one thread a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ...ir.nodes import Alloc, Block, For, If, Program, Stmt
from ...ir.paths import extents_of
from ...schedule.access import accesses, conflicts, meet
from ...schedule.steps import Bind, Split, Step, apply
from ...target import Target
from ..choice import Option, Space, question
from ..contraction_choices import ceil
from ..plain import default_steps
from .launch import Loop, fuse, grid
from .limits import Cost, grid_facts


@question("threads")
def threads(extents: tuple[int, ...], target: Target) -> list[Option]:
    """Threads of a block."""
    return thread_options(max(extents), target)


def thread_options(extent: int, target: Target, least: int = 32) -> list[Option]:
    """Threads of a block for `extent` independent pieces of work."""
    options = []
    for size in (32, 64, 128, 256, 512, 1024):
        if size == 32 or (size <= target.block_threads and size < 2 * extent and size >= least):
            facts = grid_facts(ceil(extent, size), Cost(size), target)
            options.append(Option(size, (("size", size), ("threads", size), *facts)))
    return options


def gpu_plain_space(program: Program, target: Target) -> Space:
    """One number of threads for all nests."""
    cuts = default_steps(program)
    found = [free_loops(nest, program) for nest in top(apply(program, cuts).body)]
    sizes = tuple([prod([n for _, n in loops]) for loops in found if loops])
    count = (yield from threads(sizes, target)) if sizes else 1
    return (*cuts, *[step for loops in found if loops for step in bound(loops, count)])


def top(stmt: Stmt) -> Iterator[Stmt]:
    """The nests that become kernels, in running order."""
    match stmt:
        case Alloc(_, body):
            yield from top(body)
        case Block(stmts):
            for s in stmts:
                yield from top(s)
        case _:
            yield stmt


def free_loops(nest: Stmt, program: Program) -> list[Loop]:
    """The outermost loops of a nest, each directly in the one before it, whose iterations are independent."""
    chain: list[For] = []
    while isinstance(nest, For):
        chain.append(nest)
        nest = nest.body
        while isinstance(nest, If) and nest.other is None and isinstance(nest.then, (For, If)):
            nest = nest.then
    if not chain or any(f.extent == 0 or f.kind != "serial" for f in chain):
        return []
    extents = extents_of(chain[0])
    pairs = [meet(a, b, frozenset(), extents) for a, b in conflicts(accesses(chain[0]))]
    free: list[Loop] = []
    for f in chain:
        if any(settled is not None and f.var not in settled for settled in pairs):
            break
        free.append((f.var, f.extent))
    return free


def bound(loops: Sequence[Loop], count: int) -> list[Step]:
    """One iteration of all `loops` a thread."""
    out: list[Step] = []
    whole, extent = fuse(out, loops)
    size = min(count, extent)
    out.append(Split(whole, size))
    launch = grid(out, [(f"{whole}.0", ceil(extent, size))])
    return [*out, *launch.binds(), Bind(f"{whole}.1", "threadIdx.x")]
