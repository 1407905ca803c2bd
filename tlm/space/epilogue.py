"""The elementwise stages after a product or a convolution: inside of its store, after each of its blocks, or
nests of their own."""

from __future__ import annotations

from collections.abc import Sequence

from ..schedule.steps import Parallel, ReverseComputeAt, ReverseInline, Split, Step, Vectorize
from .problem import Elementwise


def epilogue(
    stages: tuple[Elementwise, ...], fused: bool, lanes: int, threads: bool, at: str = ""
) -> list[Step]:
    """Steps for `stages`: inlined into what they follow, or vectors along their last axis and, with
    `threads`, threads along the longest other one. at: the loop that completes a block of what they follow,
    in which they run; "" where none does."""
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


def completing(around: Sequence[str], k: str) -> str:
    """The innermost of the loops outside of `k`, the loop over blocks of a sum: each of its rounds completes
    a block. "" where there is none, or where k is not blocked."""
    outside = around[: around.index(k)] if k in around else ()
    return outside[-1] if outside else ""
