"""From LLVM IR to machine code at level 2, without optimisation passes: the text is clean already."""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from ...errors import BackendError
from ...target import Target
from .. import cache as store

# LLVM contexts and target machines are not safe to share between threads.
LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A child must not inherit the lock from a thread that it does not have.
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)

OLDEST = (0, 45)
"""The first version of llvmlite whose LLVM reads the text that is generated."""

_CPUS = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "sse": "x86-64-v2", "neon": "generic"}
_TRIPLES = {"neon": "aarch64-unknown-linux-gnu"}


def versions() -> str:
    """What the code depends on besides its text: LLVM and its binding."""
    return f"llvmlite {llvmlite.__version__} LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


@cache
def _initialize() -> None:
    if tuple(int(part) for part in llvmlite.__version__.split(".")[:2]) < OLDEST:
        raise BackendError(
            f"llvmlite {llvmlite.__version__} is too old; tlm needs {OLDEST[0]}.{OLDEST[1]} or later"
        )
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


@cache
def machine(isa: str, features: tuple[str, ...]) -> Any:
    """The LLVM target machine of a CPU level; nothing beyond `features` is used."""
    _initialize()
    return llvm.Target.from_triple(_triple(isa)).create_target_machine(
        cpu=_CPUS[isa], features=",".join(f"+{f}" for f in features), opt=2, reloc="pic", codemodel="default"
    )


def _triple(isa: str) -> str:
    return _TRIPLES.get(isa) or str(llvm.get_process_triple())


def parse(text: str, target: Target) -> Any:
    """The LLVM module of IR text for `target`; BackendError where LLVM does not take the text."""
    layout = machine(target.isa, target.features).target_data
    header = f'target datalayout = "{layout}"\ntarget triple = "{_triple(target.isa)}"\n'
    try:
        return llvm.parse_assembly(header + text)
    except RuntimeError as error:
        raise BackendError(f"LLVM rejects the generated code: {error}") from error


def object_code(text: str, target: Target) -> bytes:
    """The object file of IR text."""
    with LOCK:
        return bytes(machine(target.isa, target.features).emit_object(parse(text, target)))


def kept_code(text: str, target: Target, cached: bool) -> bytes:
    """The object file of IR text, with `cached` from the disk where an earlier process has left it there."""
    if not (cached and store.enabled()):
        return object_code(text, target)
    key = store.key(text, target, versions())
    code = store.load(key)
    if code is None:
        code = object_code(text, target)
        store.save(key, code)
    return code


def assembly(text: str, target: Target) -> str:
    """The assembly listing of IR text."""
    with LOCK:
        return str(machine(target.isa, target.features).emit_assembly(parse(text, target)))
