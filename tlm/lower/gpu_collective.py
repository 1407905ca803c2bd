"""How the threads of a block merge values: by shuffles in a warp, from warp to warp, or in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .gpu_tree import AXES, Collective

WARP = 32


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of threads that merge. "warp": inside a warp. "warps": whole warps, then one value of each.
    "shared": one thread reads the values of all others. `size` threads a group; `axes` are those that merge.
    """

    way: Literal["warp", "warps", "shared"]
    size: int
    axes: tuple[str, ...]


def groups(node: Collective, shape: tuple[int, int, int]) -> Groups:
    """How `node` merges in blocks of `shape`: neighbours by shuffles, in whole or evenly divided warps."""
    live = [(a, n) for a, n in zip(AXES, shape, strict=True) if n > 1]
    merging = {x.kind for x in node.threads if x.var in node.update.axes}
    axes = tuple([a for a, _ in live if a in merging])
    size, total = 1, shape[0] * shape[1] * shape[2]
    for axis, n in live:
        size *= n if axis in merging else 1
    neighbours = axes == tuple([a for a, _ in live])[: len(axes)]
    if neighbours and size <= WARP and size & (size - 1) == 0 and (total % WARP == 0 or total <= WARP):
        return Groups("warp", size, axes)
    if neighbours and size % WARP == 0:
        return Groups("warps", size, axes)
    return Groups("shared", size, axes)


def crosses(node: Collective, shape: tuple[int, int, int]) -> bool:
    """Whether `node` hands values from warp to warp, through shared memory and with a barrier of its own."""
    return groups(node, shape).way != "warp"
