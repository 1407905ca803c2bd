"""Source of expressions and accesses for the interpreter: Python ints for indices, numpy scalars for data.

An affine index is summed up loop by loop, outermost first, so that the innermost body adds one term.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ..errors import VerifyError
from . import race
from .affine import Affine, affine, interval, truncated_quotient
from .arithmetic import INFIX, cast, function, limits, scalar
from .dtypes import DType, boolean, i64
from .exprs import Cast, Const, Expr, Load, Op, Var
from .nodes import Buffer, For, Program

# Python ints stand for i64 where no value can leave this range, in which they also convert to floats exactly.
_EXACT = 2**53
_ON_INTS = {
    "floordiv": "({} // {})", "mod": "({} % {})", "minimum": "min({}, {})", "maximum": "max({}, {})",
    "quot": "truncated_quotient({}, {})", "abs": "abs({})", "add": "({} + {})", "sub": "({} - {})",
    "mul": "({} * {})", "neg": "(-{})",
}  # fmt: skip
_ON_TRUTHS = {
    "and": "({} and {})", "or": "({} or {})", "not": "(not {})", "xor": "({} != {})",
    **{n: INFIX[n] for n in ("lt", "le", "gt", "ge", "eq", "ne")},
}  # fmt: skip

Code = tuple[str, bool]
"""Source of an expression, and whether it gives a Python int or bool rather than a numpy scalar."""


@dataclass(slots=True)
class Level:
    """A loop around the present statement: its variable, and the partial sums at the head of its body."""

    loop: For
    name: str
    sums: dict[tuple[str | None, int], str] = field(default_factory=dict)


@dataclass(slots=True)
class Mark:
    """A loop whose iterations may overlap, and the buffers that they share and write."""

    loop: For
    number: int
    shared: frozenset[str]


class Values:
    """The state of a translation, and the translation of expressions."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.namespace: dict[str, Any] = {
            "truncated_quotient": truncated_quotient,
            "wrote": race.wrote,
            "read": race.read,
            "outside": race.outside,
            "i64": np.int64,
            "bool_": np.bool_,
        }
        self.count = 0
        self.levels: list[Level] = []
        self.extents: dict[str, int] = {}
        self.marks: list[Mark] = []
        self.marked = 0
        self.buffers: dict[str, tuple[Buffer, str]] = {}
        self.logs: dict[str, set[int]] = {}
        self.checks: dict[str, list[str]] = {}
        self.constants: dict[tuple[str, str], str] = {}
        self.parts: dict[str, str] = {}

    def _fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def _keep(self, prefix: str, value: Any) -> str:
        name = self._fresh(prefix)
        self.namespace[name] = value
        return name

    # Accesses

    def _enter(self, buffer: Buffer) -> str:
        name = self._fresh("b")
        self.buffers[buffer.name] = (buffer, name)
        self.logs[name] = set()
        return name

    def _buffer(self, name: str) -> tuple[Buffer, str]:
        if name not in self.buffers:
            raise VerifyError(f"buffer {name} is not defined here; defined are {', '.join(self.buffers)}")
        return self.buffers[name]

    def _level(self, var: str) -> Level:
        for level in self.levels:
            if level.loop.var == var:
                return level
        raise VerifyError(f"loop {var} is not around its use; around it are {', '.join(self.extents)}")

    def _log_lines(self, buffer: Buffer, pad: str) -> list[str]:
        name = self.buffers[buffer.name][1]
        return [
            f"{pad}{kind}{n}_{name} = [-1] * {buffer.size}" for n in sorted(self.logs[name]) for kind in "wr"
        ]

    def _watchers(self, buffer: str) -> list[tuple[Mark, str]]:
        """The marked loops that share `buffer`, each with the first arguments of its log functions."""
        name = self._buffer(buffer)[1]
        found = [m for m in self.marks if buffer in m.shared]
        self.logs[name].update(m.number for m in found)
        return [
            (m, f"w{m.number}_{name}, r{m.number}_{name}, base{m.number}, stamp{m.number}") for m in found
        ]

    def _site(self, buffer: str, mark: Mark) -> str:
        return self._keep("site", race.Site(self._buffer(buffer)[0], mark.loop.var, mark.loop.kind))

    def _flat(self, name: str, indices: tuple[Expr, ...]) -> str:
        buffer, _ = self._buffer(name)
        if len(indices) != len(buffer.shape):
            raise VerifyError(f"{name} has {len(buffer.shape)} dimensions, got {len(indices)} indices")
        ranges = [interval(i, self.extents) for i in indices]
        inside = all(
            r is not None and r[0] >= 0 and r[1] < n for r, n in zip(ranges, buffer.shape, strict=True)
        )
        if not inside:
            return f"{self._check(buffer)}({', '.join([self._value(i)[0] for i in indices])})"
        forms = [affine(i) for i in indices]
        strides = [prod(buffer.shape[n + 1 :]) for n in range(len(indices))]
        if all(f is not None for f in forms):
            whole = sum((f.scale(s) for f, s in zip(forms, strides, strict=True) if f), Affine(0))
            return self._affine(whole)
        return " + ".join([f"{self._value(i)[0]} * {s}" for i, s in zip(indices, strides, strict=True)])

    def _check(self, buffer: Buffer) -> str:
        """The function that checks indices at run time and makes them flat."""
        name = f"at_{self._buffer(buffer.name)[1]}"
        if name not in self.checks:
            args = [f"x{n}" for n in range(len(buffer.shape))]
            inside = " and ".join(
                [f"0 <= x < {n}".replace("x", x) for x, n in zip(args, buffer.shape, strict=True)]
            )
            flat = "0"
            for x, n in zip(args, buffer.shape, strict=True):
                flat = f"({flat} * {n} + {x})" if flat != "0" else x
            kept = self._keep("buffer", buffer)
            self.checks[name] = [
                f"def {name}({', '.join(args)}):",
                f" if {inside}: return {flat}",
                f" outside({kept}, ({', '.join(args)},))",
            ]
        return name

    def _affine(self, form: Affine) -> str:
        """A sum of loop variables: partial sums at the loops, then the constant."""
        known: str | None = None
        for level in self.levels:
            c = form.coefficient(level.loop.var)
            if c == 0:
                continue
            if known is None and c == 1:
                known = level.name
            else:
                known = level.sums.setdefault((known, c), self._fresh("t"))
        for name in form.names:
            self._level(name)
        if known is None:
            return str(form.const) if form.const >= 0 else f"({form.const})"
        return f"({known} + {form.const})" if form.const else known

    # Expressions

    def _numpy(self, expr: Expr) -> str:
        """Source of `expr` as a numpy scalar of its dtype."""
        return self._as_numpy(expr, self._value(expr))

    def _as_numpy(self, expr: Expr, code: Code) -> str:
        if isinstance(expr, Const):
            return self._constant(expr)
        source, plain = code
        return f"{'bool_' if expr.dtype == boolean else 'i64'}({source})" if plain else source

    def _constant(self, value: Const) -> str:
        key = (repr(value.value), value.dtype.name)
        if key not in self.constants:
            kind = scalar(value.dtype)
            self.constants[key] = self._keep("k", kind(value.value))
        return self.constants[key]

    def _value(self, expr: Expr) -> Code:
        match expr:
            case Const(value, dtype) if dtype in (i64, boolean):
                return (str(value) if value >= 0 else f"({value})"), True
            case Const():
                return self._constant(expr), False
            case Var(name):
                return self._level(name).name, True
            case Load(buffer, indices, _):
                return (self.parts[buffer] if buffer in self.parts else self._load(buffer, indices)), False
            case Cast(value, dtype):
                return self._cast(value, dtype), False
            case Op():
                return self._op(expr)
        raise TypeError(f"not an expression: {expr!r}")

    def _load(self, buffer: str, indices: tuple[Expr, ...]) -> str:
        at = self._flat(buffer, indices)
        for mark, log in self._watchers(buffer):
            at = f"read({log}, {at}, {self._site(buffer, mark)})"
        return f"{self._buffer(buffer)[1]}[{at}]"

    def _cast(self, value: Expr, dtype: DType) -> str:
        code = self._value(value)
        if value.dtype == dtype:
            return self._as_numpy(value, code)
        reach = interval(value, self.extents) if value.dtype == i64 and code[1] else None
        if reach is not None and dtype != boolean:
            low, high = (-_EXACT, _EXACT) if dtype.is_float else limits(dtype)
            if low <= reach[0] and reach[1] <= high:
                return f"{self._keep('type', scalar(dtype))}({code[0]})"
        return f"{self._keep('cast', cast(value.dtype, dtype))}({self._as_numpy(value, code)})"

    def _op(self, expr: Op) -> Code:
        exact = False
        if expr.dtype == i64:
            reach = interval(expr, self.extents)
            exact = reach is not None and reach[0] >= -_EXACT and reach[1] <= _EXACT
            form = affine(expr) if exact else None
            if form is not None:
                return self._affine(form), True
        codes = [self._value(a) for a in expr.args]
        plain = all(p for _, p in codes)
        table = _ON_TRUTHS if expr.dtype == boolean else _ON_INTS if exact else {}
        if plain and expr.op in table:
            return table[expr.op].format(*[c for c, _ in codes]), True
        args = [self._as_numpy(a, c) for a, c in zip(expr.args, codes, strict=True)]
        if expr.op == "where":
            yes, no = [c for c, _ in codes[1:]] if plain else args[1:]
            return f"({yes} if {codes[0][0]} else {no})", plain
        if expr.op in INFIX:
            return INFIX[expr.op].format(*args), False
        return f"{self._keep('f', function(expr.op, expr.args[0].dtype))}({', '.join(args)})", False
