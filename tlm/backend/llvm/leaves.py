"""Stores, updates and prefetches: reductions in lanes, across lanes, and over tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...ir.combiners import COMBINERS
from ...ir.exprs import Const, Load, Op
from ...ir.nodes import Prefetch, Stmt, Store, Update
from .access import Access, SlotAccess, access
from .memory import Code
from .types import Known, scalar_type, value_type, vector
from .values import Values

Run = Callable[[], None]
_FUSED = ("f32", "f64")


class Leaves(Values):
    """The emitter's part for statements without others inside, compiled into closures like expressions."""

    def _compile(self, stmt: Stmt) -> Run:
        match stmt:
            case Store(buffer, indices, value):
                return self._store(access(self, buffer, indices), self.code(value))
            case Update():
                return self._update(stmt)
            case Prefetch(buffer, indices, locality):
                return self._prefetch(access(self, buffer, indices), locality)
        raise TypeError(f"not a statement: {stmt!r}")

    def _prefetch(self, target: Access | SlotAccess, locality: int) -> Run:
        def run() -> None:
            # Registers are as near as can be.
            if isinstance(target, Access):
                self.function.line(
                    f"call void @llvm.prefetch.p0(ptr {target.address()}, i32 0, i32 {locality}, i32 1)"
                )

        return run

    def _store(self, target: Access | SlotAccess, code: Code) -> Run:
        dtype = target.place.buffer.dtype

        def run() -> None:
            if target.lanes == 1 and code.lanes > 1:
                # One element for all lanes: the last one to run stays, as in a serial loop.
                t, last = value_type(dtype, code.lanes), code.lanes - 1
                target.store(self.pure(f"extractelement {t} {self.text(code, code.lanes)}, i64 {last}"))
            else:
                target.store(self.text(code, target.lanes))

        return run

    def _update(self, stmt: Update) -> Run:
        targets = [access(self, t, stmt.indices) for t in stmt.targets]
        if self.lane is not None and targets[0].lanes == 1:
            return self._horizontal(stmt, targets)
        lanes = targets[0].lanes
        product = stmt.values[0]
        dtype = targets[0].place.buffer.dtype
        if (
            stmt.combiner == "sum"
            and isinstance(product, Op)
            and product.op == "mul"
            and dtype.name in _FUSED
        ):
            a, b = (self.code(x) for x in product.args)
            target = targets[0]

            def fused() -> None:
                x, y = self.text(a, lanes), self.text(b, lanes)
                target.store(self.arith.fused(dtype, lanes, x, y, target.load()))

            return fused
        values = [self.code(v) for v in stmt.values]
        merge = self._merge(stmt.combiner, targets, lanes)

        def run() -> None:
            new = [self.text(v, lanes) for v in values]
            old = [t.load() for t in targets]
            for t, value in zip(targets, merge(old, new), strict=True):
                t.store(value)

        return run

    def _merge(
        self, name: str, targets: list[Access | SlotAccess], lanes: int
    ) -> Callable[[list[str], list[str]], list[str]]:
        """The combiner's merge on operands of `lanes` lanes."""
        combiner = COMBINERS[name]
        dtypes = [t.place.buffer.dtype for t in targets]
        values: dict[str, str] = {}

        def leaf(key: str) -> Callable[[], str | Known]:
            return lambda: values[key]

        sides = []
        for side in ("$old", "$new"):
            keys = [f"{side}{n}" for n in range(len(dtypes))]
            for key, d in zip(keys, dtypes, strict=True):
                self.parts[key] = Code(d, lanes, leaf(key))
            sides.append(tuple([Load(k, (), d) for k, d in zip(keys, dtypes, strict=True)]))
        codes = [self.code(e) for e in combiner.merge(*sides)]

        def merge(old: list[str], new: list[str]) -> list[str]:
            for n, (a, b) in enumerate(zip(old, new, strict=True)):
                values[f"$old{n}"], values[f"$new{n}"] = a, b
            return [self.text(c, lanes) for c in codes]

        return merge

    def _horizontal(self, stmt: Update, targets: list[Access | SlotAccess]) -> Run:
        """All lanes into one element: a tree of merges of halves, then one merge with the target."""
        n, dtypes = self.lanes, [t.place.buffer.dtype for t in targets]
        values = [self.code(v) for v in stmt.values]
        identity = COMBINERS[stmt.combiner].identity(tuple(dtypes))
        empty = [self.code(Const(c.value, d)) for c, d in zip(identity, dtypes, strict=True)]
        whole = 1 << (n - 1).bit_length()
        merges = {}
        width = whole
        while width > 1:
            width //= 2
            merges[width] = self._merge(stmt.combiner, targets, width)
        last = self._merge(stmt.combiner, targets, 1)

        def run() -> None:
            parts = [self.text(v, n) for v in values]
            if self.mask is not None:
                bits = self.mask_text(self.mask)
                parts = [
                    self.arith.select(bits, n, p, self.text(e, n), value_type(d, n))
                    for p, e, d in zip(parts, empty, dtypes, strict=True)
                ]
            if whole > n:
                parts = [
                    self._filled(p, self.text(e, n), scalar_type(d), n, whole)
                    for p, e, d in zip(parts, empty, dtypes, strict=True)
                ]
            size = whole
            while size > 2:
                size //= 2
                halves = [
                    [self._half(p, scalar_type(d), size, h) for p, d in zip(parts, dtypes, strict=True)]
                    for h in (0, 1)
                ]
                parts = merges[size](*halves)
            pair = [
                [
                    self.pure(f"extractelement {value_type(d, 2)} {p}, i64 {h}")
                    for p, d in zip(parts, dtypes, strict=True)
                ]
                for h in (0, 1)
            ]
            new = merges[1](*pair)
            with self._where_any_lane(targets):
                for t, value in zip(targets, last([t.load() for t in targets], new), strict=True):
                    t.store(value)

        return run

    @contextmanager
    def _where_any_lane(self, targets: list[Access | SlotAccess]) -> Iterator[None]:
        """What is emitted inside runs only where some lane of the mask is on: where none is, the element that
        all lanes share may be none of the buffer's."""
        mask, f = self.mask, self.function
        held = [t.place.buffer.name for t in targets if isinstance(t, Access)]
        if not isinstance(mask, str) or not held:
            yield
            return
        lanes = vector("i1", self.lanes)
        on = self.pure(f"call i1 @llvm.vector.reduce.or.v{self.lanes}i1({lanes} {mask})")
        then, after = f.label("then"), f.label("endif")
        f.line(f"br i1 {on}, label %{then}, label %{after}")
        f.start(then)
        self.mask = None
        with f.branch():
            yield
        self.mask = mask
        f.line(f"br label %{after}")
        f.start(after)
        for name in held:
            f.loads.pop(name, None)

    def _filled(self, value: str, empty: str, element: str, lanes: int, whole: int) -> str:
        """`value` with lanes of `empty` after it, `whole` in all."""
        t = f"<{lanes} x {element}>"
        picked = ", ".join([f"i32 {min(i, lanes)}" for i in range(whole)])
        return self.pure(f"shufflevector {t} {value}, {t} {empty}, <{whole} x i32> <{picked}>")

    def _half(self, value: str, element: str, size: int, which: int) -> str:
        t = f"<{2 * size} x {element}>"
        lanes = ", ".join([f"i32 {i + which * size}" for i in range(size)])
        return self.pure(f"shufflevector {t} {value}, {t} poison, <{size} x i32> <{lanes}>")
