"""Kind T: the key of a program does not depend on names, process, hash seed, or what is done with it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ir.programs import argmax_rows, linear_relu, matmul, tiled_matmul
from tlm.ir.build import Builder
from tlm.ir.canonical import canonical, key
from tlm.ir.exprs import Op, const
from tlm.ir.interpret import compile_python
from tlm.ir.simplify import simplify_program
from tlm.ir.verify import verify

ROOT = Path(__file__).parents[2]
PROGRAMS = [matmul(), matmul(4, 5, 7), linear_relu(), argmax_rows(), argmax_rows(dtype="i32"), tiled_matmul()]
SCRIPT = """
from tests.ir.test_canonical import PROGRAMS
from tlm.ir.canonical import key
print(" ".join(map(key, PROGRAMS)))
"""


def _named(program, a, b, c, axes):
    build = Builder(program)
    A, B = build.input(a, (4, 6), "f32"), build.input(b, (6, 5), "f32")
    build.reduce(c, (4, 5), {axes[2]: 6}, lambda i, j, k: A[i, k] * B[k, j], axes=axes[:2], output=True)
    return build.build()


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_keys_are_the_same_in_every_process(seed):
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert out.stdout.split() == [key(p) for p in PROGRAMS]


def test_keys_are_fixed():
    """A change here throws away every stored record: only on purpose."""
    golden = ["0684412bfc905460", "ca160a2ac7cdd328", "2d6ffeb62fda7e6b", "c54eea6ebb13e0df"]
    assert [key(p)[:16] for p in (matmul(), linear_relu(), argmax_rows(), tiled_matmul())] == golden


def test_names_do_not_count():
    same = {
        key(_named("p", "A", "B", "C", ("i", "j", "k"))),
        key(_named("q", "w", "b.1", "z", ("z0", "y", "a"))),
    }
    assert same == {key(matmul())}


def test_what_computes_something_else_has_another_key():
    p = matmul()
    others = [
        matmul(4, 5, 7),
        matmul(5, 4, 6),
        replace(p, inputs=(replace(p.inputs[0], strides=(1, 4)), p.inputs[1])),
        tiled_matmul(),
        linear_relu(),
        _named("p", "A", "B", "C", ("i", "j", "k")),
    ]
    assert len({key(x) for x in (p, *others)}) == len(others)
    b = Builder("c")
    x = b.input("x", (3,), "f32")
    b.compute("y", (3,), lambda i: x[i] * 0.5, output=True)
    half = b.build()
    changed = replace(
        half, body=replace(half.body, body=replace(half.body.body, value=x[half.body.body.indices] * 0.25))
    )
    assert key(half) != key(changed)


def test_index_arithmetic_counts_by_value():
    """The order of terms in an index depends on names, so the key must not."""

    def row(first, second):
        b = Builder("flat")
        x = b.input("x", (20,), "f32")
        b.compute("y", (4, 5), lambda i, j: x[i * 5 + j], axes=(first, second), output=True)
        return simplify_program(b.build())

    assert key(row("a", "b")) == key(row("b", "a"))
    b = Builder("flat")
    x = b.input("x", (20,), "f32")
    b.compute("y", (4, 5), lambda i, j: x[j + 2 * i + i * 3], output=True)
    assert key(b.build()) == key(row("a", "b"))


def test_using_a_program_does_not_change_its_key():
    p = linear_relu()
    before = key(p)
    simplify_program(p)
    compile_python(p)
    verify(p)
    assert key(p) == before == key(canonical(p))
    verify(canonical(p))


def test_constants_that_compare_equal_are_told_apart():
    def scaled(value):
        b = Builder("c")
        x = b.input("x", (3,), "f32")
        b.compute("y", (3,), lambda i: Op("add", (x[i], const(value, x.dtype)), x.dtype), output=True)
        return b.build()

    assert len({key(scaled(v)) for v in (0.0, -0.0, float("nan"), float("inf"))}) == 4
