"""Which GPU space a program has: the readers of the CPU's families, other schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.nodes import For, Program
from ...ir.walk import statements
from ...target import Target
from ..attention import attention
from ..choice import Space
from ..conv_problem import convolution
from ..maps import maps
from ..rows import rows
from .attention import gpu_attention_space
from .maps import gpu_maps_space
from .plain import gpu_plain_space
from .product import product, product_space
from .rows import gpu_rows_space
from .stencil import stencil_space

Family = tuple[Callable[[Program], Any], Callable[[Any, Target], Space]]


GPU_FAMILIES: tuple[Family, ...] = (
    (product, product_space),
    (convolution, stencil_space),
    (attention, gpu_attention_space),
    (rows, gpu_rows_space),
    (maps, gpu_maps_space),
)
"""(what reads a problem out of a program or gives None, the space of such problems), the narrowest first."""


def gpu_space_for(program: Program, target: Target) -> Space:
    """The space of `program` (unscheduled) on a GPU."""
    if any(isinstance(s, For) and s.extent == 0 for s in statements(program.body)):
        return _nothing()
    for read, space in GPU_FAMILIES:
        found = read(program)
        if found is not None:
            return space(found, target)
    return gpu_plain_space(program, target)


def _nothing() -> Space:
    """Loops that never run need no blocks."""
    return ()
    yield
