"""An operator compiled for a GPU: it can be looked at anywhere, and called on arrays of the GPU it is for."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.cuda import Kernel as Compiled
from ..backend.cuda import compile as compile_program
from ..backend.cuda.stats import Stats
from ..errors import ArgumentError
from ..ir.dtypes import from_numpy
from ..target import Target
from .arrays import Spec, canonical_strides
from .deciders import Plan
from .gpu_arrays import Library, is_number, library, one_device
from .gpu_places import place
from .gpu_runner import GpuRunner, on_device
from .gpu_timing import random_arrays, seconds
from .products import Problem
from .scheduled import Scheduled

if TYPE_CHECKING:
    from ..backend.cuda import Launch


class GpuKernel(Scheduled):
    """What `tlm.ops.<op>.kernel(..., target=tlm.Target("sm_90"))` returns."""

    def __init__(self, problem: Problem, plan: Plan, target: Target) -> None:
        super().__init__(problem, plan, target)
        self.compiled: Compiled = compile_program(self.program, target)

    @property
    def source(self) -> str:
        """CUDA C."""
        return self.compiled.source

    @property
    def cubin(self) -> bytes:
        """The machine code, as a CUDA binary."""
        return self.compiled.cubin

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernels in running order."""
        return self.compiled.launches

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks of the largest launch."""
        return self.compiled.grid

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block of the largest launch."""
        return self.compiled.block

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, the most of all launches."""
        return self.compiled.shared_bytes

    @property
    def stats(self) -> Stats:
        """Registers, spills, shared memory and occupancy: the worst of all launches."""
        return self.compiled.stats

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        """The result as a new array of the first operand's library on its GPU, or in `out`.

        Launches on the library's current stream and does not wait. ArgumentError where an array is not what
        the kernel was made for, BackendError where there is no GPU that it runs on.
        """
        wanted = self.problem.operands
        if len(operands) != len(wanted):
            raise ArgumentError(f"{self.program.name} takes {len(wanted)} operands, got {len(operands)}")
        given = tuple([np.asarray(x) if is_number(x) else x for x in operands])
        libraries = [_library(n, x, spec) for n, (x, spec) in enumerate(zip(given, wanted, strict=True))]
        device = one_device(self.program.name, given)
        with on_device(device):
            copies = [
                _must_be_packed(n, x, found, spec)
                for n, (x, found, spec) in enumerate(zip(given, libraries, wanted, strict=True))
            ]
        return GpuRunner(self, device, libraries, copies)(given, out)

    def time(self, *operands: Any, **limits: Any) -> float:
        """Seconds of one call on the GPU on these operands (random ones of CuPy where none are given): the
        median of `repeats` (5), each the mean of `number` calls (0: as many as take 2 ms)."""
        return statistics.median(seconds(self, operands or random_arrays(self.problem.operands), **limits))


def _library(position: int, x: Any, spec: Spec) -> Library | None:
    """The library of an operand, which lies on a GPU; None for a number where the kernel takes one."""
    if is_number(x) and not spec.shape:
        return None
    found = library(x)
    if found is None or place(x) is None:
        raise ArgumentError(f"operand {position} is an array on the GPU, got {type(x).__name__}")
    return found


def _must_be_packed(position: int, x: Any, found: Library | None, spec: Spec) -> bool:
    """Whether an operand is copied to C order, which the kernel was made for; ArgumentError where it does not
    fit."""
    shape, given, dtype = found.native.describe(found.take(x)) if found else ((), (), from_numpy(x.dtype))
    steps = canonical_strides(shape, given)
    if shape != spec.shape or dtype != spec.dtype:
        raise ArgumentError(
            f"operand {position} is {dtype.numpy}{list(shape)}; this kernel was made for "
            f"{spec.dtype.numpy}{list(spec.shape)}"
        )
    if steps == spec.strides:
        return False
    if spec.strides is not None:
        raise ArgumentError(
            f"operand {position} has strides {steps or 'of rows'} in elements; this kernel was made for "
            f"{spec.strides}"
        )
    return True
