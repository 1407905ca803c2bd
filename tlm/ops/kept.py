"""Finished calls between processes: what one compiled, later ones load without deciding or emitting anything.

The key is a hash of all that the code depends on: the product with its layouts, the target, the decider with
its settings, the model's weights, and the source of the package; the version of LLVM is checked in the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..backend import cache as disk
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
    parts = (source_digest(), problem.recipe.identity, target.key, repr(how), weights)
    return "call-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()


def load(problem: Problem, target: Target, how: Config) -> Call | None:
    """The call that an earlier process kept for the same problem; None where there is none that is whole."""
    key = _key(problem, target, how)
    data = None if key is None else disk.load(key)
    if data is None:
        return None
    from ..backend import bundle

    try:
        return bundle.load(data, target, len(problem.operands) + 1)
    except BackendError:
        return None


def save(kernel: Kernel, how: Config) -> None:
    """Keep the code of a kernel for later processes."""
    key = _key(kernel.problem, kernel.target, how)
    if key is None or kernel.compiled is None:
        return
    from ..backend import bundle

    disk.save(key, bundle.pack(kernel.compiled.module, kernel.compiled.object))
