"""A compiled program: call it with pointers or numpy arrays, look at its code, time it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..ir.dtypes import to_numpy
from ..target import Target
from . import openmp
from .workspace import borrow

if TYPE_CHECKING:
    from ..ir.nodes import Buffer, Program
    from .llvm.emitter import Module
    from .llvm.link import Linked


class Kernel:
    """A program as machine code. Its arguments are the program's inputs, then its outputs."""

    __slots__ = ("call", "lowered", "module", "object", "program", "target")

    def __init__(
        self, program: Program, lowered: Program, target: Target, module: Module, object: bytes, code: Linked
    ) -> None:
        self.program, self.lowered, self.target = program, lowered, target
        self.module, self.object = module, object
        workspace = (module.shared, module.per_thread)
        self.call = bind(code, len(program.parameters), workspace, module.parallel)

    @property
    def source(self) -> str:
        """The LLVM IR."""
        return self.module.text

    @property
    def assembly(self) -> str:
        """The assembly listing; made when it is asked for."""
        from .llvm import codegen

        return codegen.assembly(self.module.text, self.target)

    def workspace_bytes(self, threads: int) -> int:
        """Scratch memory that one call with `threads` threads needs."""
        return self.module.workspace_bytes(threads)

    def __call__(self, *arrays: np.ndarray, threads: int | None = None) -> None:
        """Run on numpy arrays, inputs then outputs; ArgumentError where shape, dtype or strides differ."""
        expected = self.program.parameters
        if len(arrays) != len(expected):
            raise ArgumentError(f"{self.program.name} takes {len(expected)} arrays, got {len(arrays)}")
        for n, (buffer, array) in enumerate(zip(expected, arrays, strict=True)):
            _check(buffer, array, output=n >= len(self.program.inputs))
        pointers = [a.ctypes.data for a in arrays]
        self.call(*pointers, threads=self.target.threads if threads is None else threads)

    def time(
        self, *arrays: np.ndarray, repeats: int = 5, number: int = 0, threads: int | None = None
    ) -> list[float]:
        """Seconds a call, `repeats` times, each the mean of `number` calls (0: 2 ms, at most 1000)."""
        self(*arrays, threads=threads)
        pointers = [a.ctypes.data for a in arrays]
        count = self.target.threads if threads is None else threads
        if number < 1:
            start = time.perf_counter()
            self.call(*pointers, threads=count)
            number = max(1, min(1000, int(2e-3 / max(time.perf_counter() - start, 1e-7))))
        out = []
        for _ in range(repeats):
            start = time.perf_counter()
            for _ in range(number):
                self.call(*pointers, threads=count)
            out.append((time.perf_counter() - start) / number)
        return out

    def __repr__(self) -> str:
        return f"<Kernel {self.program.name} for {self.target.name}, {len(self.object)} bytes of code>"


def bind(code: Linked, parameters: int, workspace: tuple[int, int], parallel: bool) -> Callable[..., None]:
    """call(*pointers, threads=1) of loaded code, without checks; the code stays as long as the call lives.

    `workspace` is the scratch memory in bytes that a call needs, shared and for each thread.
    """
    shared, per_thread = workspace
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (parameters + 1), ctypes.c_int64)(code.address)

    def serial(*pointers: int, threads: int = 1, _code: Any = code) -> None:
        address, _memory = borrow(shared + per_thread)
        function(*pointers, address, 1)

    def plain(*pointers: int, threads: int = 1, _code: Any = code) -> None:
        function(*pointers, 0, 1)

    def team(*pointers: int, threads: int = 1, _code: Any = code) -> None:
        if threads > 1 and openmp.acquire(threads):
            try:
                address, _memory = borrow(shared + threads * per_thread)
                function(*pointers, address, threads)
            finally:
                openmp.release()
        else:
            address, _memory = borrow(shared + per_thread)
            function(*pointers, address, 1)

    return team if parallel else serial if shared + per_thread else plain


def _check(buffer: Buffer, array: Any, output: bool) -> None:
    """ArgumentError where `array` is not exactly what the program says of `buffer`."""
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"{buffer.name} is a numpy array, got {type(array).__name__}")
    dtype = to_numpy(buffer.dtype)
    if array.shape != buffer.shape or array.dtype != dtype:
        raise ArgumentError(
            f"{buffer.name} is {buffer.dtype}{list(buffer.shape)}, got {array.dtype.name}{list(array.shape)}"
        )
    strides = tuple([s * dtype.itemsize for s in buffer.element_strides])
    if array.size and not _same_strides(array.shape, array.strides, strides):
        raise ArgumentError(f"{buffer.name} has strides of {strides} bytes, got {array.strides}")
    if output and not array.flags.writeable:
        raise ArgumentError(f"{buffer.name} is an output, but the array is read-only")


def _same_strides(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    return all(n < 2 or x == y for n, x, y in zip(shape, a, b, strict=True))
