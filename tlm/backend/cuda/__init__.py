"""The CUDA backend: header-free CUDA C, compiled by NVRTC without a GPU, run by CuPy where there is one."""

from __future__ import annotations

from .compiler import compile
from .emitter import Launch, Source, emit
from .kernel import Kernel

__all__ = ["Kernel", "Launch", "Source", "compile", "emit"]
