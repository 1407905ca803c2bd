"""From choices to machine code: replay the choices in the space, apply the steps, compile, load."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ..ir.nodes import Program
from ..target import Target
from .record import Values


class Toolchain(Protocol):
    """What a worker needs to know of compilers; tests put faults in its place."""

    def versions(self) -> dict[str, str]:
        """Everything beside the program and the target that a measurement depends on."""

    def build(self, program: Program, target: Target, values: Values) -> tuple[list[dict[str, Any]], bytes]:
        """The JSON of the schedule steps, and machine code."""

    def load(
        self, program: Program, target: Target, code: bytes, pointers: tuple[int, ...]
    ) -> Callable[[], None]:
        """A call of the machine code on arrays at these addresses, with the target's threads."""


class LLVM:
    """The CPU backend; machine code travels as a bundle."""

    def versions(self) -> dict[str, str]:
        from .. import __version__
        from ..backend.cache import generator
        from ..backend.llvm import codegen
        from ..target import cpu_name

        source = generator("schedule", "space")[:16]
        compiler = {"tlm": __version__, "generator": source, "backend": codegen.versions()}
        return compiler | {"machine": cpu_name()}

    def build(self, program: Program, target: Target, values: Values) -> tuple[list[dict[str, Any]], bytes]:
        from ..backend import bundle
        from ..backend.llvm import codegen
        from ..backend.llvm.emitter import emit
        from ..lower import lower
        from ..schedule.steps import apply, to_json
        from ..space.decide import replay
        from ..space.spaces import space_for

        steps = replay(space_for(program, target), values).steps
        module = emit(lower(apply(program, steps), target), target)
        return to_json(steps), bundle.pack(module, codegen.object_code(module.text, target))

    def load(
        self, program: Program, target: Target, code: bytes, pointers: tuple[int, ...]
    ) -> Callable[[], None]:
        from ..backend import bundle

        call = bundle.load(code, target, len(program.parameters))
        return partial(call, *pointers, threads=target.threads)
