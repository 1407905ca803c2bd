"""Training without a device: what an analytic model expects of programs stands in for measurements.

The records go into a file beside the training, of estimates only; the card says that nothing was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ArgumentError
from ..space.decide import Decide
from .collect import collect
from .fleet import Fleet
from .imagine import Effort
from .progress import Progress, silent
from .shapes import COMMON, Work
from .train import Recipe, check_start, run_recipe

EFFORT = Effort(first=48, proposed=8, rounds=2, parents=8, children=5, keep=4)
"""Of one imagined workload: an estimate costs as much as twenty looks of the value model, so that few of the
best are estimated, and fewer sentences are looked at in all."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How much is estimated for the value model: programs (`trials`) of how many `shapes`."""

    shapes: int = 600
    trials: int = 20


def train_on_estimates(
    out_dir: str | Path,
    fleet: Fleet,
    recipe: Recipe,
    *,
    sample: Sample | None = None,
    common: Sequence[Work] = COMMON,
    heuristic: Decide | None = None,
    progress: Progress = silent,
    resume: bool = True,
) -> Path:
    """Train on estimates of programs of many workloads, which are made first (`common` ones among them, and
    the neighbourhood of the `heuristic`); then as `train` does on measurements. A killed run goes on where it
    was. Returns the path of the weights, `out_dir`/cuda.safetensors.
    """
    if not fleet.estimates:
        raise ArgumentError("training on estimates needs a fleet whose programs are estimated")
    check_start(recipe, fleet.kind)
    size, out = sample or Sample(), Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"estimates-{recipe.seed}-{size.shapes}x{size.trials}.sqlite"
    if not resume:
        for part in ("", "-wal", "-shm"):
            path.with_name(path.name + part).unlink(missing_ok=True)
    collect(
        path, shapes=size.shapes, trials=size.trials, seed=recipe.seed, common=common, heuristic=heuristic,
        progress=progress, fleet=fleet,
    )  # fmt: skip
    return run_recipe(recipe, path, out, progress=progress, resume=resume, measure=True, fleet=fleet)
