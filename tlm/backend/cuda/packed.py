"""A compiled program as bytes: what a process that launches it needs to know, then the cubin."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from ...errors import BackendError
from .emitter import Launch
from .kernel import Kernel

_MAGIC = b"tlmg1"
_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Packed:
    """`launches` in running order; `scratch`: bytes of each array that the launches need beside the
    program's parameters."""

    launches: tuple[Launch, ...]
    scratch: tuple[int, ...]
    cubin: bytes


def pack(kernel: Kernel) -> bytes:
    """A kernel as bytes. Its arrays must start at multiples of 16 bytes."""
    scratch = kernel.emitted.buffers[len(kernel.program.parameters) :]
    head = {
        "launches": [asdict(launch) for launch in kernel.launches],
        "scratch": [max(b.size, 1) * b.dtype.bytes for b in scratch],
    }
    text = json.dumps(head).encode()
    return _MAGIC + len(text).to_bytes(_LENGTH, "little") + text + kernel.cubin


def unpack(data: bytes) -> Packed:
    """What `pack` made; BackendError where it is not."""
    start = len(_MAGIC) + _LENGTH
    try:
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("it does not begin as one")
        end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
        head = json.loads(data[start:end])
        launches = [Launch(**launch) for launch in head["launches"]]
        return Packed(tuple([_tuples(x) for x in launches]), tuple(map(int, head["scratch"])), data[end:])
    except (ValueError, KeyError, TypeError) as error:
        raise BackendError(f"not a packed kernel: {error}") from None


def _tuples(x: Launch) -> Launch:
    (gx, gy, gz), (bx, by, bz) = x.grid, x.block
    return replace(x, grid=(gx, gy, gz), block=(bx, by, bz), parameters=tuple(x.parameters))
