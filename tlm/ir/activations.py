"""Activation functions as expressions, by name."""

from __future__ import annotations

import math
from collections.abc import Callable

from .exprs import Expr, const, op


def _gelu(x: Expr) -> Expr:
    """The tanh form of Hendrycks and Gimpel (2016), JAX's default, by (1 + tanh(t)) / 2 = logistic(2t).

    That one keeps its digits where tanh is near -1, and takes one exp less work.
    """
    twice = 2 * math.sqrt(2 / math.pi)
    return x * op("logistic", x * (x * x * (0.044715 * twice) + twice))


ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "relu": lambda x: op("maximum", x, const(0, x.dtype)),
    "gelu": _gelu,
    "silu": lambda x: x * op("logistic", x),
    "sigmoid": lambda x: op("logistic", x),
    "tanh": lambda x: op("tanh", x),
}
"""What operators name, models learn and backends compile."""
