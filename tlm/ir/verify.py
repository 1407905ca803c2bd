"""The rules of the IR, checked on a whole program: what primitives must keep and backends may rely on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import DTypeError, VerifyError
from .affine import affine, conjuncts, implied, interval
from .combiners import COMBINERS
from .dtypes import DType, boolean, i64
from .exprs import Cast, Const, Expr, Load, Op, Var, const, op
from .names import NAME
from .nodes import Alloc, Block, Buffer, For, If, Prefetch, Program, Stmt, Store, Update
from .optable import result_dtype
from .printer import text
from .walk import free_vars, loads, writes

MAX_ELEMENTS = 2**48
"""Elements of one buffer, and iterations of one loop: all index arithmetic then fits in 64 bits."""
MAX_DEPTH = 64
"""Statements around a statement."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is defined around a node. `guarded`: it may be skipped; `facts` hold where it is not."""

    buffers: dict[str, Buffer]
    inputs: frozenset[str]
    extents: dict[str, int]
    facts: tuple[Expr, ...] = ()
    guarded: bool = False
    depth: int = 0

    def deeper(self) -> _Scope:
        return replace(self, depth=self.depth + 1)

    def under(self, cond: Expr | None) -> _Scope:
        """Where `cond` holds, or where some condition does not (None)."""
        facts = () if cond is None else tuple([c for c in conjuncts(cond) if not any(True for _ in loads(c))])
        return replace(self, facts=self.facts + facts, guarded=True, depth=self.depth + 1)


def verify(program: Program) -> None:
    """Check every rule; VerifyError shows the first node that breaks one.

    Names are well formed and bound once in their scope, buffers are defined, accesses have an index a
    dimension and stay inside where that is decidable under the guards, dtypes agree, the axes of an Update
    are loops around it that do not occur in its indices, inputs are only read, and outputs are written.
    """
    buffers: dict[str, Buffer] = {}
    for buffer in program.parameters:
        _check_buffer(buffer, buffers)
        if buffer.memory != "array":
            raise VerifyError(f"parameter {text(buffer)} must have memory array")
        buffers[buffer.name] = buffer
    _name(program.name, "program")
    if not program.outputs:
        raise VerifyError(f"program {program.name} has no output")
    _stmt(program.body, _Scope(buffers, frozenset(b.name for b in program.inputs), {}))
    written = writes(program.body)
    for buffer in program.outputs:
        if buffer.size and buffer.name not in written:
            raise VerifyError(f"output {text(buffer)} is never written")


def _name(name: str, what: str) -> None:
    if not NAME.fullmatch(name):
        raise VerifyError(f"{what} name {name[:80]!r} is not of the form {NAME.pattern}")


def _check_buffer(buffer: Buffer, known: dict[str, Buffer]) -> None:
    _name(buffer.name, "buffer")
    if buffer.name in known:
        raise VerifyError(f"buffer {buffer.name} is defined twice")
    if any(n < 0 for n in buffer.shape) or buffer.size > MAX_ELEMENTS:
        raise VerifyError(f"{text(buffer)}: extents must be >= 0 and at most {MAX_ELEMENTS} elements in all")
    if buffer.strides is not None and len(buffer.strides) != len(buffer.shape):
        raise VerifyError(f"{text(buffer)}: {len(buffer.shape)} strides are needed")


def _stmt(stmt: Stmt, s: _Scope) -> None:
    if s.depth > MAX_DEPTH:
        raise VerifyError(f"more than {MAX_DEPTH} statements around {text(stmt).splitlines()[0]}")
    match stmt:
        case For():
            _loop(stmt, s)
        case Block(stmts):
            for part in stmts:
                _stmt(part, s)
        case If(cond, then, other):
            if _expr(cond, s) != boolean:
                raise VerifyError(f"the condition of an if must be bool, got {cond.dtype}: {text(cond)}")
            _stmt(then, s.under(cond))
            if other is not None:
                _stmt(other, s.under(None))
        case Alloc(buffer, body):
            _check_buffer(buffer, s.buffers)
            if buffer.memory == "array":
                raise VerifyError(f"alloc {text(buffer)}: a temporary cannot have memory array")
            _stmt(body, replace(s.deeper(), buffers={**s.buffers, buffer.name: buffer}))
        case Store(buffer_name, indices, value):
            target = _written(buffer_name, indices, stmt, s)
            found = _expr(value, s)
            if found != target.dtype:
                raise VerifyError(f"{buffer_name} is {target.dtype} but the value is {found}: {text(stmt)}")
        case Update():
            _update(stmt, s)
        case Prefetch(buffer_name, indices, locality):
            _indices(_buffer(buffer_name, stmt, s), indices, stmt, s)
            if locality not in range(4):
                raise VerifyError(f"locality must be 0 to 3: {text(stmt)}")


def _loop(loop: For, s: _Scope) -> None:
    head = text(For(loop.var, loop.extent, Block(()), loop.kind, loop.unroll, loop.bound)).splitlines()[0]
    _name(loop.var, "loop")
    if loop.var in s.extents:
        raise VerifyError(f"loop {loop.var} is inside another loop of that name")
    if not 0 <= loop.extent <= MAX_ELEMENTS:
        raise VerifyError(f"the extent must be 0 to {MAX_ELEMENTS}: {head}")
    if loop.unroll < 1 or (loop.unroll > 1 and loop.kind != "serial"):
        raise VerifyError(f"an unroll count is at least 1, and only for serial loops: {head}")
    if loop.bound is not None and _expr(loop.bound, s) != i64:
        raise VerifyError(f"the bound must be i64: {head}")
    if loop.extent > 0:  # the body of a loop that never runs may say anything about its indices
        inside = s.deeper() if loop.bound is None else s.under(op("lt", Var(loop.var), loop.bound))
        _stmt(loop.body, replace(inside, extents={**s.extents, loop.var: loop.extent}))


def _update(stmt: Update, s: _Scope) -> None:
    combiner = COMBINERS.get(stmt.combiner)
    if combiner is None:
        raise VerifyError(f"unknown combiner {stmt.combiner!r}; known are {', '.join(COMBINERS)}")
    if len(stmt.targets) != combiner.parts or len(stmt.values) != combiner.parts:
        raise VerifyError(f"{stmt.combiner} needs {combiner.parts} targets and values: {text(stmt)}")
    if len(set(stmt.targets)) != combiner.parts:
        raise VerifyError(f"the targets must be different buffers: {text(stmt)}")
    for target, value in zip(stmt.targets, stmt.values, strict=True):
        buffer = _written(target, stmt.indices, stmt, s)
        found = _expr(value, s)
        if found != buffer.dtype:
            raise VerifyError(f"{target} is {buffer.dtype} but its value is {found}: {text(stmt)}")
    used = frozenset().union(*(free_vars(i) for i in stmt.indices))
    for axis in stmt.axes:
        if axis not in s.extents:
            raise VerifyError(f"reduction axis {axis} is not a loop around {text(stmt)}")
        if axis in used:
            raise VerifyError(f"reduction axis {axis} occurs in the indices of {text(stmt)}")
    if len(set(stmt.axes)) != len(stmt.axes):
        raise VerifyError(f"a reduction axis is named twice: {text(stmt)}")


def _buffer(name: str, node: Stmt | Expr, s: _Scope) -> Buffer:
    if name not in s.buffers:
        raise VerifyError(
            f"buffer {name} is not defined around {text(node)}; defined are {', '.join(s.buffers)}"
        )
    return s.buffers[name]


def _written(name: str, indices: tuple[Expr, ...], node: Stmt, s: _Scope) -> Buffer:
    buffer = _buffer(name, node, s)
    if name in s.inputs:
        raise VerifyError(f"input {name} is written by {text(node)}")
    _indices(buffer, indices, node, s)
    _inside(buffer, indices, node, s)
    return buffer


def _indices(buffer: Buffer, indices: tuple[Expr, ...], node: Stmt | Expr, s: _Scope) -> None:
    if len(indices) != len(buffer.shape):
        raise VerifyError(f"{text(buffer)} takes {len(buffer.shape)} indices: {text(node)}")
    for index in indices:
        if _expr(index, s) != i64:
            raise VerifyError(f"index {text(index)} is {index.dtype}, not i64: {text(node)}")


def _inside(buffer: Buffer, indices: tuple[Expr, ...], node: Stmt | Expr, s: _Scope) -> None:
    """Refuse an index that surely leaves the shape; what data or guards decide is left to the run."""
    for index, extent in zip(indices, buffer.shape, strict=True):
        reach = interval(index, s.extents)
        if reach is None or (reach[0] >= 0 and reach[1] < extent):
            continue
        if s.guarded:
            fits = (op("ge", index, const(0)), op("lt", index, const(extent)))
            reachable = all(implied(f, s.extents) is not False for f in s.facts)
            wrong = reachable and any(implied(f, s.extents, s.facts) is False for f in fits)
        else:
            wrong = affine(index) is not None  # else the bounds may be wider than the values
        if wrong:
            where = f"{text(index)} reaches {reach[0]}..{reach[1]}"
            raise VerifyError(f"index {where}, outside {text(buffer)}: {text(node)}")


def _expr(expr: Expr, s: _Scope) -> DType:
    """The dtype of `expr`, checked."""
    match expr:
        case Const(value, dtype):
            _constant(value, dtype, expr)
        case Var(name):
            if name not in s.extents:
                raise VerifyError(
                    f"loop variable {name} is used outside its loop; around it are {list(s.extents)}"
                )
        case Load(name, indices, dtype):
            buffer = _buffer(name, expr, s)
            if buffer.dtype != dtype:
                raise VerifyError(f"{text(buffer)} is read as {dtype}: {text(expr)}")
            _indices(buffer, indices, expr, s)
            _inside(buffer, indices, expr, s)
        case Cast(value, _):
            _expr(value, s)
        case Op("where", (cond, a, b), dtype):
            _result(expr, (_expr(cond, s), _expr(a, s.under(cond)), _expr(b, s.under(None))))
        case Op(_, args, _):
            _result(expr, tuple([_expr(a, s) for a in args]))
    return expr.dtype


def _result(expr: Op, dtypes: tuple[DType, ...]) -> None:
    try:
        expected = result_dtype(expr.op, dtypes)
    except DTypeError as error:
        raise VerifyError(f"{error}: {text(expr)}") from None
    if expected != expr.dtype:
        raise VerifyError(
            f"{expr.op} of {', '.join(map(str, dtypes))} is {expected}, not {expr.dtype}: {text(expr)}"
        )


def _constant(value: float, dtype: DType, expr: Expr) -> None:
    if dtype == boolean:
        good = isinstance(value, bool)
    elif dtype.is_float:
        good = isinstance(value, float)
    else:
        low = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0
        good = isinstance(value, int) and not isinstance(value, bool) and low <= value < low + 2**dtype.bits
    if not good:
        raise VerifyError(f"{dtype} cannot hold the constant {value!r}: {text(expr)}")
