"""What a program should compute: numpy on whole arrays in float64, by no code that schedules or compiles.

Every loop of a statement becomes a dimension. Sums of products go through einsum (and so through BLAS); other
reductions are merged pairwise with the combiner's own expressions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from ..errors import VerifyError
from ..ir.combiners import COMBINERS
from ..ir.dtypes import DType, to_numpy
from ..ir.dtypes import exact as holds
from ..ir.exprs import Cast, Const, Expr, Load, Op, Var
from ..ir.nodes import Alloc, Block, For, If, Program, Stmt, Store, Update
from ..ir.walk import buffers, free_vars
from .bounds import RULES, Bounded, exact, grain, rounded, summed, unit

Loops = tuple[For, ...]
_LARGEST_GRID = 1 << 22
_LABELS = "abcdefghijklmnopqrstuvwxyz"


def reference(program: Program, inputs: Sequence[np.ndarray]) -> list[Bounded]:
    """The outputs of an unscheduled program, in float64, each with a bound on the error of a right kernel.

    `inputs` are arrays of the program's shapes. Loops must be serial and every guard one-sided.
    """
    known: dict[str, Bounded] = {
        b.name: Bounded(_wide(a, b.dtype), 0.0, grain(a) if b.dtype.is_float else 1.0)
        for b, a in zip(program.inputs, inputs, strict=True)
    }
    dtypes = {name: b.dtype for name, b in buffers(program).items()}
    for buffer in buffers(program).values():
        if buffer.name not in known:
            kind = np.float64 if buffer.dtype.is_float else to_numpy(buffer.dtype)
            known[buffer.name] = Bounded(np.zeros(buffer.shape, kind), np.zeros(buffer.shape), math.inf)
    with np.errstate(all="ignore"):
        _Run(known, dtypes).statement(program.body, (), ())
    return [known[b.name] for b in program.outputs]


class Expected:
    """An expected output that many kernels are compared with."""

    def __init__(self, want: Bounded) -> None:
        self.want = want
        self._low = self._high = want.value
        # Two comparisons of float32 arrays are many times cheaper than arithmetic in float64.
        if want.value.dtype.kind == "f":
            with np.errstate(all="ignore"):
                self._low = _narrowed(want.value - want.error, np.inf)
                self._high = _narrowed(want.value + want.error, -np.inf)

    def met_by(self, got: np.ndarray) -> bool:
        """Whether an output lies within the bounds; NaN and infinities must be where they should be."""
        if got.dtype == np.float64:
            return agrees(got, self.want)
        narrow = got.astype(self._low.dtype, copy=False)
        return bool((narrow >= self._low).all() and (narrow <= self._high).all()) or agrees(got, self.want)


def _narrowed(bound: np.ndarray, inside: float) -> np.ndarray:
    """The float32 nearest to `bound` that is not beyond it, where the bounded range lies towards `inside`."""
    near = np.asarray(bound, np.float32)
    beyond = near < bound if inside > 0 else near > bound
    return np.where(beyond, np.nextafter(near, np.float32(inside)), near)


def agrees(got: np.ndarray, want: Bounded) -> bool:
    """`Expected.met_by` for one comparison."""
    wide = _wide_array(got)
    with np.errstate(all="ignore"):
        # In floats, as differences of unsigned integers wrap.
        apart = np.abs(wide.astype(np.float64) - want.value.astype(np.float64))
        close = (apart <= want.error) & np.isfinite(want.value) & (np.asarray(want.error) > 0)
        # Rounded as the output is: what is too large for its type is infinite there.
        close |= got == want.value.astype(got.dtype)
        if want.value.dtype.kind == "f":
            close |= np.isnan(wide) & np.isnan(want.value)
    return bool(close.all())


def worst(got: np.ndarray, want: Bounded) -> str:
    """Where and by how much an output is wrong, in words."""
    wide = _wide_array(got)
    with np.errstate(all="ignore"):
        off = np.where(wide == want.value, 0.0, np.abs(wide.astype(np.float64) - want.value) - want.error)
    off = np.where(np.isnan(off), np.inf, off)
    at = np.unravel_index(int(np.argmax(off)), off.shape)
    many = int((off > 0).sum())
    where = ", ".join(str(int(i)) for i in at)
    return f"{many} of {off.size} elements wrong; at [{where}] got {wide[at]!s}, expected {want.value[at]!s}"


def _wide_array(a: np.ndarray) -> np.ndarray:
    return a if a.dtype.kind in "iub" else a.astype(np.float64)


def _wide(a: np.ndarray, dtype: DType) -> np.ndarray:
    return np.asarray(a).astype(np.float64) if dtype.is_float else np.asarray(a)


@dataclass(frozen=True, slots=True)
class _Run:
    """The buffers as they are filled, by name."""

    known: dict[str, Bounded]
    dtypes: dict[str, DType]

    def statement(self, stmt: Stmt, loops: Loops, guards: tuple[Expr, ...]) -> None:
        match stmt:
            case Block(stmts):
                for s in stmts:
                    self.statement(s, loops, guards)
            case Alloc(_, body):
                self.statement(body, loops, guards)
            case For(body=body):
                self.statement(body, (*loops, stmt), guards)
            case If(cond, then, None):
                self.statement(then, loops, (*guards, cond))
            case Store(buffer, indices, value):
                self.chunked((buffer,), indices, loops, guards, (value,), None, {})
            case Update(targets, indices, values, _, axes):
                if stmt.combiner == "sum" and not guards and self.contract(stmt, loops):
                    return
                order = tuple(sorted(loops, key=lambda f: f.var in axes))
                self.chunked(targets, indices, order, guards, values, stmt, {})
            case _:
                raise VerifyError(
                    f"the reference evaluates unscheduled programs; it met {type(stmt).__name__}"
                )

    def chunked(
        self, targets: tuple[str, ...], indices: tuple[Expr, ...], loops: Loops, guards: tuple[Expr, ...],
        values: tuple[Expr, ...], update: Update | None, fixed: dict[str, Any], start: int = 0,
    ) -> None:  # fmt: skip
        """Cut the outermost loop, which begins at `start`, into parts whose grids are of bounded size."""
        rest = math.prod(f.extent for f in loops[1:])
        axes = update.axes if update else ()
        if loops and rest * loops[0].extent > _LARGEST_GRID and loops[0].var not in axes:
            step = max(1, _LARGEST_GRID // rest)
            for at in range(0, loops[0].extent, step):
                if rest > _LARGEST_GRID:
                    known = fixed | {loops[0].var: np.int64(at)}
                    self.chunked(targets, indices, loops[1:], guards, values, update, known)
                else:
                    part = replace(loops[0], extent=min(step, loops[0].extent - at)), *loops[1:]
                    self.chunked(targets, indices, part, guards, values, update, fixed, at)
            return
        grid = fixed | _grid(loops, start)
        shape = tuple(f.extent for f in loops)
        results = [self.evaluate(v, grid) for v in values]
        mask: Any = reduce(np.logical_and, [self.evaluate(g, grid).value for g in guards], np.True_)
        if update is not None:
            results, mask = self.merged(update, results, loops, mask)
            grid = {k: v if np.ndim(v) == 0 else v[_first(loops, update.axes)] for k, v in grid.items()}
            shape = tuple(f.extent for f in loops if f.var not in update.axes)
        places = tuple(np.broadcast_to(self.evaluate(i, grid).value, shape) for i in indices)
        mask = np.broadcast_to(mask, shape)
        for name, result in zip(targets, results, strict=True):
            self.write(name, places, result, mask)

    def write(self, name: str, places: tuple[Any, ...], result: Bounded, mask: Any) -> None:
        target = self.known[name]
        self.known[name] = replace(target, grain=min(target.grain, result.grain))
        if not places:
            np.copyto(target.value, result.value, where=mask)
            np.copyto(target.error, result.error, where=mask)
            return
        at = tuple(p[mask] for p in places)
        target.value[at] = np.broadcast_to(result.value, mask.shape)[mask]
        target.error[at] = np.broadcast_to(result.error, mask.shape)[mask]

    def merged(
        self, update: Update, values: list[Bounded], loops: Loops, mask: Any
    ) -> tuple[list[Bounded], Any]:  # fmt: skip
        """Values reduced over the loops of `update.axes`, and the mask of what is written at all."""
        dtypes = tuple(self.dtypes[t] for t in update.targets)
        shape = tuple(f.extent for f in loops)
        identity = COMBINERS[update.combiner].identity(dtypes)
        parts = []
        for value, start in zip(values, identity, strict=True):
            whole = np.broadcast_to(np.where(mask, value.value, start.value), shape)
            error = np.broadcast_to(np.where(mask, value.error, 0.0), shape)
            parts.append(Bounded(whole, error, value.grain))
        axes = [n for n, f in enumerate(loops) if f.var in update.axes]
        if update.combiner == "sum" and unit(dtypes[0]):
            parts = [_total(parts[0], tuple(axes), unit(dtypes[0]))]
        else:
            for axis in reversed(axes):
                parts = self.reduced(update.combiner, parts, axis, dtypes)
        kept = np.broadcast_to(mask, shape).any(axis=tuple(axes)) if np.ndim(mask) else mask
        return parts, kept

    def reduced(
        self, combiner: str, parts: list[Bounded], axis: int, dtypes: tuple[DType, ...]
    ) -> list[Bounded]:
        while (size := parts[0].value.shape[axis]) > 1:
            half = size // 2
            a, b, rest = (
                [Bounded(np.take(p.value, span, axis), np.take(p.error, span, axis), p.grain) for p in parts]
                for span in (range(half), range(half, 2 * half), range(2 * half, size))
            )
            merged = self.merge(combiner, a, b, dtypes)
            parts = [
                Bounded(
                    np.concatenate([m.value, r.value], axis),
                    np.concatenate([np.broadcast_to(m.error, m.value.shape), r.error], axis),
                    min(m.grain, r.grain),
                )
                for m, r in zip(merged, rest, strict=True)
            ]
        return [Bounded(np.take(p.value, 0, axis), np.take(p.error, 0, axis), p.grain) for p in parts]

    def merge(
        self, combiner: str, a: list[Bounded], b: list[Bounded], dtypes: tuple[DType, ...]
    ) -> list[Bounded]:
        names = [tuple(f"{side}{n}" for n in range(len(a))) for side in "ab"]
        made = [tuple(Load(n, (), d) for n, d in zip(side, dtypes, strict=True)) for side in names]
        inner = _Run(dict(zip(names[0] + names[1], a + b, strict=True)), {})
        return [inner.evaluate(e, {}) for e in COMBINERS[combiner].merge(*made)]

    def contract(self, update: Update, loops: Loops) -> bool:
        """A sum of products by einsum; False where the statement is not one."""
        if not all(isinstance(i, Var | Const) for i in update.indices):
            return False
        out = tuple(i.name for i in update.indices if isinstance(i, Var))
        if len(set(out)) != len(out) or {f.var for f in loops} - set(update.axes) != set(out):
            return False
        factors = _factors(update.values[0])
        u = unit(self.dtypes[update.targets[0]])
        own = [tuple(f for f in loops if f.var in free_vars(x)) for x in factors]
        if not u or {f.var for fs in own for f in fs} != {f.var for f in loops}:
            return False
        label = {f.var: _LABELS[n] for n, f in enumerate(loops)}
        parts = []
        for x, fs in zip(factors, own, strict=True):
            b, shape = self.evaluate(x, _grid(fs)), tuple(f.extent for f in fs)
            parts.append(Bounded(np.broadcast_to(b.value, shape), np.broadcast_to(b.error, shape), b.grain))
        subscripts = ["".join(label[f.var] for f in fs) for fs in own]
        target = "".join(label[v] for v in out)
        value = _einsum(subscripts, target, [p.value for p in parts])
        sizes = [np.abs(p.value) for p in parts]
        terms = math.prod(f.extent for f in loops if f.var in update.axes)
        whole, step = _einsum(subscripts, target, sizes), math.prod(p.grain for p in parts)
        error = whole * (0.0 if exact(whole, step, u) else (summed(terms) + len(parts)) * u)
        for n, p in enumerate(parts):
            if p.error.any():
                error = error + _einsum(subscripts, target, [*sizes[:n], p.error, *sizes[n + 1 :]])
        place = tuple(int(i.value) if isinstance(i, Const) else slice(None) for i in update.indices)
        held = self.known[update.targets[0]]
        held.value[place], held.error[place] = value, error
        self.known[update.targets[0]] = replace(held, grain=min(held.grain, step))
        return True

    def evaluate(self, expr: Expr, grid: dict[str, Any]) -> Bounded:
        match expr:
            case Const(value, dtype):
                known = to_numpy(dtype).type(value)
                return Bounded(np.float64(known), 0.0, grain(known)) if dtype.is_float else Bounded(known)
            case Var(name):
                return Bounded(grid[name])
            case Load(name, indices, _):
                return self.load(name, [self.evaluate(i, grid).value for i in indices])
            case Cast(value, dtype):
                return _cast(self.evaluate(value, grid), value.dtype, dtype)
            case Op(name, args, dtype):
                return RULES[name](*[self.evaluate(a, grid) for a in args], unit(dtype))
        raise VerifyError(f"not an expression: {expr!r}")

    def load(self, name: str, places: list[Any]) -> Bounded:
        held = self.known[name]
        if not places:
            return held
        # Both sides of a "where" are read here, and the one that is not picked may lie outside.
        at = tuple(np.clip(p, 0, max(n - 1, 0)) for p, n in zip(places, held.value.shape, strict=True))
        return Bounded(held.value[at], held.error[at] if np.ndim(held.error) else held.error, held.grain)


def _total(x: Bounded, axes: tuple[int, ...], u: float) -> Bounded:
    """The sum of floats over some axes, in whatever order a kernel adds them."""
    size, error = np.abs(x.value).sum(axes), x.error.sum(axes)
    terms = math.prod(x.value.shape[axis] for axis in axes)
    more = 0.0 if exact(size + error, x.grain, u) else summed(terms) * u * size
    return Bounded(x.value.sum(axes), error + more, x.grain)


def _grid(loops: Loops, start: int = 0) -> dict[str, Any]:
    """Each loop variable as an array along a dimension of its own; the outermost one begins at `start`."""
    n = len(loops)
    return {
        f.var: (np.arange(f.extent) + (0 if d else start)).reshape([-1 if m == d else 1 for m in range(n)])
        for d, f in enumerate(loops)
    }


def _first(loops: Loops, axes: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(0 if f.var in axes else slice(None) for f in loops)


def _factors(value: Expr) -> list[Expr]:
    match value:
        case Op("mul", (a, b), _):
            return [*_factors(a), *_factors(b)]
    return [value]


def _cast(x: Bounded, source: DType, dtype: DType) -> Bounded:
    if dtype.is_float:
        wide = Bounded(np.asarray(x.value).astype(np.float64), x.error, x.grain if source.is_float else 1.0)
        return wide if source.is_float and holds(source, dtype) else rounded(wide, dtype)
    if not source.is_float:
        return Bounded(np.asarray(x.value).astype(to_numpy(dtype)))
    if not dtype.is_integer:
        return Bounded(np.asarray(x.value) != 0)
    info = np.iinfo(to_numpy(dtype))
    # 2**63 - 1 is no float64: clipping to the float below it keeps the conversion defined.
    top = np.nextafter(float(info.max), 0.0) if info.bits == 64 else float(info.max)

    def cut(value: Any) -> Any:
        return np.clip(np.nan_to_num(np.trunc(value), nan=0.0), float(info.min), top)

    found = cut(x.value)
    moved = np.maximum(cut(x.value + x.error) - found, found - cut(x.value - x.error))
    return Bounded(found.astype(to_numpy(dtype)), moved)


def _einsum(subscripts: list[str], out: str, operands: list[np.ndarray]) -> np.ndarray:
    """einsum through BLAS: batch labels, which tensordot cannot take, are looped over."""
    shared = [c for c in out if all(c in s for s in subscripts)] if len(subscripts) > 1 else []
    sizes = {c: n for s, o in zip(subscripts, operands, strict=True) for c, n in zip(s, o.shape, strict=True)}
    batch = [sizes[c] for c in shared]
    inner = [s.translate({ord(c): None for c in shared}) for s in subscripts]
    rest = out.translate({ord(c): None for c in shared})
    if not shared or math.prod(batch) > 4096 or not rest:
        return np.asarray(np.einsum(",".join(subscripts) + "->" + out, *operands, optimize=True))
    front = [
        np.moveaxis(o, [s.index(c) for c in shared], range(len(shared)))
        for s, o in zip(subscripts, operands, strict=True)
    ]
    result = np.empty((*batch, *(sizes[c] for c in rest)))
    for at in np.ndindex(*batch):
        result[at] = np.einsum(",".join(inner) + "->" + rest, *[f[at] for f in front], optimize=True)
    return np.moveaxis(result, range(len(shared)), [out.index(c) for c in shared])
