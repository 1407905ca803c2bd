"""Blocks, branches, temporaries and loops."""

from __future__ import annotations

from typing import Any

from ...ir.nodes import Alloc, Block, For, If, Stmt
from ...ir.walk import writes
from ...lower.memory import Layout, register_layout
from ...target import Target
from .dots import Run, group
from .leaves import Leaves
from .memory import Place, Runtime
from .types import value_type


class Control(Leaves):
    """The emitter's part for control flow. Subclasses place temporaries and start parallel loops."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        # By identity and vector loop; each Alloc has a level of its own, as it may change what a name is.
        self.compiled: list[dict[tuple[int, str | None], Any]] = [{}]

    def parallel(self, loop: For) -> None:
        """Emit a loop that threads share."""
        raise NotImplementedError

    def temporary(self, alloc: Alloc) -> None:
        """Emit what is inside an allocation on the stack or the heap."""
        raise NotImplementedError

    def statement(self, stmt: Stmt) -> None:
        """Emit a statement: control flow as it stands, leaves by the code compiled from them once."""
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

    def _if(self, stmt: If) -> None:
        key = (id(stmt), self.lane)
        code = self.compiled[-1].get(key)
        if code is None:
            code = self.compiled[-1][key] = self.code(stmt.cond)
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
        grouped = self._grouped(loop) if loop.kind == "unroll" else None
        if grouped is not None:
            grouped()
        elif loop.kind == "vectorize" and loop.extent > 1:
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

    def _grouped(self, loop: For) -> Run | None:
        """What emits `loop` at once: a dot product, or an interleaved store."""
        key = (id(loop), self.lane)
        if key not in self.compiled[-1]:
            self.compiled[-1][key] = group(self, loop, self.target)
        found: Run | None = self.compiled[-1][key]
        return found

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
        var = f.name("i")
        phis: list[str] = []
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
        return place.layout.slots(place.buffer.size)
