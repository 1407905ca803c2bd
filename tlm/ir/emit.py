"""Translation of programs to Python source, for the interpreter.

Buffers become lists of numpy scalars in row-major order, loop variables Python ints. Names of the program
never enter the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import VerifyError
from . import race
from .arithmetic import poison
from .combiners import COMBINERS
from .dtypes import DType
from .emit_values import Level, Mark, Values
from .exprs import Expr, Load
from .nodes import Alloc, Block, Buffer, For, If, Prefetch, Program, Stmt, Store, Update
from .printer import text
from .walk import reads, walk, writes

# Python allows 20 nested loops in one function.
_LOOPS_A_FUNCTION = 15
_SEQUENTIAL = ("serial", "unroll", "tensor", "warpgroup")


def emit(program: Program) -> tuple[str, dict[str, Any]]:
    """Source that defines run(*inputs, *outputs) on flat lists, and the namespace in which to execute it."""
    return _Emitter(program).whole()


class _Emitter(Values):
    def whole(self) -> tuple[str, dict[str, Any]]:
        for b in self.program.parameters:
            self._enter(b)
        head = f"def run({', '.join(self.buffers[b.name][1] for b in self.program.parameters)}):"
        body = self._stmt(self.program.body, " ")
        first = [line for b in self.program.parameters for line in self._log_lines(b, " ")]
        checks = [line for lines in self.checks.values() for line in lines]
        marks = f" marks = [0] * {self.marked}"
        return "\n".join([*checks, head, marks, *first, *body, ""]), self.namespace

    def _stmt(self, stmt: Stmt, pad: str) -> list[str]:
        match stmt:
            case For():
                return self._loop(stmt, pad)
            case Block(stmts):
                return [line for s in stmts for line in self._stmt(s, pad)] or [f"{pad}pass"]
            case If(cond, then, other):
                out = [f"{pad}if {self._value(cond)[0]}:", *self._stmt(then, pad + " ")]
                return out if other is None else [*out, f"{pad}else:", *self._stmt(other, pad + " ")]
            case Alloc(buffer, body):
                return self._alloc(buffer, body, pad)
            case Store(buffer, indices, value):
                code = self._numpy(value)
                at, lines = self._target(buffer, indices, pad)
                return [*lines, f"{pad}{self._buffer(buffer)[1]}[{at}] = {code}"]
            case Update():
                return self._update(stmt, pad)
            case Prefetch():
                return [f"{pad}pass"]
        raise TypeError(f"not a statement: {stmt!r}")

    def _loop(self, loop: For, pad: str) -> list[str]:
        if loop.var in self.extents:
            raise VerifyError(f"loop {loop.var} is inside another loop of that name")
        limit = (
            str(loop.extent) if loop.bound is None else f"min({loop.extent}, {self._value(loop.bound)[0]})"
        )
        outer = pad
        deep = len(self.levels) % _LOOPS_A_FUNCTION == _LOOPS_A_FUNCTION - 1
        inner = pad + "  " if deep else pad + " "
        level = Level(loop, self._fresh("n"))
        self.levels.append(level)
        self.extents[loop.var] = loop.extent
        before, stamp = self._mark(loop, level, outer)
        body = self._stmt(loop.body, inner)
        sums = [
            f"{inner}{name} = {start or 0} + {level.name} * {c}" for (start, c), name in level.sums.items()
        ]
        if stamp:
            self.marks.pop()
            sums.insert(0, inner + stamp)
        self.levels.pop()
        del self.extents[loop.var]
        lines = [f"{inner[:-1]}for {level.name} in range({limit}):", *sums, *body]
        if deep:
            helper = self._fresh("g")
            lines = [f"{pad}def {helper}():", *lines, f"{pad}{helper}()"]
        return [*before, *lines]

    def _mark(self, loop: For, level: Level, pad: str) -> tuple[list[str], str]:
        if loop.kind in _SEQUENTIAL:
            return [], ""
        inside = {n.buffer.name for n in walk(loop.body) if isinstance(n, Alloc)}
        shared = writes(loop.body) - inside - self._horizontal(loop)
        n = self.marked
        self.marked += 1
        self.marks.append(Mark(loop, n, shared))
        return [
            f"{pad}base{n} = marks[{n}]",
            f"{pad}marks[{n}] += {loop.extent}",
        ], f"stamp{n} = base{n} + {level.name}"

    def _horizontal(self, loop: For) -> frozenset[str]:
        """Buffers that a vectorize loop reduces into across its lanes, or a thread loop across threads."""
        if loop.kind != "vectorize" and not loop.kind.startswith("threadIdx"):
            return frozenset()
        updates = [n for n in walk(loop.body) if isinstance(n, Update) and loop.var in n.axes]
        found = frozenset(t for u in updates for t in u.targets)
        for n in walk(loop.body):
            touched = frozenset[str]()
            if isinstance(n, Update) and n in updates:
                touched = frozenset(x for v in n.values for x in reads(v))
            elif isinstance(n, Store | Update):
                touched = reads(n) | writes(n)
            if touched & found:
                each = "lanes" if loop.kind == "vectorize" else "threads"
                raise race.RaceError(
                    f"{loop.kind} loop {loop.var} reduces into {', '.join(sorted(touched & found))} across "
                    f"its {each}, but one of its iterations also uses it: {text(n)}"
                )
        return found

    def _alloc(self, buffer: Buffer, body: Stmt, pad: str) -> list[str]:
        hidden = self.buffers.get(buffer.name)
        name = self._enter(buffer)
        lines = self._stmt(body, pad)
        fill = self._keep("poison", poison(buffer.dtype))
        head = [f"{pad}{name} = [{fill}] * {buffer.size}", *self._log_lines(buffer, pad)]
        if hidden:
            self.buffers[buffer.name] = hidden
        else:
            del self.buffers[buffer.name]
        return [*head, *lines]

    def _update(self, stmt: Update, pad: str) -> list[str]:
        combiner = COMBINERS.get(stmt.combiner)
        if combiner is None or combiner.parts != len(stmt.targets) or len(stmt.values) != len(stmt.targets):
            raise VerifyError(f"not a known combiner with these parts: {text(stmt)}")
        dtypes = tuple([self._buffer(t)[0].dtype for t in stmt.targets])
        names = [self._buffer(t)[1] for t in stmt.targets]
        at, lines = "", []
        for target in stmt.targets:
            at, checked = self._target(target, stmt.indices, pad)
            lines += checked
        if stmt.init:
            zero = " or ".join([self._level(a).name for a in stmt.axes])
            lines.append(f"{pad}if not ({zero}):" if zero else f"{pad}if True:")
            lines += [
                f"{pad} {b}[{at}] = {self._constant(c)}"
                for b, c in zip(names, combiner.identity(dtypes), strict=True)
            ]
        old, new = [f"{b}[{at}]" for b in names], [self._numpy(v) for v in stmt.values]
        if combiner.parts > 1:
            kept = [self._fresh("v") for _ in range(2 * combiner.parts)]
            lines.append(f"{pad}{', '.join(kept)} = {', '.join(old + new)}")
            old, new = kept[: combiner.parts], kept[combiner.parts :]
        merged = combiner.merge(
            self._placeholders("$old", dtypes, old), self._placeholders("$new", dtypes, new)
        )
        lines.append(
            f"{pad}{', '.join([f'{b}[{at}]' for b in names])} = {', '.join(map(self._numpy, merged))}"
        )
        return lines

    def _placeholders(self, prefix: str, dtypes: tuple[DType, ...], codes: Sequence[str]) -> tuple[Expr, ...]:
        """Leaves that stand for `codes` in a combiner's merge."""
        for n, code in enumerate(codes):
            self.parts[f"{prefix}{n}"] = code
        return tuple([Load(f"{prefix}{n}", (), d) for n, d in enumerate(dtypes)])

    def _target(self, buffer: str, indices: tuple[Expr, ...], pad: str) -> tuple[str, list[str]]:
        """A name that holds the flat index of a write, and the lines that compute and log it."""
        at = self._fresh("t")
        lines = [f"{pad}{at} = {self._flat(buffer, indices)}"]
        for mark, log in self._watchers(buffer):
            n, name = mark.number, self._buffer(buffer)[1]
            lines.append(
                f"{pad}if w{n}_{name}[{at}] != stamp{n}: wrote({log}, {at}, {self._site(buffer, mark)})"
            )
        return at, lines
