"""Expressions as CUDA C: indices in 32 bits where these suffice, values in the type of each operation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import BackendError
from ...ir.affine import interval
from ...ir.arithmetic import limits, scalar
from ...ir.dtypes import DType, boolean, f32, f64, i64
from ...ir.exprs import Cast, Const, Expr, Load, Node, Op, Var
from ...ir.nodes import Buffer
from ...ir.walk import walk
from ...lower.gpu_vectors import divisor, flat
from ...schedule.access import Key, linear
from ..brackets import bare, closing, operand
from .device import BOOL, FLOAT, HELPERS, INFIX, INTEGER, STORED, UNSIGNED, VALUES, is_half
from .literals import literal

_INT = 2**31 - 1
_COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
_ON_TRUTH = {**BOOL, **{n: f"({{0}} {INFIX[n]} {{1}})" for n in _COMPARE}}
_ON_INDICES = {"mul": "{} * {}", "minimum": "min({}, {})", "maximum": "max({}, {})"}


@dataclass(frozen=True, slots=True)
class Home:
    """The C array of a buffer. `kept`: the dimensions that index it, each in brackets of its own; None: one
    flat index."""

    name: str
    buffer: Buffer
    kept: tuple[int, ...] | None = None


@dataclass(slots=True)
class Values:
    """What is known where an expression stands, and the helper functions that the text uses."""

    homes: dict[str, Home] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    extents: dict[str, int] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    bits: dict[str, str] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)

    # Places

    def at(self, buffer: str, indices: tuple[Expr, ...]) -> str:
        """The element buffer[indices] as it lies in memory."""
        home = self.homes[buffer]
        if home.kept is not None:
            return home.name + "".join([f"[{self.index(indices[d])}]" for d in home.kept] or ["[0]"])
        return f"{home.name}[{self.flat(home.buffer, indices)}]"

    def flat(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """The offset of an element, in elements."""
        terms = linear(flat(buffer, indices))
        return self.sum(terms) if buffer.swizzle is None else self.swizzled(buffer, buffer.swizzle, terms)

    def swizzled(self, buffer: Buffer, swizzle: tuple[int, int, int], terms: Mapping[Key, int]) -> str:
        """x ^ x // period % ways * step for x the sum of `terms`.

        Where terms part into whole rows and what lies inside of one, rows alone say how pieces change places:
        that is known outside of loops along a row, and added to by those that move whole periods.
        """
        period, ways, step = swizzle
        known = all(c >= 0 and self._counts(k) for k, c in terms.items())
        pitches = {p for p in buffer.element_strides if p > 0 and period % p == 0 == p % (ways * step)}
        for pitch in sorted(pitches, reverse=True) if known else ():
            start = terms.get("", 0)
            inside = {k: c for k, c in terms.items() if c % pitch and k != ""}
            if start % pitch + sum([c * self._reach(k) for k, c in inside.items()]) >= pitch:
                continue
            rows = {k: c // pitch for k, c in terms.items() if k not in inside and k != ""}
            rows[""] = start // pitch
            whole = self.sum({k: c * pitch for k, c in rows.items()})
            turn, inner = (
                self._turn(rows, period // pitch, ways, step),
                self.sum({**inside, "": start % pitch}),
            )
            moved = inner if turn == "0" else turn if inner == "0" else f"({operand(inner)} ^ {turn})"
            return moved if whole == "0" else whole if moved == "0" else f"{whole} + {moved}"
        turns = {k: c for k, c in terms.items() if c and _units(k, c) % (period * ways) == 0 and known}
        rest = self.sum({k: c for k, c in terms.items() if k not in turns})
        code = self.use(f"swizzled<{period}, {ways}, {step}>({rest})")
        return f"{self.sum(turns)} + {code}" if turns else code

    def _turn(self, rows: Mapping[Key, int], each: int, ways: int, step: int) -> str:
        """The mask with which the pieces of a row change places; `each` neighbouring rows have one."""
        kept = {k: c % (each * ways) for k, c in rows.items() if _units(k, c) % (each * ways)}
        if not kept:
            return "0"
        code, most = self.sum(kept), sum([c * (self._reach(k) if k else 1) for k, c in kept.items()])
        code = code if each == 1 else f"{operand(code)} / {each}"
        if most // each >= ways:
            code = f"{operand(code) if each == 1 else code} % {ways}"
        return f"{operand(code)} * {step}" if step > 1 else f"({code})"

    def _counts(self, key: Key) -> bool:
        """Whether what a coefficient multiplies is never negative."""
        found = interval(key, self.extents) if isinstance(key, Node) else (0, 0)
        return found is not None and found[0] >= 0

    # Indices

    def index(self, expr: Expr) -> str:
        """An i64 expression as an int where all of it fits, else as a long long."""
        return self.sum(linear(expr))

    def sum(self, terms: Mapping[Key, int]) -> str:
        """A sum of multiples of loops and of other index expressions, the largest multiple first.

        `terms` are coefficients by what they multiply; the constant is under "".
        """
        left = {k: c for k, c in terms.items() if c and k != ""}
        start = terms.get("", 0)
        wide = not all(self._narrow(k) for k in left if isinstance(k, Node))
        reach = abs(start) + sum([abs(c) * self._reach(k) for k, c in left.items()])
        cast = "(long long)" if wide or reach > _INT else ""
        out = ""
        for key, c in sorted(left.items(), key=lambda t: -abs(t[1])):
            whole = len(left) == 1 and c == 1 and not start and not cast
            term = cast + self._term(key, whole) + (f" * {abs(c)}" if abs(c) != 1 else "")
            out += (f" {'-' if c < 0 else '+'} " if out else "-" if c < 0 else "") + term
        if start or not out:
            shown = f"{abs(start)}{'LL' if abs(start) > _INT else ''}"
            out += (f" {'-' if start < 0 else '+'} " if out else "-" if start < 0 else "") + shown
        return out

    def _reach(self, key: Key) -> int:
        """The largest size of what a coefficient multiplies."""
        if isinstance(key, str):
            return max(self.extents[key] - 1, 0)
        found = interval(key, self.extents) if isinstance(key, Node) else None
        return _INT + 1 if found is None else max(abs(found[0]), abs(found[1]))

    def _term(self, key: Key, whole: bool) -> str:
        if isinstance(key, str):
            return self.names[key]
        assert isinstance(key, Node)
        if not isinstance(key, Op) or not self._narrow(key):
            return self.value(key)
        code = self._index_op(key)
        return code if whole or re.fullmatch(r"\w+|min\([^()]*\)|max\([^()]*\)", code) else f"({code})"

    def _narrow(self, expr: Expr) -> bool:
        """Whether index arithmetic, with all of its parts, fits in 32 bits."""
        for node in walk(expr):
            if isinstance(node, Load):
                return False
            if isinstance(node, Op | Cast) and node.dtype == i64:
                reach = interval(node, self.extents)
                if reach is None or reach[0] < -_INT or reach[1] > _INT:
                    return False
        return True

    def _index_op(self, expr: Op) -> str:
        name, args = expr.op, expr.args
        if name == "where":
            return f"({self.truth(args[0])} ? {self.index(args[1])} : {self.index(args[2])})"
        codes = [self.index(a) for a in args]
        codes = [c if re.fullmatch(r"\w+|min\(.*\)|max\(.*\)", c) else f"({c})" for c in codes]
        if name in ("floordiv", "mod", "quot", "rem"):
            x, y = (interval(a, self.extents) for a in args)
            if x is not None and y is not None and x[0] >= 0 and y[0] > 0:
                return f"{codes[0]} {'/' if name in ('floordiv', 'quot') else '%'} {codes[1]}"
            return self.use(INTEGER[name].format(*[f"(int){c}" for c in codes]))
        if name in _ON_INDICES:
            return _ON_INDICES[name].format(*codes)
        return bare(self.value(expr))

    def truth(self, expr: Expr) -> str:
        """A condition."""
        match expr:
            case Op("and" | "or" as name, (a, b), dtype) if dtype == boolean:
                return f"({self.truth(a)}) {'&&' if name == 'and' else '||'} ({self.truth(b)})"
            case Op("not", (a,), dtype) if dtype == boolean:
                return f"!({self.truth(a)})"
            case Op(name, (a, b), _) if name in _COMPARE and a.dtype == i64 and _is_index(a) and _is_index(b):
                return f"{self.index(a)} {INFIX[name]} {self.index(b)}"
        return bare(self.value(expr))

    # Values

    def value(self, expr: Expr) -> str:
        """An expression in its value type, in parentheses where it is more than one piece."""
        match expr:
            case Const(value, dtype):
                return literal(value, dtype)
            case Var(name):
                return f"(long long){self.names[name]}"
            case Load(buffer, indices, dtype):
                return (
                    self.parts[buffer]
                    if buffer in self.parts
                    else self.loaded(self.at(buffer, indices), dtype)
                )
            case Cast(value, dtype):
                return self._cast(value, dtype)
            case Op(name, args, dtype):
                if dtype == i64 and _is_index(expr) and self._narrow(expr):
                    return f"(long long)({self.index(expr)})"
                if name == "where":
                    return (
                        f"({self.truth(args[0])} ? {bare(self.value(args[1]))} : {bare(self.value(args[2]))})"
                    )
                if dtype == boolean and (name in ("and", "or", "not") or name in _COMPARE):
                    compared = name in _COMPARE and not (args[0].dtype == i64 and all(map(_is_index, args)))
                    if not compared and (name in _COMPARE or args[0].dtype == boolean):
                        return f"({self.truth(expr)})"
                return self._op(expr)
        raise TypeError(f"not an expression: {expr!r}")

    def loaded(self, element: str, dtype: DType) -> str:
        """The value of an element in memory."""
        return self.use(f"from_{dtype.name}({element})") if is_half(dtype) else element

    def stored(self, expr: Expr) -> str:
        """An expression as it goes to memory."""
        if not is_half(expr.dtype):
            return bare(self.value(expr))
        raw = self.raw(expr)
        if raw is not None:
            return raw
        # A value that is rounded anyway is rounded once.
        code = bare(self.value(expr))
        rounding = f"round_{expr.dtype.name}("
        if code.startswith(rounding) and closing(code, len(rounding) - 1) == len(code) - 1:
            code = code[len(rounding) : -1]
        return self.use(f"to_{expr.dtype.name}({code})")

    def raw(self, expr: Expr) -> str | None:
        """The bits of a half that is only moved; None where it is computed."""
        match expr:
            case Const(value, dtype):
                bits = scalar(dtype)(value).tobytes()
                return f"(unsigned short)0x{int.from_bytes(bits, 'little'):04x}"
            case Load(buffer, indices, _):
                return self.bits[buffer] if buffer in self.parts else self.at(buffer, indices)
            case Op("where", (cond, a, b), _):
                sides = self.raw(a), self.raw(b)
                return None if None in sides else f"{self.truth(cond)} ? {sides[0]} : {sides[1]}"
        return None

    def kept(self, code: str, dtype: DType) -> str:
        """A value, given as text, as it goes to memory."""
        return self.use(f"to_{dtype.name}({code})") if is_half(dtype) else code

    def use(self, code: str) -> str:
        """`code`, whose helper functions are remembered."""
        todo = set(re.findall(r"\w+", code)) & HELPERS.keys()
        if "copy_async" in code:
            todo |= {"copy_async", "shared_address"}
        while todo:
            name = todo.pop()
            if name not in self.helpers:
                self.helpers.add(name)
                todo |= set(re.findall(r"\w+", HELPERS[name])) & HELPERS.keys()
        return code

    def _cast(self, value: Expr, dtype: DType) -> str:
        source = value.dtype
        if source == dtype:
            return self.value(value)
        if dtype == boolean:
            return f"({self.value(value)} != 0)"
        if dtype.is_float and source == i64 and _is_index(value):
            return self._rounded(f"({VALUES[dtype.name]})({self.index(value)})", dtype, f32)
        code = self.value(value)
        if dtype.is_float:
            return self._float(code, source, dtype)
        if source.is_float:
            low, high = limits(dtype)
            kind = "double" if source == f64 else "float"
            ends = f"{literal(low, dtype)}, {literal(high, dtype)}"
            return self.use(f"saturate<{STORED[dtype.name]}, {kind}>({bare(code)}, {ends})")
        return f"({STORED[dtype.name]}){code}"

    def _float(self, code: str, source: DType, dtype: DType) -> str:
        if source == f64 and is_half(dtype):
            return self.use(f"round_{dtype.name}(to_odd({bare(code)}))")
        if dtype.bytes >= 4:
            return code if is_half(source) and dtype == f32 else f"({VALUES[dtype.name]}){code}"
        return self._rounded(bare(code) if source.is_float else f"(float){code}", dtype, source)

    def _rounded(self, code: str, dtype: DType, source: DType) -> str:
        return self.use(f"round_{dtype.name}({code})") if is_half(dtype) and source != dtype else code

    def _op(self, expr: Op) -> str:
        first = expr.args[-1].dtype
        codes = [self.value(a) for a in expr.args]
        if first.is_float:
            code = self._float_op(expr.op, codes, first)
            half = is_half(first) and expr.dtype == first and expr.op not in _EXACT
            return self.use(f"round_{first.name}({bare(code)})") if half else code
        if first == boolean:
            return _ON_TRUTH[expr.op].format(*codes)
        return self._integer_op(expr.op, codes, first)

    def _float_op(self, name: str, codes: list[str], dtype: DType) -> str:
        if name in INFIX:
            return f"({codes[0]} {INFIX[name]} {codes[1]})"
        f = "" if dtype == f64 else "f"
        inner = [bare(c) for c in codes] if "({0}" in FLOAT[name] and "({0} " not in FLOAT[name] else codes
        return self.use(FLOAT[name].format(*inner, f=f))

    def _integer_op(self, name: str, codes: list[str], dtype: DType) -> str:
        kind = STORED[dtype.name]
        if name in _COMPARE:
            return f"({codes[0]} {INFIX[name]} {codes[1]})"
        if name in ("add", "sub", "mul"):
            wide = UNSIGNED.get(dtype.name)
            x, y = (f"({wide}){c}" for c in codes) if wide else codes
            return f"({kind})({x} {INFIX[name]} {y})"
        if name not in INTEGER:
            raise BackendError(f"the CUDA backend has no {name} of {dtype}")
        typed = [f"({kind}){c}" for c in codes] if "{1}" in INTEGER[name] else codes
        return f"({kind}){self.use(INTEGER[name].format(*typed, T=kind))}"


def _units(key: Key, factor: int) -> int:
    """A number that divides every value of a term of a sum of indices."""
    return factor * (divisor(key) if key else 1)


# Operations whose result is one of the operands, or a half whatever they are.
_EXACT = ("neg", "abs", "sign", "minimum", "maximum", "floor", "ceil", "round", "trunc")


def _is_index(expr: Expr) -> bool:
    """Whether an expression is arithmetic of loop variables alone."""
    return all(not isinstance(n, Load) and (n.dtype in (i64, boolean)) for n in walk(expr))  # type: ignore[union-attr]
