"""Products whose shared memory is filled ahead: matrix instructions with several stages, and what waits.

Random sentences of the space, odd extents among them, bit for bit; and texts from which a barrier, a wait or
a group was taken.
"""

from __future__ import annotations

import re
from random import Random

import ml_dtypes
import numpy as np
import pytest

import tlm
from bench.gpu_product import again
from tests.cuda import gpu_programs, programs, shim
from tests.cuda.emitted import SM_80, check, laid, multiplied, values
from tlm.backend.cuda.emitter import emit
from tlm.schedule import apply
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

pytestmark = pytest.mark.skipif(bool(shim.missing()), reason=f"the shim needs {shim.missing()}")

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype("f2"), np.dtype("f4")


def product(m, k, n, dtype, right=False, batch=0):
    """m x k by k x n; `right`: the second factor is stored by columns."""
    lead = (batch,) if batch else ()
    b = np.empty((*lead, n, k), dtype).swapaxes(-1, -2) if right else np.empty((*lead, k, n), dtype)
    return tlm.ops.matmul.program(np.empty((*lead, m, k), dtype), b)


def forced(program, target, seed, **wanted):
    """A random sentence that gives these answers where it is asked: (program, answers)."""
    free = at_random(Random(seed))

    def decide(choice, picked):
        other = free(choice, picked)
        value = wanted.get(choice.name)
        return choice.values.index(value) if value in choice.values else other

    found = run(space_for(program, target), decide)
    made = {c.name: v for (c, _), v in zip(found.choices, found.values, strict=True)}
    return apply(program, found.steps), made


ODD = ((33, 50, 41), (50, 70, 24), (16, 100, 9), (47, 67, 40), (64, 96, 40), (65, 48, 17))


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_random_matrix_schedules_with_stages(stages):
    """Tiles are small, so that k has several steps; copies of odd operands are narrow, or go by registers."""
    met = 0
    for number in range(2 * stages, 2 * stages + 2):
        (m, k, n), dtype = ODD[number % 6], (BF16, F16)[number % 2]
        target = Target(gpu_programs.TARGETS[number % 2])
        program = product(m, k, n, dtype, right=number % 3 == 0, batch=2 * (number % 4 == 1))
        made, picks = forced(program, target, number, form="matrix", stages=stages, cta_k=16, slices=1)
        source, _ = multiplied(made, target, number)
        assert picks["form"] == "matrix"
        if picks.get("stages") == stages:
            met += 1
            counted(source.text, stages)
    assert met >= 1


def counted(text: str, stages: int) -> None:
    """Groups that are still open where a step waits are those of the steps ahead of it."""
    assert f"% {stages} * " in text
    waits = re.findall(r"copy_async_wait<(\d+)>\(\);", text)
    commits = re.findall(r"copy_async_commit\(\);", text)
    assert waits in ([], [str(stages - 2)])
    assert len(commits) == 2 * len(waits)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("columns", [1, 4])
def test_staged_products_of_f32_equal_the_interpreter(stages, columns):
    s = programs.bound_product(
        m=33, n=36, k=21, tile=(4, 4), block=(8, 8), depth=4, stages=stages, columns=columns
    )
    source, _ = check(s.program)
    counted(source.text, stages)


def texts_without(text: str, pattern: str) -> list[str]:
    """The text without one of what matches, for each; at least one."""
    found = [m.span() for m in re.finditer(pattern, text)]
    assert found, pattern
    return [text[:start] + text[end:] for start, end in found]


def closed_form(dtype, stages, target=SM_80):
    """The tiled product as the closed form makes it, of small tiles: several warps and steps of k."""
    tile = {"cta_m": 32, "cta_n": 32, "cta_k": 16 if dtype != F32 else 8}
    part = {"thread_m": 1, "thread_n": 1} if dtype != F32 else {"thread_m": 4, "thread_n": 4}
    program = product(40, 80, 48, dtype)
    found = run(space_for(program, target), again({**tile, **part, "stages": stages, "slices": 1}))
    made = {c.name: v for (c, _), v in zip(found.choices, found.values, strict=True)}
    assert made.get("stages", 1) == stages
    return apply(program, found.steps)


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
def test_taking_out_any_barrier_or_wait_is_caught(dtype, stages):
    """Of the products that the closed form makes; a wait that leaves one group more open is caught too."""
    made = closed_form(dtype, stages)
    source = emit(made, SM_80)
    arrays = [*values(made), *[laid(b, None) for b in source.buffers[2:]]]
    wrong = texts_without(source.text, r"__syncthreads\(\);")
    assert len(wrong) == (2 if stages == 1 else 1)
    if stages > 1:
        counted(source.text, stages)
        wrong += texts_without(source.text, r"copy_async_wait<\d+>\(\);")
        wrong.append(source.text.replace(f"wait<{stages - 2}>();", f"wait<{stages - 1}>();"))
    for text in wrong:
        assert text != source.text
        with pytest.raises(shim.ShimError):
            shim.run(text, source.kernels, [a.copy() for a in arrays], passes=shim.ALL_PASSES)
    a, b = values(made)
    out = [laid(x, None) for x in source.buffers[2:]]
    shim.run(source.text, source.kernels, [a, b, *out], passes=shim.ALL_PASSES)
    np.testing.assert_array_equal(out[0], (a.astype("f4") @ b.astype("f4")).astype(dtype))


@pytest.mark.parametrize("dtype", [BF16, F32], ids=["bf16", "f32"])
def test_a_group_that_is_not_closed_is_caught(dtype):
    """Without the end of a group, waiting for the oldest one is waiting for too little."""
    made = closed_form(dtype, 3)
    source = emit(made, SM_80)
    arrays = [*values(made), *[laid(b, None) for b in source.buffers[2:]]]
    for text in texts_without(source.text, r"(?<=  )copy_async_commit\(\);"):
        with pytest.raises(shim.ShimError):
            shim.run(text, source.kernels, [a.copy() for a in arrays], passes=shim.ALL_PASSES)
