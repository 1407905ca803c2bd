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
from .progress import Progress, silent
from .shapes import COMMON, Work
from .train import train


@dataclass(frozen=True, slots=True)
class Sample:
    """How much is estimated for the value model: programs (`trials`) of how many `shapes`."""

    shapes: int = 700
    trials: int = 28


def train_on_estimates(
    out_dir: str | Path,
    fleet: Fleet,
    *,
    sample: Sample | None = None,
    seed: int = 0,
    rounds: int = 2,
    imagined: int = 3000,
    steps: int = 2500,
    start: str | Path | None = None,
    common: Sequence[Work] = COMMON,
    heuristic: Decide | None = None,
    progress: Progress = silent,
    resume: bool = True,
) -> Path:
    """`train` on estimates of programs of many shapes, which are made first; the rest of the arguments is
    that of `train`. A killed run goes on where it was. Returns the path of the weights.
    """
    if not fleet.estimates:
        raise ArgumentError("training on estimates needs a fleet whose programs are estimated")
    size, out = sample or Sample(), Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"estimates-{seed}-{size.shapes}x{size.trials}.sqlite"
    if not resume:
        for part in ("", "-wal", "-shm"):
            path.with_name(path.name + part).unlink(missing_ok=True)
    collect(
        path, shapes=size.shapes, trials=size.trials, seed=seed, common=common, heuristic=heuristic,
        progress=progress, fleet=fleet,
    )  # fmt: skip
    return train(
        path, out, seed=seed, rounds=rounds, imagined=imagined, steps=steps, start=start, progress=progress,
        resume=resume, fleet=fleet,
    )  # fmt: skip
