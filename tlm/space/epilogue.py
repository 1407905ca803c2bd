"""The elementwise stages after a product or a convolution: inside of its store, after each of its blocks, or
nests of their own."""

from __future__ import annotations

from collections.abc import Sequence

from ..schedule.steps import Parallel, ReverseComputeAt, ReverseInline, Split, Step, Vectorize
from .problem import Elementwise


def epilogue(
    stages: tuple[Elementwise, ...], fused: bool, lanes: int, shared: str, around: Sequence[str], k: str
) -> list[Step]:
    """Steps for `stages`: inlined into what they follow, or vectors along their last axis.

    around: the loops outside of the tiles of what they follow, outermost first; k: the one of these over
    blocks of the sum, "" where no block is complete before all are. The stages run in the innermost loop
    outside of k, each of whose rounds completes a block. shared: the loop that threads share, or ""; where it
    is not around the stages, these have threads of their own, along their longest axis but the last.
    """
    outside = around[: around.index(k)] if k in around else ()
    at = outside[-1] if outside else ""
    threads = shared != "" and shared not in outside
    out: list[Step] = []
    for e in stages:
        if fused:
            out.append(ReverseInline(e.stage))
            continue
        if at:
            out.append(ReverseComputeAt(e.stage, at))
        column, extent = e.loops[-1]
        if extent > 1:
            out += [Split(column, lanes), Vectorize(f"{column}.1")]
        if threads and len(e.loops) > 1:
            loop, longest = max(e.loops[:-1], key=lambda each: each[1])
            if longest > 1:
                out.append(Parallel(loop))
    return out
