"""The fewest loops and dimensions that layouts allow: what a schedule, and a model, need not think about.

    for i in 2: for j in 3: Y[i, j] = f(X[i, j])    ->    for i*j in 6: Y[i*j] = f(X[i*j])

Two dimensions become one where they lie in memory as one and every stage walks them as one; a dimension of
one element goes away. Parameters keep their memory and change only in shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

from .exprs import Const, Expr, Load, Var, const
from .nodes import Alloc, Block, Buffer, For, Program, Stmt, Store, Update, block
from .simplify import simplify
from .walk import buffers, free_vars, loads, map_expr, substitute

T = TypeVar("T")
Leaf = Store | Update
Dim = tuple[str, int]
"""(buffer, dimension)"""
Groups = dict[str, list[tuple[int, ...]]]
"""The old dimensions that make each new one, of each buffer."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """Loops (name, extent) from the outside in, and the statements that they run."""

    loops: tuple[tuple[str, int], ...]
    leaves: tuple[Leaf, ...]

    @property
    def reduced(self) -> frozenset[str]:
        return frozenset(a for leaf in self.leaves if isinstance(leaf, Update) for a in leaf.axes)

    def accesses(self) -> Iterator[tuple[str, tuple[Expr, ...]]]:
        """Every (buffer, indices) that is written or read."""
        for leaf in self.leaves:
            for name in leaf.targets if isinstance(leaf, Update) else (leaf.buffer,):
                yield name, leaf.indices
            for expr in (*leaf.indices, *_values(leaf)):
                for load in loads(expr):
                    yield load.buffer, load.indices

    def bare(self) -> frozenset[str]:
        """Loop variables that are used as values, outside of indices."""
        found: set[str] = set()
        for leaf in self.leaves:
            for value in _values(leaf):
                found |= free_vars(map_expr(value, lambda e: Const(0, e.dtype) if isinstance(e, Load) else e))
        return frozenset(found)


def collapse(program: Program) -> Program:
    """An unscheduled program (one nest a stage) with the fewest loops; another program as it is."""
    stages = _read(program)
    if stages is None:
        return program
    known = buffers(program)
    stages, known = _squeeze(stages, known)
    stages, known = _merge(stages, known)
    body = block(*[_nest(s) for s in stages])
    for buffer in reversed([b for b in known.values() if b.memory != "array"]):
        body = Alloc(buffer, body)
    return replace(
        program,
        inputs=tuple([known[b.name] for b in program.inputs]),
        outputs=tuple([known[b.name] for b in program.outputs]),
        body=body,
    )


def _read(program: Program) -> list[_Stage] | None:
    body = program.body
    while isinstance(body, Alloc):
        body = body.body
    out = []
    for stmt in body.stmts if isinstance(body, Block) else (body,):
        loops: list[tuple[str, int]] = []
        inner: Stmt = stmt
        while isinstance(inner, For) and inner.kind == "serial" and inner.bound is None:
            loops.append((inner.var, inner.extent))
            inner = inner.body
        leaves = inner.stmts if isinstance(inner, Block) else (inner,)
        if not all(isinstance(s, Store | Update) for s in leaves):
            return None
        out.append(_Stage(tuple(loops), leaves))  # type: ignore[arg-type]
    return out


def _nest(stage: _Stage) -> Stmt:
    body = block(*stage.leaves)
    for name, extent in reversed(stage.loops):
        body = For(name, extent, body)
    return body


def _values(leaf: Leaf) -> tuple[Expr, ...]:
    return (leaf.value,) if isinstance(leaf, Store) else leaf.values


def _squeeze(stages: list[_Stage], known: dict[str, Buffer]) -> tuple[list[_Stage], dict[str, Buffer]]:
    """Without loops of one iteration and dimensions of one element, but for the last loop of a role."""
    gone = {(n, v) for n, s in enumerate(stages) for v in _spare(s)}
    dims = {(b.name, d) for b in known.values() for d, extent in enumerate(b.shape) if extent == 1}
    while True:
        kept_dims = set(dims)
        kept_loops = set(gone)
        for n, stage in enumerate(stages):
            for name, indices in stage.accesses():
                for d, index in enumerate(indices):
                    if not isinstance(index, Var):
                        continue
                    if (name, d) in kept_dims and (n, index.name) not in gone:
                        kept_dims.discard((name, d))
                    if known[name].shape[d] == 1 and (name, d) not in dims:
                        kept_loops.discard((n, index.name))
        if (kept_dims, kept_loops) == (dims, gone):
            break
        dims, gone = kept_dims, kept_loops
    groups: Groups = {
        b.name: [(d,) for d in range(len(b.shape)) if (b.name, d) not in dims] for b in known.values()
    }
    out = []
    for n, stage in enumerate(stages):
        zeros: dict[str, Expr] = {v: const(0) for v, _ in stage.loops if (n, v) in gone}
        loops = tuple([(v, extent) for v, extent in stage.loops if v not in zeros])
        out.append(_rewrite(stage, loops, zeros, groups))
    return out, {name: _reshaped(b, groups[name]) for name, b in known.items()}


def _spare(stage: _Stage) -> list[str]:
    """Loops of one iteration that leave the stage another one of the same role: that indexes the same."""
    uses = {
        v: (v in stage.reduced, frozenset(k for k, (_, at) in enumerate(stage.accesses()) if _in(v, at)))
        for v, _ in stage.loops
    }
    left = dict(stage.loops)
    everywhere = frozenset(range(len(list(stage.accesses()))))
    out = []
    for v, extent in stage.loops:
        others = [w for w in left if w != v and uses[w] == uses[v]]
        shared = uses[v] == (False, everywhere) and len(left) > 1
        if extent == 1 and (others or shared):
            del left[v]
            out.append(v)
    return out


def _in(var: str, indices: tuple[Expr, ...]) -> bool:
    return any(var in free_vars(i) for i in indices)


def _merge(stages: list[_Stage], known: dict[str, Buffer]) -> tuple[list[_Stage], dict[str, Buffer]]:
    """With neighbouring loops merged where every access walks their dimensions as one."""
    pairs = {
        (n, a, b)
        for n, s in enumerate(stages)
        for (a, _), (b, _) in zip(s.loops, s.loops[1:], strict=False)
        if (a in s.reduced) == (b in s.reduced) and not {a, b} & s.bare()
    }
    touched = {name for s in stages for name, _ in s.accesses()}
    dims = {
        (b.name, d)
        for b in known.values()
        for d in range(len(b.shape) - 1)
        if b.name in touched and b.element_strides[d] == b.element_strides[d + 1] * b.shape[d + 1]
    }
    while True:
        alive_pairs = {p for p in pairs if _walks(stages[p[0]], p[1], p[2], known, dims)}
        alive_dims = {d for d in dims if _walked(d, stages, alive_pairs)}
        if (alive_pairs, alive_dims) == (pairs, dims):
            break
        pairs, dims = alive_pairs, alive_dims
    if not pairs:
        return stages, known
    groups = {
        b.name: _chains(list(range(len(b.shape))), {(d, d + 1) for name, d in dims if name == b.name})
        for b in known.values()
    }
    out = []
    for n, stage in enumerate(stages):
        links = {(a, b) for m, a, b in pairs if m == n}
        out.append(_joined(stage, _chains([v for v, _ in stage.loops], links), groups))
    return out, {name: _reshaped(b, groups[name]) for name, b in known.items()}


def _walks(stage: _Stage, a: str, b: str, known: Mapping[str, Buffer], dims: set[Dim]) -> bool:
    """Whether every access that uses loop a or b has them as two whole dimensions that may merge."""
    extents = dict(stage.loops)
    for name, indices in stage.accesses():
        used = [d for d, i in enumerate(indices) if free_vars(i) & {a, b}]
        if not used:
            continue
        d = used[0]
        plain = used == [d, d + 1] and indices[d] == Var(a) and indices[d + 1] == Var(b)
        if not plain or (name, d) not in dims or known[name].shape[d : d + 2] != (extents[a], extents[b]):
            return False
    return True


def _walked(dim: Dim, stages: list[_Stage], pairs: set[tuple[int, str, str]]) -> bool:
    name, d = dim
    for n, stage in enumerate(stages):
        for buffer, indices in stage.accesses():
            if buffer != name:
                continue
            match indices[d], indices[d + 1]:
                case Var(a), Var(b):
                    if (n, a, b) not in pairs:
                        return False
                case _:
                    return False
    return True


def _chains(items: list[T], links: set[tuple[T, T]]) -> list[tuple[T, ...]]:
    out: list[tuple[T, ...]] = []
    for item in items:
        if out and (out[-1][-1], item) in links:
            out[-1] = (*out[-1], item)
        else:
            out.append((item,))
    return out


def _joined(stage: _Stage, chains: list[tuple[str, ...]], groups: Groups) -> _Stage:
    names: dict[str, Expr] = {}
    loops: list[tuple[str, int]] = []
    extents = dict(stage.loops)
    for chain in chains:
        names |= {v: Var(_name(chain)) for v in chain}
        loops.append((_name(chain), prod([extents[v] for v in chain])))
    done = _rewrite(stage, tuple(loops), names, groups)
    axes = tuple([_name(c) for c in chains if c[0] in stage.reduced])
    leaves = [replace(x, axes=axes) if isinstance(x, Update) else x for x in done.leaves]
    return _Stage(done.loops, tuple(leaves))


def _name(chain: tuple[str, ...]) -> str:
    """a*b, with the stage's name only once in front."""
    heads = {v.rpartition("_")[0] for v in chain}
    if len(chain) > 1 and len(heads) == 1 and (head := heads.pop()):
        return f"{head}_{'*'.join([v.rpartition('_')[2] for v in chain])}"
    return "*".join(chain)


def _reshaped(buffer: Buffer, groups: list[tuple[int, ...]]) -> Buffer:
    shape = tuple([prod([buffer.shape[d] for d in g]) for g in groups])
    strides = None if buffer.strides is None else tuple([buffer.strides[g[-1]] for g in groups])
    return replace(buffer, shape=shape, strides=strides)


def _rewrite(
    stage: _Stage,
    loops: tuple[tuple[str, int], ...],
    values: Mapping[str, Expr],
    groups: Groups,
) -> _Stage:
    """A stage under other loops, with variables replaced and the dimensions of each access grouped."""
    extents = dict(loops)

    def indices(name: str, old: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple([simplify(old[g[0]], extents) for g in groups[name]])

    def regrouped(e: Expr) -> Expr:
        return Load(e.buffer, indices(e.buffer, e.indices), e.dtype) if isinstance(e, Load) else e

    def expr(e: Expr) -> Expr:
        return map_expr(substitute(e, values), regrouped)

    def leaf(s: Leaf) -> Leaf:
        place = tuple([expr(i) for i in s.indices])
        if isinstance(s, Store):
            return Store(s.buffer, indices(s.buffer, place), simplify(expr(s.value), extents))
        made = tuple([simplify(expr(v), extents) for v in s.values])
        axes = tuple([a for a in s.axes if a not in values])
        return replace(s, indices=indices(s.targets[0], place), values=made, axes=axes)

    return _Stage(loops, tuple([leaf(s) for s in stage.leaves]))
