"""A program as a plain C function: the loops as they stand, floats in double. What saved examples check with.

Integers are computed in int64_t and wrapped to their own width after each operation; buffers that are not
inputs hold double for every float type. So the function rounds less than a kernel does, never more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..ir.arithmetic import limits
from ..ir.combiners import COMBINERS
from ..ir.dtypes import DType, bf16, boolean, f16, i64
from ..ir.exprs import Cast, Const, Expr, Load, Op, Var
from ..ir.names import fresh
from ..ir.nodes import Alloc, Block, Buffer, For, If, Prefetch, Program, Stmt, Store, Update
from ..ir.optable import OPS
from ..ir.walk import loops, statements
from .brackets import bare
from .c_text import C_TYPES, FLOAT, HELPERS, INFIX, RESERVED, WHOLE

_DECODERS = {f16: "half", bf16: "brain"}


def element(dtype: DType) -> str:
    """The C type of an element of a buffer that is no input."""
    return "double" if dtype.is_float else C_TYPES[dtype.name]


def identifiers(names: list[str], others: Iterable[str] = ()) -> dict[str, str]:
    """A C identifier for each name, all of them different, and different from `others`."""
    taken = RESERVED | HELPERS.keys() | OPS.keys() | set(others)
    out = {}
    for name in names:
        out[name] = fresh(re.sub(r"[^A-Za-z0-9_]", "_", name), taken)
        taken = taken | {out[name]}
    return out


def reach(buffer: Buffer) -> tuple[int, int]:
    """Elements before and from the first element's address that a buffer reaches over."""
    reach = [s * (n - 1) for s, n in zip(buffer.element_strides, buffer.shape, strict=True)]
    return -sum(r for r in reach if r < 0), 1 + sum(r for r in reach if r > 0)


def decoded(element: str, dtype: DType) -> str:
    """The value of an element of an input or output in memory: a double for the half types."""
    return f"{_DECODERS[dtype]}({element})" if dtype in _DECODERS else element


def function(program: Program, name: str) -> str:
    """Static C functions, the last of them `void name(inputs..., outputs...)`, the outputs wide."""
    return _Writer(program).whole(name)


@dataclass(slots=True)
class _Writer:
    program: Program
    names: dict[str, str] = field(init=False)
    loops: dict[str, str] = field(init=False)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)
    count: int = 0

    def __post_init__(self) -> None:
        body = self.program.body
        allocs = [s.buffer.name for s in statements(body) if isinstance(s, Alloc)]
        plain = [b.name for b in self.program.parameters]
        self.names = identifiers(list(dict.fromkeys([*plain, *allocs])))
        self.loops = identifiers(list(dict.fromkeys([x.var for x in loops(body)])), self.names.values())
        self.buffers = {b.name: b for b in self.program.parameters}

    def whole(self, name: str) -> str:
        """The helpers that are used, then the function."""
        inputs = [f"const {C_TYPES[b.dtype.name]} *{self.names[b.name]}" for b in self.program.inputs]
        outputs = [f"{element(b.dtype)} *{self.names[b.name]}" for b in self.program.outputs]
        body = self.statement(self.program.body, "  ")
        # Whoever compares the results decodes the outputs.
        self.helpers |= {_DECODERS[b.dtype] for b in self.program.parameters if b.dtype in _DECODERS}
        used = [text for key, text in HELPERS.items() if key in self.helpers]
        head = f"static void {name}({', '.join([*inputs, *outputs])}) {{"
        return "\n".join([*used, head, *body, "}"])

    def statement(self, stmt: Stmt, pad: str) -> list[str]:
        match stmt:
            case For(var=var):
                x, body = self.loops[var], self.statement(stmt.body, pad + "  ")
                return [f"{pad}for (int64_t {x} = 0; {x} < {stmt.extent}; {x}++) {{", *body, f"{pad}}}"]
            case Block(stmts):
                return [line for s in stmts for line in self.statement(s, pad)]
            case If(cond, then, other):
                lines = [f"{pad}if ({self.value(cond)}) {{", *self.statement(then, pad + "  ")]
                if other is not None:
                    lines += [f"{pad}}} else {{", *self.statement(other, pad + "  ")]
                return [*lines, f"{pad}}}"]
            case Alloc(buffer, body):
                self.buffers[buffer.name] = buffer
                name, kind = self.names[buffer.name], element(buffer.dtype)
                made = f"{kind} *{name} = malloc({max(buffer.size, 1)} * sizeof *{name});"
                return [f"{pad}{made}", *self.statement(body, pad), f"{pad}free({name});"]
            case Store(buffer, indices, value):
                return [f"{pad}{self.at(buffer, indices)} = {bare(self.value(value))};"]
            case Update():
                return self.update(stmt, pad)
            case Prefetch():
                return []
        raise TypeError(f"not a statement: {stmt!r}")

    def update(self, stmt: Update, pad: str) -> list[str]:
        """The identity where the reduction starts, then the merge: all parts of it before the first store."""
        combiner = COMBINERS[stmt.combiner]
        dtypes = tuple([self.buffers[t].dtype for t in stmt.targets])
        targets = [self.at(t, stmt.indices) for t in stmt.targets]
        lines = []
        if stmt.init:
            first = " && ".join([f"{self.loops[a]} == 0" for a in stmt.axes]) or "1"
            sets = [
                f"{t} = {self.value(c)};" for t, c in zip(targets, combiner.identity(dtypes), strict=True)
            ]
            lines.append(f"{pad}if ({first}) {{ {' '.join(sets)} }}")
        old, new = (
            tuple([Load(f"${side}{n}", (), d) for n, d in enumerate(dtypes)]) for side in ("old", "new")
        )
        if len(targets) == 1:
            self.parts = {"$old0": targets[0], "$new0": self.value(stmt.values[0])}
            return [*lines, f"{pad}{targets[0]} = {bare(self.value(combiner.merge(old, new)[0]))};"]
        held = []
        for side, codes in (("old", targets), ("new", [self.value(v) for v in stmt.values])):
            for n, code in enumerate(codes):
                name = self.temporary()
                held.append((f"${side}{n}", name))
                lines.append(f"{pad}{self.wide(dtypes[n])} {name} = {code};")
        self.parts = dict(held)
        merged = [bare(self.value(e)) for e in combiner.merge(old, new)]
        return lines + [f"{pad}{t} = {m};" for t, m in zip(targets, merged, strict=True)]

    def temporary(self) -> str:
        self.count += 1
        return f"t{self.count}_"

    @staticmethod
    def wide(dtype: DType) -> str:
        return "double" if dtype.is_float else "int64_t"

    def at(self, name: str, indices: tuple[Expr, ...]) -> str:
        terms = []
        for index, stride in zip(indices, self.buffers[name].element_strides, strict=True):
            if isinstance(index, Const) and index.value == 0:
                continue
            terms.append(self.value(index) if stride == 1 else f"{self.value(index)} * {stride}")
        return f"{self.names[name]}[{' + '.join(terms) or 0}]"

    def value(self, expr: Expr) -> str:
        """C of an expression: a double, an int64_t, or a truth value."""
        match expr:
            case Const(value, dtype):
                return _literal(value, dtype)
            case Var(name):
                return self.loops[name]
            case Load(buffer, indices, dtype):
                return self.parts[buffer] if buffer in self.parts else self.load(buffer, indices, dtype)
            case Cast(value, dtype):
                return self.cast(value, dtype)
            case Op():
                return self.op(expr)
        raise TypeError(f"not an expression: {expr!r}")

    def load(self, buffer: str, indices: tuple[Expr, ...], dtype: DType) -> str:
        at = self.at(buffer, indices)
        if buffer in {b.name for b in self.program.inputs}:
            at = decoded(at, dtype)
        return at if dtype.is_float or dtype in (i64, boolean) else f"(int64_t){at}"

    def call(self, helper: str, *args: str) -> str:
        self.helpers.add(helper)
        return f"{helper}({', '.join(args)})"

    def cast(self, value: Expr, dtype: DType) -> str:
        code, source = self.value(value), value.dtype
        if dtype == boolean:
            return f"({code} != 0)"
        if dtype.is_float:
            return code if source.is_float else f"(double){code}"
        if source.is_float:
            return self.call("saturate", code, *[_literal(x, dtype) for x in limits(dtype)])
        return code if dtype == i64 else _wrapped(code, dtype)

    def op(self, expr: Op) -> str:
        first = expr.args[-1].dtype
        args = [self.value(a) for a in expr.args]
        if expr.op == "where":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        if expr.op in INFIX:
            code = f"({args[0]} {INFIX[expr.op]} {args[1]})"
        elif first == boolean:
            code = f"(!{args[0]})" if expr.op == "not" else WHOLE[expr.op].format(*args, bits=1)
        else:
            table = FLOAT if first.is_float else WHOLE
            form = table.get(expr.op, f"{expr.op}({', '.join(['{}'] * len(args))})")
            self.helpers.update(set(re.findall(r"\w+", form)) & HELPERS.keys())
            code = form.format(*args, bits=first.bits)
        if expr.dtype == boolean and expr.op == "add":
            return f"({code} != 0)"
        return _wrapped(code, expr.dtype) if expr.dtype.is_integer and expr.dtype != i64 else code


def _wrapped(code: str, dtype: DType) -> str:
    return f"(int64_t)({C_TYPES[dtype.name]}){code}"


def _literal(value: float | bool, dtype: DType) -> str:
    if not dtype.is_float:
        return str(int(value)) if value >= -(2**63) + 1 else "INT64_MIN"
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = repr(float(value))
    return f"({text})" if text.startswith("-") else text
