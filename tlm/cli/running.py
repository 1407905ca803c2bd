"""`tlm run`: one operator, compiled, run, checked and timed beside numpy."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..ops.kernel import Kernel
from .timing import paired, relative_error
from .workload import Workload, check_memory

# Largest error over the largest result that rounding explains, for products of a few thousand terms.
_TOLERANCE = {"f64": 1e-13, "f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}
_TERMS = 4096


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a run. Times in seconds; error: largest deviation from float64 over largest result."""

    workload: str
    schedule: str
    target: str
    threads: int
    sentence: str
    program: str
    compile_seconds: float
    seconds: float
    numpy_seconds: float
    speedup: float
    gflops: float
    error: float
    right: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """The report as lines of text."""
        verdict = "right" if self.right else "WRONG"
        return "\n".join(
            [
                f"== {self.workload}, schedule {self.schedule}, {self.target}, {self.threads} threads",
                "== sentence",
                self.sentence,
                "== loop nest",
                self.program,
                "== result",
                f"decided and compiled in {self.compile_seconds * 1e3:.0f} ms",
                f"tlm    {_time(self.seconds)}  {self.gflops:.1f} GFLOP/s",
                f"numpy  {_time(self.numpy_seconds)}",
                f"numpy / tlm {self.speedup:.2f}",
                f"largest error {self.error:.1e}: {verdict}",
            ]
        )


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:10.1f} us" if seconds < 0.01 else f"{seconds * 1e3:10.2f} ms"


def kernel_of(work: Workload, schedule: str, target: str, threads: int | None) -> Kernel:
    """The compiled operator of a workload."""
    made: Kernel = work.ours().kernel(
        *work.specs(), schedule=schedule, target=target, threads=threads, **work.options
    )
    return made


def tolerance(work: Workload) -> float:
    """The largest error over the largest result that rounding explains; 0 for integers and bool.

    The errors of many terms add up as the steps of a random walk do; sums of f16 and bf16 are held in f32,
    and round once more at the end, which is what counts.
    """
    least = _TOLERANCE.get(work.dtype, 0.0)
    return least if work.dtype in ("f16", "bf16") else least * max(1.0, work.depth / _TERMS) ** 0.5


def run_once(work: Workload, schedule: str, target: str, threads: int | None) -> Report:
    """Compile, run, check against float64, and time in turn with numpy."""
    check_memory(work)
    operands, op = work.operands(), work.ours()
    settings = {"schedule": schedule, "target": target, "threads": threads, **work.options}
    start = time.perf_counter()
    kernel: Kernel = op.kernel(*operands, **settings)
    compiled = time.perf_counter() - start
    result = op(*operands, **settings)
    error = relative_error(result, work.reference(operands))
    out = np.empty_like(result)
    times = paired(lambda: op(*operands, out=out, **settings), work.numpy(operands))
    return Report(
        workload=work.title,
        schedule=schedule,
        target=kernel.target.isa,
        threads=kernel.target.threads,
        sentence=kernel.sentence,
        program=str(kernel.program),
        compile_seconds=compiled,
        seconds=times.ours,
        numpy_seconds=times.theirs,
        speedup=times.ratio,
        gflops=kernel.flops / times.ours / 1e9,
        error=error,
        right=error <= tolerance(work),
    )
