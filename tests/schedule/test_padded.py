"""Copies with a border of zeros, where reads took zero outside of an array."""

from __future__ import annotations

import numpy as np

from tests.space.conv_programs import Image, conv
from tlm.ir.build import Builder
from tlm.ir.dtypes import f32
from tlm.ir.exprs import Expr, Op, const, op
from tlm.ir.interpret import interpret
from tlm.schedule import Schedule

PROGRAM = conv(Image(1, 6, 7, 3, 3), 4, 5)


def inputs() -> list[np.ndarray]:
    data = np.random.default_rng(0)
    return [data.integers(-4, 5, b.shape).astype(np.float32) for b in PROGRAM.inputs]


def test_readers_of_a_padded_copy_have_no_condition():
    s = Schedule(PROGRAM)
    s.split("y", 2)
    s.cache_read("X", "y.0", pad=True, name="P")
    text = str(s.program)
    assert "alloc P: f32[1, 4, 9, 4] heap:" in text
    assert text.count("where") == 1
    assert "(r, s, c)+= P[0, " in text
    np.testing.assert_array_equal(s.run(*inputs())[0], interpret(PROGRAM, inputs())[0])


def test_without_padding_the_conditions_stay():
    s = Schedule(PROGRAM)
    s.cache_read("X", "y", name="P")
    assert "where" in str(s.program).split("(r, s, c)+=")[1]
    np.testing.assert_array_equal(s.run(*inputs())[0], interpret(PROGRAM, inputs())[0])


def test_a_condition_that_says_more_than_inside_stays():
    b = Builder("cut")
    x = b.input("X", (8,), "f32")
    b.reduce(
        "Y", (6,), {"r": 3}, axes=("y",), output=True,
        fn=lambda y, r: Op("where", (op("lt", y + r, const(5)), x[y + r], const(0.0, f32)), f32),
    )  # fmt: skip
    program = b.build()
    s = Schedule(program)
    s.cache_read("X", "", pad=True, name="P")
    assert "where(y + r < 5" in str(s.program) or "where(r + y < 5" in str(s.program)
    values = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(s.run(values)[0], interpret(program, [values])[0])


def test_a_condition_stays_where_only_another_reader_is_guarded():
    b = Builder("mix")
    x = b.input("B", (8,), "f32")

    def cut(i: Expr) -> Expr:
        return op("where", i < 5, x[i], const(0.0, f32))

    b.compute("Y", (5,), cut, axes=("i",), output=True)
    b.compute("Z", (8,), cut, axes=("i",), output=True)
    s = Schedule(b.build()).split("i", 4).split("Z_i", 4).merge("i.0", "Z_i.0").merge("i.1", "Z_i.1")
    s.cache_read("B", pad=True, name="P")
    values = np.arange(1, 9, dtype=np.float32)
    y, z = s.run(values)
    assert y.tolist() == [1, 2, 3, 4, 5]
    assert z.tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
