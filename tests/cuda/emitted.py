"""Runs the emitted text of a program in the shim, and compares it with the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.cuda import shim
from tlm.backend.cuda.emitter import Source, emit
from tlm.ir.dtypes import to_numpy
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Buffer, Program
from tlm.target import Target

SM_80 = Target("sm_80")


def values(program: Program, seed: int = 0) -> list[np.ndarray]:
    """An array of small integers for each input, in its strides."""
    rng = np.random.default_rng(seed)
    return [laid(b, rng.integers(-3, 4, b.shape)) for b in program.inputs]


def laid(buffer: Buffer, data: Any) -> np.ndarray:
    """`data` as an array of the buffer's dtype and strides; None: memory that holds nothing of use."""
    dtype = to_numpy(buffer.dtype)
    steps = buffer.element_strides
    size = 1 + sum(s * max(n - 1, 0) for s, n in zip(steps, buffer.shape, strict=True))
    flat = np.zeros(max(size, 1), dtype)
    out = np.lib.stride_tricks.as_strided(flat, buffer.shape, [s * dtype.itemsize for s in steps])
    if data is None:
        flat.view(np.uint8).fill(0xFF)
    else:
        out[...] = np.asarray(data).astype(dtype)
    return out


def run(
    source: Source, inputs: Sequence[np.ndarray], passes: Any = shim.PASSES
) -> tuple[list[np.ndarray], shim.Report]:
    """(outputs, report) of an emitted text on the CPU."""
    rest = [laid(b, None) for b in source.buffers[len(inputs) :]]
    report = shim.run(source.text, source.kernels, [*inputs, *rest], passes=passes)
    return rest, report


def multiplied(
    program: Program, target: Target = SM_80, seed: int = 0, passes: Any = shim.PASSES, vectors: bool = True
) -> tuple[Source, shim.Report]:
    """Assert that the text of a product gives what numpy does, bit for bit; sooner than the interpreter."""
    source, given = emit(program, target, vectors=vectors), values(program, seed)
    (got, *_), report = run(source, given, passes)
    right = given[0].astype("f4") @ given[1].astype("f4")
    np.testing.assert_array_equal(got.astype("f4"), right.astype(got.dtype).astype("f4"))
    return source, report


def check(
    program: Program, target: Target = SM_80, seed: int = 0, exact: bool = True, inputs: Any = None
) -> tuple[Source, shim.Report]:
    """Assert that the text computes what the interpreter does, bit for bit unless not `exact`."""
    given = values(program, seed) if inputs is None else inputs
    wanted = interpret(program, given)
    source = emit(program, target)
    got, report = run(source, given)
    for array, right in zip(got, wanted, strict=False):
        if exact:
            np.testing.assert_array_equal(array, right)
        else:
            tolerance = 4e-3 if right.dtype.itemsize == 2 else 1e-5
            np.testing.assert_allclose(array.astype("f8"), right.astype("f8"), tolerance, tolerance)
    return source, report
