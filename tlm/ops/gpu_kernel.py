"""An operator compiled for a GPU: it can be looked at anywhere, and called on arrays of the GPU it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.cuda import Kernel as Compiled
from ..backend.cuda import compile as compile_program
from ..backend.cuda.stats import Stats
from ..errors import ArgumentError
from ..ir.nodes import Buffer
from ..target import Target
from .arrays import Spec, canonical_strides, numpy_dtype
from .deciders import Plan
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

    def __call__(self, *operands: Any, out: Any) -> Any:
        """Launch on GPU arrays (CuPy's, or anything with __cuda_array_interface__), on CuPy's current stream.

        Nothing is copied and nothing waits. ArgumentError where an array is not what the kernel was made for,
        BackendError where there is no GPU.
        """
        specs = (*self.problem.operands, Spec(self.problem.shape, self.problem.dtype))
        if len(operands) != len(specs) - 1:
            raise ArgumentError(f"{self.program.name} takes {len(specs) - 1} operands, got {len(operands)}")
        given = zip(self.program.parameters, (*operands, out), specs, strict=True)
        self.compiled(*[_seen(x, spec, buffer) for buffer, x, spec in given])
        return out


class _View:
    """The memory of an array in the shape that a program gives it, which may have fewer axes."""

    def __init__(self, face: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = face


def _seen(x: Any, spec: Spec, buffer: Buffer) -> _View:
    face = getattr(x, "__cuda_array_interface__", None)
    dtype = numpy_dtype(spec.dtype)
    if face is None:
        raise ArgumentError(f"{buffer.name} is an array on the GPU, got {type(x).__name__}")
    shape, strides = tuple(face["shape"]), face.get("strides")
    steps = None if strides is None else canonical_strides(shape, tuple(s // dtype.itemsize for s in strides))
    if shape != spec.shape or np.dtype(face["typestr"]) != dtype or steps != spec.strides:
        raise ArgumentError(
            f"{buffer.name} is {dtype}{list(spec.shape)} with strides {spec.element_strides}, got "
            f"{np.dtype(face['typestr'])}{list(shape)} with strides {steps or 'of rows'}"
        )
    laid = tuple([s * dtype.itemsize for s in buffer.element_strides])
    return _View({**face, "shape": buffer.shape, "strides": laid})
