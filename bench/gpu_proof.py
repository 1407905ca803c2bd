"""A CUDA C text proven without a GPU: NVRTC compiles it, and the shim runs it on the CPU with all checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.cuda import shim
from tests.cuda.emitted import run
from tlm.backend.cuda.compiler import binary
from tlm.backend.cuda.emitter import Source
from tlm.backend.cuda.stats import statistics
from tlm.errors import BackendError
from tlm.target import Target

RIGHT = "right"
REJECTED = ("rejected", "refused")
"""A step or the emitter refuses the schedule; NVRTC refuses the text. All else but RIGHT is wrong."""

TOLERANCE = {2: 4e-3, 4: 1e-5, 8: 1e-12}
"""By bytes of an element, relative and absolute, where results depend on the order of sums or on functions
of the host's library."""

Row = dict[str, Any]


def proven(
    source: Source, target: Target, inputs: Sequence[np.ndarray], judge: Callable[[list[np.ndarray]], str]
) -> Row:
    """Compile a text, run it in the shim, and ask `judge` for what is wrong with the outputs."""
    try:
        cubin, log = binary(source, target)
        stats = statistics(source, log, target)
    except BackendError as error:
        return {"status": "refused", "message": str(error)}
    row: Row = {
        "cubin": len(cubin), "registers": max([s.registers for s in stats], default=0),
        "spills": max([s.spills for s in stats], default=0), "launches": len(source.kernels),
        "matrix": "mma_m16n8" in source.text, "pipelined": "cp_async" in source.text,
        "shared": "__shared__" in source.text, "barriers": "__syncthreads" in source.text,
    }  # fmt: skip
    try:
        outputs, _ = run(source, inputs)
    except shim.ShimError as fault:
        return row | {"status": fault.kind, "message": str(fault)}
    problem = judge(outputs)
    return row | {"status": "wrong" if problem else RIGHT, "message": problem}


def compared(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], *, bits: bool) -> str:
    """What differs, "" where nothing does: NaN equals NaN, all else has the same bits or is close."""
    for n, (a, b) in enumerate(zip(got, wanted, strict=False)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"output {n} is {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
        same = same_bits(a, b)
        if not bits:
            x, y = a.astype("f8"), b.astype("f8")
            tolerance = TOLERANCE.get(b.dtype.itemsize, 0.0)
            same |= np.isclose(x, y, tolerance, tolerance)
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            return f"output {n}: {(~same).sum()} of {same.size} elements, {at}: {a[at]!r}, not {b[at]!r}"
    return ""


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two arrays of a dtype have the same bits, or both NaN."""
    kind = f"u{a.dtype.itemsize}"
    same = np.ascontiguousarray(a).view(kind) == np.ascontiguousarray(b).view(kind)
    same = same.reshape(a.shape)
    return same if a.dtype.kind in "iub" else same | (np.isnan(a) & np.isnan(b))
