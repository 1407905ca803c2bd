"""What a call may ask for: who decides the schedule, and for which machine."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from ..backend.openmp import MOST_THREADS, startable
from ..errors import ArgumentError
from ..model.config import SAMPLES
from ..model.files import digest
from ..target import Target, host

MOST_SAMPLES = 1024
"""Sentences that are written together: each takes some hundred KiB meanwhile."""

ACTIVATION_NAMES = ("relu", "gelu", "silu", "sigmoid", "tanh")


def _at_least(name: str, value: Any, least: float) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    # An int may be larger than every float; numpy's floats are compared in their own width.
    good = number and (value if isinstance(value, int) else float(value)) <= sys.float_info.max
    if not good or not value >= least:
        raise ArgumentError(f"{name} is a number of at least {least}, got {value!r}")


def whole(name: str, value: Any, least: int) -> None:
    """ArgumentError where `value` is no integer of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ArgumentError(f"{name} is an integer of at least {least}, got {value!r}")


@dataclass(frozen=True, slots=True)
class Default:
    """No schedule: the plain loop nest, compiled as it is."""


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A closed form over the target's caches, vectors and registers."""


@dataclass(frozen=True, slots=True)
class Random:
    """Every choice by dice; the same `seed` throws the same."""

    seed: int = 0

    def __post_init__(self) -> None:
        whole("Random.seed", self.seed, 0)


@dataclass(frozen=True, slots=True)
class Search:
    """Evolutionary search with a learned cost model, by measuring on this machine; for a GPU that is not here
    by the estimates of an analytic model, which the plan tells as `evidence`.

    Stops after `trials` measurements or `seconds`, whichever comes first; 200 trials where neither is given.
    """

    trials: int | None = None
    seconds: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.trials is not None:
            whole("Search.trials", self.trials, 1)
        if self.seconds is not None:
            _at_least("Search.seconds", self.seconds, 0)
        whole("Search.seed", self.seed, 0)


@dataclass(frozen=True, slots=True)
class Generate:
    """The language model writes up to `samples` different sentences, and the one that its value model likes
    best is used; with `measure`, so many of the best are timed, the fastest kept (for a GPU that is not here:
    fastest by estimate).

    The first sentence is the greedy one, the others are drawn with `temperature` by `seed`.
    """

    samples: int = SAMPLES
    measure: int = 0
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        whole("Generate.samples", self.samples, 1)
        if self.samples > MOST_SAMPLES:
            raise ArgumentError(f"Generate.samples is at most {MOST_SAMPLES}, got {self.samples}")
        whole("Generate.measure", self.measure, 0)
        _at_least("Generate.temperature", self.temperature, 1e-3)
        whole("Generate.seed", self.seed, 0)
        if self.measure > self.samples:
            raise ArgumentError(
                f"Generate.measure is at most samples, got measure={self.measure} of samples={self.samples}"
            )


Config = Default | Heuristic | Random | Search | Generate

SCHEDULES: dict[str, Config] = {
    "default": Default(),
    "heuristic": Heuristic(),
    "random": Random(),
    "search": Search(),
    "generate": Generate(),
    "generate+measure": Generate(measure=8),
}


def config(schedule: Any) -> Config:
    """The decider that a `schedule=` argument names; ArgumentError where it names none."""
    if isinstance(schedule, Config):
        return schedule
    if isinstance(schedule, str) and schedule in SCHEDULES:
        return SCHEDULES[schedule]
    near = difflib.get_close_matches(schedule, SCHEDULES, 1) if isinstance(schedule, str) else []
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ArgumentError(
        f"unknown schedule {schedule!r}; {hint}known are {', '.join(map(repr, SCHEDULES))}, tlm.Search(...), "
        "tlm.Generate(...) or a tlm.Schedule"
    )


def activation(name: Any) -> str | None:
    """A checked name of an activation, or None."""
    if name is not None and name not in ACTIVATION_NAMES:
        raise ArgumentError(f"unknown activation {name!r}; known are {', '.join(ACTIVATION_NAMES)}, None")
    return name  # type: ignore[no-any-return]


@cache
def weights_digest(kind: str = "cpu") -> str:
    """A hash of the shipped weights for targets of a kind; empty where there are none."""
    return digest(Path(__file__).parents[1] / "model" / "weights" / f"{kind}.safetensors")


def check_threads(threads: Any) -> None:
    """ArgumentError where `threads=` is neither None nor a number of threads."""
    if threads is None:
        return
    whole("threads=", threads, 1)
    if threads > MOST_THREADS:
        raise ArgumentError(f"threads= is at most {MOST_THREADS}, got {threads}")


def machine(target: Any, threads: int | None) -> Target:
    """The target that `target=` and `threads=` name.

    "cpu" is this machine; the name of a CPU level is this machine restricted to it, or a common machine of
    that level where this one lacks it. `threads` defaults to what the process may use, and may be more;
    ArgumentError where this process cannot start so many.
    """
    check_threads(threads)
    if isinstance(target, Target):
        found = target
    elif isinstance(target, str):
        found = _named(target)
    else:
        raise ArgumentError(f"target= is 'cpu', the name of a level, or a tlm.Target, got {target!r}")
    if found.kind == "cuda" and threads is not None:
        raise ArgumentError(f"threads= is of CPUs; {found.name} has its own, got {threads}")
    found = found if threads is None else found.with_threads(int(threads))
    if found.threads > host().threads and found.runs_here() and not startable(found.threads):
        raise ArgumentError(
            f"this process cannot start {found.threads} threads: at most {MOST_THREADS}, if its memory and "
            f"the system's limits allow; it may use {host().threads} CPUs"
        )
    return found


def _named(name: str) -> Target:
    if name == "cpu":
        return host()
    if name == "cuda":
        return _present()
    preset = Target(name)
    return host().with_isa(name) if preset.kind == "cpu" and preset.runs_here() else preset


def _present() -> Target:
    """The GPU of this machine; BackendError where there is none."""
    from ..backend.cuda.runtime import present

    return present()
