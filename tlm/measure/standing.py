"""What is known of the candidates of one workload: which records count, and which candidate is the fastest.

Records of one candidate may disagree: first timings are a little lucky where they look best, a machine is
slower at other times, and a fault such as a race may show in one run of many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from .record import Record, Values


def disproved(records: Sequence[Record]) -> frozenset[Values]:
    """Candidates that computed something wrong at any time: right results at others do not acquit them."""
    return frozenset([r.choices for r in records if r.status == "wrong"])


def counting(records: Sequence[Record]) -> list[Record]:
    """The records that say how fast a candidate is, in their order."""
    wrong = disproved(records)
    return [r for r in records if r.status == "ok" and r.cache == "warm" and r.choices not in wrong]


def fastest(records: Sequence[Record]) -> Record | None:
    """The record of the fastest candidate of one workload, or None where all failed.

    What was timed again in quiet ("final") comes before all others, and the latest of it counts: the best of
    many first timings is lucky by a few percent. Others count only where their first timing is better than
    those of all that were timed again, as after a search that was cut short.
    """
    first: dict[Values, Record] = {}
    finals: dict[Values, Record] = {}
    for r in counting(records):
        if r.kind == "final":
            finals[r.choices] = r
        elif r.choices not in first or r.score < first[r.choices].score:
            first[r.choices] = r
    limit = min([first.get(values, r).score for values, r in finals.items()], default=math.inf)
    others = [r for values, r in first.items() if values not in finals and r.score < limit]
    return min([*finals.values(), *others], key=lambda r: r.score, default=None)


def times(records: Sequence[Record]) -> dict[Values, float]:
    """Seconds of each candidate of one workload that computes the right thing, on one scale.

    What was timed again in many rounds ("final") counts for itself. The machine may have been slower or
    faster then: the others are scaled by what the programs in both sessions say, without those that were
    picked for their first times, as these were lucky.
    """
    finals, first = dict[Values, list[float]](), dict[Values, float]()
    for r in counting(records):
        if r.kind == "final":
            finals.setdefault(r.choices, []).append(r.score)
        else:
            first[r.choices] = min(r.score, first.get(r.choices, math.inf))
    again = {values: median(seconds) for values, seconds in finals.items()}
    ranked = sorted(again.keys() & first.keys(), key=lambda values: first[values])
    ratios = [again[values] / first[values] for values in ranked[len(ranked) // 2 :]]
    scale = median(ratios) if ratios else 1.0
    return {values: seconds * scale for values, seconds in first.items()} | again
