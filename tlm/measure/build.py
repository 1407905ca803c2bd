"""From choices to machine code: replay the choices in the space, apply the steps, compile, load."""

from __future__ import annotations

from collections.abc import Callable
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
        """A call of the machine code on arrays at these addresses."""
