"""The table of primitives, and schedules as JSON. A file is untrusted: reading it is strict and bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from ..errors import RecordError
from ..ir.names import NAME
from ..ir.nodes import Program
from .annotate import Bind, Parallel, PrefetchAhead, Unroll, Vectorize
from .base import Step
from .inlining import Inline, ReverseInline
from .loops import Fuse, Reorder, Split, Tile
from .merge import Merge
from .placement import ComputeAt
from .reduction import DecomposeReduction, RFactor
from .reverse import ReverseComputeAt
from .scope import SetScope, SplitDimension
from .shared import DoubleBuffer, StorageAlign, Swizzle
from .staging import CacheRead, CacheWrite
from .tensorize import Tensorize
from .warpgroup import TensorizeGroup
from .widen import Widen

__all__ = [
    "PRIMITIVES", "Bind", "CacheRead", "CacheWrite", "ComputeAt", "DecomposeReduction", "DoubleBuffer",
    "Fuse", "Inline", "Merge", "Parallel", "PrefetchAhead", "RFactor", "Reorder", "ReverseComputeAt",
    "ReverseInline", "SetScope", "Split", "SplitDimension", "Step", "StorageAlign", "Swizzle", "Tensorize",
    "TensorizeGroup", "Tile", "Unroll", "Vectorize", "Widen", "apply", "from_json", "to_json",
]  # fmt: skip

PRIMITIVES: dict[str, type[Step]] = {
    s.primitive: s
    for s in (
        Split, Fuse, Reorder, Tile, Unroll, Vectorize, Parallel, Bind, PrefetchAhead, CacheRead, CacheWrite,
        ComputeAt, ReverseComputeAt, Inline, ReverseInline, RFactor, DecomposeReduction,
        Merge, Widen, SetScope, SplitDimension, StorageAlign, DoubleBuffer,
        Tensorize, Swizzle, TensorizeGroup,
    )
}  # fmt: skip

MAX_STEPS = 1000
MAX_NAMES = 64
MAX_INTEGER = 2**31 - 1


def apply(program: Program, steps: Iterable[Step]) -> Program:
    """`program` after all of `steps`; ScheduleError at the first that is refused."""
    for step in steps:
        program = step.rewrite(program)
    return program


def to_json(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """One object a step: "step" is its name, the other keys are its arguments."""
    return [{"step": s.primitive, **{f.name: _plain(getattr(s, f.name)) for f in fields(s)}} for s in steps]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def from_json(data: Any) -> tuple[Step, ...]:
    """The steps of `to_json`; RecordError for anything else. Every argument must be there, and no other."""
    if not isinstance(data, list):
        raise RecordError(f"a schedule is a list of steps, got {type(data).__name__}")
    if len(data) > MAX_STEPS:
        raise RecordError(f"a schedule has at most {MAX_STEPS} steps, got {len(data)}")
    return tuple([_step(item, at) for at, item in enumerate(data)])


def _step(item: Any, at: int) -> Step:
    if not isinstance(item, Mapping) or not isinstance(item.get("step"), str):
        raise RecordError(f"step {at} must be an object with the name of a primitive under 'step'")
    cls = PRIMITIVES.get(item["step"])
    if cls is None:
        raise RecordError(f"step {at}: no primitive {item['step'][:40]!r}; known are {', '.join(PRIMITIVES)}")
    wanted = {f.name: str(f.type) for f in fields(cls)}
    if item.keys() - {"step"} != wanted.keys():
        raise RecordError(
            f"step {at}: {cls.primitive} takes {', '.join(wanted)}, got {len(item) - 1} arguments that differ"
        )
    return cls(**{name: _argument(item[name], kind, f"step {at}: {name}") for name, kind in wanted.items()})


def _argument(value: Any, kind: str, what: str) -> Any:
    match kind:
        case "int":
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INTEGER:
                raise RecordError(f"{what} must be an integer from 0 to {MAX_INTEGER}")
        case "bool":
            if not isinstance(value, bool):
                raise RecordError(f"{what} must be true or false")
        case "tuple[str, ...]" | "tuple[int, ...]":
            if not isinstance(value, list) or len(value) > MAX_NAMES:
                raise RecordError(f"{what} must be a list of at most {MAX_NAMES}")
            return tuple([_argument(v, kind[6:9], what) for v in value])
        case "str | None" if value is None:
            return None
        case _:
            # Empty is the place before the whole program.
            if not isinstance(value, str) or (value and not NAME.fullmatch(value)):
                raise RecordError(f"{what} must be of the form {NAME.pattern}")
    return value
