"""Expressions: compiled once into closures, run once for every copy of an unrolled statement."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.dtypes import DType, boolean, i64
from ...ir.exprs import Cast, Const, Expr, Load, Op, Var
from .access import access
from .memory import Code, Memory, linear
from .types import Known, literal, mask_literal, scalar_type, splat_literal, value_type, vector

_COMPARE: dict[str, tuple[str, Callable[[int], bool]]] = {
    "lt": ("slt", lambda x: x < 0), "le": ("sle", lambda x: x <= 0), "gt": ("sgt", lambda x: x > 0),
    "ge": ("sge", lambda x: x >= 0), "eq": ("eq", lambda x: x == 0), "ne": ("ne", lambda x: x != 0),
}  # fmt: skip
# Distances beyond what the lanes reach: comparing them with a limit cut to this range gives the same answer.
_FAR = 1 << 30


class Values(Memory):
    """The emitter's part for expressions."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, Code] = {}

    def code(self, expr: Expr) -> Code:
        """Compile an expression under the present vector loop."""
        match expr:
            case Const(value, dtype):
                if dtype == boolean:
                    return Code(dtype, 1, lambda: bool(value))
                text = literal(value, dtype)
                return Code(dtype, 1, lambda: text)
            case Load(name, indices, dtype):
                return self._load(name, indices, dtype)
            case Var() | Op("add" | "sub" | "mul" | "neg", _, _) if expr.dtype == i64:
                return self._index(expr)
            case Op("where", args, dtype):
                return self._where(args, dtype)
            case Op("and" | "or" | "not" as name, args, dtype) if dtype == boolean:
                return self._logic(name, [self.code(a) for a in args])
            case Op(name, (a, b), _) if name in _COMPARE and a.dtype == i64:
                return self._compare(name, a, b)
            case Op(name, args, dtype):
                return self._operation(name, args, dtype)
            case Cast(value, dtype):
                return self._cast(self.code(value), dtype)
        raise TypeError(f"not an expression: {expr!r}")

    def text(self, code: Code, lanes: int) -> str:
        """The operand that `code` gives, spread over `lanes`."""
        value = code.emit()
        if not isinstance(value, str):
            return known_text(value, lanes)
        if code.lanes == lanes:
            return value
        if value[0] != "%":
            return splat_literal(value, scalar_type(code.dtype), lanes)
        return self.arith.splat(value, scalar_type(code.dtype), lanes)

    def _load(self, name: str, indices: tuple[Expr, ...], dtype: DType) -> Code:
        part = self.parts.get(name)
        if part is not None:
            return part
        target = access(self, name, indices)
        return Code(dtype, target.lanes, target.load)

    def _index(self, expr: Expr) -> Code:
        form = linear(expr)
        step = form.terms.pop(self.lane, 0) if self.lane is not None else 0
        if any(e is expr or self.code(e).lanes > 1 for e, _ in form.others):
            return self._operation(expr.op, expr.args, expr.dtype)  # type: ignore[union-attr]
        base = self.uniform_sum(form)
        if not step:
            return Code(i64, 1, base)
        n, lane_offsets = self.lanes, self.iota("i64", step)

        def emit() -> str:
            start = base()
            if start == "0":
                return lane_offsets
            first = splat_literal(start, "i64", n) if start[0] != "%" else self.arith.splat(start, "i64", n)
            return self.pure(f"add <{n} x i64> {first}, {lane_offsets}")

        return Code(i64, n, emit)

    def _operation(self, name: str, args: tuple[Expr, ...], dtype: DType) -> Code:
        codes = [self.code(a) for a in args]
        lanes = max(c.lanes for c in codes)
        source = args[0].dtype
        arith = self.arith

        def emit() -> str:
            return arith.operation(name, source, lanes, [self.text(c, lanes) for c in codes])

        return Code(dtype, lanes, emit)

    def _cast(self, code: Code, dtype: DType) -> Code:
        if code.dtype == dtype:
            return code

        def emit() -> str:
            return self.arith.cast(self.text(code, code.lanes), code.dtype, dtype, code.lanes)

        return Code(dtype, code.lanes, emit)

    def _compare(self, name: str, a: Expr, b: Expr) -> Code:
        form = linear(b, -1, linear(a))
        step = form.terms.pop(self.lane, 0) if self.lane is not None else 0
        if form.others:
            # Data, or index arithmetic that is not affine: the difference could overflow.
            return self._operation(name, (a, b), boolean)
        base = self.uniform_sum(form)
        predicate, holds = _COMPARE[name]
        n = self.lanes if step else 1

        def emit() -> str | Known:
            start = base()
            if start[0] != "%":
                value = int(start)
                return holds(value) if n == 1 else tuple([holds(value + step * i) for i in range(n)])
            if n == 1:
                return self.pure(f"icmp {predicate} i64 {start}, 0")
            if abs(step) * (n - 1) >= _FAR:
                limit = self.arith.splat(self.pure(f"sub i64 0, {start}"), "i64", n)
                return self.pure(f"icmp {predicate} <{n} x i64> {self.iota('i64', step)}, {limit}")
            low = self.pure(f"call i64 @llvm.smax.i64(i64 {start}, i64 {-_FAR})")
            near = self.pure(
                f"trunc i64 {self.pure(f'call i64 @llvm.smin.i64(i64 {low}, i64 {_FAR})')} to i32"
            )
            limit = self.arith.splat(self.pure(f"sub i32 0, {near}"), "i32", n)
            return self.pure(f"icmp {predicate} <{n} x i32> {self.iota('i32', step)}, {limit}")

        return Code(boolean, n, emit)

    def _logic(self, name: str, codes: list[Code]) -> Code:
        lanes = max(c.lanes for c in codes)

        def emit() -> str | Known:
            return self.logic(name, [(c.emit(), c.lanes) for c in codes], lanes)

        return Code(boolean, lanes, emit)

    def logic(self, name: str, values: list[tuple[str | Known, int]], lanes: int) -> str | Known:
        """and, or, not of conditions, folded where they are known."""
        if name == "not":
            value = values[0][0]
            if isinstance(value, bool):
                return not value
            if isinstance(value, tuple):
                return tuple([not v for v in value])
            return self.pure(f"xor {vector('i1', lanes)} {value}, {known_text(True, lanes)}")
        absorbing = name == "or"
        unknown: list[tuple[str | Known, int]] = []
        for value, n in values:
            if isinstance(value, bool):
                if value is absorbing:
                    return absorbing
            else:
                unknown.append((value, n))
        if len(unknown) < 2:
            return unknown[0][0] if unknown else not absorbing
        (a, _), (b, _) = unknown
        if isinstance(a, tuple) and isinstance(b, tuple):
            return tuple([(x or y) if absorbing else (x and y) for x, y in zip(a, b, strict=True)])
        left, right = (self._bits(v, n, lanes) for v, n in unknown)
        return self.pure(f"{name} {vector('i1', lanes)} {left}, {right}")

    def _bits(self, value: str | Known, lanes: int, wanted: int) -> str:
        if not isinstance(value, str):
            return known_text(value, wanted)
        return value if lanes == wanted else self.arith.splat(value, "i1", wanted)

    def _where(self, args: tuple[Expr, ...], dtype: DType) -> Code:
        """Picks a side; loads of a side only happen (in each lane) where it is picked."""
        cond, a, b = (self.code(x) for x in args)
        lanes = max(cond.lanes, a.lanes, b.lanes)
        loads_a, loads_b = self.touches_memory(args[1]), self.touches_memory(args[2])
        type_ = value_type(dtype, lanes)

        def emit() -> str | Known:
            known = self._settled(cond.emit())
            if isinstance(known, bool):
                side = a if known else b
                return self.text(side, lanes) if dtype != boolean or side.lanes != lanes else side.emit()
            left = self._under(known, cond.lanes, a, lanes) if loads_a else self.text(a, lanes)
            if loads_b:
                other = self.logic("not", [(known, cond.lanes)], cond.lanes)
                right = self._under(other, cond.lanes, b, lanes)
            else:
                right = self.text(b, lanes)
            bits = known if isinstance(known, str) else mask_literal(known)
            return self.arith.select(bits, cond.lanes, left, right, type_)

        return Code(dtype, lanes, emit)

    def _settled(self, cond: str | Known) -> str | Known:
        """`cond`, or the one answer that it has in all lanes that are on."""
        if not isinstance(cond, tuple):
            return cond
        on = self.mask if isinstance(self.mask, tuple) and len(self.mask) == len(cond) else [True] * len(cond)
        answers = {c for c, lane in zip(cond, on, strict=True) if lane}
        return cond if len(answers) > 1 else answers == {True}

    def _under(self, cond: str | Known, lanes: int, code: Code, wanted: int) -> str:
        """The operand of `code` with loads only where `cond` holds."""
        mask, guard = self.mask, self.guard
        if lanes == 1:
            assert isinstance(cond, str)
            self.guard = cond if guard is None else self.pure(f"and i1 {guard}, {cond}")
        else:
            assert not isinstance(cond, bool)
            self.mask = self.masked(cond)
        out = self.text(code, wanted)
        self.mask, self.guard = mask, guard
        return out

    def masked(self, cond: str | tuple[bool, ...]) -> str | tuple[bool, ...]:
        """The mask in force and `cond`."""
        if self.mask is None:
            return cond
        both = self.logic("and", [(self.mask, self.lanes), (cond, self.lanes)], self.lanes)
        assert not isinstance(both, bool)
        return both


def known_text(value: Known, lanes: int) -> str:
    """A known condition as an operand."""
    if isinstance(value, tuple):
        return mask_literal(value)
    one = "true" if value else "false"
    return one if lanes == 1 else splat_literal(one, "i1", lanes)
