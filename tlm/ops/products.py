"""Matrix products as programs: numpy's rank and dtype rules, and the fewest loops that the layouts allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError
from ..ir.build import Builder, Tensor
from ..ir.dtypes import DType, accumulator, boolean, from_numpy
from ..ir.nodes import Cast, Expr, Program, const, op
from .arrays import Shape, Spec, canonical_strides, numpy_dtype, row_major

Epilogue = Callable[[Expr, Expr, Tensor | None], Expr]
"""(accumulated value, column, bias or None) -> value, all in the accumulation type."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a call computes: a program whose parameters are the operands, then the result (C-contiguous)."""

    program: Program
    operands: tuple[Spec, ...]
    shape: Shape
    dtype: DType


@dataclass(frozen=True, slots=True)
class _Axis:
    """A spatial loop: its extent, and its strides in operands and result, 0 where it does not index one."""

    extent: int
    a: int
    b: int
    c: int


@dataclass(frozen=True, slots=True)
class Operands:
    """Two operands brought to [..., M, K] and [..., K, N], with the shape of the result by numpy's rules."""

    a: Spec
    b: Spec
    batch: Shape
    shape: Shape

    @property
    def extents(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.a.shape[-2], self.b.shape[-1], self.a.shape[-1]


def rank_rules(a: Spec, b: Spec, name: str = "matmul") -> Operands:
    """numpy's rules: 1-D operands gain an axis that the result loses, leading axes broadcast."""
    if not a.shape or not b.shape:
        raise ArgumentError(
            f"{name} needs operands of at least 1 dimension, got shapes {a.shape} and {b.shape}"
        )
    inner = b.shape[-2 if len(b.shape) > 1 else -1]
    if a.shape[-1] != inner:
        raise ArgumentError(
            f"{name} of shapes {a.shape} and {b.shape}: the last axis of the first ({a.shape[-1]}) and the "
            f"{'first' if len(b.shape) == 1 else 'last but one'} of the second ({inner}) differ"
        )
    wide_a = a if len(a.shape) > 1 else _with_axis(a, 0)
    wide_b = b if len(b.shape) > 1 else _with_axis(b, 1)
    try:
        batch = np.broadcast_shapes(wide_a.shape[:-2], wide_b.shape[:-2])
    except ValueError:
        raise ArgumentError(
            f"{name} of shapes {a.shape} and {b.shape}: leading axes {wide_a.shape[:-2]} and "
            f"{wide_b.shape[:-2]} do not broadcast"
        ) from None
    rows = a.shape[-2:-1]
    columns = b.shape[-1:] if len(b.shape) > 1 else ()
    return Operands(wide_a, wide_b, batch, (*batch, *rows, *columns))


def _with_axis(x: Spec, position: int) -> Spec:
    shape = (1, *x.shape) if position == 0 else (*x.shape, 1)
    return Spec(shape, x.dtype)


def result_dtype(*dtypes: DType) -> DType:
    """numpy's promotion (with ml_dtypes' bfloat16); DTypeError where it leads out of tlm's types."""
    if len(set(dtypes)) == 1:
        return dtypes[0]
    try:
        return from_numpy(np.result_type(*[numpy_dtype(d) for d in dtypes]))
    except TypeError:
        raise DTypeError(
            f"no common dtype of {', '.join(map(str, dtypes))}; cast one of the operands"
        ) from None


def product(
    name: str,
    a: Spec,
    b: Spec,
    dtype: DType | None = None,
    bias: Spec | None = None,
    epilogue: Epilogue | None = None,
) -> Problem:
    """The program of a @ b (+ epilogue) and the result's shape and dtype.

    Products are summed in f32 for f16 and bf16, in i32 for narrower integers, else in the result's dtype.
    That is numpy's promotion of the operands' (so int8 @ int8 is int8, and wraps) unless `dtype` is given.
    """
    rules = rank_rules(a, b, name)
    types = (a.dtype, b.dtype) if bias is None else (a.dtype, b.dtype, bias.dtype)
    out = dtype or result_dtype(*types)
    program = _build(name, rules, out, bias, epilogue)
    operands = (a, b) if bias is None else (a, b, bias)
    return Problem(program, operands, rules.shape, out)


def _axes(rules: Operands) -> tuple[tuple[_Axis, ...], _Axis]:
    """Batch axes and the row axis: axes of one element dropped, neighbours merged where layouts allow it."""
    m, n, _ = rules.extents
    rank = len(rules.batch)
    steps_a, steps_b = (_batch_strides(x, rank) for x in (rules.a, rules.b))
    steps_c = row_major((*rules.batch, m, n))
    rows = _Axis(m, rules.a.element_strides[-2], 0, n)
    found = [_Axis(*four) for four in zip(rules.batch, steps_a, steps_b, steps_c[:rank], strict=True)]
    merged: list[_Axis] = []
    for axis in (*found, rows):
        if axis.extent == 1:
            continue
        last = merged[-1] if merged else None
        if last is not None and all(
            outer == axis.extent * inner
            for outer, inner in ((last.a, axis.a), (last.b, axis.b), (last.c, axis.c))
        ):
            merged[-1] = _Axis(last.extent * axis.extent, axis.a, axis.b, axis.c)
        else:
            merged.append(axis)
    if merged and merged[-1].b == 0 and merged[-1].a != 0:
        return tuple(merged[:-1]), merged[-1]
    return tuple(merged), _Axis(1, rules.extents[2], 0, n)


def _batch_strides(x: Spec, rank: int) -> list[int]:
    shape, strides = x.shape[:-2], x.element_strides[:-2]
    own = [s if n > 1 else 0 for n, s in zip(shape, strides, strict=True)]
    return [0] * (rank - len(own)) + own


def _build(name: str, rules: Operands, out: DType, bias: Spec | None, epilogue: Epilogue | None) -> Program:
    (_, n, k), (batch, rows) = rules.extents, _axes(rules)
    acc = accumulator(out)
    b = Builder(name)
    in_a = [x.a != 0 for x in batch]
    in_b = [x.b != 0 for x in batch]
    steps_a, steps_b = rules.a.element_strides[-1], rules.b.element_strides[-2:]
    left = _input(
        b, "A", [(x.extent, x.a) for x in batch if x.a] + [(rows.extent, rows.a), (k, steps_a)], rules.a
    )
    right = _input(
        b, "B", [(x.extent, x.b) for x in batch if x.b] + [(k, steps_b[0]), (n, steps_b[1])], rules.b
    )
    offset = None if bias is None else b.input("bias", bias.shape, bias.dtype, bias.strides)

    def term(*at: Expr) -> Expr:
        *outer, i, j, k = at
        x = left[(*[v for v, used in zip(outer, in_a, strict=True) if used], i, k)]
        y = right[(*[v for v, used in zip(outer, in_b, strict=True) if used], k, j)]
        return cast(x, acc) * cast(y, acc)

    shape = (*[x.extent for x in batch], rows.extent, n)
    plain = epilogue is None and acc == out
    summed = b.reduce("C" if plain else "acc", shape, over={"k": k}, fn=term, output=plain)
    assert isinstance(summed, Tensor)
    if not plain:
        finish = epilogue or (lambda value, column, offset: value)
        b.compute("C", shape, lambda *at: cast(finish(summed[at], at[-1], offset), out), output=True)
    return b.build()


def _input(b: Builder, name: str, axes: list[tuple[int, int]], spec: Spec) -> Tensor:
    shape = tuple([extent for extent, _ in axes])
    return b.input(name, shape, spec.dtype, canonical_strides(shape, tuple([stride for _, stride in axes])))


def cast(value: Expr, dtype: DType) -> Expr:
    """`value` as `dtype`; a number becomes a bool by comparing it with zero."""
    if value.dtype == dtype:
        return value
    if dtype == boolean:
        return op("ne", value, const(0, value.dtype))
    return Cast(value, dtype)


def without_empty_sum(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands, with a reduced axis of no elements replaced by one of zeros: the sums are the same."""
    a, b, *rest = operands
    if a.ndim and b.ndim and a.shape[-1] == 0 and b.shape[-2 if b.ndim > 1 else -1] == 0:
        tall = (*b.shape[:-2], 1, b.shape[-1]) if b.ndim > 1 else (1,)
        return np.zeros((*a.shape[:-1], 1), a.dtype), np.zeros(tall, b.dtype), *rest
    return operands
