"""Who answers the choices of a space: nothing, a closed form, dice, a search, or the language model."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import RecordError, TlmWarning
from ..ir.canonical import key as workload_key
from ..ir.nodes import Program
from ..schedule.steps import Step
from ..space.choice import Choice, Value
from ..space.decide import Decided, at_random, replay, run
from ..space.plain import default_steps
from ..space.spaces import space_for
from ..target import Target
from .caching import Chances, cache, recall, remember, sentence_key
from .judges import Evidence, analytic, evidence_of, judge
from .settings import Config, Default, Generate, Heuristic, Random, Search, weights_digest

_log = logging.getLogger("tlm")


@dataclass(frozen=True, slots=True)
class Plan:
    """A decided schedule. `probabilities`: the model's, of all options of each choice, or empty.

    `kept`: whether later processes may use it unasked; not where it stands in for what could not be had.
    `evidence`: what its quality rests on; "modelled" are estimates for a GPU, with nothing measured.
    """

    steps: tuple[Step, ...]
    picked: tuple[tuple[Choice, int], ...] = ()
    probabilities: Chances = ()
    kept: bool = True
    evidence: Evidence = ""

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple([choice.options[index].value for choice, index in self.picked])


def decide(program: Program, target: Target, how: Config) -> Plan:
    """The schedule of `program` on `target` that the decider `how` makes.

    For a GPU that is not here, what else would be measured is estimated by an analytic model.
    """
    return _DECIDERS[type(how)](program, target, how)


def _default(program: Program, target: Target, how: Config) -> Plan:
    return Plan(default_steps(program))


def _heuristic(program: Program, target: Target, how: Config) -> Plan:
    from ..search.heuristic import heuristic

    return _plan(run(space_for(program, target), heuristic))


def _random(program: Program, target: Target, how: Random) -> Plan:
    return _plan(run(space_for(program, target), at_random(random.Random(how.seed))))


def _search(program: Program, target: Target, how: Search) -> Plan:
    key = sentence_key(workload_key(program), target.key, repr(how), *analytic(target))
    found = _recalled(program, target, key)
    if found is not None:
        return replace(found, evidence=evidence_of(target))
    return _kept(key, _searched(program, target, how))


def _searched(program: Program, target: Target, how: Search) -> Plan:
    from ..measure.lookup import look_up
    from ..measure.store import Store
    from ..search.evolve import search

    trials = 200 if how.trials is None and how.seconds is None else how.trials
    stored = cache() and evidence_of(target) == "measured"
    with judge(target) as measurer, Store() if stored else nullcontext() as store:
        result = search(
            program, target, measurer, trials=trials, seconds=how.seconds, seed=how.seed, store=store,
            progress=lambda p: _log.info("%s: %s", program.name, p),
        )  # fmt: skip
        if result.best is None:
            told = "" if store is None else f"; {look_up(store, program, target).reason}"
            why = f"the search found no valid schedule of {program.name} ({result.failures}{told})"
            return _instead(program, target, why)
    found = _plan(replay(space_for(program, target), result.best))
    return replace(found, kept=result.stopped != "interrupted", evidence=evidence_of(target))


def _instead(program: Program, target: Target, why: str) -> Plan:
    """The heuristic's schedule, with one warning that tells why."""
    warnings.warn(f"{why}; schedule='heuristic' is used instead", TlmWarning, stacklevel=2)
    return replace(_heuristic(program, target, Heuristic()), kept=False)


def _generate(program: Program, target: Target, how: Generate) -> Plan:
    from ..model import weights

    if not weights.available(target.kind):
        missing = weights.shipped(target.kind)
        return _instead(program, target, f"the model's weights are missing ({missing})")
    judged = analytic(target) if how.measure else ()
    digest = weights_digest(target.kind)
    key = sentence_key(workload_key(program), target.key, repr(how), digest, *judged)
    try:
        found = _recalled(program, target, key) or _kept(key, _generated(program, target, how))
        return replace(found, evidence=evidence_of(target) if how.measure else _learned_from(target))
    except RecordError as error:
        return _instead(program, target, f"the model cannot be used: {error}")


def _learned_from(target: Target) -> Evidence:
    """What the model for this target was trained on; of GPUs the card says it."""
    from ..model import weights

    return "measured" if target.kind == "cpu" else _told_by(weights.shipped(target.kind))


@lru_cache(maxsize=4)
def _told_by(path: Path) -> Evidence:
    from ..model import weights

    return "modelled" if "estimated" in weights.card(path) else "measured"


def _generated(program: Program, target: Target, how: Generate) -> Plan:
    from ..model.generate import generate

    made = generate([program], target, samples=how.samples, temperature=how.temperature, seed=how.seed)[0]
    # Without a value model nothing ranks them: each process says so, and decides again once there is one.
    plans = [
        Plan(g.decided.steps, g.decided.choices, g.probabilities, kept=g.value is not None) for g in made
    ]
    return plans[0] if how.measure == 0 else _fastest(program, target, plans[: how.measure])


def _fastest(program: Program, target: Target, plans: list[Plan]) -> Plan:
    distinct = list({p.values: p for p in plans}.values())
    with judge(target) as measurer:
        records = measurer.measure(program, [p.values for p in distinct], thorough=True)
    times = [r.score for r in records]
    if min(times) == float("inf"):
        failed = ", ".join(f"{r.status}: {r.message}"[:120] for r in records)
        warnings.warn(
            f"no proposal for {program.name} could be measured ({failed}); the first is used",
            TlmWarning,
            stacklevel=2,
        )
        return replace(distinct[0], kept=False)
    return distinct[times.index(min(times))]


def _plan(decided: Decided) -> Plan:
    return Plan(decided.steps, decided.choices)


def _kept(key: str, plan: Plan) -> Plan:
    if plan.kept:
        remember(key, plan.values, plan.probabilities)
    return plan


def _recalled(program: Program, target: Target, key: str) -> Plan | None:
    found = recall(key)
    if found is None:
        return None
    try:
        plan = _plan(replay(space_for(program, target), found.values))
    except RecordError:
        return None
    return replace(plan, probabilities=found.probabilities)


_DECIDERS: dict[type[Config], Callable[[Program, Target, Any], Plan]] = {
    Default: _default,
    Heuristic: _heuristic,
    Random: _random,
    Search: _search,
    Generate: _generate,
}
