"""Rules of the closed-form decider for the choices of GPU spaces, over the facts that their options state.

Tiles are aligned to warps and as large as keeps every multiprocessor busy (the alignment of Roller, Zhu et
al., OSDI 2022); a thread holds as much as the registers allow at an occupancy that hides latencies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..space.choice import Value

Facts = Mapping[str, float]
Score = Callable[[Value, Facts], tuple[float, ...]]

ENOUGH = 12.5
"""Percent of resident threads beyond which a kernel with independent work in each thread gains little."""


def _useful(facts: Facts) -> float:
    """The share of the work that is inside of the extents, and of the multiprocessors that have some."""
    busy = min(1.0, facts.get("tasks", 100.0) / 100.0)
    return busy / (1.0 + facts.get("waste", 0.0) / 100.0) / (1.0 + facts.get("imbalance", 0.0) / 100.0)


def _tile(value: Value, facts: Facts) -> tuple[float, ...]:
    # Beyond 128, what is read less often costs threads that hold more.
    size = min(facts.get("size", 1.0), 128.0)
    return (_useful(facts) * size / (size + 24.0), -facts.get("size", 1.0))


def _square(value: Value, facts: Facts) -> tuple[float, ...]:
    # What few blocks leave idle, parts of the sum may still fill; the rest of a warp never is.
    depth = facts.get("intensity", facts.get("size", 1.0) / 2)
    busy = min(1.0, facts.get("tasks", 100.0) / 100.0)
    whole = min(1.0, facts.get("threads", 64.0) / 64.0)
    # Two blocks of 256 threads hide each other's barriers.
    hidden = min(1.0, facts.get("occupancy", 25.0) / 25.0) ** 0.5
    return (_useful(facts) / busy**0.5 * whole * hidden * depth / (depth + 12.0), facts.get("size", 0.0))


def _share(value: Value, facts: Facts) -> tuple[float, ...]:
    # Eight by eight of a thread keeps the multipliers busy; beyond, registers cost occupancy.
    depth = min(facts.get("intensity", 1.0), 4.0)
    return (facts.get("occupancy", 100.0) >= ENOUGH, facts.get("threads", 0.0) >= 64, depth, -float(value))


def _depth(value: Value, facts: Facts) -> tuple[float, ...]:
    wanted = facts.get("intensity", 0.0) >= 512
    small = facts.get("shared", 0.0) <= 25
    return (small, min(facts.get("stride", 64.0), 64.0), wanted, -float(value))


def _stage(value: Value, facts: Facts) -> tuple[float, ...]:
    return ((value == "shared") == (facts.get("reuse", 0.0) > 1),)


def _slices(value: Value, facts: Facts) -> tuple[float, ...]:
    # Parts cost a kernel that adds them up: only as many as hide the latency of reads.
    return (min(facts.get("waves", 40.0), 40.0), -float(value))


def _raster(value: Value, facts: Facts) -> tuple[float, ...]:
    return (-facts.get("traffic", 0.0), value == 1)


def _unroll_vector(value: Value, facts: Facts) -> tuple[float, ...]:
    return (min(float(value), 16.0),)


def _threads(value: Value, facts: Facts) -> tuple[float, ...]:
    size, trips = facts.get("size", 1.0), facts.get("trips", 1.0)
    busy = min(1.0, facts.get("tasks", 100.0) / 100.0)
    return (size >= 32, busy >= 1, size <= 256 or trips > 8, _useful(facts), min(size, 256.0))


def _rows(value: Value, facts: Facts) -> tuple[float, ...]:
    return (
        facts.get("threads", 0.0) <= 256,
        _useful(facts) >= 0.5,
        facts.get("occupancy", 0.0),
        -float(value),
    )


def _items(value: Value, facts: Facts) -> tuple[float, ...]:
    return (
        facts.get("tasks", 1000.0) >= 400 or value == 1,
        facts.get("threads", 256.0) <= 256,
        facts.get("code", 1.0) <= 64,
        min(float(value), 4.0),
    )


GPU_RULES: dict[str, Score] = {
    "cta_m": _tile,
    "cta_h": _tile,
    "cta_n": _square,
    "cta_k": _depth,
    "thread_m": _share,
    "thread_n": _share,
    "warp_m": lambda _, facts: (facts.get("reuse", 0.0),),
    "group": lambda value, facts: (facts.get("stride", 0.0) <= 16, float(value)),
    "stage_m": _stage,
    "stage_n": _stage,
    "vector": _unroll_vector,
    "stages": lambda value, facts: (facts.get("shared", 0.0) <= 50, min(float(value), 3.0)),
    "slices": _slices,
    "raster": _raster,
    # What a register holds of addresses weighs as two threads on a bank in a copy, which is rare, would.
    "align": lambda _, facts: (
        -facts.get("conflicts", 0.0) - 20.0 * facts.get("registers", 0.0), -facts.get("shared", 0.0),
        -facts.get("size", 0.0),
    ),
    "form": lambda value, facts: (
        value == "groups", value in ("tile", "dot", "matrix"), facts.get("stride", 0.0) <= 8,
        value in ("last", "reduced"),
    ),
    "threads": _threads,
    "cta_rows": _rows,
    "items": _items,
    "turns": lambda value, facts: (facts.get("code", 1.0) <= 1024, float(value)),
    "keep": lambda value, facts: (value == "register",),
}  # fmt: skip
"""Choice -> score of a value with its facts; the highest wins."""
