"""The part of the space of products for matrix instructions: warps multiply 16 x 8 results at a time.

Both operands go through shared memory as they lie, so that the eight rows of a matrix fall on different
banks: rows are moved apart, or their pieces change places. A warp has several such results along both sides
and loads each matrix once for all of them.
"""

from __future__ import annotations

from math import gcd

from ...lower.gpu import architecture
from ..choice import Ask, Option, question
from ..contraction_choices import Facts, ceil, percent, waste
from . import product_choices as ask
from . import staging, tiling
from .banks import SWAPPED, Matrix
from .limits import BASE_REGISTERS, GRID_YZ, Cost, block_facts, fits, grid_facts, roomy
from .product_choices import Figures, along_k, longest_vector
from .product_steps import Cut, Plan, part_of

ROWS, COLUMNS, DEPTH = 16, 8, 16
"""Results of one instruction and steps of k, for factors of 16 bits."""
APART = 8
"""Elements by which rows are moved apart: one piece."""
FIRST = 80
"""The first architecture with these instructions for bf16 and f16."""


def offered(f: Figures) -> bool:
    """Whether instructions multiply these operands, and the extents hold one."""
    c = f.c
    left, right = c.rows.operand.buffer.dtype, c.columns.operand.buffer.dtype
    types = left == right and left.name in ("bf16", "f16") and c.out.buffer.dtype.name == "f32"
    inside = c.extent(c.rows.inner) >= ROWS and c.extent(c.columns.inner) >= COLUMNS and f.k >= DEPTH
    # Loops over blocks that are one axis of the grid hide from the instructions what is padding.
    grid = max(tiling.others(f), ceil(f.m, ROWS), ceil(f.n, COLUMNS)) <= GRID_YZ
    plain = grid and not f.joined and (tiling.others(f) == 1 or f.k <= ask.LONGEST)
    return types and inside and plain and c.deep and not c.guarded and architecture(f.target) >= FIRST


def cost(
    f: Figures, tile: tuple[int, int], warp: tuple[int, int], deep: int = DEPTH, way: int | str = APART
) -> Cost:
    """What a block takes whose warps have `warp` instructions along each side; `way`: how rows of the copies
    lie."""
    warps = tile[0] // (ROWS * warp[0]) * (tile[1] // (COLUMNS * warp[1]))
    registers = BASE_REGISTERS + 8 + 4 * warp[0] * warp[1] + 4 * warp[0] + 2 * warp[1]
    held = sum([size // m.pitch * m.stride(way) for m, size in copies(f, tile, deep)])
    return Cost(f.target.warp * warps, 2 * held, registers)


def copies(f: Figures, tile: tuple[int, int], deep: int) -> list[tuple[Matrix, int]]:
    """Both copies in shared memory, with their elements: rows run as those of the operands do."""
    sides = (f.c.rows, f.c.columns)
    pitches = [deep if along_k(f.c, side) else tile[n] for n, side in enumerate(sides)]
    return [(Matrix(pitch), tile[n] * deep) for n, pitch in enumerate(pitches)]


def deals(f: Figures, tile: tuple[int, int]) -> list[tuple[int, int]]:
    """Instructions of a warp along each side that a block with this tile can have."""
    sizes = (1, 2, 4, 8)
    found = [(a, b) for a in sizes for b in sizes if tile[0] % (ROWS * a) == 0 == tile[1] % (COLUMNS * b)]
    found = [x for x in found if fits(cost(f, tile, x), f.target)]
    return [x for x in found if roomy(cost(f, tile, x), f.target)] or found


def _cheapest(f: Figures, tile: tuple[int, int]) -> Cost | None:
    """What a block with this tile takes whose warps have the most instructions."""
    found = deals(f, tile)
    return cost(f, tile, found[-1]) if found else None


@question("thread_m")
def _down(f: Figures, tile: tuple[int, int], blocks: int) -> list[Option]:
    """Instructions of a warp along the rows."""
    return _warp(f, tile, blocks, sorted({a for a, _ in deals(f, tile)}), 0)


@question("thread_n")
def _across(f: Figures, tile: tuple[int, int], blocks: int, down: int) -> list[Option]:
    """Instructions of a warp along the columns."""
    return _warp(f, tile, blocks, sorted({b for a, b in deals(f, tile) if a == down}), down)


def _warp(f: Figures, tile: tuple[int, int], blocks: int, sizes: list[int], down: int) -> list[Option]:
    options = []
    for size in sizes:
        pairs = [(a, b) for a, b in deals(f, tile) if (b == size and a == down if down else a == size)]
        a, b = pairs[-1]
        made = cost(f, tile, (a, b))
        facts: Facts = (("size", size), ("intensity", 2 * a * b / (2 * a + b)), *block_facts(made, f.target))
        options.append(Option(size, facts + grid_facts(blocks, made, f.target)))
    return options


@question("cta_k")
def _deep(f: Figures, tile: tuple[int, int], warp: tuple[int, int], part: int) -> list[Option]:
    """Steps of k that lie in shared memory at a time."""
    options = []
    for n in (16, 32, 64, 128):
        made = cost(f, tile, warp, n)
        if n == DEPTH or (n <= part and fits(made, f.target)):
            facts: Facts = (("size", n), ("trips", ceil(part, n)), ("waste", waste(part, n)))
            facts += (("stride", n * f.bytes(f.c.rows)),)
            options.append(Option(n, facts + block_facts(made, f.target)))
    return options


@question("align")
def _align(f: Figures, tile: tuple[int, int], deep: int, warp: tuple[int, int]) -> list[Option]:
    """Elements by which rows in shared memory are moved apart, or pieces of them that change places: eight
    rows of 16 bytes then lie on all banks."""
    made = [m for m, _ in copies(f, tile, deep)]
    options = []
    ways = (0, APART, *((SWAPPED,) if any(m.swap for m in made) else ()))
    found = {
        way: (100.0 * max(m.ways(way) for m in made), cost(f, tile, warp, deep, way).shared) for way in ways
    }
    for way in staging.apart(found):
        meet, size = found[way]
        facts: Facts = (("conflicts", meet), ("shared", percent(size, f.target.block_shared)))
        options.append(Option(way, (("size", 0 if isinstance(way, str) else way), *facts)))
    return options


@question("turns")
def _turns(f: Figures, body: int, count: int) -> list[Option]:
    """Instructions along k that are written out, each for all results of the warp."""
    counts = [u for u in (1, 2, 4, 8) if u <= count and (u == 1 or body * u <= 256)]
    return [Option(u, (("size", u), ("code", body * u))) for u in counts]


def plan(f: Figures) -> Ask:
    """Answers for a product by matrix instructions."""
    c = f.c
    t = yield from tiling.of_instructions(f, (16, 32, 64, 128, 256), (8, 16, 32, 64, 128, 256), _cheapest)
    tile, blocks = t.shape, t.blocks
    down = yield from _down(f, tile, blocks)
    warp = down, (yield from _across(f, tile, blocks, down))
    slices = yield from ask.slices(f, blocks, t.alone, cost(f, tile, warp))
    deep = yield from _deep(f, tile, warp, ceil(f.k, slices))
    part = part_of(f.k, slices, deep)
    sides = c.rows, c.columns
    longest = (
        longest_vector(f, sides[0], (deep, part), tile[0]),
        longest_vector(f, sides[1], (deep, part), tile[1]),
    )
    made = cost(f, tile, warp, deep)
    width = yield from staging.vector(f, longest, (tile[0] * deep, tile[1] * deep), made.threads)
    copy = [max(1, min(n, width // f.bytes(side))) for n, side in zip(longest, sides, strict=True)]
    way = yield from _align(f, tile, deep, warp)
    waiting = [
        staging.held(f, side, ceil(n * deep, made.threads), v, False)
        for side, n, v in zip(sides, tile, copy, strict=True)
    ]
    ahead = yield from staging.stages(f, ceil(part, deep), cost(f, tile, warp, deep, way), sum(waiting))
    written = yield from _turns(f, warp[0] * warp[1], deep // DEPTH)
    order = yield from ask.raster(f, t.blocks_m, t.blocks_n, tile, t.alone and slices == 1)
    after = yield from ask.epilogue(f, c.fusable)
    apart = 0 if isinstance(way, str) else way
    swaps = [m.swap if way == SWAPPED else None for m, _ in copies(f, tile, deep)]
    m = Cut(tile[0], 1, 2 * warp[0], 1, 8, True, copy[0], along_k(f.c, sides[0]), apart, swaps[0])
    n = Cut(tile[1], 1, 2 * warp[1], 2, 4, True, copy[1], along_k(f.c, sides[1]), apart, swaps[1])
    return Plan(m, n, deep, written, slices, order, ahead, result(f), after == "fused", DEPTH)


def result(f: Figures) -> int:
    """The width of the vectors in which a thread stores its results: two neighbours that are aligned."""
    c, loop = f.c, f.c.columns.inner
    steps = [abs(step) for name, step in c.out.strides if name != loop]
    return 2 if c.out.stride(loop) == 1 and gcd(2, c.extent(loop), *steps) == 2 else 1
