"""The interpreter: the definition of what a program means. Everything else is tested against it.

`nodes.py` and `exprs.py` say in words what each node does; this is the same to the last bit:

- Loops run in order, each operation rounds to its dtype, and an Update combines one value at a time.
- Memory starts poisoned (NaN, or a marker integer); an access outside a buffer raises BoundsError.
- Two iterations of a parallel, vectorize, blockIdx, threadIdx or vthread loop that touch one element, one of
  them writing, raise RaceError, even if the numbers agree. An Update over its own vectorize or threadIdx loop
  is a reduction of the lanes or threads and no race.

A program is first translated to Python source by `emit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .arithmetic import poison
from .dtypes import to_numpy
from .emit import emit
from .nodes import Buffer, Program
from .race import BoundsError, RaceError

__all__ = ["BoundsError", "RaceError", "compile_python", "interpret"]

Array = np.ndarray[Any, Any]


def interpret(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """Run `program` on an array for each input (logical shape, any strides); new C-contiguous outputs.

    ArgumentError where the arrays do not fit; BoundsError and RaceError where the program is wrong.
    """
    return compile_python(program)(arrays)


def compile_python(program: Program) -> Callable[[Sequence[Array]], list[Array]]:
    """The function `arrays -> outputs` of a program, to run it more than once."""
    source, namespace = emit(program)
    # No name of the program is in the source, so that a stored program cannot run code of its own.
    exec(compile(source, f"<tlm program {program.name}>", "exec"), namespace)
    run = namespace["run"]

    def call(arrays: Sequence[Array]) -> list[Array]:
        if len(arrays) != len(program.inputs):
            raise ArgumentError(f"{program.name} takes {len(program.inputs)} inputs, got {len(arrays)}")
        given = [_flatten(b, a) for b, a in zip(program.inputs, arrays, strict=True)]
        made = [[poison(b.dtype)] * b.size for b in program.outputs]
        with np.errstate(all="ignore"):
            run(*given, *made)
        return [_array(b, values) for b, values in zip(program.outputs, made, strict=True)]

    return call


def _flatten(buffer: Buffer, array: Array) -> list[Any]:
    if not isinstance(array, np.ndarray):
        raise ArgumentError(
            f"{buffer.name} must be a numpy array of {buffer.dtype}{list(buffer.shape)}, got {array!r:.80}"
        )
    if array.shape != buffer.shape or array.dtype != to_numpy(buffer.dtype):
        wanted = f"{buffer.dtype}{list(buffer.shape)}"
        raise ArgumentError(f"{buffer.name} must be {wanted}, got {array.dtype}{list(array.shape)}")
    return list(array.reshape(-1))


def _array(buffer: Buffer, values: list[Any]) -> Array:
    return np.array(values, dtype=to_numpy(buffer.dtype)).reshape(buffer.shape)
