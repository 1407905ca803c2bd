"""tlm: a tensor compiler whose schedules are written by a language model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import ops as ops
    from .ir.build import Tensor as Tensor
    from .ops.caching import cache as cache
    from .ops.expressions import all as all
    from .ops.expressions import any as any
    from .ops.expressions import compute as compute
    from .ops.expressions import max as max
    from .ops.expressions import min as min
    from .ops.expressions import prod as prod
    from .ops.expressions import reduce as reduce
    from .ops.expressions import sum as sum
    from .ops.operator import operator as operator
    from .ops.settings import Generate as Generate
    from .ops.settings import Random as Random
    from .ops.settings import Search as Search
    from .schedule.schedule import Schedule as Schedule
    from .target import Target as Target
    from .target import host as host

__version__ = "0.1.0"
# Functions of formulas (tlm.exp, tlm.where, ...), from `ops.functions.FUNCTIONS`.
_FUNCTIONS = (
    "abs", "acos", "asin", "atan", "atan2", "cast", "cbrt", "ceil", "cos", "cosh", "equal", "erf", "erfc",
    "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "gelu", "isfinite", "isnan", "log", "log1p",
    "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "mod",
    "not_equal", "pow", "relu", "round", "rsqrt", "sigmoid", "sign", "silu", "sin", "sinh", "sqrt", "tan",
    "tanh", "trunc", "where",
)  # fmt: skip
__all__ = [
    "Generate", "Random", "Schedule", "Search", "Target", "Tensor", "__version__", "all", "any", "argmax",
    "argmin", "cache", "compute", "host", "max", "min", "operator", "ops", "prod", "reduce", "sum",
    *_FUNCTIONS,
]  # fmt: skip

# Public name -> the module that has it; loaded at first use, so that `import tlm` costs nothing.
_HOMES = {
    "cache": ".ops.caching",
    "Generate": ".ops.settings",
    "Random": ".ops.settings",
    "Search": ".ops.settings",
    **dict.fromkeys(
        ("all", "any", "argmax", "argmin", "compute", "max", "min", "prod", "reduce", "sum"),
        ".ops.expressions",
    ),
    "operator": ".ops.operator",
    "Tensor": ".ir.build",
    "Schedule": ".schedule.schedule",
    "Target": ".target",
    "host": ".target",
}


def __getattr__(name: str) -> Any:
    if name == "ops":
        return import_module(".ops", __name__)
    if name in _FUNCTIONS:
        table: dict[str, Any] = import_module(".ops.functions", __name__).FUNCTIONS
        globals().update({n: table[n] for n in _FUNCTIONS})
        return globals()[name]
    if name not in _HOMES:
        raise AttributeError(f"module 'tlm' has no attribute {name!r}; it has {', '.join(__all__)}")
    found = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
