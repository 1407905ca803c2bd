"""Measuring on the present GPU: the same workers as for CPUs, which build by NVRTC and time on the device."""

from __future__ import annotations

from typing import Any

from ..errors import BackendError
from ..ir.nodes import Program
from ..target import Target
from .gpu_runner import Device, GpuRunner
from .limits import Limits
from .measure import Measurer
from .record import Values

TOOLCHAIN = "tlm.measure.gpu:NVRTC"

# The driver reserves more addresses than there is memory, so their number says nothing of what is used.
_LIMITS = Limits(build=30.0, memory=1 << 46)


class NVRTC:
    """The CUDA backend; machine code travels as a packed cubin."""

    def versions(self) -> dict[str, str]:
        from .. import __version__
        from ..backend.cache import generator
        from ..backend.cuda.nvrtc import version

        source = generator("schedule", "space")[:16]
        return {"tlm": __version__, "generator": source, "backend": "nvrtc {}.{}".format(*version())}

    def build(self, program: Program, target: Target, values: Values) -> tuple[list[dict[str, Any]], bytes]:
        from ..backend.cuda import compile as compile_program
        from ..backend.cuda.packed import pack
        from ..schedule.steps import apply, to_json
        from ..space.decide import replay
        from ..space.spaces import space_for

        steps = replay(space_for(program, target), values).steps
        return to_json(steps), pack(compile_program(apply(program, steps), target, cache=False))

    def runner(self) -> GpuRunner:
        """What checks and times the code, in place of `runner.Runner`."""
        return GpuRunner(_device)


def _device() -> Device:
    from ..backend.cuda.device_memory import Device as Present

    return Present()


def is_here(target: Target) -> bool:
    """Whether code for this target runs on the present GPU; False where there is none, or no CuPy."""
    if target.kind != "cuda":
        return False
    from ..backend.cuda import runtime

    try:
        return runtime.runs_on(target, runtime.current())
    except BackendError:
        return False


def gpu_measurer(target: Target) -> Measurer:
    """A Measurer of the present GPU; BackendError where there is none that runs code for the target."""
    if not is_here(target):
        raise BackendError(
            f"measuring {target.name} needs a GPU here that runs code for {target.isa}, and there is none; "
            "search and training then go by estimate"
        )
    return Measurer(target, toolchain=TOOLCHAIN, limits=_LIMITS)
