"""New candidates: by dice, by changing a choice of a good one, by crossing two; ranked by the cost model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random

import numpy as np

from ..errors import RecordError
from ..lang.encode import Prompt
from ..lang.features import matrix
from ..measure.record import Values
from ..space.choice import Space
from ..space.decide import Decided, at_random, changed, places, repair, replay, run
from .cost import CostModel

POPULATION = 72
GENERATIONS = 3
CROSSINGS = 0.3
_TRIES = 30


class Proposer:
    """Candidates of one space; all chance comes from `rng`."""

    def __init__(self, space: Callable[[], Space], rng: Random) -> None:
        self._space, self._rng = space, rng

    def replayed(self, values: Values) -> Decided | None:
        """The sentence with these values, or None where the space does not offer them."""
        try:
            return replay(self._space(), values)
        except RecordError:
            return None

    def random(self) -> Decided:
        return run(self._space(), at_random(self._rng))

    def mutated(self, parent: Decided) -> Decided:
        """`parent` with one answer changed; later answers stay where they are still offered."""
        return changed(self._space(), parent, self._rng) if parent.choices else parent

    def crossed(self, a: Decided, b: Decided) -> Decided:
        """Each answer from one of two parents."""
        theirs = dict(zip(places(choice.name for choice, _ in b.choices), b.values, strict=True))
        wanted = [
            (place[0], theirs.get(place, mine) if self._rng.random() < 0.5 else mine)
            for place, mine in zip(places(choice.name for choice, _ in a.choices), a.values, strict=True)
        ]
        return repair(self._space(), wanted, self._rng)

    def fresh(self, count: int, seen: Collection[Values]) -> list[Decided]:
        """Up to `count` different random candidates that are not in `seen`; fewer in a small space."""
        found: dict[Values, Decided] = {}
        for _ in range(_TRIES * count):
            if len(found) == count:
                break
            made = self.random()
            if made.values not in seen:
                found.setdefault(made.values, made)
        return list(found.values())

    def evolved(
        self,
        count: int,
        parents: Sequence[Decided],
        model: CostModel,
        prompt: Prompt,
        seen: Collection[Values],
    ) -> list[Decided]:
        """Up to `count` unseen candidates that the model likes best, after some generations from `parents`.

        `parents` are measured sentences, fastest first.
        """
        population = {p.values: p for p in parents[: POPULATION // 2]}
        for _ in range(POPULATION - len(population)):
            made = self.random()
            population.setdefault(made.values, made)
        everyone: dict[Values, tuple[float, Decided]] = {}
        for _ in range(GENERATIONS):
            new = [d for v, d in population.items() if v not in everyone]
            scores = model.predict(matrix(prompt, [d.choices for d in new])) if new else np.zeros(0)
            everyone |= {d.values: (float(s), d) for d, s in zip(new, scores, strict=True)}
            ranked = sorted((everyone[v] for v in population), key=lambda e: -e[0])
            population = {d.values: d for _, d in ranked[: POPULATION // 3]}
            elite = list(population.values())
            for _ in range(POPULATION):
                made = self._child(elite)
                population.setdefault(made.values, made)
        unseen = sorted((e for v, e in everyone.items() if v not in seen), key=lambda e: -e[0])
        return [d for _, d in unseen[:count]]

    def _child(self, elite: Sequence[Decided]) -> Decided:
        # The square makes the front of the ranking likelier.
        def pick() -> Decided:
            return elite[int(len(elite) * self._rng.random() ** 2)]

        return self.crossed(pick(), pick()) if self._rng.random() < CROSSINGS else self.mutated(pick())
