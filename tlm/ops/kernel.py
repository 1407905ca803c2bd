"""A compiled operator: how its schedule came about, what it compiled to, and running it on arrays."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Ahead, assembly, check_name, cross_compile
from ..backend import Kernel as Compiled
from ..backend import compile as compile_program
from ..backend import save as save_files
from ..errors import ArgumentError, BackendError
from ..ir.nodes import Buffer
from ..target import Target
from .arrays import Spec, laid_out, numpy_dtype, read, same_layout, shares_memory
from .binding import quick
from .caching import cache
from .deciders import Plan
from .foreign import Back, to_arrays
from .products import Problem
from .runner import Runner
from .scheduled import Scheduled
from .settings import machine, whole

if TYPE_CHECKING:
    from ..backend.llvm.emitter import Module


class Kernel(Scheduled):
    """What `tlm.ops.<op>.kernel(...)` returns: call it with arrays of the shapes and dtypes it is for.

    Arrays in another layout than that it was made for are copied first; ArgumentError where that cannot be,
    since elements share memory in it, as in a broadcast view.
    """

    def __init__(self, problem: Problem, plan: Plan, target: Target) -> None:
        super().__init__(problem, plan, target)
        self.compiled: Compiled | None = None
        """The machine code; None for a machine that is not this one."""
        if target.runs_here():
            self.compiled = compile_program(self.program, target, cache=cache())

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        """The result as a new array of the operands' kind, or in `out`."""
        if [quick(x) for x in operands] == self._forms:
            return self.runner(operands, out)
        arrays, back = self._arrays(operands)
        return self.runner.like(arrays, out, back)

    @cached_property
    def _forms(self) -> list[Any]:
        """What `quick` says of numpy arrays that it runs on as they are."""
        forms = []
        for spec in self.problem.operands:
            dtype = numpy_dtype(spec.dtype)
            forms.append((spec.shape, tuple([s * dtype.itemsize for s in spec.element_strides]), dtype))
        return forms

    def _arrays(self, operands: tuple[Any, ...]) -> tuple[list[np.ndarray], Back | None]:
        """The operands as arrays in the layouts it was made for; ArgumentError where they do not fit."""
        wanted = self.problem.operands
        if len(operands) != len(wanted):
            raise ArgumentError(f"{self.program.name} takes {len(wanted)} operands, got {len(operands)}")
        seen, back = to_arrays(operands)
        return [_fit(x, spec, n) for n, (x, spec) in enumerate(zip(seen, wanted, strict=True))], back

    @property
    def call(self) -> Callable[..., None]:
        """call(*pointers, threads=): the code on addresses of operands and result, unchecked."""
        return self._here().call

    @cached_property
    def runner(self) -> Runner:
        """The kernel on arrays, without checks of the operands."""
        return Runner(self.problem, self.call, self.target.threads)

    @cached_property
    def source(self) -> str:
        """LLVM IR."""
        return self._foreign[0].text if self.compiled is None else self.compiled.source

    @cached_property
    def assembly(self) -> str:
        """The target's assembly."""
        return assembly(self._foreign[0], self.target) if self.compiled is None else self.compiled.assembly

    @cached_property
    def object(self) -> bytes:
        """The object file; its parallel loops call `tlm.team`, which the file that `save` writes has too."""
        return self._foreign[1] if self.compiled is None else self.compiled.object

    @cached_property
    def _foreign(self) -> tuple[Module, bytes]:
        return cross_compile(self.program, self.target)

    def save(self, directory: str | os.PathLike[str], *, name: str | None = None) -> Path:
        """Write kernel.o, kernel.h and main.c, an example that checks itself, for use without Python.

        `name` replaces "kernel", and names the function tlm_<name>, so that several kernels fit into one
        program. The files appear together or not at all; those of an earlier kernel are replaced, and the
        example that was built beside them (`main`) is removed. ArgumentError where the directory holds
        anything else or cannot be written. Works for any CPU target.
        """
        if not isinstance(directory, (str, os.PathLike)):
            raise ArgumentError(
                f"a kernel is saved to a directory, named as a str or a path; got {directory!r}"
            )
        if name is not None:
            check_name(name)
        named = self.program if name is None else replace(self.program, name=name)
        module, code = cross_compile(named, self.target)
        plain = self.problem.program
        return save_files(directory, Ahead(plain, self.target, module, code, name or "kernel"))

    def _here(self) -> Compiled:
        if self.compiled is None:
            raise BackendError(
                f"a kernel for {self.target.name} ({self.target.isa}) cannot run on this machine; "
                "its code is in .source, .assembly and .object"
            )
        return self.compiled

    def time(self, *operands: Any, repeats: int = 5, number: int = 0, threads: int | None = None) -> float:
        """Seconds of one call on these operands (random ones where none are given): the median of `repeats`,
        each the mean of `number` calls (0: as many as take 2 ms, at most 1000)."""
        whole("repeats=", repeats, 1)
        whole("number=", number, 0)
        count = machine(self.target, threads).threads
        wanted = self.problem.operands
        seen, _ = self._arrays(operands or tuple(random_operands(wanted)))
        arrays = [laid_out(x, spec) for x, spec in zip(seen, wanted, strict=True)]
        arrays.append(np.empty(self.problem.shape, numpy_dtype(self.problem.dtype)))
        given = [_as(b, x) for b, x in zip(self.program.parameters, arrays, strict=True)]
        return statistics.median(self._here().time(*given, repeats=repeats, number=number, threads=count))


def _as(buffer: Buffer, x: np.ndarray) -> np.ndarray:
    """The memory of `x` in the shape that the program gives it, which may have fewer axes."""
    steps = [s * x.itemsize for s in buffer.element_strides]
    return np.lib.stride_tricks.as_strided(x, buffer.shape, steps)


def random_operands(specs: Sequence[Spec], seed: int = 0) -> list[np.ndarray]:
    """Normal variates (small integers for integer types) in the layout of each spec."""
    rng = np.random.default_rng(seed)
    out = []
    for spec in specs:
        values = rng.standard_normal(spec.shape) if spec.dtype.is_float else rng.integers(0, 2, spec.shape)
        out.append(laid_out(values.astype(numpy_dtype(spec.dtype)), spec))
    return out


def _fit(x: np.ndarray, spec: Spec, position: int) -> np.ndarray:
    """`x` in the layout of `spec`, copied where it has another one; ArgumentError where it does not fit."""
    dtype = numpy_dtype(spec.dtype)
    if x.shape != spec.shape or x.dtype != dtype:
        raise ArgumentError(
            f"operand {position} has shape {x.shape} and dtype {x.dtype}; this kernel was made for shape "
            f"{spec.shape} and dtype {dtype}"
        )
    found, copy = read(x)
    if not copy and found.strides == spec.strides:
        return x
    if shares_memory(spec.shape, spec.element_strides) and not same_layout(x, spec):
        wanted = tuple([s * dtype.itemsize for s in spec.element_strides])
        raise ArgumentError(
            f"operand {position} has strides {x.strides} in bytes; this kernel was made for a view with "
            f"strides {wanted}, whose elements share memory: give such a view, or make a kernel for an "
            "ordinary array"
        )
    return laid_out(x, spec)
