"""Programs to kernels: lowering, emission, code generation or the cache, loading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import BackendError
from ..ir.nodes import Program
from ..lower import lower
from ..target import Target
from .kernel import Kernel

if TYPE_CHECKING:
    from .llvm.emitter import Module


def compile(program: Program, target: Target, *, cache: bool = True) -> Kernel:
    """The kernel of a scheduled program for a CPU that this machine is.

    With `cache`, object code is kept on disk and reused by later processes. BackendError where the target is
    no CPU, or has instructions that this machine lacks. Safe to call from several threads.
    """
    _need_cpu(target)
    if not target.runs_here():
        raise BackendError(
            f"this machine cannot run code for {target.name}; cross_compile gives its object code"
        )
    from .llvm import link

    lowered, module, code = _generate(program, target, cache)
    return Kernel(
        program, lowered, target, module, code, link.link(code, module.symbol, module.imports, target)
    )


def cross_compile(program: Program, target: Target) -> tuple[Module, bytes]:
    """(module, object file) of a scheduled program for any CPU target, without running it.

    The object file is whole: it brings along what kernels of this process share.
    """
    _need_cpu(target)
    from .llvm import codegen
    from .llvm.emitter import emit

    module = emit(lower(program, target), target, vector_math=target.runs_here())
    return module, codegen.object_code(module.standalone, target)


def assembly(module: Module, target: Target) -> str:
    """The assembly listing of a module."""
    from .llvm import codegen

    return codegen.assembly(module.text, target)


def _need_cpu(target: Target) -> None:
    if target.kind != "cpu":
        raise BackendError(f"the LLVM backend compiles for CPUs, not for {target.name} ({target.kind})")


def _generate(program: Program, target: Target, cached: bool) -> tuple[Program, Module, bytes]:
    from .llvm import codegen
    from .llvm.emitter import emit

    lowered = lower(program, target)
    module = emit(lowered, target)
    return lowered, module, codegen.kept_code(module.text, target, cached)
