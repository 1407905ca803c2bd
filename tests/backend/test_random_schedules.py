"""Random programs under random schedules: the compiled kernel gives exactly what the interpreter gives.

All values are small integers, so that any order of summation is exact in f32.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.backend.programs import outputs, target, whole_numbers
from tlm.backend import compile
from tlm.errors import ScheduleError
from tlm.ir.build import Builder
from tlm.ir.dtypes import bf16, f32, i32
from tlm.ir.exprs import Cast, const, op
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.ir.walk import loops
from tlm.lower import lower
from tlm.schedule import Schedule
from tlm.schedule.steps import (
    CacheRead,
    CacheWrite,
    DecomposeReduction,
    Fuse,
    Parallel,
    Reorder,
    RFactor,
    Split,
    Step,
    Unroll,
    Vectorize,
)

GROUPS, PER_GROUP = 10, 12


def matmul(b: Builder, m: int, n: int, k: int) -> None:
    x, y = b.input("A", (m, k), "f32", strides=(1, m)), b.input("B", (k, n), "f32")
    b.reduce("C", (m, n), over={"k": k}, fn=lambda i, j, k: x[i, k] * y[k, j], axes=("i", "j"), output=True)


def linear(b: Builder, m: int, n: int, k: int) -> None:
    x, y, c = b.input("A", (m, k), "f32"), b.input("B", (n, k), "f32"), b.input("c", (n,), "f32")
    acc = b.reduce("C", (m, n), over={"k": k}, fn=lambda i, j, k: x[i, k] * y[j, k], axes=("i", "j"))
    b.compute("Y", (m, n), lambda i, j: op("maximum", acc[i, j] + c[j], const(0.0, f32)), output=True)


def column_minimum(b: Builder, m: int, n: int, k: int) -> None:
    x = b.input("A", (m, n), "i32")
    b.reduce("C", (n,), over={"k": m}, fn=lambda i, k: x[k, i], axes=("i",), combiner="min", output=True)


def transposed_difference(b: Builder, m: int, n: int, k: int) -> None:
    x = b.input("A", (m, n), "f32")
    double = b.compute("C", (m, n), lambda i, j: x[i, j] * 2.0 + 1.0)
    b.compute("Y", (n, m), lambda i, j: double[j, i] - x[j, i], output=True)


def row_argmax(b: Builder, m: int, n: int, k: int) -> None:
    x = b.input("A", (m, n), "f32")
    b.reduce(
        ("C", "I"), (m,), over={"k": n}, fn=lambda i, k: (x[i, k], Cast(k, i32)), axes=("i",),
        combiner="argmax",
        output=True,
    )  # fmt: skip


def half_matmul(b: Builder, m: int, n: int, k: int) -> None:
    x, y = b.input("A", (m, k), "bf16"), b.input("B", (k, n), "bf16")
    acc = b.reduce(
        "C",
        (m, n),
        over={"k": k},
        fn=lambda i, j, k: Cast(x[i, k], f32) * Cast(y[k, j], f32),
        axes=("i", "j"),
    )
    b.compute("Y", (m, n), lambda i, j: Cast(acc[i, j], bf16), output=True)


MAKERS = (matmul, linear, column_minimum, transposed_difference, row_argmax, half_matmul)


def random_program(r: random.Random) -> Program:
    make = r.choice(MAKERS)
    b = Builder(make.__name__)
    make(b, r.randint(1, 19), r.randint(1, 40), r.randint(1, 19))
    return b.build()


def random_step(program: Program, r: random.Random) -> Step:
    names = [x.var for x in loops(program.body)]
    at = r.choice(names)
    some = tuple(r.sample(names, min(len(names), r.randint(0, 3))))
    memory = r.choice(["heap", "stack", "register"])
    source = r.choice([b.name for b in program.inputs])
    return r.choice([
        lambda: Split(at, r.randint(1, 9), r.choice(["guard", "guard", "peel"])),
        lambda: Split(at, r.choice([4, 8, 16])),
        lambda: Reorder(tuple(r.sample(names, min(len(names), r.randint(2, 4))))),
        lambda: Fuse(at, r.choice(names)), lambda: Unroll(at, r.choice([0, 0, 2, 3])), lambda: Vectorize(at),
        lambda: Vectorize(at), lambda: Parallel(at), lambda: RFactor(at), lambda: DecomposeReduction("C", at),
        lambda: CacheRead(source, at, memory=memory, layout=some, name=None, pad=r.random() < 0.5),
        lambda: CacheWrite("C", at, memory=memory, layout=some, name=None),
    ])()  # fmt: skip


def random_schedule(seed: int) -> tuple[Program, Program, int]:
    """(program, scheduled program, steps that were legal)."""
    r = random.Random(seed)
    program = random_program(r)
    s, taken = Schedule(program), 0
    for _ in range(r.randint(3, 14)):
        try:
            s.apply(random_step(s.program, r))
            taken += 1
        except ScheduleError:
            continue
    return program, s.program, taken


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_schedules(group: int) -> None:
    levels = ("avx512", "avx2", "sse")
    taken = 0
    for seed in range(group * PER_GROUP, (group + 1) * PER_GROUP):
        program, scheduled, count = random_schedule(seed)
        taken += count
        arrays = whole_numbers(program, seed)
        want = interpret(program, arrays)
        level = levels[seed % 3]
        made = target(level)
        for got, expected in zip(interpret(lower(scheduled, made), arrays), want, strict=True):
            np.testing.assert_array_equal(got, expected, err_msg=f"lowered, seed {seed}, {level}")
        kernel = compile(scheduled, made, cache=False)
        out = outputs(program)
        kernel(*arrays, *out, threads=2 if seed % 8 == 0 else 1)
        for got, expected in zip(out, want, strict=True):
            np.testing.assert_array_equal(got, expected, err_msg=f"compiled, seed {seed}, {level}")
    assert taken >= 2 * PER_GROUP


@pytest.mark.parametrize("seed", range(12))
def test_every_element_is_written_once(seed: int, isa: str) -> None:
    """Chains of ragged splits, fusions and reorderings neither lose nor repeat an iteration."""
    r = random.Random(seed)
    b = Builder("count")
    x = b.input("x", (13, 17), "i32")
    b.reduce("y", (13, 17), over={"k": 1}, fn=lambda i, j, k: x[i, j], axes=("i", "j"), output=True)
    s = Schedule(b.build())
    for _ in range(9):
        names = [loop.var for loop in loops(s.program.body)]
        at = r.choice(names)
        step = r.choice([
            Split(at, r.randint(1, 9)), Split(at, r.randint(1, 9)), Fuse(at, r.choice(names)), Unroll(at),
            Vectorize(at),
            Reorder(tuple(r.sample(names, min(len(names), 2)))),
        ])  # fmt: skip
        try:
            s.apply(step)
        except ScheduleError:
            continue
    padded = np.full((15, 17), -9, "i4")
    compile(s.program, target(isa), cache=False)(np.ones((13, 17), "i4"), padded[1:14])
    assert (padded[1:14] == 1).all()
    assert (padded[[0, 14]] == -9).all()
