"""The identity of a program: a key that names do not change.

Buffers and loops are renamed by position and index expressions take their normal form, so that two programs
that do the same in the same way have one key, in any process and on any machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from .affine import affine
from .dtypes import i64
from .exprs import Cast, Const, Expr, Load, Op, Var
from .nodes import Alloc, Block, For, If, Prefetch, Program, Stmt, Store, Update
from .serialize import to_json


def key(program: Program) -> str:
    """sha256, in hex, of the canonical program: names of the program, buffers and loops do not count."""
    data = json.dumps(to_json(canonical(program)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(data.encode()).hexdigest()


def canonical(program: Program) -> Program:
    """The program with names by position: parameters p0, p1, ..., temporaries t0, ..., loops v000000, ..."""
    names = {b.name: f"p{n}" for n, b in enumerate(program.parameters)}
    rename = _Renamer()
    return Program(
        "program",
        tuple([replace(b, name=names[b.name]) for b in program.inputs]),
        tuple([replace(b, name=names[b.name]) for b in program.outputs]),
        rename.stmt(program.body, names, {}),
    )


class _Renamer:
    """Counts loops and temporaries. Loop names have one width, so that they sort by position."""

    def __init__(self) -> None:
        self.loops = 0
        self.temporaries = 0

    def stmt(self, stmt: Stmt, buffers: Mapping[str, str], loops: Mapping[str, str]) -> Stmt:
        def expr(e: Expr) -> Expr:
            return _expr(e, buffers, loops)

        def exprs(es: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return tuple([expr(e) for e in es])

        match stmt:
            case For(var=var, body=body, bound=bound):
                new = f"v{self.loops:06d}"
                self.loops += 1
                limit = None if bound is None else expr(bound)
                return replace(stmt, var=new, bound=limit, body=self.stmt(body, buffers, {**loops, var: new}))
            case Block(stmts):
                return Block(tuple([self.stmt(s, buffers, loops) for s in stmts]))
            case If(cond, then, other):
                rest = None if other is None else self.stmt(other, buffers, loops)
                return If(expr(cond), self.stmt(then, buffers, loops), rest)
            case Alloc(buffer, body):
                new = f"t{self.temporaries}"
                self.temporaries += 1
                inner = self.stmt(body, {**buffers, buffer.name: new}, loops)
                return Alloc(replace(buffer, name=new), inner)
            case Store(buffer, indices, value):
                return Store(buffers[buffer], exprs(indices), expr(value))
            case Prefetch(buffer, indices, locality):
                return Prefetch(buffers[buffer], exprs(indices), locality)
            case Update():
                return replace(
                    stmt,
                    targets=tuple([buffers[t] for t in stmt.targets]),
                    indices=exprs(stmt.indices),
                    values=exprs(stmt.values),
                    axes=tuple(sorted([loops[a] for a in stmt.axes])),
                )
        raise TypeError(f"not a statement: {stmt!r}")


def _expr(expr: Expr, buffers: Mapping[str, str], loops: Mapping[str, str]) -> Expr:
    match expr:
        case Const():
            return expr
        case Var(name):
            return Var(loops[name])
        case Load(buffer, indices, dtype):
            return Load(buffers[buffer], tuple([_expr(i, buffers, loops) for i in indices]), dtype)
        case Cast(value, dtype):
            return Cast(_expr(value, buffers, loops), dtype)
        case Op(name, args, dtype):
            new = Op(name, tuple([_expr(a, buffers, loops) for a in args]), dtype)
            form = affine(new) if dtype == i64 else None
            return new if form is None else form.expr()
    raise TypeError(f"not an expression: {expr!r}")
