"""Operators on arrays: numpy's and JAX's names and rules, compiled by schedules that a model writes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .matmul import linear, matmul

if TYPE_CHECKING:
    from .kernel import Kernel as Kernel

_FAMILIES = {
    "attention": ("dot_product_attention",),
    "conv": ("conv1d", "conv2d", "conv3d", "conv_transpose"),
    "einsums": ("einsum",),
    "elementwise": (
        "abs", "acos", "add", "asin", "astype", "atan", "atan2", "bitwise_and", "bitwise_not", "bitwise_or",
        "bitwise_xor", "cbrt", "ceil", "clip", "cos", "cosh", "divide", "equal", "erf", "erfc", "exp", "exp2",
        "expm1", "floor", "floor_divide", "fmod", "gelu", "greater", "greater_equal", "isfinite", "isinf",
        "isnan", "left_shift", "less", "less_equal", "log", "log1p", "log2", "logical_and", "logical_not",
        "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply", "negative", "not_equal", "pow",
        "reciprocal", "relu", "right_shift", "round", "rsqrt", "sigmoid", "sign", "silu", "sin", "sinh",
        "sqrt", "square", "subtract", "tan", "tanh", "trunc", "where",
    ),
    "layout": ("broadcast_to", "concatenate", "flip", "pad", "take", "transpose"),
    "norm": ("batch_norm", "layer_norm", "rms_norm"),
    "pool": ("avg_pool2d", "max_pool2d"),
    "reduce": (
        "all", "any", "argmax", "argmin", "logsumexp", "max", "mean", "min", "prod", "std", "sum", "var",
    ),
    "scan": ("cumsum",),
    "softmaxes": ("log_softmax", "softmax"),
}  # fmt: skip
"""Module -> the operators that it defines; loaded at first use."""
_HOMES = {name: module for module, names in _FAMILIES.items() for name in names}

__all__ = ["Kernel", "linear", "matmul", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name == "Kernel":
        from .kernel import Kernel

        return Kernel
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    module = import_module(f".{_HOMES[name]}", __name__)
    table = getattr(module, "OPERATORS", {})
    found = table[name] if name in table else getattr(module, name, None) or getattr(module, f"{name}_")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
