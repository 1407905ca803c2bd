"""Wider storage of a temporary: narrow elements are converted once, when they are staged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from ..ir.dtypes import DTYPES, exact
from ..ir.exprs import Cast, Expr, Load
from ..ir.nodes import Alloc, Buffer, Program, Stmt, Store
from ..ir.paths import with_body
from ..ir.walk import buffers, children, map_expr, map_exprs, map_stmt, statements, targets
from .base import Rewrite, Step, near


@dataclass(frozen=True, slots=True)
class Widen(Step):
    """A temporary holds wider elements: what is stored is converted once, not each time it is read.

        alloc T: bf16: {T[i] = B[i]; C[i, j] (k)+= f32(T[i]) * ...}
    ->  alloc T: f32: {T[i] = f32(B[i]); C[i, j] (k)+= T[i] * ...}

    Legal where the wider type holds every value of the narrow one and every read is converted anyway.
    """

    primitive: ClassVar[str] = "widen"
    buffer: str
    dtype: str

    def plan(self, program: Program) -> Rewrite:
        narrow, wide = self._temporary(program).dtype, DTYPES.get(self.dtype)
        if wide is None:
            known = near(self.dtype, DTYPES, "dtypes")
            raise self.refuse(program, f"there is no dtype {self.dtype!r}", known)
        if not exact(narrow, wide):
            holders = ", ".join([d.name for d in DTYPES.values() if d != narrow and exact(narrow, d)])
            reason = f"{wide} does not hold every value of {narrow}"
            raise self.refuse(program, reason, f"These do: {holders or 'none'}.")
        for stmt in statements(program.body):
            if self.buffer in targets(stmt) and not isinstance(stmt, Store):
                reason = f"{self.buffer} is the target of a reduction"
                raise self.refuse(program, reason, "Widen what is staged by cache_read.")
            if any(e.buffer == self.buffer for e in _bare(stmt)):
                raise self.refuse(program, f"a read of {self.buffer} is not converted")

        def rewrite() -> Program:
            def read(e: Expr) -> Expr:
                match e:
                    case Cast(Load(name, indices, _), dtype) if name == self.buffer:
                        load = Load(name, indices, wide)
                        return load if dtype == wide else Cast(load, dtype)
                return e

            def write(stmt: Stmt) -> Stmt:
                match stmt:
                    case Store(name, indices, value) if name == self.buffer:
                        return Store(name, indices, Cast(value, wide))
                    case Alloc(Buffer(name=name), body) if name == self.buffer:
                        return Alloc(replace(stmt.buffer, dtype=wide), body)
                return stmt

            body = map_exprs(program.body, lambda whole: map_expr(whole, read))
            return with_body(program, map_stmt(body, write))

        return rewrite

    def _temporary(self, program: Program) -> Buffer:
        known = buffers(program)
        found = known.get(self.buffer)
        temporaries = [n for n, b in known.items() if b.memory != "array"]
        if found is None or found.memory == "array":
            reason = f"{self.buffer} is {'a parameter' if found else 'no buffer'} of the program"
            raise self.refuse(program, reason, near(self.buffer, temporaries, "temporaries"))
        return found


def _bare(stmt: Stmt) -> Iterator[Load]:
    """The reads of a statement without a conversion around them; none of those of statements inside it."""
    stack = [e for e in children(stmt) if not isinstance(e, Stmt)]
    while stack:
        e = stack.pop()
        converted = isinstance(e, Cast) and isinstance(e.value, Load)
        inner = children(e.value) if isinstance(e, Cast) and converted else children(e)
        stack += [x for x in inner if not isinstance(x, Stmt)]
        if isinstance(e, Load):
            yield e
