"""The elementwise stages after a product or a convolution: inside of its store, or nests of their own."""

from __future__ import annotations

from ..schedule.steps import Parallel, ReverseInline, Split, Step, Vectorize
from .problem import Elementwise


def epilogue(stages: tuple[Elementwise, ...], fused: bool, lanes: int, threads: bool) -> list[Step]:
    """Steps for `stages`: inlined into what they follow, or vectors along their last axis and, with
    `threads`, threads along the longest other one."""
    out: list[Step] = []
    for e in stages:
        if fused:
            out.append(ReverseInline(e.stage))
            continue
        column, extent = e.loops[-1]
        if extent > 1:
            out += [Split(column, lanes), Vectorize(f"{column}.1")]
        if threads and len(e.loops) > 1:
            loop, longest = max(e.loops[:-1], key=lambda each: each[1])
            if longest > 1:
                out.append(Parallel(loop))
    return out
