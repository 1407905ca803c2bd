"""Statements and loops."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.combiners import COMBINERS
from ...ir.nodes import Alloc, Block, Const, Expr, For, If, Load, Op, Prefetch, Stmt, Store, Update
from ...ir.walk import writes
from ...lower.memory import Layout, register_layout
from .memory import Access, Code, Place, Runtime, SlotAccess
from .types import Known, scalar_type, value_type
from .values import Values

Run = Callable[[], None]
_FUSED = ("f32", "f64")


class Statements(Values):
    """The emitter's part for statements. Subclasses place temporaries and start parallel loops."""

    def __init__(self) -> None:
        super().__init__()
        # Compiled statements, by identity and vector loop; one level for each Alloc, which may change what a name is.
        self.compiled: list[dict[tuple[int, str | None], Run]] = [{}]

    def parallel(self, loop: For) -> None:
        raise NotImplementedError

    def temporary(self, alloc: Alloc) -> None:
        raise NotImplementedError

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case For():
                self._loop(stmt)
            case Block(stmts):
                for s in stmts:
                    self.statement(s)
            case If():
                self._if(stmt)
            case Alloc(buffer, body):
                self.compiled.append({})
                hidden = self.places.get(buffer.name)
                if buffer.memory == "register":
                    layout = register_layout(buffer, body) or Layout(1, 1)
                    self.places[buffer.name] = Place(buffer, "", layout)
                    self.slots[buffer.name] = {}
                    self.statement(body)
                    del self.slots[buffer.name]
                else:
                    self.temporary(stmt)
                del self.places[buffer.name]
                if hidden is not None:
                    self.places[buffer.name] = hidden
                self.compiled.pop()
            case _:
                key = (id(stmt), self.lane)
                run = self.compiled[-1].get(key)
                if run is None:
                    run = self.compiled[-1][key] = self._compile(stmt)
                run()

    def _compile(self, stmt: Stmt) -> Run:
        match stmt:
            case Store(buffer, indices, value):
                return self._store(self._target(buffer, indices), self.code(value))
            case Update():
                return self._update(stmt)
            case Prefetch(buffer, indices, locality):
                access = self.access(buffer, indices)
                return lambda: self.function.line(
                    f"call void @llvm.prefetch.p0(ptr {access.address()}, i32 0, i32 {locality}, i32 1)"
                )
        raise TypeError(f"not a statement: {stmt!r}")

    def _target(self, name: str, indices: tuple[Expr, ...]) -> Access | SlotAccess:
        place = self.places[name]
        return self.access(name, indices) if place.layout is None else self.slot(place, indices)

    def _store(self, target: Access | SlotAccess, code: Code) -> Run:
        dtype = target.place.buffer.dtype

        def run() -> None:
            if target.lanes == 1 and code.lanes > 1:
                # One element for all lanes: the last one to run stays, as in a serial loop.
                last = f"extractelement {value_type(dtype, code.lanes)} {self.text(code, code.lanes)}, i64 {code.lanes - 1}"
                target.store(self.pure(last))
            else:
                target.store(self.text(code, target.lanes))

        return run

    def _update(self, stmt: Update) -> Run:
        targets = [self._target(t, stmt.indices) for t in stmt.targets]
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
        merges = {}
        width = n
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
            size = n
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
            old = [t.load() for t in targets]
            for t, value in zip(targets, last(old, merges[1](*pair)), strict=True):
                t.store(value)

        return run

    def _half(self, value: str, element: str, size: int, which: int) -> str:
        t = f"<{2 * size} x {element}>"
        lanes = ", ".join([f"i32 {i + which * size}" for i in range(size)])
        return self.pure(f"shufflevector {t} {value}, {t} poison, <{size} x i32> <{lanes}>")

    def _if(self, stmt: If) -> None:
        code = self.code(stmt.cond)
        known = code.emit()
        if isinstance(known, bool):
            side = stmt.then if known else stmt.other
            if side is not None:
                self.statement(side)
        elif code.lanes > 1 or isinstance(known, tuple):
            self._masked_sides(stmt, known)
        else:
            self._branch(stmt, known)

    def _masked_sides(self, stmt: If, cond: str | tuple[bool, ...]) -> None:
        outside = self.mask
        for side, holds in (
            (stmt.then, cond),
            (stmt.other, self.logic("not", [(cond, self.lanes)], self.lanes)),
        ):
            assert not isinstance(holds, bool)
            if side is None:
                continue
            mask = self.masked(holds)
            if isinstance(mask, tuple) and not any(mask):
                continue
            self.mask = None if isinstance(mask, tuple) and all(mask) else mask
            self.statement(side)
            self.mask = outside

    def _branch(self, stmt: If, cond: str) -> None:
        f = self.function
        then, other, after = f.label("then"), f.label("else"), f.label("endif")
        f.line(f"br i1 {cond}, label %{then}, label %{after if stmt.other is None else other}")
        start = f.block
        before = {name: dict(slots) for name, slots in self.slots.items()}
        ends = []
        for label, side in ((then, stmt.then), (other, stmt.other)):
            if side is None:
                ends.append((start, before))
                continue
            f.start(label)
            self.slots = {name: dict(slots) for name, slots in before.items()}
            with f.branch():
                self.statement(side)
            f.line(f"br label %{after}")
            ends.append((f.block, self.slots))
        f.start(after)
        self._join(ends)
        self._forget_loads(stmt)

    def _join(self, ends: list[tuple[str, dict[str, dict[int, str]]]]) -> None:
        """Slots after two paths meet: what differs becomes a phi."""
        (label_a, a), (label_b, b) = ends
        self.slots = {}
        for name, slots in a.items():
            self.slots[name] = joined = {}
            t = self._slot_type(name)
            for base in sorted(slots.keys() | b[name].keys()):
                x, y = slots.get(base, "undef"), b[name].get(base, "undef")
                joined[base] = x if x == y else self.function.value(
                    f"phi {t} [ {x}, %{label_a} ], [ {y}, %{label_b} ]"
                )  # fmt: skip

    def _slot_type(self, name: str) -> str:
        place = self.places[name]
        assert place.layout is not None
        return value_type(place.buffer.dtype, place.layout.lanes)

    def _forget_loads(self, stmt: Stmt) -> None:
        for name in writes(stmt):
            self.function.loads.pop(name, None)

    def _loop(self, loop: For) -> None:
        old = self.env.get(loop.var)
        if loop.kind == "vectorize" and loop.extent > 1:
            lane, lanes = self.lane, self.lanes
            self.lane, self.lanes = loop.var, loop.extent
            self.statement(loop.body)
            self.lane, self.lanes = lane, lanes
        elif loop.kind == "parallel" and loop.extent > 1:
            self.parallel(loop)
        elif loop.bound is None and (
            loop.kind in ("unroll", "vectorize") or loop.extent <= max(loop.unroll, 1)
        ):
            for i in range(loop.extent):
                self.env[loop.var] = i
                self.statement(loop.body)
        else:
            self._serial(loop)
        if old is None:
            self.env.pop(loop.var, None)
        else:
            self.env[loop.var] = old

    def _serial(self, loop: For) -> None:
        copies = min(loop.unroll, loop.extent)
        if loop.bound is None:
            whole = loop.extent - loop.extent % copies
            self.counted(loop, "0", str(whole), copies, nonempty=True)
            if loop.extent - whole == 1:
                self.env[loop.var] = whole
                self.statement(loop.body)
            elif loop.extent > whole:
                self.counted(loop, str(whole), str(loop.extent), 1, nonempty=True)
            return
        stop = self.bound(loop)
        if copies == 1:
            self.counted(loop, "0", stop, 1, nonempty=False)
            return
        least = self.pure(f"call i64 @llvm.smax.i64(i64 {stop}, i64 0)")
        left = self.pure(f"urem i64 {least}, {copies}")
        middle = self.pure(f"sub i64 {least}, {left}")
        self.counted(loop, "0", middle, copies, nonempty=False)
        self.counted(loop, middle, stop, 1, nonempty=False)

    def bound(self, loop: For) -> str:
        """min(extent, bound) as an i64."""
        if loop.bound is None:
            return str(loop.extent)
        limit = self.text(self.code(loop.bound), 1)
        return self.pure(f"call i64 @llvm.smin.i64(i64 {limit}, i64 {loop.extent})")

    def counted(self, loop: For, start: str, stop: str, copies: int, nonempty: bool) -> None:
        """A loop over start <= var < stop in steps of `copies`, each with that many copies of the body."""
        f = self.function
        body, after = f.label("loop"), f.label("done")
        if nonempty:
            f.line(f"br label %{body}")
        else:
            some = f.value(f"icmp slt i64 {start}, {stop}")
            f.line(f"br i1 {some}, label %{body}, label %{after}")
        before, entered = f.block, {name: dict(slots) for name, slots in self.slots.items()}
        loads = f.loads
        f.loads = {}
        f.start(body)
        var, phis = f.name("i"), []
        f.lines.append(phis)
        carried = self._carry(loop)
        head: list[object] = []
        f.lines.append(head)
        scope = f.open(head)
        for copy in range(copies):
            self.env[loop.var] = Runtime(var, copy, scope.depth)
            self.statement(loop.body)
        f.close()
        following = f.value(f"add nuw nsw i64 {var}, {copies}")
        more = f.value(f"icmp slt i64 {following}, {stop}")
        f.line(f"br i1 {more}, label %{body}, label %{after}")
        latch = f.block
        phis.append(f"  {var} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        copied = []
        for name, base, phi in carried:
            t, first, back = self._slot_type(name), entered[name].get(base, "undef"), self.slots[name][base]
            if back == phi:
                # Not changed after all: a copy folds away, where a phi of itself would hold a register.
                copied.append(f"  {phi} = bitcast {t} {first} to {t}")
                self.slots[name][base] = first
            else:
                phis.append(f"  {phi} = phi {t} [ {first}, %{before} ], [ {back}, %{latch} ]")
        phis.extend(copied)
        f.start(after)
        f.loads = loads
        self._forget_loads(loop.body)
        if not nonempty:
            self._join([(before, entered), (latch, self.slots)])

    def _carry(self, loop: For) -> list[tuple[str, int, str]]:
        """Fresh names, inside the loop, for the register slots that it may change."""
        out = []
        for name in sorted(writes(loop.body) & self.slots.keys()):
            for base in self._bases(name):
                phi = self.function.name("r")
                self.slots[name][base] = phi
                out.append((name, base, phi))
        return out

    def _bases(self, name: str) -> list[int]:
        """Offsets of all slots of a register buffer."""
        place = self.places[name]
        assert place.layout is not None
        return sorted({place.layout.slot(offset)[0] for offset in range(place.buffer.size)})
