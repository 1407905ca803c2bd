"""CUDA C to machine code by NVRTC, which needs neither a GPU nor its driver."""

from __future__ import annotations

import threading
from typing import Any

from ...errors import BackendError
from ...ir.nodes import Program
from ...lower.gpu import architecture
from ...target import Target
from .emitter import Source, emit
from .kernel import Kernel
from .stats import statistics

# NVRTC compiles one program at a time in a process.
_lock = threading.Lock()


def compile(program: Program, target: Target) -> Kernel:
    """The kernel of a scheduled program for a GPU, which need not be there.

    BackendError where the program is no sequence of launches or above a limit, or NVRTC is missing.
    """
    source = emit(program, target)
    cubin, log = binary(source, target)
    return Kernel(program, target, source, cubin, statistics(source, log, target))


def options(target: Target) -> tuple[str, ...]:
    """What NVRTC is told, with and without a GPU. Division, roots and subnormal numbers are IEEE's."""
    return (
        f"--gpu-architecture={target.isa}", "--std=c++17", "--ptxas-options=-v", "--fmad=true", "--ftz=false",
        "--prec-div=true", "--prec-sqrt=true",
    )  # fmt: skip


def binary(source: Source, target: Target) -> tuple[bytes, str]:
    """(cubin, log of the compiler) of a text. BackendError with the log where it is refused."""
    architecture(target)
    nvrtc = _nvrtc()
    with _lock:
        made = nvrtc.createProgram(source.text, "tlm.cu", (), ())
        try:
            nvrtc.compileProgram(made, options(target))
            # The binding leaves out the last byte of the file.
            return nvrtc.getCUBIN(made) + b"\0", nvrtc.getProgramLog(made)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(made)
            raise BackendError(f"NVRTC refuses the text for {target.isa}: {error}\n{log}") from None
        finally:
            nvrtc.destroyProgram(made)


def version() -> tuple[int, int]:
    """The version of NVRTC: (major, minor). BackendError where it is missing."""
    major, minor = _nvrtc().getVersion()
    return int(major), int(minor)


def _nvrtc() -> Any:
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except Exception as error:
        raise BackendError(
            "compiling for CUDA needs CuPy and NVRTC: pip install cupy-cuda13x nvidia-cuda-nvrtc "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'})"
        ) from None
    return nvrtc
