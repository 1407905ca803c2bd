"""The canonical text of programs: what `print` shows, what golden tests compare, what error messages quote.

    program linear(x: f32[4, 6], w: f32[6, 5], b: f32[5]) -> (y: f32[4, 5])
    alloc acc: f32[4, 5] heap:
      parallel for i.0 in 2:
        ...
          acc[i.0 * 2 + i.1, j] (k)+= x[i.0 * 2 + i.1, k] * w[k, j]

An update prints its reduction loops in brackets; `(k; no init)+=` continues from what is already there.
Constants of i64, f32 and bool print bare, others as `i8(3)`, like casts.
"""

from __future__ import annotations

from .dtypes import boolean, f32, i64
from .exprs import Cast, Const, Expr, Load, Op, Var
from .nodes import Alloc, Block, Buffer, For, If, Prefetch, Program, Stmt, Store, Update
from .optable import OPS

# Binding strength of the infix operations, weakest first; a comparison binds tighter than logic.
_LEVELS = (("or",), ("xor",), ("and",), ("lt", "le", "gt", "ge", "eq", "ne"), ("shl", "shr"), ("add", "sub"),
           ("mul", "div", "floordiv", "mod"))  # fmt: skip
_STRENGTH = {name: level for level, names in enumerate(_LEVELS) for name in names}
_ASSIGN = {"sum": "+=", "prod": "*="}
_ATOM = len(_LEVELS)


def text(node: Program | Stmt | Expr | Buffer) -> str:
    """The canonical text of a program, a statement (several lines), an expression, or a declaration."""
    match node:
        case Program():
            return "\n".join([_header(node), *_lines(node.body, "")])
        case Buffer():
            return _declaration(node)
        case Const() | Var() | Load() | Op() | Cast():
            return _expr(node, 0)
        case _:
            return "\n".join(_lines(node, ""))


def _header(program: Program) -> str:
    inputs = ", ".join(_declaration(b) for b in program.inputs)
    outputs = ", ".join(_declaration(b) for b in program.outputs)
    return f"program {program.name}({inputs}) -> ({outputs})"


def _declaration(buffer: Buffer) -> str:
    shape = ", ".join(map(str, buffer.shape))
    memory = "" if buffer.memory == "array" else f" {buffer.memory}"
    strides = "" if buffer.strides is None else f" strides ({', '.join(map(str, buffer.strides))})"
    stages = "" if buffer.stages == 1 else f" stages {buffer.stages}"
    swizzle = "" if buffer.swizzle is None else f" swizzle ({', '.join(map(str, buffer.swizzle))})"
    return f"{buffer.name}: {buffer.dtype}[{shape}]{memory}{strides}{swizzle}{stages}"


def _lines(stmt: Stmt, pad: str) -> list[str]:
    deeper = pad + "  "
    match stmt:
        case For(body=body):
            return [f"{pad}{_loop(stmt)}:", *_lines(body, deeper)]
        case Block(()):
            return [f"{pad}pass"]
        case Block(stmts):
            return [line for s in stmts for line in _lines(s, pad)]
        case If(cond, then, other):
            out = [f"{pad}if {_expr(cond, 0)}:", *_lines(then, deeper)]
            return out if other is None else [*out, f"{pad}else:", *_lines(other, deeper)]
        case Alloc(buffer, body):
            return [f"{pad}alloc {_declaration(buffer)}:", *_lines(body, deeper)]
        case Store(buffer, indices, value):
            return [f"{pad}{buffer}{_indices(indices)} = {_expr(value, 0)}"]
        case Update():
            return [pad + _update(stmt)]
        case Prefetch(buffer, indices, locality):
            return [f"{pad}prefetch {buffer}{_indices(indices)} locality {locality}"]
    raise TypeError(f"not a statement: {stmt!r}")


def _loop(loop: For) -> str:
    mark = "" if loop.kind == "serial" else f"{loop.kind} "
    unroll = "" if loop.unroll == 1 else f" unroll {loop.unroll}"
    bound = "" if loop.bound is None else f" upto {_expr(loop.bound, 0)}"
    return f"{mark}for {loop.var} in {loop.extent}{unroll}{bound}"


def _update(stmt: Update) -> str:
    axes = ", ".join(stmt.axes) + ("" if stmt.init else "; no init")
    assign = _ASSIGN.get(stmt.combiner, f"{stmt.combiner}=")
    values = [_expr(v, 0) for v in stmt.values]
    if len(stmt.targets) == 1:
        return f"{stmt.targets[0]}{_indices(stmt.indices)} ({axes}){assign} {values[0]}"
    return f"({', '.join(stmt.targets)}){_indices(stmt.indices)} ({axes}){assign} ({', '.join(values)})"


def _indices(indices: tuple[Expr, ...]) -> str:
    return f"[{', '.join([_expr(i, 0) for i in indices])}]"


def _expr(expr: Expr, level: int) -> str:
    """`expr`, in parentheses where it binds weaker than `level`."""
    match expr:
        case Const():
            return _const(expr)
        case Var(name):
            return name
        case Load(buffer, indices, _):
            return buffer + _indices(indices)
        case Cast(value, dtype):
            return f"{dtype}({_expr(value, 0)})"
        case Op(name, args, _):
            strength = _STRENGTH.get(name, _ATOM)
            if strength == _ATOM:
                return f"{name}({', '.join([_expr(a, 0) for a in args])})"
            # Operators group to the left, so that the text shows the order; comparisons do not chain.
            first = strength + (OPS[name].rule == "compare")
            inner = f"{_expr(args[0], first)} {OPS[name].symbol} {_expr(args[1], strength + 1)}"
            return f"({inner})" if strength < level else inner
    raise TypeError(f"not an expression: {expr!r}")


def _const(value: Const) -> str:
    if value.dtype == boolean:
        return "true" if value.value else "false"
    shown = repr(value.value)  # also inf, -inf and nan
    return shown if value.dtype in (i64, f32) else f"{value.dtype}({shown})"
