"""The part of the space of products for matrix instructions of warpgroups (wgmma of sm_90a).

Both operands go through shared memory, several stages ahead, in rows of 64 elements whose pieces change
places: what the instructions read by themselves. A block is one or more groups of four warps below each
other, each with 64 rows of the tile and all of its columns, once or twice.
"""

from __future__ import annotations

from ...lower.gpu_descriptor import ROW
from ...schedule.steps import (
    Bind,
    CacheWrite,
    DecomposeReduction,
    Fuse,
    Reorder,
    Split,
    Step,
    TensorizeGroup,
    Unroll,
)
from ...schedule.warpgroup import COLUMNS, DEPTH, ROWS, WARPS
from ..choice import Ask, Option, question
from ..contraction_choices import Facts, ceil
from ..conv_problem import Convolution
from . import product_choices as ask
from . import tiling
from .banks import Matrix
from .launch import fuse
from .limits import BASE_REGISTERS, Cost, block_facts, fits, grid_facts, resident, roomy
from .matrix import offered as matrices
from .matrix import result
from .product_choices import Figures, along_k, longest_vector
from .product_steps import Cut, Inside, Plan, marked, part_of

_PIECE = 8
"""Elements of 16 bytes, in which operands are copied."""
_LANES = (8, 4)
"""Lanes of a warp along the rows and along the columns of an instruction."""


def offered(f: Figures) -> bool:
    """Whether warpgroups multiply these operands: rows of the first one along k, whole pieces of both, and at
    least one step of k, which fills a row of shared memory."""
    c = f.c
    if not f.target.warpgroups or not matrices(f) or c.extent(c.rows.inner) < ROWS or c.extent(c.k) < ROW:
        return False
    pieces = [longest_vector(f, side, (ROW, ROW), ROW) for side in (c.rows, c.columns)]
    return along_k(c, c.rows) and pieces == [_PIECE, _PIECE] and bool(_widths(f))


def _widths(f: Figures) -> list[int]:
    """Columns of an instruction: whole rows of shared memory where these run along the columns."""
    extent, across = f.c.extent(f.c.columns.inner), not along_k(f.c, f.c.columns)
    sizes = (64, 128, 256) if across else (8, 16, 32, 64, 128, 256)
    return [n for n in sizes if n <= extent]


def cost(tile: tuple[int, int], turns: int) -> Cost:
    """What a block takes whose groups have `turns` instructions below each other."""
    registers = BASE_REGISTERS + 8 + turns * tile[1] // 2
    return Cost(32 * WARPS * (tile[0] // (ROWS * turns)), 2 * ROW * sum(tile), registers)


def _turns(f: Figures, tile: tuple[int, int]) -> list[int]:
    """Instructions of a group below each other that a block with this tile can have."""
    found = [n for n in (1, 2) if tile[0] % (ROWS * n) == 0 and fits(cost(tile, n), f.target)]
    return [n for n in found if roomy(cost(tile, n), f.target)] or found


def _cheapest(f: Figures, tile: tuple[int, int]) -> Cost | None:
    """What a block with this tile takes whose groups have one instruction, where that fits."""
    turns = _turns(f, tile)
    return cost(tile, turns[0]) if turns else None


@question("thread_m")
def _down(f: Figures, tile: tuple[int, int], blocks: int) -> list[Option]:
    """Instructions of a warpgroup below each other."""
    options = []
    for n in _turns(f, tile):
        made = cost(tile, n)
        depth = n * ROWS * tile[1] / (n * ROWS + tile[1])
        facts: Facts = (("size", n), ("intensity", depth), *block_facts(made, f.target))
        options.append(Option(n, facts + grid_facts(blocks, made, f.target)))
    return options


@question("stages")
def _ahead(f: Figures, trips: int, made: Cost) -> list[Option]:
    """Copies of what lies in shared memory; bytes that keep no other block away cost nothing."""
    options = []
    for n in (1, 2, 3, 4):
        whole = Cost(made.threads, n * made.shared, made.registers)
        if n > 1 and (n > trips or not fits(whole, f.target)):
            continue
        free = resident(whole, f.target) == resident(made, f.target)
        facts = [(k, v) for k, v in block_facts(whole, f.target) if k != "shared" or not free]
        options.append(Option(n, (("size", n), *facts)))
    return options


def plan(f: Figures) -> Ask:
    """Answers for a product by matrix instructions of warpgroups."""
    c = f.c
    t = yield from tiling.of_instructions(f, (64, 128, 256), _widths(f), _cheapest)
    tile, blocks = t.shape, t.blocks
    turns = yield from _down(f, tile, blocks)
    made = cost(tile, turns)
    slices = yield from ask.slices(f, blocks, t.alone, made)
    part = part_of(f.k, slices, ROW)
    ahead = yield from _ahead(f, ceil(part, ROW), made)
    order = yield from ask.raster(f, t.blocks_m, t.blocks_n, tile, t.alone and slices == 1)
    after = yield from ask.epilogue(f, c.fusable)
    swap, deep = Matrix(ROW).swap, along_k(c, c.columns)
    m = Cut(tile[0], 1, 2 * turns, 1, _LANES[0], True, _PIECE, True, 0, swap)
    n = Cut(tile[1], 1, tile[1] // 4, 2, _LANES[1], True, _PIECE, deep, 0, swap, 0, 0 if deep else ROW)
    return Plan(m, n, ROW, ROW // DEPTH, slices, order, ahead, result(f), after == "fused", DEPTH)


def multiply(out: list[Step], copies: list[Step], c: Convolution, p: Plan, b: Inside) -> None:
    """Warpgroups multiply 64 rows by all columns in each step of 16 along k; a thread has 2 x 2 results of
    each 8 columns (PTX, wgmma.m64nNk16)."""
    loop, across = b.rows.tile[-1][0], b.columns.tile[-1][0]
    out += [Split(loop, 16 * p.m.warps), Split(f"{loop}.1", 16), Split(f"{loop}.1.1", 8), Split(b.k, p.depth)]
    turn, warp, half, row = f"{loop}.0", f"{loop}.1.0", f"{loop}.1.1.0", f"{loop}.1.1.1"
    panels = [f"{across}.0"] if p.n.panel else []
    inner = f"{across}.1" if p.n.panel else across
    out += [Split(inner, COLUMNS), Split(f"{inner}.1", 2)]
    panels.append(f"{inner}.0")
    lane, one = f"{inner}.1.0", f"{inner}.1.1"
    out.append(Reorder((warp, row, lane, f"{b.k}.0", turn, f"{b.k}.1", *panels, half, one)))
    out += [Fuse(*panels)] if len(panels) > 1 else []
    x, eights = fuse(out, ((row, 0), (lane, 0)))[0], "*".join(panels)
    tile, acc = (turn, eights, half, one), f"{b.stage}_acc"
    out += [
        CacheWrite(b.stage, b.at, memory="register", layout=(warp, x, *tile), name=acc),
        DecomposeReduction(acc, b.summed),
        Bind(warp, "threadIdx.y"), Bind(x, "threadIdx.x"), Unroll(turn),
        TensorizeGroup(f"{b.k}.1"), Unroll(f"{b.k}.0"),
        *copies,
    ]  # fmt: skip
    marked(out, c, p, (warp, x), tile, acc)
