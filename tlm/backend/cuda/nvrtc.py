"""NVRTC, as CuPy gives it: whether it is here, how new it is, and the architectures that it knows."""

from __future__ import annotations

from typing import Any

from ...errors import BackendError
from ...target import gpu_architectures

# Compute capability -> the architecture with what it alone has, and the first NVRTC that knows it (release
# notes of PTX ISA 8.0). Kernels use wgmma, which 10.0 lacks again.
_ALONE = {90: ("sm_90a", (12, 0))}


def binding() -> Any:
    """The module of CuPy. BackendError where it, or the library, is missing."""
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except Exception as error:
        raise BackendError(
            "compiling for CUDA needs CuPy and NVRTC: pip install cupy-cuda13x nvidia-cuda-nvrtc "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'})"
        ) from None
    return nvrtc


def version() -> tuple[int, int]:
    """The version of NVRTC: (major, minor). BackendError where it is missing."""
    major, minor = binding().getVersion()
    return int(major), int(minor)


def known_for(capability: int) -> str:
    """The architecture that code for GPUs of a compute capability (90 for 9.0) is compiled for.

    With what that one alone has ("sm_90a") where this NVRTC knows it; else the latest that it knows of the
    same major version, whose code runs there too (that of GPUs with a name here: systems on a chip are no
    part of this rule). Where there is no NVRTC, or none that knows one, the capability's own: compiling then
    says what is missing.
    """
    own, since = _ALONE.get(capability, (f"sm_{capability}", (0, 0)))
    try:
        found, made = binding(), version()
    except BackendError:
        return own
    if capability in _ALONE and made >= since:
        return own
    named = {capability, *gpu_architectures()}.intersection(found.getSupportedArchs())
    older = [a for a in named if a // 10 == capability // 10 and a <= capability]
    return f"sm_{max(older, default=capability)}"
