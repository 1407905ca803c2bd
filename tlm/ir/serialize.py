"""Programs as JSON and back. What is read is not trusted: every field is checked and every size is limited.

A program is {"version", "name", "inputs", "outputs", "body"}. Statements and expressions are lists that
begin with their kind, except that an i64 constant is a number and a loop variable a string:

    ["for", "i", 4, "serial", 1, null,
        ["store", "C", ["i"], ["op", "mul", ["load", "A", ["i"]], ["const", "f32", 2.0]]]]

Dtypes of loads and operations are not written: they follow from the buffers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, get_args

from ..errors import DTypeError, RecordError, VerifyError
from .dtypes import DTYPES, DType, boolean, i64
from .exprs import Cast, Const, Expr, Load, Op, Var, const, op
from .names import NAME
from .nodes import Alloc, Block, Buffer, For, If, LoopKind, Memory, Prefetch, Program, Stmt, Store, Update
from .verify import MAX_DEPTH, verify

VERSION = 1
MAX_NODES = 20_000
MAX_EXTENT = 2**36
"""Largest extent of a loop, and number of elements of a buffer."""
MAX_UNROLL = 4096
"""Largest extent of an unrolled loop, and unroll count."""
MAX_BUFFERS = 1000
MAX_STAGES = 8

Json = Any
_OPTIONAL = ("stages", "swizzle")
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def to_json(program: Program) -> dict[str, Json]:
    """The program as plain dicts, lists, strings and numbers."""
    return {
        "version": VERSION,
        "name": program.name,
        "inputs": [_buffer(b) for b in program.inputs],
        "outputs": [_buffer(b) for b in program.outputs],
        "body": _stmt(program.body),
    }


def _buffer(b: Buffer) -> dict[str, Json]:
    strides = None if b.strides is None else list(b.strides)
    plain: dict[str, Json] = {
        "name": b.name,
        "shape": list(b.shape),
        "dtype": b.dtype.name,
        "memory": b.memory,
        "strides": strides,
    }
    if b.stages != 1:
        plain["stages"] = b.stages
    if b.swizzle is not None:
        plain["swizzle"] = list(b.swizzle)
    return plain


def _stmt(stmt: Stmt) -> Json:
    match stmt:
        case For(var, extent, body, kind, unroll, bound):
            return ["for", var, extent, kind, unroll, None if bound is None else _expr(bound), _stmt(body)]
        case Block(stmts):
            return ["block", [_stmt(s) for s in stmts]]
        case If(cond, then, other):
            return ["if", _expr(cond), _stmt(then), None if other is None else _stmt(other)]
        case Alloc(buffer, body):
            return ["alloc", _buffer(buffer), _stmt(body)]
        case Store(buffer, indices, value):
            return ["store", buffer, [_expr(i) for i in indices], _expr(value)]
        case Update(targets, indices, values, combiner, axes, init):
            written = [list(targets), [_expr(i) for i in indices], [_expr(v) for v in values]]
            return ["update", *written, combiner, list(axes), init]
        case Prefetch(buffer, indices, locality):
            return ["prefetch", buffer, [_expr(i) for i in indices], locality]
    raise TypeError(f"not a statement: {stmt!r}")


def _expr(expr: Expr) -> Json:
    match expr:
        case Const(value, dtype):
            if dtype == i64:
                return value
            finite = not isinstance(value, float) or math.isfinite(value)
            return ["const", dtype.name, value if finite else repr(value)]
        case Var(name):
            return name
        case Load(buffer, indices, _):
            return ["load", buffer, [_expr(i) for i in indices]]
        case Op(name, args, _):
            return ["op", name, *[_expr(a) for a in args]]
        case Cast(value, dtype):
            return ["cast", dtype.name, _expr(value)]
    raise TypeError(f"not an expression: {expr!r}")


def from_json(data: Json) -> Program:
    """The program of `to_json`; RecordError where `data` is anything else, or too large, or wrong."""
    version = data.get("version") if isinstance(data, dict) else None
    if type(version) is not int or version != VERSION:
        found = data.get("version") if isinstance(data, dict) else type(data).__name__
        raise RecordError(f"a program of version {VERSION} is expected, got {str(found)[:40]}")
    reader = _Reader()
    _, name, inputs, outputs, body = _fields(
        data, ("version", "name", "inputs", "outputs", "body"), "program"
    )
    ins, outs = [
        tuple([reader.buffer(b) for b in _list(x, "buffers", MAX_BUFFERS)]) for x in (inputs, outputs)
    ]
    program = Program(_word(name, "program name"), ins, outs, reader.stmt(body, 0))
    try:
        verify(program)
    except VerifyError as error:
        raise RecordError(f"the program breaks a rule: {error}") from None
    return program


def _shown(data: Json) -> str:
    kind = type(data).__name__
    return f"{kind} {str(data)[:60]!r}" if isinstance(data, (str, int, float)) and kind != "int" else kind


def _fields(data: Json, names: tuple[str, ...], what: str) -> list[Json]:
    if not isinstance(data, dict) or set(data) != set(names):
        raise RecordError(f"a {what} needs exactly the fields {', '.join(names)}, got {_shown(data)}")
    return [data[n] for n in names]


def _list(data: Json, what: str, most: int = MAX_NODES) -> list[Json]:
    if not isinstance(data, list) or len(data) > most:
        raise RecordError(f"{what} must be a list of at most {most} items, got {_shown(data)}")
    return data


def _word(data: Json, what: str) -> str:
    if not isinstance(data, str) or not NAME.fullmatch(data):
        raise RecordError(f"{what} must be of the form {NAME.pattern}, got {_shown(data)}")
    return data


def _integer(data: Json, what: str, low: int, high: int) -> int:
    if not isinstance(data, int) or isinstance(data, bool) or not low <= data <= high:
        raise RecordError(f"{what} must be an integer from {low} to {high}")
    return data


def _swizzle(data: Json) -> tuple[int, int, int]:
    """Pieces of a power of two that change places within a period, so that no two meet."""
    values = _list(data, "swizzle", 3)
    if len(values) != 3:
        raise RecordError(f"a swizzle is three integers, got {len(values)}")
    period, ways, step = (_integer(v, "a swizzle", 1, MAX_EXTENT) for v in values)
    if ways & (ways - 1) or step & (step - 1) or period % (ways * step):
        raise RecordError(f"a swizzle has powers of two that divide its period, got {period}, {ways}, {step}")
    return period, ways, step


def _choice(data: Json, what: str, choices: tuple[str, ...]) -> Any:
    if not isinstance(data, str) or data not in choices:
        raise RecordError(f"{what} must be one of {', '.join(choices)}, got {_shown(data)}")
    return data


@dataclass(slots=True)
class _Reader:
    """Builds nodes from checked data; `dtypes` are those of the buffers met so far."""

    dtypes: dict[str, DType] = field(default_factory=dict)
    nodes: int = 0

    def _count(self, depth: int) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise RecordError(f"a program has at most {MAX_NODES} nodes, nested at most {MAX_DEPTH} deep")

    def buffer(self, data: Json) -> Buffer:
        stages = data.get("stages", 1) if isinstance(data, dict) else 1
        swizzle = data.get("swizzle") if isinstance(data, dict) else None
        plain = {k: v for k, v in data.items() if k not in _OPTIONAL} if isinstance(data, dict) else data
        name, shape, dtype, memory, strides = _fields(
            plain, ("name", "shape", "dtype", "memory", "strides"), "buffer"
        )
        extents = tuple([_integer(n, "an extent", 0, MAX_EXTENT) for n in _list(shape, "shape", MAX_DEPTH)])
        steps = strides
        if strides is not None:
            listed = _list(strides, "strides", MAX_DEPTH)
            steps = tuple([_integer(s, "a stride", -MAX_EXTENT, MAX_EXTENT) for s in listed])
        kept = Buffer(
            _word(name, "buffer name"),
            extents,
            self._dtype(dtype),
            _choice(memory, "memory", get_args(Memory)),
            steps,
            _integer(stages, "stages", 1, MAX_STAGES),
            None if swizzle is None else _swizzle(swizzle),
        )
        if kept.size > MAX_EXTENT:
            raise RecordError(f"buffer {kept.name} has more than {MAX_EXTENT} elements")
        self.dtypes[kept.name] = kept.dtype
        return kept

    def _dtype(self, data: Json) -> DType:
        return DTYPES[_choice(data, "dtype", tuple(DTYPES))]

    def _loaded(self, name: Json) -> DType:
        if _word(name, "buffer name") not in self.dtypes:
            raise RecordError(f"buffer {name} is not defined before its use")
        return self.dtypes[name]

    def stmt(self, data: Json, depth: int) -> Stmt:
        self._count(depth)
        match data:
            case ["for", var, extent, kind, unroll, bound, body]:
                kept: LoopKind = _choice(kind, "loop kind", get_args(LoopKind))
                most = MAX_UNROLL if kept == "unroll" else MAX_EXTENT
                return For(
                    _word(var, "loop name"),
                    _integer(extent, "the extent of a loop", 0, most),
                    self.stmt(body, depth + 1),
                    kept,
                    _integer(unroll, "unroll", 1, MAX_UNROLL),
                    None if bound is None else self.expr(bound, depth + 1),
                )
            case ["block", stmts]:
                return Block(tuple([self.stmt(s, depth + 1) for s in _list(stmts, "block")]))
            case ["if", cond, then, other]:
                rest = None if other is None else self.stmt(other, depth + 1)
                return If(self.expr(cond, depth + 1), self.stmt(then, depth + 1), rest)
            case ["alloc", buffer, body]:
                return Alloc(self.buffer(buffer), self.stmt(body, depth + 1))
            case ["store", name, indices, value]:
                return Store(
                    _word(name, "buffer name"), self._exprs(indices, depth), self.expr(value, depth + 1)
                )
            case ["prefetch", name, indices, locality]:
                kept_at = self._exprs(indices, depth)
                return Prefetch(_word(name, "buffer name"), kept_at, _integer(locality, "locality", 0, 3))
            case ["update", [_, *_] as targets, indices, [_, *_] as values, combiner, axes, bool(init)]:
                return Update(
                    tuple([_word(t, "buffer name") for t in _list(targets, "targets", MAX_DEPTH)]),
                    self._exprs(indices, depth),
                    self._exprs(values, depth),
                    _word(combiner, "combiner"),
                    tuple([_word(a, "axis") for a in _list(axes, "axes", MAX_DEPTH)]),
                    init,
                )
        raise RecordError(f"not a statement: {_shown(data)}")

    def _exprs(self, data: Json, depth: int) -> tuple[Expr, ...]:
        return tuple([self.expr(e, depth + 1) for e in _list(data, "expressions", MAX_DEPTH)])

    def expr(self, data: Json, depth: int) -> Expr:
        self._count(depth)
        match data:
            case bool() | float() | None:
                pass
            case int():
                return const(_integer(data, "an i64 constant", -(2**63), 2**63 - 1))
            case str():
                return Var(_word(data, "loop name"))
            case ["const", dtype, value]:
                return self._constant(self._dtype(dtype), value)
            case ["load", name, indices]:
                return Load(name, self._exprs(indices, depth), self._loaded(name))
            case ["cast", dtype, value]:
                return Cast(self.expr(value, depth + 1), self._dtype(dtype))
            case ["op", str(name), *args] if len(args) <= 3:
                try:
                    return op(name, *[self.expr(a, depth + 1) for a in args])
                except DTypeError as error:
                    raise RecordError(str(error)[:200]) from None
        raise RecordError(f"not an expression: {_shown(data)}")

    def _constant(self, dtype: DType, value: Json) -> Const:
        if isinstance(value, str) and value in _SPECIAL and dtype.is_float:
            return Const(_SPECIAL[value], dtype)
        if dtype.is_float and isinstance(value, float) and math.isfinite(value):
            return Const(value, dtype)
        if dtype.is_integer and isinstance(value, int) and not isinstance(value, bool):
            return Const(value, dtype)  # verify checks that it fits
        if dtype == boolean and isinstance(value, bool):
            return Const(value, dtype)
        raise RecordError(f"{dtype} cannot hold the constant {_shown(value)}")
