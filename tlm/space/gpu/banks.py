"""How the rows of a copy in shared memory lie, so that the threads of a warp fall on different banks.

Rows are dense (0), or moved apart by some elements, or their pieces of 16 bytes change places (SWAPPED).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...schedule.shared import PIECE

SWAPPED = "swapped"
BANKS, WORD, SECTOR = 32, 4, 32
_LINE = BANKS * WORD // PIECE

Swap = tuple[int, int, int]
"""Rows, ways and stride of `Swizzle`."""


def bank_row(bytes: int) -> int:
    """Elements of one word of every bank."""
    return max(1, BANKS * WORD // bytes)


@dataclass(frozen=True, slots=True)
class Turned:
    """A copy of `deep` rows of `block` elements, stored by columns, `vector` of a column by each thread.

    Neighbouring threads read a sector of global memory along a column, then go on to the next one.
    """

    block: int
    deep: int
    bytes: int
    vector: int

    @property
    def near(self) -> int:
        """Rows that neighbouring threads store to."""
        sector = max(SECTOR // self.bytes, self.vector)
        return sector if self.deep % sector == 0 == sector % self.vector else self.deep

    @property
    def columns(self) -> int:
        """Threads that lie along one column."""
        return max(1, self.near // self.vector)

    @property
    def swap(self) -> Swap | None:
        """How pieces change places: the more threads along a column, the less each moves."""
        ways = min(_LINE, self.columns & -self.columns)
        whole = self.block * self.bytes % (_LINE * PIECE) == 0
        return (self.vector, ways, _LINE // ways) if whole and ways > 1 else None

    def stride(self, way: int | str) -> int:
        """Elements from row to row."""
        apart = 0 if isinstance(way, str) else way
        return self.block + (apart - self.block) % bank_row(self.bytes) if apart else self.block

    def ways(self, way: int | str) -> int:
        """Threads of a warp that store to one bank at a time."""
        places = []
        for lane in range(32):
            row, column = lane % self.columns * self.vector, lane // self.columns
            place = (row * self.stride(way) + column) * self.bytes
            if way == SWAPPED and self.swap is not None:
                rows, ways, stride = self.swap
                place ^= row // rows % ways * stride * PIECE
            places.append(place // WORD)
        return _fullest(places, BANKS)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A copy of rows of `pitch` elements of 2 bytes, of which eight are read at a time, a piece of each."""

    pitch: int

    @property
    def swap(self) -> Swap | None:
        """How pieces change places; None for rows of one piece, which follow each other."""
        ways = min(_LINE, self.pitch * 2 // PIECE)
        return (_LINE // ways, ways, 1) if ways > 1 else None

    def stride(self, way: int | str) -> int:
        """Elements from row to row: an odd number of pieces where they are moved apart."""
        apart = 0 if isinstance(way, str) else way
        return self.pitch + (apart - self.pitch) % (2 * apart) if apart else self.pitch

    def ways(self, way: int | str) -> int:
        """Rows that lie on one bank."""
        places = []
        for row in range(8):
            piece = row * self.stride(way) * 2 // PIECE
            if way == SWAPPED and self.swap is not None:
                rows, ways, stride = self.swap
                piece ^= row // rows % ways * stride
            places.append(piece)
        return _fullest(places, _LINE)


def _fullest(places: Iterable[int], banks: int) -> int:
    """The most different places on one bank."""
    on: dict[int, set[int]] = {}
    for place in places:
        on.setdefault(place % banks, set()).add(place)
    return max(len(found) for found in on.values())
