"""What every schedule primitive is: a frozen dataclass of its arguments, with a checked rewrite.

`plan` does all of the checking and returns the rewrite as a function that cannot fail; `check` and `rewrite`
are it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, ClassVar

from ..errors import ScheduleError
from ..ir.names import NAME, buffer_names, fresh, loop_names
from ..ir.nodes import For, Program
from ..ir.paths import Path, find_loop, find_writers
from ..ir.printer import text

Rewrite = Callable[[], Program]
_LINES_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Step:
    """Base of the primitives. Programs are values, so a step that is refused has changed nothing."""

    primitive: ClassVar[str] = "step"

    def plan(self, program: Program) -> Rewrite:
        """Check this step on `program`, and return the rewrite."""
        raise NotImplementedError

    def fit(self, program: Program) -> None:
        """ScheduleError where an argument is not of the kind that its annotation says."""
        for f in fields(self):
            value, (says, fits) = getattr(self, f.name), _KINDS.get(str(f.type), _ANYTHING)
            if not fits(value):
                raise self.refuse(program, f"{f.name} must be {says}, got {value!r}")

    def check(self, program: Program) -> None:
        """ScheduleError, with the reason and what would be legal, where this step may not be applied."""
        self.plan(program)

    def rewrite(self, program: Program) -> Program:
        """`program` after this step."""
        return self.plan(program)()

    def __str__(self) -> str:
        return f"{self.primitive}({', '.join([f'{f.name}={getattr(self, f.name)!r}' for f in fields(self)])})"

    def refuse(self, program: Program, reason: str, legal: str = "") -> ScheduleError:
        """The error of this step: what was asked, why it is refused, what would be legal, the nest now."""
        hint = f"\n  {legal}" if legal else ""
        return ScheduleError(f"{self}: {reason}{hint}\nThe nest is:\n{_shown(program)}")

    def locate(self, program: Program, name: Any) -> Path:
        """The path of a loop, or ScheduleError with the names that come near."""
        path = find_loop(program.body, name)
        if path is None:
            raise self.refuse(program, f"there is no loop {name!r}", _near_loops(program, name))
        return path

    def serial(self, program: Program, name: str) -> tuple[Path, For]:
        """The path of a serial loop and the loop; ScheduleError where it is marked already."""
        path = self.locate(program, name)
        loop = path[-1]
        assert isinstance(loop, For)
        if loop.kind != "serial" or loop.unroll != 1:
            mark = loop.kind if loop.kind != "serial" else f"unroll {loop.unroll}"
            raise self.refuse(program, f"loop {name} is marked {mark}", "Shape loops first, then mark them.")
        return path, loop

    def writers(self, program: Program, stage: str) -> list[Path]:
        """The statements that write buffer `stage`, or ScheduleError with the names that come near."""
        found = find_writers(program.body, stage)
        if not found and stage in [b.name for b in program.inputs]:
            made = [b for b in buffer_names(program) if find_writers(program.body, b)]
            reason = f"{stage} is an input, which no statement writes"
            raise self.refuse(program, reason, f"The buffers that are written are {', '.join(made)}.")
        if not found:
            raise self.refuse(
                program, f"no statement writes {stage!r}", near(stage, buffer_names(program), "buffers")
            )
        return found

    def new_name(self, program: Program, name: str) -> str:
        """`name`, made new among the buffers; ScheduleError where no buffer can be called so."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise self.refuse(program, f"{name!r} is no name of a buffer", f"Names are {NAME.pattern}.")
        return fresh(name, buffer_names(program))

    def positive(self, program: Program, what: str, value: Any, least: int = 1) -> int:
        """`value` as an integer that is at least `least`."""
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.refuse(program, f"{what} must be an integer >= {least}, got {value!r}")
        return value


def _names(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, str) for v in value)


_Kind = tuple[str, Callable[[Any], bool]]
_ANYTHING: _Kind = ("", lambda v: True)
_KINDS: dict[str, _Kind] = {
    "str": ("a name", lambda v: isinstance(v, str)),
    "bool": ("True or False", lambda v: isinstance(v, bool)),
    "tuple[str, ...]": ("names, as ('i', 'j')", _names),
    "tuple[int, ...]": ("integers, as (4, 8)", lambda v: isinstance(v, tuple)),
}
"""Annotation of an argument -> what it takes. Integers and new names are checked by the steps themselves."""


def near(name: Any, known: Iterable[str], what: str) -> str:
    """A hint that lists the known names that look like `name`, or all of them where none does."""
    names = list(known)
    close = get_close_matches(str(name), names, n=4, cutoff=0.5)
    if close:
        return f"Did you mean {', '.join(close)}?"
    return f"The {what} are {', '.join(names[:24]) or 'none'}."


def _near_loops(program: Program, name: Any) -> str:
    names = loop_names(program)
    heirs = [n for n in names if n.startswith(f"{name}.") or name in n.split("*")]
    if heirs:
        return f"{name} was split or fused; what is left of it is {', '.join(heirs)}."
    return near(name, names, "loops")


def _shown(program: Program) -> str:
    lines = text(program).splitlines()
    if len(lines) > _LINES_SHOWN:
        lines = [*lines[:_LINES_SHOWN], f"... ({len(lines) - _LINES_SHOWN} more lines)"]
    return "\n".join(lines)
