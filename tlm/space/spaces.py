"""Which space a program has, found from its structure."""

from __future__ import annotations

from ..ir.nodes import Program
from ..target import Target
from .attention import attention
from .attention_space import attention_space
from .choice import Space
from .contraction import contraction_space
from .conv import convolution_space
from .conv_problem import convolution
from .maps import maps
from .maps_space import maps_space
from .plain import plain_space
from .problem import contraction
from .rows import rows
from .rows_space import rows_space


def space_for(program: Program, target: Target) -> Space:
    """The space of `program` (unscheduled) on `target`; every sentence in it is a legal schedule."""
    product = contraction(program)
    if product is not None:
        return contraction_space(product, target)
    windowed = convolution(program)
    if windowed is not None:
        return convolution_space(windowed, target)
    scores = attention(program)
    if scores is not None:
        return attention_space(scores, target)
    chain = rows(program)
    if chain is not None:
        return rows_space(chain, target)
    elementwise = maps(program)
    return plain_space(program, target) if elementwise is None else maps_space(elementwise, target)
