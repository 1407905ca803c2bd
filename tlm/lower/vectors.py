"""Vector loops as the machine has them: one level, of native width, with private temporaries per lane."""

from __future__ import annotations

from dataclasses import replace

from ..ir.dtypes import DType
from ..ir.exprs import Cast, Expr, Load, Op, Var, const
from ..ir.names import fresh
from ..ir.nodes import Alloc, Buffer, For, If, Prefetch, Stmt, Store, Update, block
from ..ir.walk import (
    free_vars,
    loops,
    map_expr,
    map_exprs,
    map_leaves,
    map_parts,
    rewrap,
    statements,
    substitute,
    substitute_in,
    walk,
)

# Vectors of one loop that are unrolled; longer loops run serially over native vectors.
_UNROLL_LIMIT = 8


def single_level(stmt: Stmt) -> Stmt:
    """`stmt` where a vector loop around another vector or parallel loop is a serial one."""
    new = map_parts(stmt, single_level)
    if not isinstance(new, For) or new.kind != "vectorize":
        return new
    nested = any(x.kind in ("vectorize", "parallel") for x in loops(new.body))
    return replace(new, kind="serial") if nested else new


def private_lanes(stmt: Stmt) -> Stmt:
    """`stmt` with temporaries of a vector loop around it, with a last dimension for the lanes."""
    if not isinstance(stmt, For) or stmt.kind != "vectorize":
        return map_parts(stmt, private_lanes)
    inside = [s.buffer for s in statements(stmt.body) if isinstance(s, Alloc)]
    if not inside:
        return stmt
    names = frozenset(b.name for b in inside)
    out: Stmt = rewrap(stmt, with_index(_without_allocs(stmt.body), names, Var(stmt.var)))
    for b in reversed(inside):
        out = Alloc(replace(b, shape=(*b.shape, stmt.extent), strides=None), out)
    return out


def _without_allocs(stmt: Stmt) -> Stmt:
    return _without_allocs(stmt.body) if isinstance(stmt, Alloc) else map_parts(stmt, _without_allocs)


def with_index(stmt: Stmt, names: frozenset[str], lane: Expr) -> Stmt:
    """`stmt` with `lane` as a last index of every access to the buffers `names`."""

    def read(e: Expr) -> Expr:
        return Load(e.buffer, (*e.indices, lane), e.dtype) if isinstance(e, Load) and e.buffer in names else e

    def write(s: Stmt) -> Stmt:
        match s:
            case Store(buffer=b) | Prefetch(buffer=b) if b in names:
                return replace(s, indices=(*s.indices, lane))
            case Update(targets=targets) if names.intersection(targets):
                return replace(s, indices=(*s.indices, lane))
        return s

    return map_leaves(map_exprs(stmt, lambda e: map_expr(e, read)), write)


def native_width(stmt: Stmt, vector_bytes: int, dtypes: dict[str, DType]) -> Stmt:
    """`stmt` with every vector loop cut into vectors of the machine, and a shorter one for what is left."""
    if isinstance(stmt, For) and stmt.kind == "vectorize":
        return _cut(stmt, max(1, vector_bytes // _widest(stmt.body, dtypes)), dtypes)
    return map_parts(stmt, lambda s: native_width(s, vector_bytes, dtypes))


def _widest(stmt: Stmt, dtypes: dict[str, DType]) -> int:
    """Bytes of the widest element that lanes of `stmt` compute with; index arithmetic does not count."""
    sizes = [4]
    for node in walk(stmt):
        match node:
            case Store(buffer=name):
                sizes.append(dtypes[name].bytes)
            case Update(targets=targets):
                sizes += [dtypes[t].bytes for t in targets]
            case Load(dtype=dtype) | Cast(dtype=dtype):
                sizes.append(dtype.bytes)
            case Op(dtype=dtype) if dtype.is_float:
                sizes.append(dtype.bytes)
    return max(sizes)


def _cut(loop: For, lanes: int, dtypes: dict[str, DType]) -> Stmt:
    extent = loop.extent
    if extent <= 1:
        return replace(loop, kind="unroll")
    if extent <= lanes:
        return loop
    match loop.body:
        case Update() as update if _is_horizontal(update, loop.var):
            return _folded(loop, update, lanes, dtypes)
        case If(cond, then, None) if loop.var not in free_vars(cond):
            return If(cond, _cut(replace(loop, body=then), lanes, dtypes))
    pieces: list[Stmt] = []
    start = 0
    whole = extent // lanes
    if whole == 1:
        pieces.append(_piece(loop, 0, lanes))
        start = lanes
    else:
        outer = f"{loop.var}.v"
        body = _piece(loop, Var(outer) * lanes, lanes)
        pieces.append(For(outer, whole, body, "unroll" if whole <= _UNROLL_LIMIT else "serial"))
        start = whole * lanes
    if start < extent:
        pieces.append(_piece(loop, start, extent - start))
    return block(*pieces)


def _is_horizontal(update: Update, lane: str) -> bool:
    """Whether all lanes are merged into one element."""
    return lane in update.axes and not any(lane in free_vars(i) for i in update.indices)


def _folded(loop: For, update: Update, lanes: int, dtypes: dict[str, DType]) -> Stmt:
    """Whole vectors merged lane by lane first, as a tree, so that only one is merged across its lanes.

        vectorize for k in 64: s (k)+= x[k]
    ->  alloc s_fold: f32[4, 16] register:
          unroll for k.w in 4: vectorize for k.l in 16: s_fold[k.w, k.l] = x[k.w * 16 + k.l]
          unroll for k.w in 2: vectorize for k.l in 16: s_fold[k.w, k.l] ()+= s_fold[k.w + 2, k.l]
          unroll for k.w in 1: vectorize for k.l in 16: s_fold[k.w, k.l] ()+= s_fold[k.w + 1, k.l]
          vectorize for k.l in 16: s (k.l)+= s_fold[0, k.l]

    More vectors than `_UNROLL_LIMIT` are first merged into so many, in rounds. `dtypes` learns the type of
    the new buffer.
    """
    whole, rest = divmod(loop.extent, lanes)
    ways = min(_UNROLL_LIMIT, 1 << (whole.bit_length() - 1))
    lane, way, turn = f"{loop.var}.l", f"{loop.var}.w", f"{loop.var}.v"
    names = tuple([fresh(f"{t}_fold", dtypes) for t in update.targets])
    for name, target in zip(names, update.targets, strict=True):
        dtypes[name] = dtypes[target]

    def element(vector: Expr | int) -> tuple[Expr, ...]:
        at = Var(lane) + vector * lanes
        return tuple([substitute(v, {loop.var: at}) for v in update.values])

    def held(vector: Expr) -> tuple[Expr, ...]:
        return tuple([Load(n, (vector, Var(lane)), dtypes[n]) for n in names])

    def vectors(count: int, body: Stmt) -> Stmt:
        return For(way, count, For(lane, lanes, body, "vectorize"), "unroll")

    def merged(values: tuple[Expr, ...], axes: tuple[str, ...] = ()) -> Update:
        return Update(names, (Var(way), Var(lane)), values, update.combiner, axes, False)

    first = [Store(n, (Var(way), Var(lane)), v) for n, v in zip(names, element(Var(way)), strict=True)]
    pieces: list[Stmt] = [vectors(ways, block(*first))]
    if whole >= 2 * ways:
        step = merged(element((Var(turn) + 1) * ways + Var(way)), (turn,))
        pieces.append(For(turn, whole // ways - 1, vectors(ways, step)))
    if whole % ways:
        pieces.append(vectors(whole % ways, merged(element(Var(way) + whole // ways * ways))))
    half = ways // 2
    while half:
        pieces.append(vectors(half, merged(held(Var(way) + half))))
        half //= 2
    axes = tuple([lane if a == loop.var else a for a in update.axes])
    pieces.append(For(lane, lanes, replace(update, values=held(const(0)), axes=axes), "vectorize"))
    if rest:
        pieces.append(_piece(loop, whole * lanes, rest))
    out = block(*pieces)
    for name in reversed(names):
        out = Alloc(Buffer(name, (ways, lanes), dtypes[name], "register"), out)
    return out


def _piece(loop: For, start: Expr | int, width: int) -> Stmt:
    """Iterations start..start+width of `loop`, as one vector (one statement where the width is 1)."""
    lane = f"{loop.var}.l"
    position: Expr = Var(lane) if isinstance(start, int) and start == 0 else Var(lane) + start
    body = substitute_in(loop.body, {loop.var: position})

    def renamed(s: Stmt) -> Stmt:
        if isinstance(s, Update) and loop.var in s.axes:
            outer = (f"{loop.var}.v",) if not isinstance(start, int) else ()
            return replace(
                s, axes=tuple(n for a in s.axes for n in ((*outer, lane) if a == loop.var else (a,)))
            )
        return s

    return For(lane, width, map_leaves(body, renamed), "vectorize" if width > 1 else "unroll")
