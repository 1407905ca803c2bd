"""What the dependence test says of quotients and remainders, against all pairs of iterations."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from tlm.ir.affine import Affine
from tlm.ir.exprs import Expr, Var, const
from tlm.ir.nodes import Store
from tlm.ir.printer import text
from tlm.ir.simplify import simplify
from tlm.schedule.access import Access, meet

LOOPS = ("a", "b", "c")


def _index(rng: Random, v: Expr) -> Expr:
    """A quotient, a remainder, or a digit of v, perhaps with a loop of its own."""
    d, n = rng.choice((1, 2, 3, 4, 6)), rng.choice((2, 3, 4, 5))
    out = rng.choice((v // (d * n), v // d % n, v % n, v // d % n))
    return out + rng.choice((0, 0, 1, n)) * Var(rng.choice(LOOPS)) if rng.random() < 0.3 else out


def _v(weights: tuple[int, ...], start: int) -> Expr:
    return sum((Var(n) * w for n, w in zip(LOOPS, weights, strict=True)), const(start))


@pytest.mark.parametrize("part", range(4))
def test_settled_loops_are_equal_wherever_elements_are(part):
    rng, settled_some = Random(part), 0
    for _ in range(150):
        extents = {name: rng.choice((1, 2, 3, 4, 5)) for name in LOOPS}
        _, b, c = extents.values()
        weights = rng.choice(((b * c, c, 1), (6, 2, 1), (4, 3, 1), (9, 5, 2)))
        v = _v(weights, rng.choice((0, 0, 1, 5)))
        indices = tuple([simplify(_index(rng, v), extents) for _ in range(rng.choice((2, 3, 3, 4)))])
        inner = Affine(0, (("b", weights[1]), ("c", weights[2])))
        limits = ((inner, weights[0]),) if rng.random() < 0.5 else ()
        access = Access("y", indices, True, Store("y", indices, const(0)), LOOPS, limits)
        settled = meet(access, access, frozenset(), extents)
        assert settled is not None
        settled_some += any(extents[name] > 1 for name in settled)
        element_of = eval(f"lambda a, b, c: ({', '.join(map(text, indices))},)")
        seen: dict[tuple[int, ...], tuple[int, ...]] = {}
        for point in product(*[range(n) for n in extents.values()]):
            if limits and point[1] * weights[1] + point[2] * weights[2] >= weights[0]:
                continue
            fixed = tuple([x for name, x in zip(LOOPS, point, strict=True) if name in settled])
            assert seen.setdefault(element_of(*point), fixed) == fixed, (extents, indices, settled)
    assert settled_some > 30


def test_a_loop_of_one_iteration_hides_no_digit():
    # A split that leaves one iteration outside is in the remainder, but not in the quotient made before.
    a, b, c = (Var(n) for n in LOOPS)
    v, w = a * 2 + b * 2 + c, a * 256 + b * 256 + c
    for indices, extents in (
        ((v % 8, a // 4), (8, 1, 2)),
        ((a // 3, w // 48 % 16, w % 48), (6, 1, 256)),
    ):
        access = Access("y", indices, True, Store("y", indices, const(0)), LOOPS, ())
        assert meet(access, access, frozenset(), dict(zip(LOOPS, extents, strict=True))) == set(LOOPS)
        more = dict(zip(LOOPS, (extents[0], 2, extents[2]), strict=True))
        assert meet(access, access, frozenset(), more) != set(LOOPS)
