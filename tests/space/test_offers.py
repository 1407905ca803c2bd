"""What a space offers, the schedule accepts; and the closed-form decider has an answer for every family."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import ml_dtypes
import numpy as np
import pytest

import tlm
from tests.space.conv_programs import Image, conv, depthwise, grouped, pool
from tests.space.row_programs import ATTENTION, MAPS, ROWS, array
from tlm.errors import ScheduleError
from tlm.ir.build import Builder, Place
from tlm.ir.dtypes import i32
from tlm.ir.exprs import Expr, const
from tlm.ir.nodes import Program
from tlm.schedule import Schedule, apply
from tlm.schedule.steps import Parallel
from tlm.search.heuristic import RULES, heuristic
from tlm.space.decide import at_random, run
from tlm.space.spaces import FAMILIES, space_for
from tlm.space.vocabulary import CHOICES
from tlm.target import Target

half = "float16"


def _bias() -> Program:
    k = array(2, 16, 1, 8, dtype=half)
    return tlm.ops.dot_product_attention.program(
        array(2, 3, 2, 8, dtype=half), k, k, bias=array(1, 1, 3, 16, dtype=half)
    )


def _flat_conv3d() -> Program:
    return tlm.ops.conv3d.program(
        array(2, 3, 1, 8, 16, dtype=half), array(3, 3, 3, 16, 1, dtype=half), stride=2,
        padding=((2, 1), (2, 1), (1, 1)), input_dilation=(2, 1, 1),
    )  # fmt: skip


# Outer axes that do not collapse: what threads share is a fused loop of three digits or more.
FUSED: dict[str, Callable[[], Program]] = {
    "a reversed axis": lambda: tlm.ops.cumsum.program(array(2, 3, 65, 4, dtype=half)[:, :, ::-1], 1),
    "a broadcast axis": lambda: tlm.ops.rms_norm.program(
        np.broadcast_to(np.empty((16, 1, 24, 2), ml_dtypes.bfloat16), (16, 13, 24, 2)),
        np.empty(2, ml_dtypes.bfloat16),
    ),
    "heads of shared keys": _bias,
    "an axis of one element": _flat_conv3d,
}


@pytest.mark.parametrize("name", FUSED)
def test_threads_share_fused_loops_of_axes_that_do_not_collapse(name):
    program, parallel = FUSED[name](), 0
    for seed in range(40):
        found = run(space_for(program, Target("avx512", threads=2)), at_random(Random(seed)))
        apply(program, found.steps)
        parallel += any(isinstance(s, Parallel) and s.loop.count("*") >= 2 for s in found.steps)
    assert parallel


def _counts(*shape: int) -> Program:
    b = Builder("counts")
    b.reduce("cnt", shape, {"r": 1}, lambda *_: const(1, i32), axes=tuple("ijklm"[: len(shape)]), output=True)
    return b.build()


def _fused(*shape: int) -> tuple[Schedule, str]:
    s = Schedule(_counts(*shape))
    loop = "i"
    for _, axis in pairwise("ijklm"[: len(shape)]):
        s.fuse(loop, axis)
        loop = f"{loop}*{axis}"
    return s, loop


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 5), (2, 5, 3, 7), (3, 2, 5, 1, 4), (2, 3, 2, 5, 3)])
@pytest.mark.parametrize("factors", [(), (4,), (6,), (7,), (8, 3), (10, 4), (9, 5, 2)])
def test_iterations_of_fused_loops_are_independent_whatever_they_are_split_by(shape, factors):
    s, loop = _fused(*shape)
    parts = [loop]
    for factor in factors:
        s.split(loop, factor)
        parts[-1:] = [f"{loop}.0", f"{loop}.1"]
        loop = f"{loop}.1"
    for part in parts[:-1] or parts:
        s.parallel(part)
    (found,) = s.run()
    assert found.tolist() == np.ones(shape, "i4").tolist()


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_a_fused_loop_of_which_one_digit_is_not_in_the_index_is_refused(left_out):
    def at(*v: Expr) -> tuple[Expr, ...]:
        return tuple(const(0) if n == left_out else e for n, e in enumerate(v))

    b = Builder("last")
    place = Place({"i": 4, "j": 3, "k": 5}, at)
    x = b.input("x", (4, 3, 5), "f32")
    b.compute("y", (4, 3, 5), lambda i, j, k: x[i, j, k], place=place, output=True)
    s = Schedule(b.build()).fuse("i", "j").fuse("i*j", "k")
    with pytest.raises(ScheduleError, match="may touch one element"):
        s.parallel("i*j*k")


def _plain_conv1d() -> Program:
    return tlm.ops.conv1d.program(
        array(2, 5, 64), array(2, 16, 8), array(8), stride=3, padding=2, groups=4, input_dilation=2
    )


IMAGE = Image(2, 9, 11, 3, 3)
FAMILY: dict[str, dict[str, Callable[[], Program]]] = {
    "contraction_space": {
        "matmul": lambda: tlm.ops.matmul.program(array(70, 33), array(33, 50)),
        "batches": lambda: tlm.ops.matmul.program(array(3, 70, 33), array(3, 33, 50)),
        "f16": lambda: tlm.ops.matmul.program(array(70, 33, dtype=half), array(33, 50, dtype=half)),
        "int8": lambda: tlm.ops.matmul.program(array(70, 33, dtype="int8"), array(33, 50, dtype="int8")),
    },
    "convolution_space": {
        "conv": lambda: conv(IMAGE, 8, 16, activation=True),
        "grouped": lambda: grouped(IMAGE, 3, 4, 8),
        "depthwise": lambda: depthwise(IMAGE, 20),
        "pool": lambda: pool(IMAGE, 16, "max"),
        "flat": _flat_conv3d,
    },
    "attention_space": {**ATTENTION, "heads of shared keys": _bias},
    "rows_space": ROWS,
    "maps_space": MAPS,
    "plain_space": {"grouped conv1d": _plain_conv1d, "cumsum and counts": lambda: _counts(4, 3)},
}


def _family(program: Program) -> str:
    return next((space.__name__ for read, space in FAMILIES if read(program) is not None), "plain_space")


@pytest.mark.parametrize("family", FAMILY)
def test_the_heuristic_answers_every_question_of_every_family(family):
    assert set(RULES) == set(CHOICES)
    met = set()
    for make in FAMILY[family].values():
        program = make()
        met.add(_family(program))
        for level in ("avx512", "sse"):
            for threads in (1, 2):
                apply(program, run(space_for(program, Target(level, threads=threads)), heuristic).steps)
    assert family in met


def test_the_heuristic_shares_work_of_unknown_size():
    found = run(space_for(_plain_conv1d(), Target("avx2", threads=2)), heuristic)
    assert "outer" in found.values
    x = np.ones((2, 5, 64), "f4")
    args = (x, np.ones((2, 16, 8), "f4"), np.ones(8, "f4"))
    options = {"stride": 3, "padding": 2, "groups": 4, "input_dilation": 2, "threads": 2}
    got = tlm.ops.conv1d(*args, **options, schedule="heuristic")
    np.testing.assert_array_equal(got, tlm.ops.conv1d(*args, **options, schedule="default"))
