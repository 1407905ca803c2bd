"""Machine code with what it takes to call it, as bytes: sent to workers, kept on disk.

A line of JSON (entry, imports, workspace, version of LLVM), then an object file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import BackendError
from ..target import Target
from .kernel import bind

if TYPE_CHECKING:
    from .llvm.emitter import Module


def pack(module: Module, code: bytes) -> bytes:
    """The bundle of a module and its object file."""
    from .llvm import codegen

    about = {
        "versions": codegen.versions(), "symbol": module.symbol, "imports": module.imports,
        "workspace": (module.shared, module.per_thread), "parallel": module.parallel,
    }  # fmt: skip
    return json.dumps(about).encode() + b"\n" + code


def load(bundle: bytes, target: Target, parameters: int) -> Callable[..., None]:
    """call(*pointers, threads=1) on as many pointers as the program has `parameters`, without checks.

    BackendError where the bundle is damaged, or was made by another version of LLVM.
    """
    from .llvm import codegen, link

    line, _, code = bundle.partition(b"\n")
    try:
        about = json.loads(line)
        if about["versions"] != codegen.versions():
            raise BackendError(f"code of {about['versions']} cannot be loaded by {codegen.versions()}")
        symbol, imports, parallel = about["symbol"], tuple(about["imports"]), about["parallel"]
        shared, per_thread = about["workspace"]
    except (ValueError, KeyError, TypeError) as error:
        raise BackendError(f"not a bundle of machine code: {error!r}") from None
    return bind(link.link(code, symbol, imports, target), parameters, (shared, per_thread), parallel)
