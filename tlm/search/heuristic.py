"""A closed-form decider in the manner of Roller (Zhu et al., OSDI 2022): no measurement, no learning.

Tiles are aligned to vectors and registers, blocks to the caches, and among aligned ones the one with the most
reuse and the least wasted work wins. One rule for each choice, over the facts that its options state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..space.choice import Choice, Value
from ..space.decide import Picked

Facts = Mapping[str, float]
Score = Callable[[Value, Facts], tuple[float, ...]]

SMALL_WORK = 200_000
"""Multiply-adds below which starting a team of threads costs more than it saves."""


def _useful(facts: Facts) -> float:
    return 1.0 / (1.0 + facts.get("waste", 0.0) / 100.0)


def _style(value: Value, facts: Facts) -> tuple[float, ...]:
    contiguous = facts["stride"] <= 8
    return (
        value in ("groups", "tile"),
        contiguous or facts.get("reuse", 0) >= 16,
        value in ("outer", "reduced"),
        contiguous,
    )


def _columns(value: Value, facts: Facts) -> tuple[float, ...]:
    if "code" in facts:
        # Four results hide the latency of an addition; whole rows in registers are better still.
        return (facts["size"] >= 4 and facts["trips"] == 1, min(float(value), 4.0) * _useful(facts) ** 0.25)
    balance = {1: 0.6, 2: 0.95, 3: 1.0, 4: 0.97, 6: 0.9}
    return (_useful(facts) * balance[int(value)],)


def _rows(value: Value, facts: Facts) -> tuple[float, ...]:
    if "intensity" not in facts:
        # Rows that take turns hide the latency of merges; more than two gain little.
        return (facts["l1"] <= 70, facts["size"] <= 2, _useful(facts) * facts["size"])
    intensity = facts["intensity"]
    return (_useful(facts) * intensity / (intensity + 0.5),)


def _parallel(value: Value, facts: Facts) -> tuple[float, ...]:
    if facts["size"] < SMALL_WORK:
        return (value == "none",)
    return (value != "none", -facts.get("imbalance", 0.0), facts.get("tasks", 0.0))


def _fits(cache: str, share: float) -> Score:
    """The largest block that fills at most `share` percent of a cache, threads evenly busy first."""

    def score(_: Value, facts: Facts) -> tuple[float, ...]:
        fits = facts[cache] <= share
        return (
            -facts.get("imbalance", 0.0),
            fits,
            facts["size"] if fits else -facts["size"],
            -facts.get("waste", 0.0),
        )

    return score


def _pack(value: Value, facts: Facts) -> tuple[float, ...]:
    often = facts["reuse"] >= 4
    wanted = facts["reuse"] >= 16 or (often and (facts["stride"] > 8 or facts.get("code", 0) > 0))
    return ((value == "block") == wanted,)


def _pack_rows(value: Value, facts: Facts) -> tuple[float, ...]:
    slow = facts["stride"] > 8 or facts.get("code", 0) > 0
    return ((value == "block") == (slow and facts["reuse"] >= 4),)


def _terms(_: Value, facts: Facts) -> tuple[float, ...]:
    return (facts["rate"] * _useful(facts) if facts["reuse"] >= 8 else -facts["size"],)


def _unroll(value: Value, facts: Facts) -> tuple[float, ...]:
    short, whole = facts["code"] <= 64, facts.get("trips") == 1 and facts["code"] <= 160
    return (whole, short, facts["size"] if short or whole else -facts["size"])


RULES: dict[str, Score] = {
    "style": _style,
    "lanes": lambda value, facts: (float(value) * _useful(facts),),
    "terms": _terms,
    "columns": _columns,
    "rows": _rows,
    "split_k": lambda value, facts: (facts["tasks"] >= 100, -float(value)),
    "parallel": _parallel,
    "block_k": _fits("l1", 70),
    "block_m": _fits("l2", 50),
    "block_n": _fits("l3", 50),
    "order": lambda _, facts: (-facts["traffic"],),
    "inner": lambda _, facts: (-facts.get("l2", 0.0),),
    "pack_n": _pack,
    "pack_m": _pack_rows,
    "unroll": _unroll,
    "prefetch": lambda value, facts: (-float(value),),
    "epilogue": lambda value, facts: (value != "separate",),
    "width": lambda value, facts: (float(value),),
    "height": _rows,
    "window": lambda value, facts: (facts["code"] <= 128, facts["size"], value != "tile"),
    "hold": lambda value, facts: (value == "tile",),
    "recompute": lambda value, facts: (value == "store",),
    "fusion": lambda value, facts: (value == "fused",),
    "merge": lambda value, facts: (value == "fused",),
}  # fmt: skip


def heuristic(choice: Choice, picked: Picked) -> int:
    """The index of the option that the rule of `choice` scores highest; the first among equals."""
    rule = RULES[choice.name]
    scores = [rule(o.value, dict(o.facts)) for o in choice.options]
    return scores.index(max(scores))
