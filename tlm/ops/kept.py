"""Finished calls between processes: what one compiled, later ones load without deciding or emitting anything.

The key is a hash of all that the code depends on: the product with its layouts, the target, the decider with
its settings, the model's weights, and the source of the package; the version of LLVM is checked in the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..backend import cache as files
from ..errors import BackendError
from ..target import Target
from .caching import cache as caching
from .products import Problem
from .settings import Config, Generate, weights_digest

if TYPE_CHECKING:
    from .kernel import Kernel

Call = Callable[..., None]


@cache
def source_digest() -> str:
    """A hash of every module of the package but the command line."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith("cli"):
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _key(problem: Problem, target: Target, how: Config) -> str | None:
    """None where nothing may be kept: caching is off, other machines, a model that is missing."""
    weights = weights_digest() if isinstance(how, Generate) else "none"
    if not caching() or not weights or not target.runs_here():
        return None
    parts = (source_digest(), repr(problem.product), target.key, repr(how), weights)
    return "call-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()


def load(problem: Problem, target: Target, how: Config) -> Call | None:
    """The call that an earlier process kept for the same problem; None where there is none that is whole."""
    key = _key(problem, target, how)
    data = None if key is None else files.load(key)
    if data is None:
        return None
    from ..backend.kernel import bind
    from ..backend.llvm import codegen, link

    line, _, code = data.partition(b"\n")
    try:
        about = json.loads(line)
        if about["versions"] != codegen.versions():
            return None
        linked = link.link(code, about["symbol"], tuple(about["imports"]), target)
        shared, per_thread = about["workspace"]
    except (ValueError, KeyError, TypeError, BackendError):
        return None
    return bind(linked, len(problem.operands) + 1, (shared, per_thread), about["parallel"])


def save(kernel: Kernel, how: Config) -> None:
    """Keep the code of a kernel for later processes."""
    key = _key(kernel.problem, kernel.target, how)
    if key is None or kernel.compiled is None:
        return
    from ..backend.llvm import codegen

    made = kernel.compiled
    about = {
        "versions": codegen.versions(), "symbol": made.symbol, "imports": made.imports,
        "workspace": made.workspace, "parallel": made.parallel,
    }  # fmt: skip
    files.save(key, json.dumps(about).encode() + b"\n" + made.object)
