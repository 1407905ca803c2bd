"""Which targets and workloads a command learns from or judges by, and what judges candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..model.fleet import Fleet
from ..model.progress import Progress
from ..model.shapes import COMMON, HELD_OUT_EACH, Work, others_held_out
from ..ops.networks import NETWORKS
from ..ops.workloads import FAMILIES, TAUGHT
from ..target import Target, host

_OF_CPUS = "cpu"


def measured_fleet(target: str) -> Fleet | None:
    """The GPU that is named, to be measured; None for this machine's CPU levels."""
    if target == _OF_CPUS:
        return None
    from ..measure.gpu import gpu_measurer
    from ..ops.gpu_workloads import gpu_fleet

    goal = _gpu(target)
    gpu_measurer(goal).close()
    return gpu_fleet(goal, gpu_measurer, alone=True)


def _gpu(target: str) -> Target:
    from ..ops.settings import machine

    found = machine(target, None)
    if found.kind != "cuda":
        raise ArgumentError(f"--target is cpu, cuda, or a GPU such as sm_90, got {target!r}")
    return found


def train_on(
    target: str,
    store: Path,
    out: Path,
    estimated: str,
    *,
    measure: bool,
    progress: Progress,
    how: Mapping[str, Any],
) -> Path:
    """`train` for CPUs, or for GPUs on what the store has of them, else on estimates; `how` are arguments
    that all of them take."""
    from ..model.train import train

    if target == _OF_CPUS:
        return train(store, out, families=TAUGHT, measure=measure, progress=progress, **how)
    from ..measure.gpu import gpu_measurer, is_here
    from ..ops.gpu_workloads import gpu_fleet

    goal = _gpu(target)
    if _measured(store, goal):
        fleet = gpu_fleet(goal, gpu_measurer, alone=True)
        here = measure and is_here(goal)
        return train(store, out, measure=here, progress=progress, fleet=fleet, **how)
    return _on_estimates(goal, out, estimated, progress, how)


def _on_estimates(
    goal: Target, out: Path, estimated: str, progress: Progress, how: Mapping[str, Any]
) -> Path:
    from ..model.estimated import EFFORT, Sample, train_on_estimates
    from ..model.train import Recipe
    from ..ops.gpu_workloads import gpu_fleet
    from ..search.gpu_modelled import NAME, modelled_in, seconds
    from ..search.heuristic import heuristic

    settings = dict(how)
    resume, start = settings.pop("resume"), settings.pop("start")
    recipe = Recipe(**settings, start=None if start is None else str(start), effort=EFFORT)
    sample = Sample(*_sizes(estimated))
    with modelled_in(host().threads) as modelled:
        fleet = gpu_fleet(goal, modelled, estimates=NAME, judge=seconds)
        return train_on_estimates(
            out, fleet, recipe, sample=sample, common=(*COMMON, *NETWORKS), heuristic=heuristic,
            progress=progress, resume=resume,
        )  # fmt: skip


def _sizes(text: str) -> tuple[int, int]:
    parts = text.split("x")
    if len(parts) != 2 or not all(p.isdigit() and int(p) > 0 for p in parts):
        raise ArgumentError(f"--estimated is SHAPESxPROGRAMS, such as 600x20, got {text!r}")
    return int(parts[0]), int(parts[1])


def _measured(store: Path, goal: Target) -> bool:
    """Whether a store has measurements of this GPU."""
    from ..measure.store import Store

    if not store.exists():
        return False
    with Store(store) as opened:
        return bool(opened.records(target=goal.key))


def judged_by(goal: Target, shapes: int | None, families: bool) -> int | Sequence[Work] | None:
    """The held-out workloads that a model for this target is judged by: products, or the other families."""
    if goal.kind == "cpu":
        return others_held_out(FAMILIES, shapes or HELD_OUT_EACH) if families else shapes
    from ..ops.gpu_workloads import gpu_others_held_out, gpu_products_held_out

    return gpu_others_held_out(shapes or HELD_OUT_EACH) if families else gpu_products_held_out()[:shapes]
