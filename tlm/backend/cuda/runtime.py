"""What is asked of CuPy to run kernels: the GPUs of this machine, streams, and memory for a call."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from ...errors import BackendError
from ...target import Target, gpu_architectures
from .nvrtc import known_for

# Attribute of a device, as CuPy calls it -> figure of a Target.
_ATTRIBUTES = {
    "MultiProcessorCount": "threads", "L2CacheSize": "l2", "MaxRegistersPerMultiprocessor": "registers",
    "MaxSharedMemoryPerMultiprocessor": "l1", "MaxSharedMemoryPerBlockOptin": "block_shared",
    "MaxThreadsPerMultiProcessor": "sm_threads", "MaxBlocksPerMultiprocessor": "sm_blocks",
}  # fmt: skip
# Handles of the legacy default stream, which no graph captures: asking would spoil the captures of others.
_LEGACY = (0, 1)


@cache
def cupy() -> Any:
    """The module, where it can run something; BackendError where it is missing or has no GPU."""
    try:
        found = importlib.import_module("cupy")
    except ImportError:
        raise BackendError("running on a GPU needs CuPy: pip install cupy-cuda13x") from None
    if not found.cuda.is_available():
        raise BackendError(
            "there is no CUDA GPU here, or no driver for it: a kernel can be compiled and looked at, not run"
        )
    return found


def current() -> int:
    """The number of the current GPU. BackendError where there is none."""
    return int(cupy().cuda.runtime.getDevice())


def present(number: int | None = None) -> Target:
    """GPU `number` (None: the current one) as a target, with its own counts and sizes.

    It is compiled for the newest architecture that runs there and that NVRTC knows. BackendError where there
    is none, or where it is older than every target.
    """
    return _present(current() if number is None else number)


@cache
def _present(number: int) -> Target:
    card = cupy().cuda.Device(number)
    arch = int(card.compute_capability)
    older = [known for known in gpu_architectures() if known <= arch]
    if not older:
        raise BackendError(
            f"GPU {number} has compute capability {arch / 10}, kernels are for "
            f"{min(gpu_architectures()) / 10} and later"
        )
    given = {_ATTRIBUTES[k]: int(v) for k, v in card.attributes.items() if k in _ATTRIBUTES}
    figures = {k: v for k, v in given.items() if v > 0}
    isa = known_for(arch)
    name = isa if isa.endswith("a") else f"sm_{max(older)}"
    return Target(name, **{"isa": isa} | figures)


def runs_on(target: Target, number: int) -> bool:
    """Whether code for `target` runs on a GPU: on the same major version, of the same or a later minor; code
    with what one architecture alone has ("a"), on that one."""
    major, minor = divmod(int(cupy().cuda.Device(number).compute_capability), 10)
    wanted = divmod(int(target.isa.removeprefix("sm_").rstrip("af")), 10)
    return wanted[0] == major and (wanted[1] == minor if target.isa.endswith("a") else wanted[1] <= minor)


class _Handle:
    """The stream of another library, by CUDA's stream protocol."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


@cache
def stream(pointer: int) -> Any:
    """A stream that another library made, for CuPy."""
    streams = cupy().cuda.Stream
    return streams.null if pointer in _LEGACY else streams.from_external(_Handle(pointer))


def join(later: Any, earlier: Any) -> None:
    """Make what comes later in one stream wait for what is in another by now; the CPU does not wait."""
    if later.ptr != earlier.ptr:
        event = cupy().cuda.Event(disable_timing=True)
        event.record(earlier)
        later.wait_event(event)


def capturing(at: Any) -> bool:
    """Whether a stream is being captured into a graph."""
    return at.ptr not in _LEGACY and bool(cupy().cuda.runtime.streamIsCapturing(at.ptr))
