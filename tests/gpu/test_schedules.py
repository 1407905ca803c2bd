"""Random schedules of every family on the present GPU, against the interpreter."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tests.cuda import gpu_programs as programs
from tests.cuda.emitted import values
from tlm.backend.cuda import compile as compile_program
from tlm.backend.cuda import runtime
from tlm.ir.interpret import interpret
from tlm.schedule import apply
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for

EACH = 12


def to_device(cupy, x):
    """A CuPy array with the values and the strides of `x`."""
    size = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) // x.itemsize
    flat = np.lib.stride_tricks.as_strided(x, (size,), (x.itemsize,))
    return cupy.lib.stride_tricks.as_strided(cupy.asarray(flat), x.shape, x.strides)


def check(cupy, program, seed, exact=True):
    target = runtime.present()
    decided = run(space_for(program, target), at_random(Random(seed)))
    inputs = values(program, seed)
    wanted = interpret(program, inputs)
    outputs = [cupy.zeros(w.shape, w.dtype) for w in wanted]
    compile_program(apply(program, decided.steps), target)(*[to_device(cupy, x) for x in inputs], *outputs)
    for out, right in zip(outputs, wanted, strict=True):
        got = cupy.asnumpy(out)
        if exact:
            np.testing.assert_array_equal(got, right, err_msg=str(decided.values))
        else:
            tolerance = 4e-3 if right.dtype.itemsize == 2 else 2e-5
            np.testing.assert_allclose(
                got.astype("f8"), right.astype("f8"), tolerance, tolerance, err_msg=str(decided.values)
            )


@pytest.mark.parametrize(
    "make", [programs.products, programs.halves, programs.convolutions, programs.stencils]
)
def test_products_and_windows(cupy, make):
    for seed, program in enumerate(make(EACH, 77)):
        check(cupy, program, seed)


@pytest.mark.parametrize("family", programs.TABLES)
def test_other_families(cupy, family):
    exact = {"rows": programs.EXACT_ROWS, "maps": programs.EXACT_MAPS, "attention": ("scores",)}[family]
    for name, make in programs.TABLES[family].items():
        for seed in range(3):
            check(cupy, make(), seed, name in exact)
