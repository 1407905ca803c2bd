"""Windows that slide over spatial axes: stride, padding and dilation, for convolutions and pools."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ..ir.exprs import Expr, op
from .functions import both

SPATIAL = ("z", "y", "x")
TAPS = ("q", "r", "s")
LETTERS = "DHW"
"""Of loops, of loops over a window, and of layouts: the last ones count."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window of `taps` elements, `dilation` apart, over an axis of `size`, which `low` and `high` pad.

    `holes`: zeros lie between the elements, which are so far apart (the dilation of the input).
    """

    size: int
    taps: int
    stride: int = 1
    dilation: int = 1
    low: int = 0
    high: int = 0
    holes: int = 1

    @property
    def width(self) -> int:
        """Elements from the first to the last tap."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def spread(self) -> int:
        """Elements of the axis with its holes."""
        return max(0, (self.size - 1) * self.holes + 1) if self.size else 0

    @property
    def out(self) -> int:
        """Number of places of the window."""
        return max(0, (self.spread + self.low + self.high - self.width) // self.stride + 1)

    def at(self, place: Expr, tap: Expr | int) -> tuple[Expr, list[Expr]]:
        """The index that a tap reads at a place, and what must hold for it to be inside of the axis."""
        position = place if self.stride == 1 else place * self.stride
        if not isinstance(tap, int):
            position = position + (tap if self.dilation == 1 else tap * self.dilation)
        elif tap:
            position = position + tap * self.dilation
        if self.low:
            position = position - self.low
        conditions: list[Expr] = []
        last = (self.out - 1) * self.stride + (self.taps - 1) * self.dilation - self.low
        if self.low > 0:
            conditions.append(position >= 0)
        if last >= self.spread:
            conditions.append(position < self.spread)
        if self.holes == 1 or not self.size:
            return position, conditions
        conditions.append(op("eq", position % self.holes, (position - position) * 0))
        return position // self.holes, conditions


def _index(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{value} is no integer")
    return operator.index(value)


def integers(name: str, what: str, value: Any, rank: int, least: int) -> tuple[int, ...]:
    """`value` for each of `rank` axes: one integer for all, or one an axis."""
    listed = value if isinstance(value, (tuple, list)) else (value,) * rank
    try:
        found = tuple([_index(v) for v in listed])
    except TypeError:
        found = ()
    if len(found) != rank or any(v < least for v in found):
        raise ArgumentError(
            f"{name}: {what} is an integer of at least {least}, or {rank} of them; got {value!r}"
        )
    return found


def paddings(name: str, padding: Any, windows: Sequence[Window]) -> list[Window]:
    """The windows padded as `padding` says: "VALID", "SAME", "SAME_LOWER", or integers.

    "SAME" gives ceil(size / stride) places, with the odd element of padding at the end ("SAME_LOWER": at the
    start), as in JAX. An integer pads both ends, one integer an axis its ends, one pair an axis each end.
    """
    if isinstance(padding, str):
        named = padding.upper()
        if named not in ("VALID", "SAME", "SAME_LOWER"):
            raise ArgumentError(
                f"{name}: padding is 'SAME', 'SAME_LOWER', 'VALID' or integers, got {padding!r}"
            )
        pairs = [(0, 0) if named == "VALID" else _same(w, named == "SAME_LOWER") for w in windows]
        return [_padded(w, *p) for w, p in zip(windows, pairs, strict=True)]
    listed = padding if isinstance(padding, (tuple, list)) else (padding,) * len(windows)
    try:
        pairs = [
            (_index(p[0]), _index(p[1]))
            if isinstance(p, (tuple, list)) and len(p) == 2
            else (_index(p), _index(p))
            for p in listed
        ]
    except TypeError:
        pairs = []
    if len(pairs) != len(windows) or any(n < 0 for p in pairs for n in p):
        raise ArgumentError(
            f"{name}: padding is 'SAME', 'VALID', an integer of at least 0, or for each of {len(windows)} "
            f"axes an integer or a pair; got {padding!r}"
        )
    return [_padded(w, *p) for w, p in zip(windows, pairs, strict=True)]


def _same(w: Window, lower: bool) -> tuple[int, int]:
    total = max(0, (-(-w.spread // w.stride) - 1) * w.stride + w.width - w.spread)
    small, large = total // 2, total - total // 2
    return (large, small) if lower else (small, large)


def _padded(w: Window, low: int, high: int) -> Window:
    return Window(w.size, w.taps, w.stride, w.dilation, low, high, w.holes)


def fits(name: str, windows: Sequence[Window]) -> None:
    """ArgumentError where a window is wider than its axis with the padding."""
    for w in windows:
        if w.size and w.spread + w.low + w.high < w.width:
            raise ArgumentError(
                f"{name}: a window of {w.taps} elements ({w.width} with dilation) is wider than an axis of "
                f"{w.size} with padding {w.low}, {w.high}"
            )


def reads(
    windows: Sequence[Window], places: Sequence[Expr], taps: Sequence[Expr | int]
) -> tuple[tuple[Expr, ...], Expr | None]:
    """The indices of one tap of all axes, and the condition under which it is inside (None: always)."""
    indices: list[Expr] = []
    conditions: list[Expr] = []
    for w, place, tap in zip(windows, places, taps, strict=True):
        index, inside = w.at(place, tap)
        indices.append(index)
        conditions += inside
    return tuple(indices), both(conditions)


def layout(name: str, given: str, rank: int, batch: str) -> dict[str, int]:
    """Axis of each letter of a layout such as "NHWC" ("NWC" and "NDHWC" for other ranks)."""
    letters = batch + LETTERS[len(LETTERS) - rank :]
    if not isinstance(given, str) or sorted(given) != sorted(letters):
        raise ArgumentError(f"{name}: a layout has the letters {letters} in any order, got {given!r}")
    return {letter: given.index(letter) for letter in given}
