"""The face of scheduling: a program and the steps taken so far, each of which can be printed and run."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError, RecordError
from ..ir.interpret import interpret
from ..ir.names import loop_names
from ..ir.nodes import Buffer, Program
from ..ir.printer import text
from .annotate import Bind, Parallel, PrefetchAhead, Unroll, Vectorize
from .base import Step
from .inlining import Inline, ReverseInline
from .loops import Fuse, Reorder, Split, Tail, Tile
from .merge import Merge
from .placement import ComputeAt
from .reduction import DecomposeReduction, RFactor
from .reverse import ReverseComputeAt
from .scope import SetScope, SplitDimension
from .shared import DoubleBuffer, StorageAlign, Swizzle
from .staging import CacheRead, CacheWrite
from .steps import from_json, to_json
from .tensorize import Tensorize
from .warpgroup import TensorizeGroup
from .widen import Widen


def _tuple(given: Any) -> Any:
    """A list as the tuple that steps hold; anything else, which they refuse, as it is."""
    return tuple(given) if isinstance(given, list) else given


def _shaped(buffer: Buffer, array: Any) -> Any:
    """An array of as many elements in the shape of `buffer`, if their order tells which is which."""
    if not isinstance(array, np.ndarray) or array.shape == buffer.shape or array.size != buffer.size:
        return array
    longer = [tuple([n for n in shape if n != 1]) for shape in (array.shape, buffer.shape)]
    return array.reshape(buffer.shape) if buffer.strides is None or longer[0] == longer[1] else array


class Schedule:
    """Steps on a program. Each method takes one: a primitive, or ScheduleError and nothing has changed.

    `target` is a name or a Target for whoever compiles the result; the steps themselves do not depend on it.
    """

    def __init__(self, program: Program, target: Any = None) -> None:
        if not isinstance(program, Program):
            raise ArgumentError(
                f"tlm.Schedule schedules a program, such as tlm.ops.matmul.program(a, b); got {program!r}"
            )
        names = loop_names(program)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ArgumentError(
                f"{program.name} has several loops called {', '.join(twice)}; steps name loops, so that each"
                " needs a name of its own"
            )
        self.original = program
        self.target = target
        self._history: list[tuple[Step, Program]] = []

    @property
    def program(self) -> Program:
        """The program after all steps."""
        return self._history[-1][1] if self._history else self.original

    @property
    def history(self) -> tuple[tuple[Step, Program], ...]:
        """(step, program after it), in order."""
        return tuple(self._history)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in order."""
        return tuple([s for s, _ in self._history])

    def apply(self, *steps: Step) -> Schedule:
        """Apply steps made by hand; where one is refused none is applied."""
        new, program = [], self.program
        for step in steps:
            if not isinstance(step, Step):
                raise ArgumentError(
                    f"apply takes steps, such as tlm.schedule.Split('i', 4); got {step!r:.80}; plain values "
                    "are for Schedule.from_json"
                )
            step.fit(program)
            program = step.rewrite(program)
            new.append((step, program))
        self._history += new
        return self

    def undo(self) -> Schedule:
        """Take back the last step; nothing happens where there is none."""
        if self._history:
            self._history.pop()
        return self

    def copy(self) -> Schedule:
        """A schedule with the same steps, to go on from separately."""
        new = Schedule(self.original, self.target)
        new._history = list(self._history)
        return new

    def run(self, *arrays: Any) -> list[Any]:
        """The outputs for numpy inputs, by the interpreter (slow, and exact about what the program means).

        The program of an operator has the fewest axes that its arrays allow; inputs with the axes of the
        operator are taken for it, while outputs have the program's.
        """
        inputs = self.program.inputs
        if len(arrays) == len(inputs):
            arrays = tuple([_shaped(b, x) for b, x in zip(inputs, arrays, strict=True)])
        return interpret(self.program, arrays)

    def to_json(self) -> dict[str, Any]:
        """The steps as plain JSON values, for `from_json`."""
        return {"version": 1, "steps": to_json(self.steps)}

    @classmethod
    def from_json(cls, program: Program, data: Any, target: Any = None) -> Schedule:
        """The schedule of `to_json`, replayed on `program`; RecordError for data of another form."""
        if not isinstance(data, dict) or data.keys() != {"version", "steps"}:
            raise RecordError("a stored schedule is an object with the keys version and steps")
        if type(data["version"]) is not int or data["version"] != 1:
            raise RecordError(f"schedule version {data['version']!r} is not known; this tlm reads version 1")
        return cls(program, target).apply(*from_json(data["steps"]))

    def __str__(self) -> str:
        return text(self.program)

    def __repr__(self) -> str:
        return f"Schedule({self.original.name}, {len(self._history)} steps)"

    def split(self, loop: str, factor: int, tail: Tail = "guard") -> Schedule:
        """See `Split`."""
        return self.apply(Split(loop, factor, tail))

    def fuse(self, outer: str, inner: str) -> Schedule:
        """See `Fuse`."""
        return self.apply(Fuse(outer, inner))

    def merge(self, first: str, second: str) -> Schedule:
        """See `Merge`."""
        return self.apply(Merge(first, second))

    def reorder(self, *loops: str) -> Schedule:
        """See `Reorder`."""
        return self.apply(Reorder(loops))

    def tile(self, loops: tuple[str, ...], factors: tuple[int, ...], tail: Tail = "guard") -> Schedule:
        """See `Tile`."""
        return self.apply(Tile(_tuple(loops), _tuple(factors), tail))

    def unroll(self, loop: str, factor: int = 0) -> Schedule:
        """See `Unroll`."""
        return self.apply(Unroll(loop, factor))

    def vectorize(self, loop: str) -> Schedule:
        """See `Vectorize`."""
        return self.apply(Vectorize(loop))

    def parallel(self, loop: str) -> Schedule:
        """See `Parallel`."""
        return self.apply(Parallel(loop))

    def bind(self, loop: str, axis: str) -> Schedule:
        """See `Bind`."""
        return self.apply(Bind(loop, axis))

    def prefetch(self, buffer: str, loop: str, distance: int, locality: int = 3) -> Schedule:
        """See `PrefetchAhead`."""
        return self.apply(PrefetchAhead(buffer, loop, distance, locality))

    def cache_read(
        self,
        buffer: str,
        at: str = "",
        memory: str = "heap",
        layout: tuple[str, ...] = (),
        name: str | None = None,
        pad: bool = False,
        stage: str = "",
    ) -> Schedule:
        """See `CacheRead`."""
        return self.apply(CacheRead(buffer, at, memory, _tuple(layout), name, pad, stage))

    def cache_write(
        self,
        buffer: str,
        at: str = "",
        memory: str = "register",
        layout: tuple[str, ...] = (),
        name: str | None = None,
    ) -> Schedule:
        """See `CacheWrite`."""
        return self.apply(CacheWrite(buffer, at, memory, _tuple(layout), name))

    def storage_align(self, buffer: str, axis: int, factor: int, offset: int) -> Schedule:
        """See `StorageAlign`."""
        return self.apply(StorageAlign(buffer, axis, factor, offset))

    def swizzle(self, buffer: str, axis: int, rows: int = 1, ways: int = 8, stride: int = 1) -> Schedule:
        """See `Swizzle`."""
        return self.apply(Swizzle(buffer, axis, rows, ways, stride))

    def double_buffer(self, buffer: str, stages: int = 2) -> Schedule:
        """See `DoubleBuffer`."""
        return self.apply(DoubleBuffer(buffer, stages))

    def set_scope(self, buffer: str, memory: str) -> Schedule:
        """See `SetScope`."""
        return self.apply(SetScope(buffer, memory))

    def split_dimension(self, buffer: str, dimension: int, factor: int) -> Schedule:
        """See `SplitDimension`."""
        return self.apply(SplitDimension(buffer, dimension, factor))

    def tensorize(self, loop: str) -> Schedule:
        """See `Tensorize`."""
        return self.apply(Tensorize(loop))

    def tensorize_group(self, loop: str) -> Schedule:
        """See `TensorizeGroup`."""
        return self.apply(TensorizeGroup(loop))

    def widen(self, buffer: str, dtype: str) -> Schedule:
        """See `Widen`."""
        return self.apply(Widen(buffer, dtype))

    def compute_at(self, stage: str, loop: str) -> Schedule:
        """See `ComputeAt`."""
        return self.apply(ComputeAt(stage, loop))

    def reverse_compute_at(self, stage: str, loop: str) -> Schedule:
        """See `ReverseComputeAt`."""
        return self.apply(ReverseComputeAt(stage, loop))

    def inline(self, stage: str) -> Schedule:
        """See `Inline`."""
        return self.apply(Inline(stage))

    def reverse_inline(self, stage: str) -> Schedule:
        """See `ReverseInline`."""
        return self.apply(ReverseInline(stage))

    def decompose_reduction(self, stage: str, at: str) -> Schedule:
        """See `DecomposeReduction`."""
        return self.apply(DecomposeReduction(stage, at))

    def rfactor(self, loop: str, memory: str = "heap", at: str = "", name: str | None = None) -> Schedule:
        """See `RFactor`."""
        return self.apply(RFactor(loop, memory, at, name))
