"""Activation functions as expressions, by name."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import ArgumentError
from ..ir.nodes import Expr, const, op


def _gelu(x: Expr) -> Expr:
    """The tanh form of Hendrycks and Gimpel (2016), JAX's default."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (op("tanh", inner) + 1)


ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "relu": lambda x: op("maximum", x, const(0, x.dtype)),
    "gelu": _gelu,
    "silu": lambda x: x * op("logistic", x),
    "sigmoid": lambda x: op("logistic", x),
    "tanh": lambda x: op("tanh", x),
}


def activation(name: str | None) -> Callable[[Expr], Expr]:
    """The expression of an activation; None is the identity; ArgumentError for an unknown name."""
    if name is None:
        return lambda x: x
    if name not in ACTIVATIONS:
        raise ArgumentError(f"unknown activation {name!r}; known are {', '.join(ACTIVATIONS)}, None")
    return ACTIVATIONS[name]
