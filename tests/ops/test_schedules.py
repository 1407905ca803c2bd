"""Every operator under every decider computes what the plain nest does."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tlm
from tests.ops.values import array, near, normal
from tlm import ops

X, ROWS, HEADS = array((2, 9, 10, 4)), normal((5, 37)), normal((2, 7, 4, 8))
W, BIAS, VECTOR = array((3, 3, 4, 6), seed=1), array((6,), seed=2), normal((37,), seed=3)

CALLS: dict[str, Callable[..., Any]] = {
    "conv1d": lambda **s: ops.conv1d(X[0], array((3, 4, 6)), **s),
    "conv2d": lambda **s: ops.conv2d(X, W, BIAS, padding="SAME", activation="relu", **s),
    "strided": lambda **s: ops.conv2d(X, W, stride=2, padding="SAME", **s),
    "1x1": lambda **s: ops.conv2d(X, W[:1, :1], **s),
    "conv3d": lambda **s: ops.conv3d(X[None], array((2, 3, 3, 4, 6)), **s),
    "depthwise": lambda **s: ops.conv2d(X, array((3, 3, 1, 4)), groups=4, padding=1, activation="silu", **s),
    "grouped": lambda **s: ops.conv2d(X, array((3, 3, 2, 6)), groups=2, **s),
    "channels first": lambda **s: ops.conv2d(
        X.transpose(0, 3, 1, 2), array((6, 4, 3, 3)), layout="NCHW", **s
    ),
    "int8": lambda **s: ops.conv2d(X.astype("i1"), W.astype("i1"), **s),
    "conv_transpose": lambda **s: ops.conv_transpose(X, W, stride=2, **s),
    "max_pool2d": lambda **s: ops.max_pool2d(X, 3, stride=2, padding=1, **s),
    "avg_pool2d": lambda **s: ops.avg_pool2d(X, 3, stride=2, padding=1, count_include_pad=False, **s),
    "softmax": lambda **s: ops.softmax(ROWS, **s),
    "softmax of columns": lambda **s: ops.softmax(ROWS, axis=0, **s),
    "log_softmax": lambda **s: ops.log_softmax(ROWS, **s),
    "layer_norm": lambda **s: ops.layer_norm(ROWS, VECTOR, VECTOR, **s),
    "rms_norm": lambda **s: ops.rms_norm(ROWS.astype("f2"), VECTOR.astype("f2"), **s),
    "batch_norm": lambda **s: ops.batch_norm(ROWS, VECTOR, VECTOR**2, **s),
    **{
        name: lambda name=name, **s: getattr(ops, name)(ROWS, axis=1, **s)
        for name in ("sum", "prod", "max", "argmax", "argmin", "mean", "var", "logsumexp", "cumsum")
    },
    "all axes": lambda **s: ops.sum(X, **s),
    "columns": lambda **s: ops.max(X, axis=(0, 2), **s),
    "any": lambda **s: ops.any(ROWS > 2, axis=0, **s),
    "transpose": lambda **s: ops.transpose(X, (3, 1, 0, 2), **s),
    "concatenate": lambda **s: ops.concatenate([ROWS, ROWS[:, :3]], axis=1, **s),
    "pad": lambda **s: ops.pad(ROWS, 2, "reflect", **s),
    "take": lambda **s: ops.take(ROWS, np.array([[1, -2]]), axis=1, **s),
    "gelu": lambda **s: ops.gelu(ROWS, **s),
    "add": lambda **s: ops.add(ROWS, VECTOR, **s),
    "compare": lambda **s: ops.less(X, 0.5, **s),
    "number": lambda **s: ops.exp(np.float32(1.5), **s),
    "attention": lambda **s: ops.dot_product_attention(HEADS, HEADS, HEADS, is_causal=True, **s),
    "einsum": lambda **s: ops.einsum("ij,jk,kl->il", array((3, 4)), array((4, 5)), array((5, 6)), **s),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("schedule", ["generate", "heuristic", tlm.Random(1), tlm.Random(2)], ids=str)
def test_same_result(name: str, schedule: Any):
    want = CALLS[name](schedule="default", threads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = CALLS[name](schedule=schedule, threads=2)
    assert got.dtype == want.dtype
    near(got, want, "f16" if want.dtype == np.float16 else "f32")


@pytest.mark.parametrize("name", ["conv2d", "softmax", "sum", "gelu", "transpose"])
def test_the_model_is_asked_for_shapes_it_never_saw(name: str):
    """Nothing stands in for it: each choice has a probability."""
    operator, arguments = {
        "conv2d": (ops.conv2d, (X, W)), "softmax": (ops.softmax, (ROWS,)), "sum": (ops.sum, (ROWS,)),
        "gelu": (ops.gelu, (ROWS,)), "transpose": (ops.transpose, (ROWS,)),
    }[name]  # fmt: skip
    kernel = operator.kernel(*arguments)
    assert kernel.choices
    assert all(0 < probability <= 1 for *_, probability in kernel.choices)
    assert kernel.sentence
