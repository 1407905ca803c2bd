"""Attention against its definition in float64, and JAX's rules of heads, masks and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.values import FEW, LAYOUTS, floats, near, normal, wide
from tlm import ops
from tlm.errors import ArgumentError

PLAIN = {"schedule": "default"}


def exact(
    q: Any, k: Any, v: Any, causal: bool, scale: float | None = None, bias: Any = 0, mask: Any = True
) -> Any:
    q, k, v = wide(q), wide(k), wide(v)
    times = q.shape[-2] // k.shape[-2]
    k, v = np.repeat(k, times, -2), np.repeat(v, times, -2)
    scores = np.einsum("...tnh,...snh->...nts", q, k) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    scores = scores + wide(bias)
    seen = np.tril(np.ones(scores.shape[-2:], bool)) if causal else np.ones(scores.shape[-2:], bool)
    scores = np.where(seen & mask, scores, -1e30)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("...nts,...snh->...tnh", e / e.sum(-1, keepdims=True), v)


@FEW
@given(st.data())
def test_any_attention(data: st.DataObject):
    draw = data.draw
    batch = draw(st.sampled_from([(), (1,), (3,)]))
    time, keys, width = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 8))
    groups, each = draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]))
    dtype, causal = draw(floats), draw(st.booleans())
    layout = draw(st.sampled_from(LAYOUTS))
    q = normal((*batch, time, groups * each, width), dtype, 1, layout)
    k, v = [normal((*batch, keys, groups, width), dtype, n, layout) for n in (2, 3)]
    got = ops.dot_product_attention(q, k, v, is_causal=causal, **PLAIN)
    assert got.dtype == q.dtype
    near(got, exact(q, k, v, causal), dtype)


def test_bias_mask_and_scale():
    q, k, v = [normal((2, 5, 4, 3), seed=n) for n in range(3)]
    bias = normal((4, 5, 5), seed=4)
    mask = np.random.default_rng(0).random((2, 1, 5, 5)) > 0.3
    mask[..., 0] = True
    got = ops.dot_product_attention(q, k, v, bias, mask, scale=0.3, is_causal=True, **PLAIN)
    near(got, exact(q, k, v, True, 0.3, bias, mask))
    near(ops.dot_product_attention(q, k, v, mask=mask, **PLAIN), exact(q, k, v, False, mask=mask))


def test_rows_without_a_key_to_see_are_uniform_as_in_jax():
    import jax

    q, k, v = [normal((1, 3, 1, 4), seed=n) for n in range(3)]
    mask = np.zeros((1, 1, 3, 3), bool)
    want = jax.nn.dot_product_attention(q, k, v, mask=mask)
    near(ops.dot_product_attention(q, k, v, mask=mask, **PLAIN), want)


def test_nothing_in_nothing_out():
    q = np.ones((2, 0, 3, 4), "f4")
    assert (
        ops.dot_product_attention(q, np.ones((2, 5, 3, 4), "f4"), np.ones((2, 5, 3, 4), "f4")).shape
        == q.shape
    )


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((2, 3), (2, 3), (2, 3)), r"takes \[batch, time, heads, width\]"),
        (((1, 2, 3, 4), (1, 2, 2, 4), (1, 2, 2, 4)), "heads of query are a multiple"),
        (((1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 5)), "batch and width agree"),
        (((1, 2, 3, 4), (1, 2, 3, 4), (1, 5, 3, 4)), "key and value have one shape"),
    ],
)
def test_wrong_calls(shapes: Any, words: str):
    with pytest.raises(ArgumentError, match=words):
        ops.dot_product_attention(*[np.ones(s, "f4") for s in shapes])
    q = np.ones((1, 2, 3, 4), "f4")
    with pytest.raises(ArgumentError, match="mask is bool"):
        ops.dot_product_attention(q, q, q, mask=np.ones((1, 3, 2, 2), "f4"))
    with pytest.raises(ArgumentError, match="do not broadcast"):
        ops.dot_product_attention(q, q, q, np.ones((1, 3, 2, 5), "f4"))
    with pytest.raises(ArgumentError, match="is for floats"):
        ops.dot_product_attention(q.astype("i4"), q, q)
