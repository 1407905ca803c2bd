"""From choices to machine code: replay the choices in the space, apply the steps, compile, load."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ..ir.nodes import Program
from ..target import Target
from .record import Values


class Toolchain(Protocol):
    """What a worker needs to know of compilers; tests put faults in its place."""

    def versions(self) -> dict[str, str]:
        """Versions of everything that a measurement depends on."""

    def build(self, program: Program, target: Target, values: Values) -> tuple[list[dict[str, Any]], bytes]:
        """The JSON of the schedule steps, and machine code."""

    def load(
        self, program: Program, target: Target, code: bytes, pointers: tuple[int, ...]
    ) -> Callable[[], None]:
        """A call of the machine code on arrays at these addresses, with the target's threads."""


class LLVM:
    """The CPU backend. Machine code travels as a line of JSON, how to call it, and an object file."""

    def versions(self) -> dict[str, str]:
        from .. import __version__
        from ..backend.llvm import codegen

        return {"tlm": __version__, "backend": codegen.versions()}

    def build(self, program: Program, target: Target, values: Values) -> tuple[list[dict[str, Any]], bytes]:
        from ..backend.llvm import codegen
        from ..backend.llvm.emitter import emit
        from ..lower import lower
        from ..schedule.steps import apply, to_json
        from ..space.decide import replay
        from ..space.spaces import space_for

        steps = replay(space_for(program, target), values).steps
        module = emit(lower(apply(program, steps), target), target)
        about = {
            "symbol": module.symbol,
            "imports": list(module.imports),
            "workspace": [module.shared, module.per_thread],
            "parallel": module.parallel,
        }
        return to_json(steps), json.dumps(about).encode() + b"\n" + codegen.object_code(module.text, target)

    def load(
        self, program: Program, target: Target, code: bytes, pointers: tuple[int, ...]
    ) -> Callable[[], None]:
        from ..backend.kernel import Kernel
        from ..backend.llvm import link

        line, _, machine = code.partition(b"\n")
        about = json.loads(line)
        symbol, (shared, per_thread), parallel = about["symbol"], about["workspace"], about["parallel"]
        linked = link.link(machine, symbol, tuple(about["imports"]), target)
        scratch = (shared, per_thread)
        kernel = Kernel(program, program, target, "", symbol, machine, scratch, parallel, linked, str)
        return partial(kernel.call, *pointers, threads=target.threads)
