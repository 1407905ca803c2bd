"""`tlm bench`: products beside numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .running import tolerance
from .timing import paired, relative_error
from .workload import check_memory, workload

SHAPES = (
    (512, 512, 512), (768, 768, 768), (1024, 1024, 1024),
    (128, 768, 3072), (128, 3072, 768), (128, 768, 768), (128, 768, 2304),
    (3136, 64, 256), (784, 512, 128), (196, 1024, 256), (49, 2048, 512),
    (1000, 1000, 1000), (127, 255, 513), (97, 1009, 101), (511, 513, 509),
    (1, 4096, 4096), (8, 4096, 4096), (4096, 4096, 1), (64, 64, 64), (16, 16, 16),
)  # fmt: skip
"""Square, transformer, 1x1 convolution, prime, skinny and small products (M, K, N)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One shape: seconds of one call, numpy's over ours, the largest relative error, and whether rounding
    explains it."""

    shape: tuple[int, ...]
    seconds: float
    numpy_seconds: float
    ratio: float
    gflops: float
    error: float
    right: bool

    def text(self) -> str:
        name = "x".join(map(str, self.shape))
        return (
            f"{name:>16} tlm {self.seconds * 1e6:10.1f} us  numpy {self.numpy_seconds * 1e6:10.1f} us  "
            f"numpy/tlm {self.ratio:6.3f}  {self.gflops:7.1f} GFLOP/s  error {self.error:.1e}"
            f"{'' if self.right else ' WRONG'}"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def parse_shape(text: str) -> tuple[int, ...]:
    """(M, K, N) of "MxKxN"."""
    try:
        found = tuple([int(p) for p in text.lower().split("x")])
    except ValueError:
        found = ()
    if len(found) != 3:
        raise ArgumentError(f"a shape is MxKxN, such as 512x512x512; got {text!r}")
    return found


def versus_numpy(shape: Sequence[int], schedule: str, threads: int | None, seconds: float = 0.5) -> Row:
    """Time an f32 product in turn with numpy's, and check it against float64."""
    work = workload("matmul", shape)
    check_memory(work)
    a, b = work.operands()
    op = work.ours()
    out = np.empty((shape[0], shape[2]), np.float32)
    op(a, b, out=out, schedule=schedule, threads=threads)
    error = relative_error(out, work.reference([a, b]))
    times = paired(
        lambda: op(a, b, out=out, schedule=schedule, threads=threads), work.numpy([a, b]), seconds=seconds
    )
    flops = 2.0 * math.prod(shape)
    right = error <= tolerance(work)
    return Row(tuple(shape), times.ours, times.theirs, times.ratio, flops / times.ours / 1e9, error, right)


def summary(rows: Sequence[Row]) -> str:
    """The geometric mean and the worst of numpy / tlm."""
    mean = math.exp(sum(math.log(r.ratio) for r in rows) / len(rows))
    worst = min(rows, key=lambda r: r.ratio)
    name = "x".join(map(str, worst.shape))
    return f"numpy/tlm: geometric mean {mean:.3f}, worst {worst.ratio:.3f} ({name})"
