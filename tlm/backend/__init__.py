"""Backends: scheduled programs to kernels. Nothing heavy is imported before the first compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compiler import compile as compile
    from .compiler import cross_compile as cross_compile
    from .kernel import Kernel as Kernel

_LAZY = {"compile": "compiler", "cross_compile": "compiler", "Kernel": "kernel", "use_cache": "cache"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
