"""A workload that `bench/cuda.py` times: its operands on a GPU, and who computes it beside tlm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.cuda_cases import dtype_of
from bench.cuda_timing import OURS, Call

Shape = tuple[int, ...]
Peer = Callable[["Device", dict[str, Any]], Call]


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio that a line should reach: of `peer`, or ("copy") its share of the bandwidth of a copy."""

    peer: str
    least: float


@dataclass(frozen=True, slots=True)
class Line:
    """A workload. `ours(ops, arrays, how)` computes it into arrays["out"], `truth(xp, arrays)` in float64;
    `flops` and `bytes` are those of one call. `tolerance`: the largest error as a share of the largest
    magnitude. `quick`: one of the few of `--quick`."""

    family: str
    name: str
    shapes: dict[str, Shape]
    dtype: str
    ours: Callable[[Any, dict[str, Any], dict[str, Any]], Any]
    truth: Callable[[Any, dict[str, Any]], Any]
    peers: dict[str, Peer]
    out: Shape
    flops: float
    bytes: float
    tolerance: float
    bar: Bar | None = None
    quick: bool = False


class Device:
    """Arrays for lines, and the libraries of a GPU machine; `torch` is None where it is missing."""

    def __init__(self, cupy: Any, torch: Any) -> None:
        self.cupy, self.torch = cupy, torch
        if torch is not None:
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.allow_tf32 = False
            torch.backends.cudnn.benchmark = True

    def arrays(self, line: Line, seed: int = 0) -> dict[str, Any]:
        """Normal variates by name, and a place for the result."""
        rng, dtype = self.cupy.random.default_rng(seed), dtype_of(line.dtype)
        made = {
            name: _narrow(rng.standard_normal(shape, dtype=np.float32) * np.float32(0.5), dtype)
            for name, shape in line.shapes.items()
        }
        return made | {"out": self.cupy.empty(line.out, dtype)}

    def tensor(self, x: Any) -> Any:
        """A torch tensor over the memory of a CuPy array."""
        if self.torch is None:
            raise ModuleNotFoundError("torch is not installed")
        if x.dtype.name == "bfloat16":
            return self.torch.from_dlpack(x.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_dlpack(x)


def wide(xp: Any, x: Any) -> Any:
    """float64, of bf16 by its bits: not every CuPy converts it."""
    if x.dtype.name == "bfloat16":
        x = (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float64)


def _narrow(x: Any, dtype: np.dtype) -> Any:
    """float32 as another dtype, bf16 by its bits."""
    if dtype.name != "bfloat16":
        return x.astype(dtype)
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).view(dtype)


def ways(line: Line, device: Device, arrays: dict[str, Any], ours: Call) -> dict[str, Any]:
    """What computes a line, by name: a call, or the exception that its making raised."""
    made: dict[str, Any] = {OURS: ours}
    for name, peer in line.peers.items():
        try:
            made[name] = peer(device, arrays)
        except Exception as error:
            made[name] = error
    return made
