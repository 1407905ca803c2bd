"""Operators on arrays: numpy's names and rules, compiled by schedules that a model writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .matmul import linear, matmul

if TYPE_CHECKING:
    from .kernel import Kernel as Kernel

__all__ = ["Kernel", "linear", "matmul"]


def __getattr__(name: str) -> Any:
    if name == "Kernel":
        from .kernel import Kernel

        return Kernel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
