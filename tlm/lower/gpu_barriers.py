"""Barriers where a thread may touch what another one has written, or write what another one has touched, and
nowhere else.

What was touched since the last barrier is compared with what comes next, in running order and once more
around every loop; what a loop meets of before it is waited for in front of it. Two accesses need no barrier
where they surely meet no element, or only where one thread makes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..ir.affine import interval
from ..ir.nodes import For
from ..ir.walk import free_vars
from ..schedule.access import Access, meet
from .gpu_build import all_nodes
from .gpu_touch import Touch, touches
from .gpu_tree import Barrier, Branch, Collective, Loop, Nest, Node, Pipeline

# No name of a buffer starts so.
_OWN = "warps "
_Key = tuple[int, int, int]
_Pending = dict[_Key, tuple[Touch, frozenset[str]]]
"""Accesses since the last barrier, with the uniform loops that have not gone on since."""


def with_barriers(
    nodes: tuple[Node, ...],
    visible: frozenset[str],
    blocks: frozenset[str],
    live: frozenset[str],
    extents: Mapping[str, int],
    crossing: frozenset[int],
) -> tuple[Node, ...]:
    """`nodes` with the barriers they need.

    visible: buffers that all threads of a block see and one of them writes. blocks: the block loops. live:
    axes with more than one thread. extents: of every loop and axis. crossing: ids of the collectives that
    hand values from warp to warp, for which they have a barrier of their own.
    """
    analysis = _Analysis(visible, blocks, live, extents, crossing)
    if live:
        count = -1
        while len(analysis.needed) > count:
            count = len(analysis.needed)
            analysis.pending = {}
            analysis.run(nodes, ())
    return _inserted(nodes, analysis.needed)


@dataclass(slots=True)
class _Analysis:
    visible: frozenset[str]
    blocks: frozenset[str]
    live: frozenset[str]
    extents: Mapping[str, int]
    crossing: frozenset[int]
    pending: _Pending = field(default_factory=dict)
    needed: set[int] = field(default_factory=set)
    blamed: int = 0
    known: dict[tuple[_Key, _Key, frozenset[str]], bool] = field(default_factory=dict)

    def run(self, nodes: tuple[Node, ...], around: tuple[str, ...]) -> None:
        for node in nodes:
            match node:
                case Nest() | Collective():
                    self.leaf(node, around)
                case Barrier():
                    self.pending = {}
                case Loop(loop, body):
                    if id(node) in self.needed:
                        self.pending = {}
                    before = self.pending if loop.bound is not None else {}
                    self.loop(node, body, around)
                    self.pending = _union(before, self.pending)
                case Branch(_, then, other):
                    before = self.pending
                    self.run(then, around)
                    after, self.pending = self.pending, dict(before)
                    self.run(other, around)
                    self.pending = _union(after, self.pending)
                case Pipeline():
                    self.pipeline(node, around)

    def loop(self, node: Loop, body: tuple[Node, ...], around: tuple[str, ...]) -> None:
        """First what a loop needs by itself; what came before it is waited for outside, once."""
        entry, self.pending = self.pending, {}
        self.repeat(node.loop, body, around)
        if entry:
            outer, self.blamed = self.blamed, self.blamed or id(node)
            self.pending = dict(entry)
            self.run(body, (*around, node.loop.var))
            self.blamed = outer
            self.pending = {} if id(node) in self.needed else dict(entry)
            self.repeat(node.loop, body, around)

    def repeat(self, loop: For, body: tuple[Node, ...], around: tuple[str, ...]) -> None:
        self.run(body, (*around, loop.var))
        self.forget(loop.var)
        if loop.extent > 1:
            self.run(body, (*around, loop.var))
            self.forget(loop.var)

    def forget(self, var: str) -> None:
        """The loop `var` goes on: what is pending was done at another value of it."""
        self.pending = {k: (t, fixed - {var}) for k, (t, fixed) in self.pending.items()}

    def leaf(self, node: Nest | Collective, around: tuple[str, ...]) -> None:
        if id(node) in self.needed:
            self.pending = {}
        parts = list(touches(node, around))
        if isinstance(node, Collective) and id(node) in self.crossing:
            # What warps hand to each other is written in the first part, and read in the second.
            own = [
                Access(f"{_OWN}{id(node)}", (), writes, node.update, around, ()) for writes in (True, False)
            ]
            parts = [[*found, Touch(a, self.live)] for found, a in zip(parts, own, strict=True)]
        for part, found in enumerate(parts):
            if part and id(node) in self.crossing:
                self.pending = {}
            mine = [t for t in found if t.access.buffer in self.visible or t.access.buffer.startswith(_OWN)]
            if self.meets(id(node), part, mine, around):
                self.needed.add(self.blamed or id(node))
                self.pending = {}
            self.add(node, part, mine, around)

    def add(self, node: Node, part: int, found: list[Touch], around: tuple[str, ...]) -> None:
        for n, touch in enumerate(found):
            key = (id(node), part, n)
            fixed = frozenset(around)
            if key in self.pending:
                fixed &= self.pending[key][1]
            self.pending[key] = (touch, fixed)

    def meets(self, node: int, part: int, found: list[Touch], around: tuple[str, ...]) -> bool:
        """Whether any of `found` clashes with what is pending. Answers are kept: loops are walked again."""
        for n, touch in enumerate(found):
            for key, (other, fixed) in self.pending.items():
                one, two = other.access, touch.access
                if one.buffer != two.buffer or not (one.writes or two.writes):
                    continue
                same = self.blocks | (fixed & frozenset(around))
                question = (key, (node, part, n), same)
                if question not in self.known:
                    self.known[question] = self.clash(other, touch, same)
                if self.known[question]:
                    return True
        return False

    def clash(self, a: Touch, b: Touch, fixed: frozenset[str]) -> bool:
        """Whether two threads may touch one element, where the loops `fixed` have one value."""
        one, two = a.access, b.access
        used = [x for x in self.live if x in a.axes or x in b.axes]
        if all(x in a.axes and x in b.axes and _names(one, x) and _names(two, x) for x in used):
            same = meet(one, two, fixed, self.extents)
            return same is not None and any(x not in same for x in used)
        # Nothing ties the two to one thread.
        return not self.apart(one, two)

    def apart(self, one: Access, two: Access) -> bool:
        """Whether the two never touch one element, by the range of an index."""
        for x, y in zip(one.indices, two.indices, strict=True):
            a, b = interval(x, self.extents), interval(y, self.extents)
            if a is not None and b is not None and (a[1] < b[0] or b[1] < a[0]):
                return True
        return False

    def pipeline(self, node: Pipeline, around: tuple[str, ...]) -> None:
        """Its buffers are kept apart by its own barriers: only what is around it can clash with them."""
        if id(node) in self.needed:
            self.pending = {}
        kept = self.visible
        if any(self.entering(n, around) for n in (*node.copies, *node.early, *node.late)):
            self.needed.add(self.blamed or id(node))
        self.visible = kept - frozenset(node.buffers)
        self.repeat(node.loop, (Barrier(), *node.copies, *node.early, *node.body, *node.late), around)
        self.visible = kept
        for n in all_nodes((*node.copies, *node.late, *node.body)):
            if isinstance(n, Nest | Collective):
                for part, found in enumerate(touches(n, around)):
                    self.add(n, part, [t for t in found if t.access.buffer in kept], ())

    def entering(self, node: Node, around: tuple[str, ...]) -> bool:
        nests = [n for n in all_nodes((node,)) if isinstance(n, Nest)]
        found = [t for n in nests for t in touches(n, around)[0] if t.access.buffer in self.visible]
        return self.meets(id(node), -1, found, around)


def _names(access: Access, axis: str) -> bool:
    """Whether an index of `access` depends on the thread of `axis`."""
    return any(axis in free_vars(i) for i in access.indices)


def _union(a: _Pending, b: _Pending) -> _Pending:
    out = dict(a)
    for key, (touch, fixed) in b.items():
        out[key] = (touch, fixed & out[key][1]) if key in out else (touch, fixed)
    return out


def _inserted(nodes: tuple[Node, ...], needed: set[int]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in nodes:
        if id(node) in needed:
            out.append(Barrier())
        match node:
            case Loop(loop, body):
                node = Loop(loop, _inserted(body, needed))
            case Branch(cond, then, other):
                node = Branch(cond, _inserted(then, needed), _inserted(other, needed))
            case Pipeline():
                node = replace(node, body=_inserted(node.body, needed))
        out.append(node)
    return tuple(out)
