"""A kernel built by hand from the parts of the backend, for settings that `compile` does not offer."""

from __future__ import annotations

from tlm.backend.kernel import Kernel
from tlm.backend.llvm import codegen, link
from tlm.backend.llvm.emitter import emit
from tlm.ir.nodes import Program
from tlm.lower import lower
from tlm.target import Target


def build(program: Program, target: Target, vector_math: bool = True) -> Kernel:
    lowered = lower(program, target)
    module = emit(lowered, target, vector_math)
    code = codegen.object_code(module.text, target)
    return Kernel(
        program, lowered, target, module, code, link.link(code, module.symbol, module.imports, target)
    )
