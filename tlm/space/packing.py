"""The loops of a packing copy: they follow how its source lies, not only the panels that it writes."""

from __future__ import annotations

from collections.abc import Sequence

from ..schedule.steps import CacheRead, Reorder, Split, Step, Unroll, Vectorize

ROWS = 8
"""Rows of the source (for instructions of several terms: groups of rows) that are read side by side: each is
a stream of its own and lies in another page."""


def by_rows(name: str, panels: Sequence[str], row: str) -> tuple[str, list[Step]]:
    """The outermost loop of the copy `name`, and the steps to: some rows of all panels, then the next rows.

        for panel: for row: copy a piece of a row
    ->  for row.0: for panel: for row.1 in ROWS: copy a piece of a row

    A panel takes a narrow piece of every row. Panel after panel, each piece lies in another page, often in
    the same set of the cache as the one before; row after row, the source streams.
    """
    row = f"{row}@{name}"
    inside = [f"{x}@{name}" for x in panels]
    return f"{row}.0", [Split(row, ROWS), Reorder((f"{row}.0", *inside, f"{row}.1"))]


def turned(
    source: str, name: str, *, outer: Sequence[str], side: Sequence[str], row: str, lane: str, lanes: int
) -> list[Step]:
    """The copy `name` of a `source` that is contiguous along `row`, where its panels are along `lane`.

        for outer: for row: for side: for lane in lanes: copy
    ->  for outer: for side: for row.0: {tile = lanes x lanes of it; for row.1 in lanes: copy a column}

    Vectors are read along the source and turned in registers.
    """
    tile, row, lane = f"{name}_turn", f"{row}@{name}", f"{lane}@{name}"
    outside = [f"{x}@{name}" for x in (*outer, *side)]
    return [
        Split(row, lanes),
        Reorder((*outside, f"{row}.0", f"{row}.1", lane)),
        CacheRead(source, f"{row}.0", memory="register", layout=(lane, f"{row}.1"), name=tile),
        Unroll(f"{lane}@{tile}"),
        Vectorize(f"{row}.1@{tile}"),
        Unroll(f"{row}.1"),
        Vectorize(lane),
    ]
