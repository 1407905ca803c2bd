"""From a scheduled program to one that a backend emits as it stands, by passes that each give a program.

Each is a rewrite of the IR, so the interpreter runs what any of them makes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..ir.nodes import Program
from ..ir.walk import buffers
from .guards import bounds, hoist
from .initial import explicit_init
from .kinds import cap_expansion, cpu_kinds
from .lanes import lane_partials
from .memory import place
from .partition import Scope, partition
from .promote import promote
from .reuse import reuse_outputs
from .skip import skip_identities
from .vectors import native_width, private_lanes, single_level

if TYPE_CHECKING:
    from ..target import Target


def lower(program: Program, target: Target) -> Program:
    """`program` with explicit initialisation, native vectors, versioned tiles, bounds and placed buffers.

    What it computes is unchanged but for the order in which lanes of a vectorised reduction are merged.
    """
    dtypes = {name: b.dtype for name, b in buffers(program).items()}
    body = reuse_outputs(program.body, program.outputs)
    body = cap_expansion(cpu_kinds(body), max(1, target.vector_bytes // 4))
    body = private_lanes(single_level(body))
    body = explicit_init(lane_partials(body, dtypes), dtypes)
    body = promote(skip_identities(body, dtypes), dtypes)
    body = native_width(body, target.vector_bytes, dtypes)
    body = bounds(hoist(body), {})
    body = bounds(partition(body, Scope({})), {})
    return replace(program, body=place(body))
