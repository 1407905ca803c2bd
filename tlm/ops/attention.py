"""Scaled dot-product attention."""

from __future__ import annotations

import math

from ..errors import ArgumentError
from ..ir.build import Tensor
from ..ir.dtypes import accumulator, boolean, promote
from ..ir.exprs import Expr, const, converted
from .axes import aligned, broadcast
from .expressions import compute, max, sum
from .functions import FUNCTIONS, where
from .operator import operator

# What jax.nn gives to masked scores: rows without any unmasked key become uniform instead of NaN.
_LOWEST = {"f32": -0.7 * 3.4028234663852886e38, "f64": -0.7 * 1.7976931348623157e308}


@operator
def dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
) -> Tensor:
    """softmax(query @ key * scale + bias) @ value for each head, as jax.nn.dot_product_attention.

    Shapes query [batch, time, heads, width], key and value [batch, keys, heads, width] (or fewer heads, of
    which each then serves heads / that many) -> as query; all may lack the batch. bias and mask (bool: true
    is seen) broadcast to [batch, heads, time, keys]. scale is 1 / sqrt(width) by default; `is_causal` hides
    keys after the time of the query. Halves are computed in f32.
    """
    q, k, v = query, key, value
    _check(q, k, v)
    lead = tuple([f"b{n}" for n in range(q.ndim - 3)])
    batch, (time, heads, width), (keys, groups, _) = q.shape[:-3], q.shape[-3:], k.shape[-3:]
    result = promote(promote(q.dtype, k.dtype), v.dtype)
    acc = accumulator(result)
    each = heads // groups
    scores = (*batch, heads, time, keys)
    _check_added(bias, mask, scores)
    factor = 1 / math.sqrt(width) if scale is None and width else float(scale or 0)

    def shared(head: Expr) -> Expr | int:
        return head if each == 1 else 0 if groups == 1 else head // each

    def product(*at: Expr) -> Expr:
        *b, n, t, s, h = at
        x = converted(q[(*b, t, n, h)], acc)
        return x * converted(k[(*b, s, shared(n), h)], acc)

    axes = (*lead, "n", "t", "s")
    dots = sum(scores, product, {"h": width}, name="dots", axes=axes)
    e, part = _weights(_masked(dots, bias, mask, factor, is_causal, axes), axes)

    def mixed(*at: Expr) -> Expr:
        *b, t, n, h, s = at
        return e[(*b, n, t, s)] * converted(v[(*b, s, shared(n), h)], acc)

    # The sum of the weights divides the result, not each weight: a query has more keys than elements.
    whole = sum(q.shape, mixed, {"s": keys}, name="mixed", axes=(*lead, "t", "n", "h"))

    def scaled(*at: Expr) -> Expr:
        *b, t, n, _ = at
        return converted(whole[at] * part[(*b, n, t)], result)

    return compute(q.shape, scaled, name="Y", axes=(*lead, "t", "n", "h"))


def _masked(
    dots: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    factor: float,
    is_causal: bool,
    axes: tuple[str, ...],
) -> Tensor:
    """dots * factor + bias, and the lowest number where the mask or the time hides a key."""

    def masked(*at: Expr) -> Expr:
        found: Expr = dots[at] * factor
        if bias is not None:
            found = found + converted(bias[aligned(bias.shape, at)], dots.dtype)
        seen: Expr | None = None if mask is None else mask[aligned(mask.shape, at)]
        if is_causal:
            past = at[-1] <= at[-2]
            seen = past if seen is None else seen & past
        return found if seen is None else where(seen, found, const(_LOWEST[dots.dtype.name], dots.dtype))

    return compute(dots.shape, masked, name="score", axes=axes)


def _weights(score: Tensor, axes: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """exp(score - largest of its row), and one over the sum of each row."""
    *rows, keys = score.shape
    top = max(rows, lambda *at: score[at], {"s": keys}, name="top", axes=axes[:-1])
    e = compute(score.shape, lambda *at: FUNCTIONS["exp"](score[at] - top[at[:-1]]), name="E", axes=axes)
    total = sum(rows, lambda *at: e[at], {"s": keys}, name="total", axes=axes[:-1])
    return e, compute(rows, lambda *at: 1 / total[at], name="part", axes=axes[:-1])


def _check_added(bias: Tensor | None, mask: Tensor | None, scores: tuple[int, ...]) -> None:
    for label, tensor in (("bias", bias), ("mask", mask)):
        if tensor is not None and broadcast(label, tensor.shape, scores) != scores:
            raise ArgumentError(
                f"dot_product_attention: {label} {tensor.shape} does not broadcast to {scores}"
            )
    if mask is not None and mask.dtype != boolean:
        raise ArgumentError(f"dot_product_attention: mask is bool, got {mask.dtype}; a bias is added instead")


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    shapes = f"query {q.shape}, key {k.shape}, value {v.shape}"
    if q.ndim not in (3, 4) or k.ndim != q.ndim or v.ndim != q.ndim:
        raise ArgumentError(
            f"dot_product_attention takes [batch, time, heads, width] (or without batch), got {shapes}"
        )
    same = k.shape == v.shape and q.shape[:-3] == k.shape[:-3] and q.shape[-1] == k.shape[-1]
    if not same or (k.shape[-2] == 0) or q.shape[-2] % k.shape[-2]:
        raise ArgumentError(
            f"dot_product_attention: batch and width agree, key and value have one shape, and the heads of "
            f"query are a multiple of theirs; got {shapes}"
        )
    if k.shape[-3] == 0:
        raise ArgumentError(
            f"dot_product_attention needs at least one key: the softmax of none; got {shapes}"
        )
    for name, x in (("query", q), ("key", k), ("value", v)):
        if not x.dtype.is_float:
            raise ArgumentError(f"dot_product_attention is for floats, {name} is {x.dtype}")
