"""What a matrix product computes: numpy's rules of rank and dtype, the fewest loops that layouts allow.

Plain data; `formulas.py` turns it into a program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import ArgumentError, DTypeError
from ..ir.dtypes import DType, from_numpy
from ..ir.nodes import row_major
from .arrays import Shape, Spec, numpy_dtype

if TYPE_CHECKING:
    from ..ir.nodes import Program


@dataclass(frozen=True, slots=True)
class Axis:
    """A spatial loop: its extent, and its strides in operands and result, 0 where it does not index one."""

    extent: int
    a: int
    b: int
    c: int


@dataclass(frozen=True, slots=True)
class Product:
    """activation(A @ B + bias) on [batch..., rows, k] and [batch..., k, n]: all that its program depends on.

    Strides are in elements: those of k in A, and those of k and n in B.
    """

    name: str
    batch: tuple[Axis, ...]
    rows: Axis
    k: int
    n: int
    a_stride: int
    b_strides: tuple[int, int]
    dtypes: tuple[DType, DType]
    out: DType
    bias: Spec | None = None
    activation: str | None = None

    @property
    def program(self) -> Program:
        """The unscheduled program."""
        from .formulas import program

        return program(self)

    @property
    def identity(self) -> str:
        """What tells it from every other product, in any process."""
        return repr(self)


class Recipe(Protocol):
    """What has a program, and a name for it that no other program has in any process."""

    @property
    def program(self) -> Program: ...

    @property
    def identity(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Problem:
    """What a call computes: parameters are the operands in order, then the result (C-contiguous)."""

    recipe: Recipe
    operands: tuple[Spec, ...]
    shape: Shape
    dtype: DType

    @property
    def program(self) -> Program:
        """The unscheduled program."""
        return self.recipe.program


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
    wide_a = a if len(a.shape) > 1 else Spec((1, *a.shape), a.dtype)
    wide_b = b if len(b.shape) > 1 else Spec((*b.shape, 1), b.dtype)
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
    activation: str | None = None,
) -> Problem:
    """activation(a @ b + bias), its shape and its dtype.

    Products are summed in f32 for f16 and bf16, in i32 for narrower integers, else in the result's dtype.
    That is numpy's promotion of the operands' (so int8 @ int8 is int8, and wraps) unless `dtype` is given.
    """
    rules = rank_rules(a, b, name)
    types = (a.dtype, b.dtype) if bias is None else (a.dtype, b.dtype, bias.dtype)
    out = dtype or result_dtype(*types)
    (_, n, k), (batch, rows) = rules.extents, _axes(rules)
    down, across = rules.b.element_strides[-2:]
    found = Product(
        name, batch, rows, k, n, rules.a.element_strides[-1], (down, across), types[:2], out, bias, activation
    )
    return Problem(found, (a, b) if bias is None else (a, b, bias), rules.shape, out)


def _axes(rules: Operands) -> tuple[tuple[Axis, ...], Axis]:
    """Batch axes and the row axis: axes of one element dropped, neighbours merged where layouts allow it."""
    m, n, k = rules.extents
    rank = len(rules.batch)
    steps_a, steps_b = (_batch_strides(x, rank) for x in (rules.a, rules.b))
    steps_c = row_major((*rules.batch, m, n))
    rows = Axis(m, rules.a.element_strides[-2], 0, n)
    found = [Axis(*four) for four in zip(rules.batch, steps_a, steps_b, steps_c[:rank], strict=True)]
    merged: list[Axis] = []
    for axis in (*found, rows):
        if axis.extent == 1:
            continue
        last = merged[-1] if merged else None
        if last is not None and (last.a, last.b, last.c) == tuple(
            axis.extent * s for s in (axis.a, axis.b, axis.c)
        ):
            merged[-1] = Axis(last.extent * axis.extent, axis.a, axis.b, axis.c)
        else:
            merged.append(axis)
    if merged and merged[-1].b == 0 and merged[-1].a != 0:
        return tuple(merged[:-1]), merged[-1]
    return tuple(merged), Axis(1, k, 0, n)


def _batch_strides(x: Spec, rank: int) -> list[int]:
    shape, strides = x.shape[:-2], x.element_strides[:-2]
    own = [s if n > 1 else 0 for n, s in zip(shape, strides, strict=True)]
    return [0] * (rank - len(own)) + own


def without_empty_sum(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands, with a reduced axis of no elements replaced by one of zeros: the sums are the same."""
    a, b, *rest = operands
    if a.ndim and b.ndim and a.shape[-1] == 0 and b.shape[-2 if b.ndim > 1 else -1] == 0:
        tall = (*b.shape[:-2], 1, b.shape[-1]) if b.ndim > 1 else (1,)
        return np.zeros((*a.shape[:-1], 1), a.dtype), np.zeros(tall, b.dtype), *rest
    return operands
