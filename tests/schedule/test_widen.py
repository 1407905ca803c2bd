"""Temporaries of a wider type: the same results bit for bit, and no conversion where they are read."""

from __future__ import annotations

import numpy as np
import pytest

from tlm.errors import ScheduleError
from tlm.ir.build import Builder
from tlm.ir.dtypes import DTYPES, exact, to_numpy
from tlm.ir.exprs import Cast
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.schedule import CacheRead, Schedule, Widen, from_json, to_json


def product(dtype: str, acc: str, m: int = 3, n: int = 5, k: int = 4) -> Program:
    b = Builder("product")
    x, y = b.input("A", (m, k), dtype), b.input("B", (k, n), dtype)
    wide = DTYPES[acc]
    b.reduce("C", (m, n), over={"k": k}, fn=lambda i, j, k: Cast(x[i, k], wide) * Cast(y[k, j], wide),
             axes=("i", "j"), output=True)  # fmt: skip
    return b.build()


@pytest.mark.parametrize(
    ("dtype", "acc", "held"),
    [("bf16", "f32", "f32"), ("f16", "f32", "f32"), ("i8", "i32", "i16"), ("i8", "i32", "i32"),
     ("u8", "i32", "i16"), ("f16", "f64", "f32"), ("f32", "f64", "f64")],
)  # fmt: skip
def test_staged_operands_are_converted_once(dtype: str, acc: str, held: str):
    program = product(dtype, acc)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=b.shape) * 9 for b in program.inputs]
    arrays = [np.abs(a) if dtype == "u8" else a for a in arrays]
    arrays = [a.astype(to_numpy(DTYPES[dtype])) for a in arrays]
    (want,) = interpret(program, arrays)
    s = Schedule(program)
    s.split("j", 2)
    s.cache_read("B", at="j.0", layout=("k", "j.1"), pad=True)
    s.widen("B_pack", held)
    (got,) = interpret(s.program, arrays)
    np.testing.assert_array_equal(got, want)
    body = str(s.program).partition("C[")[2]
    assert f"B_pack: {held}[" in str(s.program)
    assert "B_pack[" in body
    assert (f"{acc}(B_pack[" in body) == (held != acc)
    assert from_json(to_json(s.steps)) == s.steps


def test_what_is_refused():
    program = product("bf16", "f32")
    staged = CacheRead("B", "", layout=("k", "j")).rewrite(program)
    for step, words in (
        (Widen("B", "f32"), "B is a parameter"),
        (Widen("C", "f32"), "C is a parameter"),
        (Widen("B_pck", "f32"), "B_pck is no buffer of the program.*\n.*Did you mean B_pack"),
        (Widen("B_pack", "f33"), "there is no dtype 'f33'.*\n.*Did you mean f32"),
        (Widen("B_pack", "f16"), "f16 does not hold every value of bf16.*\n.*These do: f32, f64"),
        (Widen("B_pack", "i32"), "i32 does not hold"),
    ):
        with pytest.raises(ScheduleError, match=words):
            step.check(staged)
    plain = Builder("plain")
    x = plain.input("x", (4,), "bf16")
    plain.compute("y", (4,), lambda i: x[i], output=True)
    staged = CacheRead("x", "").rewrite(plain.build())
    with pytest.raises(ScheduleError, match="a read of x_cache is not converted"):
        Widen("x_cache", "f32").check(staged)


def test_sums_are_not_widened():
    b = Builder("twice")
    x = b.input("x", (4, 3), "f32")
    s = b.reduce("s", (4,), over={"k": 3}, fn=lambda i, k: x[i, k], axes=("i",))
    b.compute("y", (4,), lambda i: Cast(s[i], DTYPES["f64"]), output=True)
    with pytest.raises(ScheduleError, match="target of a reduction"):
        Widen("s", "f64").check(b.build())


def test_which_types_hold_which():
    pairs = {(a, b) for a in DTYPES for b in DTYPES if a != b and exact(DTYPES[a], DTYPES[b])}
    assert pairs == {
        ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64"),
        ("i8", "i16"), ("i8", "i32"), ("i8", "i64"), ("i16", "i32"), ("i16", "i64"), ("i32", "i64"),
        ("u8", "i16"), ("u8", "i32"), ("u8", "i64"),
    }  # fmt: skip
