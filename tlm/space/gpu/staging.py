"""Copies of operands in shared memory: how wide they are, how their rows lie, and how many run ahead.

What runs ahead is copied by the machine itself, or waits in registers of the threads, which then have fewer
for everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...lower.gpu import ASYNC_COPIES, architecture
from ...lower.gpu_pipeline import MOST_HELD
from ..choice import Option, question
from ..contraction_choices import Facts, ceil, percent
from ..conv_problem import Side
from .banks import SWAPPED, Turned
from .limits import Cost, block_facts, roomy
from .product_choices import Figures, along_k, longest_vector

EACH_HELD = 2
"""Registers of an element between its read and its store: it, and what its address or guard takes."""


def held(f: Figures, side: Side, elements: int, vector: int, turned: bool) -> int:
    """Of `elements` that a thread copies ahead of their use, those that wait in registers: all that the
    target does not copy by itself, to where they belong, as wide as the thread could read them."""
    alone = architecture(f.target) >= ASYNC_COPIES and vector * f.bytes(side) >= 4
    return 0 if alone and (vector == 1 or not turned) else elements


@question("vector")
def vector(f: Figures, longest: tuple[int, int], copies: tuple[int, int], threads: int) -> list[Option]:
    """Bytes that a thread copies at a time, of the operands whose layout allows it. Where wider vectors leave
    no thread idle, narrower ones are only more of the same instructions."""
    options: dict[tuple[int, int], Option] = {}
    sides = (f.c.rows, f.c.columns)
    for size in (16, 8, 4):
        made = tuple([max(1, min(n, size // f.bytes(s))) for n, s in zip(longest, sides, strict=True)])
        turns = sum(ceil(n, threads * v) for n, v in zip(copies, made, strict=True))
        options[made[0], made[1]] = Option(size, (("size", size), ("trips", turns)))
        if all(n >= threads * v for n, v in zip(copies, made, strict=True)):
            break
    return list(reversed(options.values()))


def addresses(turned: Iterable[Turned], way: int | str) -> int:
    """Registers for addresses of copies whose rows lie this `way`."""
    return sum([4 * t.swap[1] for t in turned if t.swap]) if way == SWAPPED else 0


def apart(found: Mapping[int | str, tuple[float, int]]) -> list[int | str]:
    """Of ways to lay rows, with (conflicts, bytes) of each, those that are worth asking for: none that has
    more conflicts than another one of hardly more bytes."""
    return [
        way
        for way, (meet, size) in found.items()
        if not any(m < meet and b <= size * 9 / 8 for m, b in found.values())
    ]


@question("align")
def align(f: Figures, turned: tuple[Turned, ...], other: int) -> list[Option]:
    """Elements by which rows of a copy that is turned on its way are moved apart, or pieces of its rows that
    change places, so that threads that store one column fall on different banks. Vectors of 16 bytes stay
    aligned. `other`: bytes of shared memory beside such copies."""
    options = []
    swapped = (SWAPPED,) if all(t.swap for t in turned) else ()
    found = {
        way: (
            max([percent(t.ways(way), 1) for t in turned], default=100.0),
            other + sum([t.deep * t.stride(way) * t.bytes for t in turned]),
        )
        for way in (*sorted({0, *[16 // t.bytes for t in turned]}), *swapped)
    }
    # Pieces that change places cost addresses, so that they never stand in for rows that are moved apart.
    for way in (*apart({w: found[w] for w in found if w != SWAPPED}), *swapped):
        meet, size = found[way]
        facts: Facts = (("conflicts", meet), ("shared", percent(size, f.target.block_shared)))
        # Threads keep an address for each way in which pieces change places.
        facts += (("registers", percent(addresses(turned, way), f.target.thread_registers)),)
        options.append(Option(way, (("size", 0 if isinstance(way, str) else way), *facts)))
    return options


@question("stages")
def stages(f: Figures, trips: int, cost: Cost, waiting: int = 0) -> list[Option]:
    """Copies of what lies in shared memory: the next are filled while one is used. `waiting`: elements of the
    next that each thread has in registers until then."""
    options = []
    for n in (1, 2, 3, 4):
        made = Cost(cost.threads, n * cost.shared, cost.registers + (EACH_HELD * waiting if n > 1 else 0))
        ahead = n <= trips and cost.shared and waiting <= MOST_HELD and roomy(made, f.target)
        if n == 1 or ahead:
            options.append(Option(n, (("size", n), *block_facts(made, f.target))))
    return options


def waiting_of(f: Figures, tile: tuple[int, int], threads: int, deep: int) -> int:
    """Registers in which copies of `deep` steps of k wait, of the operands that are contiguous along k."""
    sides = zip((f.c.rows, f.c.columns), tile, strict=True)
    return EACH_HELD * sum(
        [
            held(f, side, ceil(n * deep, threads), longest_vector(f, side, (deep, deep), n), True)
            for side, n in sides
            if along_k(f.c, side)
        ]
    )
