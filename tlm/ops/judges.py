"""What judges candidates of a target: the clock, or for a GPU that is not here an analytic model."""

from __future__ import annotations

from typing import Any, Literal

from ..target import Target

Evidence = Literal["", "measured", "modelled"]
"""What the quality of a schedule rests on: on run times (of candidates, or of programs that a model learned
from), only on estimates of an analytic model, or on neither."""


def evidence_of(target: Target) -> Evidence:
    """Whether candidates for a target are measured here or modelled."""
    if target.kind == "cpu":
        return "measured"
    from ..measure.gpu import is_here

    return "measured" if is_here(target) else "modelled"


def judge(target: Target) -> Any:
    """A Measurer of the target, or a `Modelled` that stands in for one. To be used in a `with`.

    BackendError where a CPU target cannot run here.
    """
    if target.kind == "cpu":
        from ..measure.measure import Measurer

        return Measurer(target)
    if evidence_of(target) == "measured":
        from ..measure.gpu import gpu_measurer

        return gpu_measurer(target)
    from ..search.gpu_modelled import Modelled

    return Modelled(target)


def analytic(target: Target) -> tuple[str, ...]:
    """The name of the analytic model where candidates are judged by one: part of what they depend on."""
    if evidence_of(target) == "measured":
        return ()
    from ..search.gpu_modelled import NAME

    return (NAME,)
