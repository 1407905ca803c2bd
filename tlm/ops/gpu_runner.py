"""Calling kernels on arrays of a GPU: no copies, no waiting, on the stream of the arrays' library."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.cuda import runtime
from ..errors import ArgumentError, BackendError
from ..ir.dtypes import DType, u8
from .arrays import Shape, Spec, canonical_strides
from .gpu_arrays import Library, taken, writable
from .gpu_native import Native
from .gpu_places import layout

if TYPE_CHECKING:
    from .gpu_kernel import GpuKernel

_NUMBERS = 256
"""Most numbers that a runner keeps on the device."""

_lent: deque[tuple[Any, Any]] = deque()
"""(event, arrays): memory of other allocators, kept until the kernels before the event are done."""
_guard = threading.Lock()


def on_device(device: int) -> AbstractContextManager[Any]:
    """Make a GPU the current one, where it is not."""
    cupy = runtime.cupy()
    return nullcontext() if cupy.cuda.runtime.getDevice() == device else cupy.cuda.Device(device)


class GpuRunner:
    """One kernel on one GPU, for arrays of certain libraries.

    `libraries`: of each operand, None for numbers. `copies`: whether an operand is copied to C order first.
    """

    def __init__(
        self,
        kernel: GpuKernel,
        device: int,
        libraries: Sequence[Library | None],
        copies: Sequence[bool] = (),
    ) -> None:
        if not runtime.runs_on(kernel.target, device):
            raise BackendError(
                f"{kernel.program.name} was compiled for {kernel.target.isa}, and GPU {device} has another "
                "architecture; leave target= away"
            )
        problem = kernel.problem
        self._name = kernel.program.name
        self._compiled, self._device = kernel.compiled, device
        self._specs, self._shape, self._dtype = problem.operands, problem.shape, problem.dtype
        self._spans = tuple([s.span for s in problem.operands])
        self._span = Spec(problem.shape, problem.dtype).span
        self._libraries = tuple(libraries)
        self._copies = tuple(copies) or (False,) * len(self._libraries)
        found = [(n, x) for n, x in enumerate(libraries) if x is not None]
        self._first, self._home = found[0]
        self._others = {x.native.name: x.native for _, x in found if x.native is not self._home.native}
        self._lends = any(x.lent for _, x in found)
        self._numbers: dict[Any, Any] = {}
        self._outs: dict[Any, Library] = {}

    def __call__(self, arrays: Sequence[Any], out: Any) -> Any:
        """The result as an array of the first array's library, or in `out`."""
        if runtime.cupy().cuda.runtime.getDevice() == self._device:
            return self._run(arrays, out)
        with on_device(self._device):
            return self._run(arrays, out)

    def _run(self, arrays: Sequence[Any], out: Any) -> Any:
        native = self._home.native
        stream = native.stream(self._device)
        operands = self._operands(arrays, stream)
        pointers = [
            (native if found is None else found.native).pointer(x)
            for x, found in zip(operands, self._libraries, strict=True)
        ]
        for n, (p, spec) in enumerate(zip(pointers, self._specs, strict=True)):
            if p % spec.dtype.bytes:
                raise ArgumentError(
                    f"{self._name}: operand {n} starts at no multiple of {spec.dtype.bytes} bytes; copy it"
                )
        for other in self._others.values():
            runtime.join(stream, other.stream(self._device))
        if out is not None:
            self._into(out, pointers, stream)
        else:
            result = native.empty(self._shape, self._dtype, self._device)
            self._launch([*pointers, native.pointer(result)], stream)
        if any(self._copies):
            # Copies by another library go back to its pool now, which follows its own stream.
            for other in self._others.values():
                runtime.join(other.stream(self._device), stream)
        if self._lends:
            _keep((arrays, operands), stream)
        return out if out is not None else self._home.back(result, arrays[self._first])

    def _operands(self, arrays: Sequence[Any], stream: Any) -> list[Any]:
        """The operands as arrays of CuPy or torch, packed where the kernel needs it; numbers on the GPU."""
        made = []
        for n, (x, found, copy) in enumerate(zip(arrays, self._libraries, self._copies, strict=True)):
            if found is None:
                made.append(self._number(x, self._specs[n].dtype, stream))
            else:
                own = taken(found, x, f"operand {n}")
                made.append(self._captured(found.native, found.native.packed(own), stream) if copy else own)
        return made

    def _captured(self, native: Native, made: Any, stream: Any) -> Any:
        """Memory of a call, which lives on where a graph has captured it and its pool would not know."""
        if native.frees_captured and runtime.capturing(stream):
            self._compiled.captured.append(made)
        return made

    def _number(self, x: np.ndarray, dtype: DType, stream: Any) -> Any:
        """A number in the device's memory, which was written there by an earlier call on the same stream.

        A graph writes its own, each time it runs.
        """
        native = self._home.native
        if runtime.capturing(stream):
            return self._captured(native, native.full(x, dtype, self._device), stream)
        key = (int(stream.ptr), x.tobytes())
        if key not in self._numbers:
            if len(self._numbers) >= _NUMBERS:
                self._numbers.pop(next(iter(self._numbers)), None)
            self._numbers[key] = native.full(x, dtype, self._device)
        return self._numbers[key]

    def _into(self, out: Any, pointers: list[int], stream: Any) -> None:
        """The result in `out`; by way of another array where it is strided, or overlaps an operand."""
        found, given, packed = self._out(out)
        native = found.native
        start = native.pointer(given)
        end = start + self._span
        theirs = stream if native is self._home.native else native.stream(self._device)
        runtime.join(stream, theirs)
        overlaps = any(start < p + n and p < end for p, n in zip(pointers, self._spans, strict=True))
        if overlaps or not packed or start % self._dtype.bytes:
            result = self._captured(native, native.empty(self._shape, self._dtype, self._device), stream)
            self._launch([*pointers, native.pointer(result)], stream)
            runtime.join(theirs, stream)
            native.assign(given, result)
        else:
            self._launch([*pointers, start], stream)
            runtime.join(theirs, stream)
        if found.lent:
            _keep((out, given), theirs)

    def _out(self, out: Any) -> tuple[Library, Any, bool]:
        """The library of `out`, `out` as an array of its native one, and whether its elements lie in rows."""
        try:
            form = layout(out)
        except TypeError:
            form = None
        known = self._outs.get(form)
        if known is not None:
            return known, taken(known, out, "out="), True
        found, given = writable(self._name, out, self._device)
        shape, steps, dtype = found.native.describe(given)
        check_form(shape, dtype, self._shape, self._dtype)
        if any(s == 0 and n > 1 for s, n in zip(steps, shape, strict=True)):
            raise ArgumentError("out= has elements that share their memory (an expanded axis)")
        packed = canonical_strides(shape, steps) is None
        if packed and form is not None and not found.lent:
            self._outs[form] = found
        return found, given, packed

    def _launch(self, pointers: list[int], stream: Any) -> None:
        compiled, native, room = self._compiled, self._home.native, 0
        if compiled.workspace:
            memory = native.empty((compiled.workspace,), u8, self._device)
            room = native.pointer(self._captured(native, memory, stream))
        compiled.call(runtime.cupy(), self._device, pointers, stream, room)


def _keep(arrays: Any, stream: Any) -> None:
    """Keep lent arrays until what `stream` has by now is done, and drop those whose kernels are.

    Under capture nothing is kept: who captures keeps the arrays of a graph.
    """
    if runtime.capturing(stream):
        return
    event = runtime.cupy().cuda.Event(disable_timing=True)
    event.record(stream)
    with _guard:
        _lent.append((event, arrays))
        while _lent and _lent[0][0].done:
            _lent.popleft()


def check_form(shape: Shape, dtype: DType, wanted: Shape, wanted_dtype: DType) -> None:
    """ArgumentError where `out` has another shape or dtype than the result."""
    if shape != wanted:
        raise ArgumentError(f"out= has shape {shape}, the result has shape {wanted}")
    if dtype != wanted_dtype:
        raise ArgumentError(f"out= has dtype {dtype.numpy}, the result has dtype {wanted_dtype.numpy}")


def nothing(name: str, home: Library, first: Any, shape: Shape, dtype: DType, device: int, out: Any) -> Any:
    """A result of no elements, as an array of the kind of `first`, or `out`."""
    with on_device(device):
        if out is None:
            return home.back(home.native.empty(shape, dtype, device), first)
        found, given = writable(name, out, device)
        check_form(*found.native.describe(given)[::2], shape, dtype)
        return out
