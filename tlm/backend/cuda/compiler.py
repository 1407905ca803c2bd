"""CUDA C to machine code by NVRTC, which needs neither a GPU nor its driver."""

from __future__ import annotations

import os
import threading

from ...errors import BackendError
from ...ir.nodes import Program
from ...lower.gpu import architecture
from ...target import Target
from .. import cache as store
from .emitter import Source, emit
from .kernel import Kernel
from .nvrtc import binding, version
from .stats import statistics

# NVRTC compiles one program at a time in a process.
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    # A child must not inherit the lock from a thread that it does not have.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

_LENGTH = 8
"""Bytes of a number: a kept cubin begins with the length of its log."""


def compile(program: Program, target: Target, *, cache: bool = True) -> Kernel:
    """The kernel of a scheduled program for a GPU, which need not be there.

    With `cache`, machine code is kept on disk and reused by later processes. BackendError where the program
    is no sequence of launches or above a limit, or NVRTC is missing.
    """
    source = emit(program, target)
    cubin, log = binary(source, target, cached=cache)
    return Kernel(program, target, source, cubin, statistics(source, log, target))


def options(target: Target) -> tuple[str, ...]:
    """What NVRTC is told, with and without a GPU. Division, roots and subnormal numbers are IEEE's."""
    return (
        f"--gpu-architecture={target.isa}", "--std=c++17", "--ptxas-options=-v", "--fmad=true", "--ftz=false",
        "--prec-div=true", "--prec-sqrt=true",
    )  # fmt: skip


def binary(source: Source, target: Target, *, cached: bool = True) -> tuple[bytes, str]:
    """(cubin, log of the compiler) of a text: what an earlier process kept, or NVRTC makes.

    BackendError with the log where NVRTC refuses the text.
    """
    architecture(target)
    if not (cached and store.enabled()):
        return _made(source.text, target)
    key = store.key(source.text, target, _versions(target))
    found = _unpacked(store.load(key, store.CUBINS))
    if found is None:
        found = _made(source.text, target)
        store.save(key, _packed(*found), store.CUBINS)
    return found


def _versions(target: Target) -> str:
    """What the machine code of a text depends on beside it: tlm, NVRTC, and what NVRTC is told."""
    from ... import __version__

    return f"tlm {__version__}, NVRTC {version()}: {' '.join(options(target))}"


def _packed(cubin: bytes, log: str) -> bytes:
    text = log.encode()
    return len(text).to_bytes(_LENGTH, "little") + text + cubin


def _unpacked(data: bytes | None) -> tuple[bytes, str] | None:
    """What `_packed` made; None where it is not."""
    if data is None or len(data) < _LENGTH:
        return None
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    try:
        return (data[end:], data[_LENGTH:end].decode()) if end < len(data) else None
    except UnicodeDecodeError:
        return None


def _made(text: str, target: Target) -> tuple[bytes, str]:
    nvrtc = binding()
    with _lock:
        made = nvrtc.createProgram(text, "tlm.cu", (), ())
        try:
            nvrtc.compileProgram(made, options(target))
            # The binding leaves out the last byte of the file.
            return nvrtc.getCUBIN(made) + b"\0", nvrtc.getProgramLog(made)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(made)
            raise BackendError(f"NVRTC refuses the text for {target.isa}: {error}\n{log}") from None
        finally:
            nvrtc.destroyProgram(made)
