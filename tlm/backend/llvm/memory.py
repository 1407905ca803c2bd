"""The emitter's state, and addresses: one pointer for each buffer and loop level, plus a constant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.dtypes import DType
from ...ir.exprs import Const, Expr, Load, Op, Var
from ...ir.nodes import Buffer
from ...ir.walk import walk
from ...lower.memory import Layout
from .arith import Arithmetic
from .builder import Function
from .types import (
    Known,
    mask_literal,
    vector_literal,
)

Mask = str | tuple[bool, ...] | None


@dataclass(frozen=True, slots=True)
class Runtime:
    """A loop variable in its body: an i64 value, known from the scope at `depth` on, plus an offset."""

    name: str
    offset: int
    depth: int


@dataclass(slots=True)
class Code:
    """How to emit an expression: its type, its lanes (1: the same for all lanes), and the emitter.

    Conditions that are known when compiling come out as Python bools, or tuples of them.
    """

    dtype: DType
    lanes: int
    emit: Callable[[], str | Known]


@dataclass(slots=True)
class Place:
    """Where a buffer is: a base pointer, or the SSA values of its slots by offset."""

    buffer: Buffer
    base: str
    layout: Layout | None = None


@dataclass(slots=True)
class Linear:
    """const + sum of coefficient * (variable or other i64 expression)."""

    const: int
    terms: dict[str, int]
    others: list[tuple[Expr, int]]


def linear(expr: Expr, scale: int = 1, out: Linear | None = None) -> Linear:
    """`expr` * `scale`, added to `out`; what is not affine becomes a term of its own."""
    out = Linear(0, {}, []) if out is None else out
    match expr:
        case Const(value, _):
            out.const += scale * int(value)
        case Var(name):
            out.terms[name] = out.terms.get(name, 0) + scale
        case Op("add" | "sub" as name, (a, b), _):
            linear(a, scale, out)
            linear(b, scale if name == "add" else -scale, out)
        case Op("neg", (a,), _):
            linear(a, -scale, out)
        case Op("mul", (a, Const(value, _)), _) | Op("mul", (Const(value, _), a), _):
            linear(a, scale * int(value), out)
        case _:
            out.others.append((expr, scale))
    return out


class Memory:
    """State of the emitter, and everything about addresses. Subclasses compile expressions."""

    def __init__(self) -> None:
        self.function: Function
        self.arith: Arithmetic
        self.places: dict[str, Place] = {}
        self.idle: dict[str, list[str]] = {}  # places on the stack that are free again, by type
        self.slots: dict[str, dict[int, str]] = {}
        self.env: dict[str, int | Runtime] = {}
        self.lane: str | None = None
        self.lanes = 1
        self.mask: Mask = None
        self.guard: str | None = None  # a condition under which loads of all lanes are safe
        self.pointers: dict[tuple[object, ...], tuple[str, int]] = {}

    def code(self, expr: Expr) -> Code:
        """Compile an expression under the present vector loop."""
        raise NotImplementedError

    def pure(self, text: str) -> str:
        return self.function.pure(text)

    def variable(self, name: str) -> str:
        """The i64 value of a loop variable."""
        value = self.env[name]
        if isinstance(value, int):
            return str(value)
        return value.name if not value.offset else self.pure(f"add i64 {value.name}, {value.offset}")

    def iota(self, element: str, step: int = 1) -> str:
        """0, step, 2 * step, ... over the lanes."""
        return vector_literal([step * i for i in range(self.lanes)], element)

    def uniform_sum(self, form: Linear) -> Callable[[], str]:
        """An emitter of the i64 value of a form without lane terms."""
        others = [(self.code(e), c) for e, c in form.others]
        terms = [(n, c) for n, c in form.terms.items() if c and n != self.lane]

        def emit() -> str:
            total, out = form.const, ""
            for name, c in terms:
                value = self.env[name]
                if isinstance(value, int):
                    total += c * value
                    continue
                total += c * value.offset
                out = self._plus(out, self._times(value.name, c))
            for code, c in others:
                out = self._plus(out, self._times(str(code.emit()), c))
            return str(total) if not out else self._plus(out, str(total)) if total else out

        return emit

    def _times(self, value: str, c: int) -> str:
        return value if c == 1 else self.pure(f"mul i64 {value}, {c}")

    def _plus(self, a: str, b: str) -> str:
        return self.pure(f"add i64 {a}, {b}") if a else b

    def pointer(self, place: Place, terms: tuple[tuple[Runtime, int], ...]) -> str:
        """base + the bytes of `terms`, sorted by depth: computed at the head of the innermost loop."""
        if not terms:
            return place.base
        key = (place.base, *[(r.name, c) for r, c in terms])
        found = self.pointers.get(key)
        if found is not None:
            return found[0]
        parent = self.pointer(place, terms[:-1])
        value, c = terms[-1]
        with self.function.at(value.depth):
            offset = self.pure(f"mul i64 {value.name}, {c}")
            out = self.pure(f"getelementptr i8, ptr {parent}, i64 {offset}")
        self.pointers[key] = (out, value.depth)
        return out

    def mask_text(self, mask: str | tuple[bool, ...]) -> str:
        """A mask as an operand."""
        return mask if isinstance(mask, str) else mask_literal(mask)

    def touches_memory(self, expr: Expr) -> bool:
        """Whether `expr` reads any buffer."""
        return any(isinstance(n, Load) for n in walk(expr))
