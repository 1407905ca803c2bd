"""Where the temporaries of a block live: in the registers of its threads where each element belongs to one of
them, else in shared memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ir.affine import affine
from ..ir.exprs import Expr, Var
from ..ir.nodes import Buffer
from .gpu_build import all_nodes
from .gpu_touch import Touch, touches
from .gpu_tree import AXES, Collective, Nest, Node, Place


def places(
    nodes: tuple[Node, ...], allocs: dict[str, Buffer], shape: tuple[int, int, int]
) -> dict[str, Place]:
    """The place of every temporary in `allocs`, for blocks of `shape` threads."""
    found: dict[str, list[Touch]] = {name: [] for name in allocs}
    for node in all_nodes(nodes):
        if isinstance(node, Nest | Collective):
            for touch in [t for part in touches(node, ()) for t in part]:
                if touch.access.buffer in found:
                    found[touch.access.buffer].append(touch)
    live = [a for a, n in zip(AXES, shape, strict=True) if n > 1]
    return {name: _place(buffer, found[name], live) for name, buffer in allocs.items()}


def _place(buffer: Buffer, found: list[Touch], live: Iterable[str]) -> Place:
    everything = tuple(range(len(buffer.shape)))
    if buffer.memory != "shared":
        owners = {axis: _dimension(axis, buffer, found) for axis in live}
        shared = any(d is None and any(axis in t.axes for t in found) for axis, d in owners.items())
        if not shared:
            taken = set(owners.values())
            return Place(buffer, "private", tuple([d for d in everything if d not in taken]))
    return Place(replace(buffer, memory="shared"), "shared", everything)


def _dimension(axis: str, buffer: Buffer, found: list[Touch]) -> int | None:
    """The dimension of `buffer` that every access indexes by the thread of `axis` and nothing else."""
    for d in range(len(buffer.shape)):
        if all(axis in t.axes and _is_thread(t.access.indices[d], axis) for t in found):
            return d
    return None


def _is_thread(index: Expr, axis: str) -> bool:
    if index == Var(axis):
        return True
    form = affine(index)
    return form is not None and form.const == 0 and form.terms == ((axis, 1),)
