"""The tile of the result that a block computes, and how many blocks there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..choice import Ask, Option, question
from ..contraction_choices import Facts, ceil, waste
from .limits import Cost, grid_facts
from .product_choices import Figures

Cheapest = Callable[[Figures, tuple[int, int]], Cost | None]
"""(figures, rows and columns) -> the least that a block of this tile takes; None where none can have it."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """A block's tile: rows along the inner loop and along the one around it, columns; and the blocks."""

    wide: int
    high: int
    columns: int
    blocks_m: int
    blocks_n: int
    blocks: int

    @property
    def alone(self) -> bool:
        """Whether there are no blocks but those of the tile along the inner loop of each side."""
        return self.blocks == self.blocks_m * self.blocks_n

    @property
    def shape(self) -> tuple[int, int]:
        return self.wide * self.high, self.columns


def others(f: Figures) -> int:
    """Blocks along all loops but the inner one of each side."""
    return f.outer * f.c.extent(*f.c.rows.loops[:-1], *f.c.columns.loops[:-1])


def of_instructions(f: Figures, rows: Sequence[int], columns: Sequence[int], cheapest: Cheapest) -> Ask:
    """The tile for matrix instructions, of these sizes along the inner loop of each side."""
    wide = f.c.extent(f.c.rows.inner), f.c.extent(f.c.columns.inner)
    m = yield from _rows(wide[0], tuple(rows))
    blocks_m = ceil(wide[0], m)
    n = yield from _columns(f, tuple(columns), m, others(f) * blocks_m, cheapest)
    blocks_n = ceil(wide[1], n)
    return Tiling(m, 1, n, blocks_m, blocks_n, others(f) * blocks_m * blocks_n)


@question("cta_m")
def _rows(extent: int, sizes: tuple[int, ...]) -> list[Option]:
    """Rows of a block's tile."""
    return [
        Option(n, (("size", n), ("trips", ceil(extent, n)), ("waste", waste(extent, n))))
        for n in sizes
        if n <= extent
    ]


@question("cta_n")
def _columns(f: Figures, sizes: tuple[int, ...], rows: int, blocks: int, cheapest: Cheapest) -> list[Option]:
    """Columns of a block's tile of so many rows."""
    options, extent = [], f.c.extent(f.c.columns.inner)
    for n in sizes:
        made = cheapest(f, (rows, n)) if n <= extent else None
        if made is not None:
            facts: Facts = (("size", n), ("waste", waste(extent, n)), ("intensity", rows * n / (rows + n)))
            facts += (("threads", made.threads),)
            options.append(Option(n, facts + grid_facts(blocks * ceil(extent, n), made, f.target)))
    return options
