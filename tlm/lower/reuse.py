"""A large temporary that ends in an output, element by element, lives there from the start.

    for i in n:                                           for i in n:
      alloc E: f32[1, m] heap:                              for j in m: Y[i, j] = f(i, j)
        for j in m: E[0, j] = f(i, j)              ->       for j in m: s[0] (j)+= Y[i, j]
        for j in m: s[0] (j)+= E[0, j]                      for j in m: Y[i, j] = Y[i, j] * s[0]
        for j in m: Y[i, j] = E[0, j] * s[0]

One array less goes through the caches. Outputs overlap nothing, so that nobody sees what they hold before.
It moves one temporary into each output that has its dtype and one Store: the outermost that may move of those
that are too large for the stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir.affine import Affine, affine
from ..ir.exprs import Expr, Load
from ..ir.nodes import Alloc, Buffer, For, If, Prefetch, Stmt, Store, Update
from ..ir.paths import find, rebuild
from ..ir.walk import loads, map_expr, map_exprs, map_leaves, targets, walk
from .memory import STACK_BUFFER
from .nests import Enclosing, leaves


@dataclass(frozen=True, slots=True)
class _Home:
    """Where a temporary moves: the element with the indices i at `kept`, and 0 elsewhere, to
    output[lead, i + offsets]."""

    temporary: str
    output: str
    lead: tuple[Expr, ...]
    kept: tuple[int, ...]
    offsets: tuple[Affine, ...]

    def place(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        moved = [
            indices[k] if offset == Affine(0) else indices[k] + offset.expr()
            for k, offset in zip(self.kept, self.offsets, strict=True)
        ]
        return (*self.lead, *moved)


def reuse_outputs(body: Stmt, outputs: Sequence[Buffer]) -> Stmt:
    """`body` with the temporaries gone that can live in one of `outputs`."""
    for output in outputs:
        found = _only_store(body, output.name)
        if found is None:
            continue
        path, store = found
        for depth, around in enumerate(path):
            home = _home(path, depth, store, output) if isinstance(around, Alloc) else None
            if home is not None:
                body = _replaced(body, around, _moved(around, home))
                break
    return body


def _only_store(body: Stmt, name: str) -> tuple[Enclosing, Store] | None:
    """The Store to buffer `name`, where nothing else touches it."""
    about = [(path, leaf) for path, leaf in leaves(body) if _mentions(leaf, name)]
    if len(about) != 1 or name in _decides(body):
        return None
    path, leaf = about[0]
    return (path, leaf) if isinstance(leaf, Store) and leaf.buffer == name else None


def _mentions(leaf: Stmt, name: str) -> bool:
    prefetched = isinstance(leaf, Prefetch) and leaf.buffer == name
    return prefetched or name in targets(leaf) or any(read.buffer == name for read in loads(leaf))


def _decides(body: Stmt) -> frozenset[str]:
    """The buffers that conditions and bounds of loops read."""
    found: list[Expr | None] = []
    for node in walk(body):
        if isinstance(node, If):
            found.append(node.cond)
        elif isinstance(node, For):
            found.append(node.bound)
    return frozenset(read.buffer for e in found if e is not None for read in loads(e))


def _home(path: Enclosing, depth: int, store: Store, output: Buffer) -> _Home | None:
    """Where the temporary of the Alloc at path[depth] can live, if it ends in `store`."""
    alloc = path[depth]
    assert isinstance(alloc, Alloc)
    own, name = alloc.buffer, alloc.buffer.name
    if own.memory != "heap" or own.strides is not None or own.dtype != output.dtype:
        return None
    if own.size * own.dtype.bytes <= STACK_BUFFER:
        return None
    kept = tuple([k for k, extent in enumerate(own.shape) if extent != 1])
    places = {n.indices for n in loads(store.value) if n.buffer == name}
    leading = len(store.indices) - len(kept)
    if len(places) != 1 or leading < 0:
        return None
    at = places.pop()
    stored, read = _affine(store.indices), _affine([at[k] for k in kept])
    if stored is None or read is None:
        return None
    lead, offsets = stored[:leading], [s - r for s, r in zip(stored[leading:], read, strict=True)]
    loops, outer = _extents(path), _extents(path[:depth])
    if not all(f.names <= outer.keys() for f in (*lead, *offsets)):
        return None
    # Each run of the Alloc has a part of the output of its own, and each place there is stored to once.
    # An axis of the temporary is named by its number, as no loop is.
    axes = {str(k): own.shape[k] for k in kept}
    part = [*lead, *[o + Affine(0, ((axis, 1),)) for o, axis in zip(offsets, axes, strict=True)]]
    inside = all(_inside(f, n, outer | axes) for f, n in zip(part, output.shape, strict=True))
    if not (inside and _distinct(part, outer | axes) and _distinct(stored, loops)):
        return None
    home = _Home(name, output.name, store.indices[:leading], kept, tuple(offsets))
    return home if _last(alloc, path[depth + 1 :], store) else None


def _affine(indices: Sequence[Expr]) -> list[Affine] | None:
    """All indices in affine form, None where one has none."""
    forms = [affine(i) for i in indices]
    return None if None in forms else [f for f in forms if f is not None]


def _extents(path: Enclosing) -> dict[str, int]:
    """Extents of the loops on a path, by name."""
    return {p.var: p.extent for p in path if isinstance(p, For)}


def _inside(form: Affine, extent: int, loops: Mapping[str, int]) -> bool:
    """Whether `form` is a place of an axis in all iterations of loops."""
    reach = form.interval(loops)
    return reach is not None and reach[0] >= 0 and reach[1] < extent


def _distinct(forms: Sequence[Affine], loops: Mapping[str, int]) -> bool:
    """Whether each iteration of all loops is at a place of its own: every loop moves one index, by more than
    those do together that move it by less."""
    left = {name for name, extent in loops.items() if extent > 1}
    for form in forms:
        covered = 1
        for coefficient, name in sorted((c, n) for n, c in form.terms if loops.get(n) != 1):
            if coefficient < covered or name not in left:
                return False
            covered += coefficient * (loops[name] - 1)
            left.remove(name)
    return not left


def _last(alloc: Alloc, path: Enclosing, store: Store) -> bool:
    """Whether `store`, inside of `path`, runs when all else that touches the temporary has run."""
    name, before = alloc.buffer.name, True
    if name in _decides(alloc.body):
        return False
    for other, leaf in leaves(alloc.body):
        if leaf is store:
            before = False
        elif _mentions(leaf, name):
            shared = [a for a, b in zip(other, path, strict=False) if a is b]
            alone = not any(isinstance(p, For) and p.extent > 1 for p in shared)
            if not before or not alone or (isinstance(leaf, Update) and len(leaf.targets) > 1):
                return False
    return True


def _replaced(body: Stmt, old: Stmt, new: Stmt) -> Stmt:
    """`body` with the statement `old`, that very object, replaced: another of its name is another buffer."""
    path = find(body, lambda s: s is old)
    assert path is not None
    return rebuild(path, new)


def _moved(alloc: Stmt, home: _Home) -> Stmt:
    """What is inside of the Alloc, with the output in place of the temporary."""
    assert isinstance(alloc, Alloc)
    body = map_exprs(alloc.body, lambda e: map_expr(e, lambda n: _read(n, home)))
    return map_leaves(body, lambda s: _written(s, home))


def _read(node: Expr, home: _Home) -> Expr:
    if isinstance(node, Load) and node.buffer == home.temporary:
        return Load(home.output, home.place(node.indices), node.dtype)
    return node


def _written(leaf: Stmt, home: _Home) -> Stmt:
    match leaf:
        case Store(name) | Prefetch(name) if name == home.temporary:
            return replace(leaf, buffer=home.output, indices=home.place(leaf.indices))
        case Update(names) if home.temporary in names:
            return replace(leaf, targets=(home.output,), indices=home.place(leaf.indices))
    return leaf
