"""Backends: scheduled programs to kernels. Nothing heavy is imported before the first compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ahead import Ahead as Ahead
    from .ahead import check_name as check_name
    from .ahead import save as save
    from .compiler import assembly as assembly
    from .compiler import compile as compile
    from .compiler import cross_compile as cross_compile
    from .kernel import Kernel as Kernel

_LAZY = {
    "Ahead": "ahead", "Kernel": "kernel", "assembly": "compiler", "check_name": "ahead",
    "compile": "compiler", "cross_compile": "compiler", "save": "ahead", "use_cache": "cache",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
