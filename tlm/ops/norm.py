"""Normalisations: over the last axes of each sample, and by statistics that are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from ..ir.build import Tensor
from ..ir.dtypes import DType, accumulator, f64
from ..ir.exprs import Expr, converted
from .axes import one
from .expressions import compute
from .functions import FUNCTIONS
from .operator import operator
from .reduce import Axes, centred


def _types(x: Tensor) -> tuple[DType, DType]:
    result = x.dtype if x.dtype.is_float else f64
    return result, accumulator(result)


def _epsilon(name: str, eps: Any) -> float:
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not eps >= 0:
        raise ArgumentError(f"{name}: eps is a number of at least 0, got {eps!r}")
    return float(eps)


def _affine(
    axes: Sequence[int], value: Expr, at: tuple[Expr, ...], scale: Tensor | None, bias: Tensor | None
) -> Expr:
    """value * scale + bias, both of the shape of the normalised axes."""
    own = tuple([at[n] for n in axes])
    if scale is not None:
        value = value * converted(scale[own], value.dtype)
    return value if bias is None else value + converted(bias[own], value.dtype)


def _fit(name: str, axes: Sequence[int], x: Tensor, **given: Tensor | None) -> None:
    wanted = tuple([x.shape[n] for n in axes])
    for label, tensor in given.items():
        if tensor is not None and tensor.shape != wanted:
            raise ArgumentError(
                f"{name} of x {x.shape} over axes {tuple(axes)} takes a {label} of shape {wanted}, got "
                f"{tensor.shape}"
            )


def _reciprocal_root(axes: Axes, square: Tensor, small: float) -> Tensor:
    """1 / sqrt(mean + small) of the sums `square`."""
    return compute(
        axes.shape,
        lambda *at: FUNCTIONS["rsqrt"](square[at] / float(axes.count) + small),
        name="root",
        axes=axes.loops,
    )


@operator
def layer_norm(
    x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None, *, axis: Any = -1, eps: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * scale + bias over `axis` (the last, or several).

    scale and bias have the shape of the normalised axes, or are None. The variance is that of the differences
    to the mean, divided by n: a large mean costs no digits, but for rows of a million elements, as of
    `tlm.ops.var`. Halves are computed in f32.
    """
    axes = Axes("layer_norm", x, axis, False)
    result, acc = _types(x)
    small = _epsilon("layer_norm", eps)
    _fit("layer_norm", axes.reduced, x, scale=scale, bias=bias)
    middle, square = centred(axes, acc)
    root = _reciprocal_root(axes, square, small)

    def value(*at: Expr) -> Expr:
        own = tuple([at[n] for n in axes.outer])
        normal = (converted(x[at], acc) - middle[own]) * root[own]
        return converted(_affine(axes.reduced, normal, at, scale, bias), result)

    return compute(x.shape, value, name="Y")


@operator
def rms_norm(x: Tensor, scale: Tensor | None = None, *, axis: Any = -1, eps: float = 1e-5) -> Tensor:
    """x / sqrt(mean(x * x) + eps) * scale over `axis` (the last, or several).

    scale has the shape of the normalised axes, or is None. Squares of halves are taken and summed in f32.
    """
    axes = Axes("rms_norm", x, axis, False)
    result, acc = _types(x)
    small = _epsilon("rms_norm", eps)
    _fit("rms_norm", axes.reduced, x, scale=scale)

    def term(*at: Expr) -> Expr:
        element = converted(axes.element(at), acc)
        return element * element

    square = axes.reduce("sum", term, "square")
    root = _reciprocal_root(axes, square, small)

    def value(*at: Expr) -> Expr:
        normal = converted(x[at], acc) * root[tuple([at[n] for n in axes.outer])]
        return converted(_affine(axes.reduced, normal, at, scale, None), result)

    return compute(x.shape, value, name="Y")


@operator
def batch_norm(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * scale + bias with given statistics: the inference of a batch norm.

    mean, var, scale and bias have one element for each of `axis` (the channels: -1, or 1 for NCHW).
    """
    channel = one("batch_norm", axis, x.ndim)
    result, acc = _types(x)
    small = _epsilon("batch_norm", eps)
    _fit("batch_norm", (channel,), x, mean=mean, var=var, scale=scale, bias=bias)
    root = compute(
        var.shape, lambda c: FUNCTIONS["rsqrt"](converted(var[c], acc) + small), name="root", axes=("c",)
    )

    def value(*at: Expr) -> Expr:
        normal = (converted(x[at], acc) - converted(mean[at[channel]], acc)) * root[at[channel]]
        return converted(_affine((channel,), normal, at, scale, bias), result)

    return compute(x.shape, value, name="Y")
