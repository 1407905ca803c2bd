"""Which space a program has, found from its structure."""

from __future__ import annotations

from ..ir.nodes import Program
from ..target import Target
from .choice import Space
from .contraction import contraction_space
from .plain import plain_space
from .problem import contraction


def space_for(program: Program, target: Target) -> Space:
    """The space of `program` (unscheduled) on `target`; every sentence in it is a legal schedule."""
    found = contraction(program)
    return plain_space(program, target) if found is None else contraction_space(found, target)
