"""Object code into this process, and out of it again when the last reference is gone."""

from __future__ import annotations

import ctypes
import itertools
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from ...errors import BackendError
from ...target import Target
from ..openmp import SYMBOLS, openmp
from . import team
from .codegen import LOCK, kept_code, machine

_names = itertools.count()


@cache
def _jit(isa: str, features: tuple[str, ...]) -> Any:
    return llvm.create_lljit_compiler(machine(isa, features), use_jit_link=True)


def address(symbol: str) -> int:
    """Where a function that kernels call is in this process; BackendError where it is nowhere."""
    if symbol in SYMBOLS:
        runtime = openmp()
        # Without one no kernel ever asks for a team, but its symbols must resolve.
        return _address(ctypes.CDLL(None), "abort") if runtime is None else _address(runtime, symbol)
    from .mathlib import libm, libmvec

    for library in (libmvec(), libm(), ctypes.CDLL(None)):
        if library is not None and hasattr(library, symbol):
            return _address(library, symbol)
    raise BackendError(f"no library of this process has the function {symbol}")


def _team(target: Target) -> int:
    """Where the runtime of parallel loops is; it is loaded once and stays."""
    level = (target.isa, target.features)
    if level not in _teams:
        _teams[level] = link(kept_code(team.RUNTIME, target, True), team.TEAM, SYMBOLS, target)
    return _teams[level].address


def _address(library: ctypes.CDLL, symbol: str) -> int:
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0


class Linked:
    """Loaded code: `address` of its entry, valid as long as this object lives."""

    __slots__ = ("_tracker", "address")

    def __init__(self, tracker: Any, address: int) -> None:
        self._tracker = tracker
        self.address = address

    def __del__(self) -> None:
        # Unloading enters LLVM as much as compiling does; when Python ends, the lock may be gone already.
        if LOCK is not None:
            with LOCK:
                self._tracker.close()


_teams: dict[tuple[str, tuple[str, ...]], Linked] = {}


def link(code: bytes, symbol: str, imports: tuple[str, ...], target: Target) -> Linked:
    """Load an object file, its entry `symbol`, and resolve `imports`; BackendError where that fails."""
    with LOCK:
        places = {n: _team(target) if n == team.TEAM else address(n) for n in imports}
        builder = llvm.JITLibraryBuilder()
        builder.add_object_img(code)
        builder.export_symbol(symbol)
        for name, place in places.items():
            builder.import_symbol(name, place)
        try:
            tracker = builder.link(_jit(target.isa, target.features), f"tlm{next(_names)}")
        except RuntimeError as error:
            raise BackendError(f"cannot load the compiled kernel: {error}") from error
        return Linked(tracker, tracker[symbol])
