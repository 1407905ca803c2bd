"""A closed-form decider in the manner of Roller (Zhu et al., OSDI 2022): no measurement, no learning.

Tiles are aligned to vectors and registers, blocks to the caches, and among aligned ones the one with the most
reuse and the least wasted work wins. One rule for each choice, over the facts that its options state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from ..space.choice import Choice, Value
from ..space.decide import Picked
from .gpu_heuristic import GPU_RULES

Facts = Mapping[str, float]
Score = Callable[[Value, Facts], tuple[float, ...]]

SMALL_WORK = 200_000
"""Multiply-adds below which starting a team of threads costs more than it saves."""


def _fact(facts: Facts, name: str, unknown: float = 0.0) -> float:
    """What an option states, or `unknown`: no space states every fact. 0 wastes, fills and moves nothing."""
    return facts.get(name, unknown)


def _useful(facts: Facts) -> float:
    return 1.0 / (1.0 + _fact(facts, "waste") / 100.0)


def _style(value: Value, facts: Facts) -> tuple[float, ...]:
    contiguous = _fact(facts, "stride") <= 8
    return (
        value in ("groups", "tile"),
        contiguous or _fact(facts, "reuse") >= 16,
        value in ("outer", "reduced"),
        contiguous,
    )


def _columns(value: Value, facts: Facts) -> tuple[float, ...]:
    if "code" in facts:
        # Four results hide the latency of an addition; whole rows in registers are better still.
        return (
            _fact(facts, "size") >= 4 and _fact(facts, "trips") == 1,
            min(float(value), 4.0) * _useful(facts) ** 0.25,
        )
    balance = {1: 0.6, 2: 0.95, 3: 1.0, 4: 0.97, 6: 0.9}
    return (_useful(facts) * balance.get(int(value), 0.9),)


def _rows(value: Value, facts: Facts) -> tuple[float, ...]:
    if "intensity" not in facts:
        # Rows that take turns hide the latency of merges; more than two gain little.
        return (_fact(facts, "l1") <= 70, _fact(facts, "size") <= 2, _useful(facts) * _fact(facts, "size"))
    intensity = _fact(facts, "intensity")
    return (_useful(facts) * intensity / (intensity + 0.5),)


def _parallel(value: Value, facts: Facts) -> tuple[float, ...]:
    # Unknown work counts as much: starting threads for little loses less than leaving them idle in much.
    if _fact(facts, "size", inf) < SMALL_WORK:
        return (value == "none",)
    return (value != "none", -_fact(facts, "imbalance"), _fact(facts, "tasks"))


def _fits(cache: str, share: float) -> Score:
    """The largest block that fills at most `share` percent of a cache, threads evenly busy first."""

    def score(_: Value, facts: Facts) -> tuple[float, ...]:
        fits = _fact(facts, cache) <= share
        return (
            -_fact(facts, "imbalance"),
            fits,
            _fact(facts, "size") if fits else -_fact(facts, "size"),
            -_fact(facts, "waste"),
        )

    return score


def _pack(value: Value, facts: Facts) -> tuple[float, ...]:
    often = _fact(facts, "reuse") >= 4
    wanted = _fact(facts, "reuse") >= 16 or (
        often and (_fact(facts, "stride") > 8 or _fact(facts, "code") > 0)
    )
    return ((value == "block") == wanted,)


def _pack_rows(value: Value, facts: Facts) -> tuple[float, ...]:
    slow = _fact(facts, "stride") > 8 or _fact(facts, "code") > 0
    return ((value == "block") == (slow and _fact(facts, "reuse") >= 4),)


def _terms(_: Value, facts: Facts) -> tuple[float, ...]:
    return (_fact(facts, "rate") * _useful(facts) if _fact(facts, "reuse") >= 8 else -_fact(facts, "size"),)


def _unroll(value: Value, facts: Facts) -> tuple[float, ...]:
    short, whole = _fact(facts, "code") <= 64, _fact(facts, "trips") == 1 and _fact(facts, "code") <= 160
    return (whole, short, _fact(facts, "size") if short or whole else -_fact(facts, "size"))


RULES: dict[str, Score] = {
    "style": _style,
    "lanes": lambda value, facts: (float(value) * _useful(facts),),
    "terms": _terms,
    "columns": _columns,
    "rows": _rows,
    "split_k": lambda value, facts: (_fact(facts, "tasks") >= 100, -float(value)),
    "parallel": _parallel,
    "block_k": _fits("l1", 70),
    "block_m": _fits("l2", 50),
    "block_n": _fits("l3", 50),
    "order": lambda _, facts: (-_fact(facts, "traffic"),),
    "inner": lambda _, facts: (-_fact(facts, "l2"),),
    "pack_n": _pack,
    "pack_m": _pack_rows,
    "unroll": _unroll,
    "prefetch": lambda value, facts: (-float(value),),
    "epilogue": lambda value, facts: (value != "separate",),
    "width": lambda value, facts: (float(value),),
    "height": _rows,
    "window": lambda value, facts: (_fact(facts, "code") <= 128, _fact(facts, "size"), value != "tile"),
    "hold": lambda value, facts: (value == "tile",),
    "recompute": lambda value, facts: (value == "store",),
    "fusion": lambda value, facts: (value == "fused",),
    "merge": lambda value, facts: (value == "fused",),
    **GPU_RULES,
}  # fmt: skip


def heuristic(choice: Choice, picked: Picked) -> int:
    """The index of the option that the rule of `choice` scores highest; the first among equals."""
    rule = RULES[choice.name]
    scores = [rule(o.value, dict(o.facts)) for o in choice.options]
    return scores.index(max(scores))
