"""The space of elementwise and layout programs on a GPU: one stage a kernel, vectors, tiles turned in shared
memory.

Stages with one reader are inlined, as on a CPU. The nest of the largest stage: all loops as one, dealt to
blocks, threads and a few vectors of each thread ("last", along the result; "swapped", along an operand in
another order); or tiles in which an operand is read along its own contiguous axis and stored along that of
the result, through shared memory ("tile").
"""

from __future__ import annotations

from math import gcd, prod

from ...ir.walk import buffers
from ...schedule.steps import CacheRead, Reorder, Split, Step, StorageAlign
from ...target import Target
from ..choice import Ask, Option, Space, question
from ..contraction_choices import Facts, ceil, waste
from ..maps import Maps, elements
from ..maps_space import Figures, inline_stages, orders
from ..problem import nests, strides_of
from ..stages import reads_of
from .banks import bank_row
from .launch import Loop, Threads, grid, spread, spread_grid
from .limits import BASE_REGISTERS, Cost, block_facts, fits, grid_facts
from .plain import thread_options


def gpu_maps_space(m: Maps, target: Target) -> Space:
    """Every schedule of `m` that this space knows, one choice at a time."""
    inlined, m = yield from inline_stages(m, target)
    f = Figures.of(m, target)
    how = yield from form(f)
    out: list[Step] = list(inlined)
    if how == "tile":
        out += yield from _tile(f)
    else:
        out += yield from _flat(f, m.crossed[1] if how == "swapped" else m.along)
    for n, stage in enumerate(m.stages):
        if n != m.main and stage.loops:
            spread_grid(out, stage.loops, 256)
    return tuple(out)


@question("form")
def form(f: Figures) -> list[Option]:
    """Along which axis neighbouring threads lie, and whether an operand is turned in shared memory."""
    return orders(f)


@question("vector")
def vector(f: Figures, along: str, longest: int) -> list[Option]:
    """Elements that a thread reads and stores at a time."""
    options = []
    for size in (1, 2, 4, 8, 16):
        if longest % size == 0:
            facts = (("size", size), ("stride", size * f.m.stage.bytes), ("code", size * f.m.stage.work))
            options.append(Option(size, facts))
    return options


@question("threads")
def threads(f: Figures, work: int) -> list[Option]:
    """Threads of a block."""
    return thread_options(work, f.target)


@question("items")
def items(f: Figures, work: int, count: int, size: int) -> list[Option]:
    """Vectors of each thread: their reads overlap."""
    options = []
    for n in (1, 2, 4, 8):
        cost = Cost(count, 0, BASE_REGISTERS + n * size * ceil(f.m.stage.bytes, 4))
        if n == 1 or (n < 2 * ceil(work, count) and n * size <= 32 and fits(cost, f.target)):
            facts: Facts = (
                ("size", n),
                ("code", n * size * f.m.stage.work),
                ("waste", waste(work, n * count)),
            )
            options.append(Option(n, facts + grid_facts(ceil(work, n * count), cost, f.target)))
    return options


def longest_vector(f: Figures, along: str) -> int:
    """The longest vectors, in elements, that start at multiples of their length in every access that is
    contiguous along `along`."""
    m = f.m
    leaf = list(nests(m.program.body))[m.main][1]
    known, size = buffers(m.program), 16
    places = [(known[m.stage.name], leaf.indices), *((known[r.buffer], r.indices) for r in reads_of(leaf))]
    wide = 0
    for buffer, indices in places:
        steps = strides_of(buffer, indices)
        if steps is None or dict(steps).get(along) != 1:
            continue
        wide = max(wide, buffer.dtype.bytes)
        size = gcd(size, *[abs(step) for loop, step in steps if loop != along])
    return gcd(size, f.extent(along), max(1, 16 // wide)) if wide else 1


def _flat(f: Figures, along: str) -> Ask:
    work = elements(f.m.stage)
    size = yield from vector(f, along, longest_vector(f, along))
    count = yield from threads(f, work // size)
    turns = yield from items(f, work // size, count, size)
    loops = [loop for loop in f.m.stage.loops if loop[0] != along] + [(along, f.extent(along))]
    out: list[Step] = []
    if loops != list(f.m.stage.loops):
        out.append(Reorder(tuple([name for name, _ in loops])))
    spread_grid(out, loops, count, turns, size)
    return out


@question("cta_n")
def _side(f: Figures, extent: int) -> list[Option]:
    sizes = [s for s in (8, 16, 32, 64) if s == 8 or s < 2 * extent]
    return [Option(s, (("size", s), ("trips", ceil(extent, s)), ("waste", waste(extent, s)))) for s in sizes]


@question("cta_m")
def _other(f: Figures, extent: int, beside: int) -> list[Option]:
    options = []
    for s in (8, 16, 32, 64):
        cost = Cost(32, s * (beside + 32) * f.m.stage.bytes)
        if s == 8 or (s < 2 * extent and fits(cost, f.target)):
            facts: Facts = (("size", s), ("trips", ceil(extent, s)), ("waste", waste(extent, s)))
            options.append(Option(s, facts + block_facts(cost, f.target)))
    return options


@question("items")
def _turns(f: Figures, tile: int, blocks: int) -> list[Option]:
    """Elements of a tile that each thread copies."""
    options = []
    for n in (1, 2, 4, 8, 16):
        cost = Cost(ceil(tile, n), tile * f.m.stage.bytes)
        if fits(cost, f.target) and (n == 1 or tile // n >= 32):
            options.append(
                Option(n, (("size", n), *block_facts(cost, f.target), *grid_facts(blocks, cost, f.target)))
            )
    return options


@question("align")
def _align(f: Figures, far: int) -> list[Option]:
    """Elements by which rows of the tile are moved apart, so that a column of it falls on different banks."""
    row = bank_row(f.m.stage.bytes)
    ways = {0: 32 if far % row == 0 else 1 + far % 2, 1: 1}
    return [Option(n, (("size", n), ("conflicts", 100.0 * w))) for n, w in ways.items() if n == 0 or row > 1]


def _tile(f: Figures) -> Ask:
    m = f.m
    buffer, other = m.crossed
    near = min((yield from _side(f, f.extent(m.along))), f.extent(m.along))
    far = min((yield from _other(f, f.extent(other), near)), f.extent(other))
    rest = [loop for loop in m.stage.loops if loop[0] not in (m.along, other)]
    blocks: list[Loop] = [
        *rest,
        (f"{other}.0", ceil(f.extent(other), far)),
        (f"{m.along}.0", ceil(f.extent(m.along), near)),
    ]
    turns = yield from _turns(f, near * far, prod([n for _, n in blocks]))
    apart = yield from _align(f, far)
    dealt = Threads(1, ceil(near * far, turns))
    name, inside = f"{buffer}_tile", (f"{other}.1", f"{m.along}.1")
    out: list[Step] = [Split(m.along, near), Split(other, far)]
    out.append(Reorder((*[loop for loop, _ in blocks], *inside)))
    launch = grid(out, blocks)
    out.append(CacheRead(buffer, launch.inner, memory="shared", layout=inside[::-1], name=name))
    spread(out, [(f"{m.along}.1@{name}", near), (f"{other}.1@{name}", far)], dealt)
    spread(out, [(f"{other}.1", far), (f"{m.along}.1", near)], dealt)
    if apart:
        out.append(StorageAlign(name, 0, bank_row(m.stage.bytes), apart))
    return [*out, *launch.binds()]
