"""Products as programs."""

from __future__ import annotations

from functools import lru_cache

from ..ir.activations import ACTIVATIONS
from ..ir.build import Builder, Tensor
from ..ir.dtypes import DType, accumulator, boolean
from ..ir.exprs import Cast, Expr, const, op
from ..ir.nodes import Program
from .arrays import canonical_strides
from .products import Product


@lru_cache(maxsize=1024)
def program(p: Product) -> Program:
    """The unscheduled program: one reduction; then, where there is any of them, bias, activation and cast."""
    acc = accumulator(p.out)
    b = Builder(p.name)
    axes_a = [(x.extent, x.a) for x in p.batch if x.a] + [(p.rows.extent, p.rows.a), (p.k, p.a_stride)]
    axes_b = [(x.extent, x.b) for x in p.batch if x.b] + [(p.k, p.b_strides[0]), (p.n, p.b_strides[1])]
    left, right = _input(b, "A", axes_a, p.dtypes[0]), _input(b, "B", axes_b, p.dtypes[1])
    bias = None if p.bias is None else b.input("bias", p.bias.shape, p.bias.dtype, p.bias.strides)

    def term(*at: Expr) -> Expr:
        *outer, i, j, k = at
        x: Expr = left[(*[v for v, axis in zip(outer, p.batch, strict=True) if axis.a], i, k)]
        y: Expr = right[(*[v for v, axis in zip(outer, p.batch, strict=True) if axis.b], k, j)]
        if p.out == boolean:
            x, y = cast(x, boolean), cast(y, boolean)
        return cast(x, acc) * cast(y, acc)

    shape = (*[x.extent for x in p.batch], p.rows.extent, p.n)
    plain = bias is None and p.activation is None and acc == p.out
    summed = b.reduce("C" if plain else "acc", shape, over={"k": p.k}, fn=term, output=plain)
    assert isinstance(summed, Tensor)
    if not plain:
        b.compute("C", shape, lambda *at: _finished(p, summed[at], at[-1], bias), output=True)
    return b.build()


def _finished(p: Product, value: Expr, column: Expr, bias: Tensor | None) -> Expr:
    if bias is not None:
        value = value + cast(bias[column], value.dtype)
    if p.activation is not None:
        value = ACTIVATIONS[p.activation](value)
    return cast(value, p.out)


def _input(b: Builder, name: str, axes: list[tuple[int, int]], dtype: DType) -> Tensor:
    shape = tuple([extent for extent, _ in axes])
    return b.input(name, shape, dtype, canonical_strides(shape, tuple([stride for _, stride in axes])))


def cast(value: Expr, dtype: DType) -> Expr:
    """`value` as `dtype`; a number becomes a bool by comparing it with zero."""
    if value.dtype == dtype:
        return value
    if dtype == boolean:
        return op("ne", value, const(0, value.dtype))
    return Cast(value, dtype)
