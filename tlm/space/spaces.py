"""Which space a program has, found from its structure."""

from __future__ import annotations

from collections.abc import Callable
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
    if target.kind == "cuda":
        return gpu_space_for(program, target)
    for read, space in FAMILIES:
        found = read(program)
        if found is not None:
            return space(found, target)
    return plain_space(program, target)
