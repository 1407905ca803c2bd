"""Which space a program has, found from its structure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..ir.nodes import Program
from ..target import Target
from .attention import attention
from .attention_space import attention_space
from .choice import Space
from .contraction import contraction_space
from .conv import convolution_space
from .conv_problem import convolution
from .gpu.spaces import gpu_space_for
from .maps import maps
from .maps_space import maps_space
from .plain import plain_space
from .problem import contraction
from .rows import rows
from .rows_space import rows_space

FAMILIES: tuple[tuple[Callable[[Program], Any], Callable[[Any, Target], Space]], ...] = (
    (contraction, contraction_space),
    (convolution, convolution_space),
    (attention, attention_space),
    (rows, rows_space),
    (maps, maps_space),
)
"""(what reads a problem out of a program or gives None, the space of such problems), the narrowest first."""


def space_for(program: Program, target: Target) -> Space:
    """The space of `program` (unscheduled) on `target`; every sentence in it is a legal schedule."""
    return spaces_of(program, target)()


def spaces_of(program: Program, target: Target) -> Callable[[], Space]:
    """What makes spaces of `program`, as many as are asked for, having read the program once."""
    if target.kind == "cuda":
        return lambda: gpu_space_for(program, target)
    for read, space in FAMILIES:
        found = read(program)
        if found is not None:
            return partial(space, found, target)
    return lambda: plain_space(program, target)
