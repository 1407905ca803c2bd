"""The builder names loops and buffers as documented and refuses what it cannot build."""

from __future__ import annotations

import pytest

from tests.ir.programs import linear_relu, matmul
from tlm.errors import ArgumentError, DTypeError
from tlm.ir.build import Builder, default_axes
from tlm.ir.dtypes import bf16, f32, f64, i64
from tlm.ir.exprs import Cast
from tlm.ir.nodes import Alloc
from tlm.ir.verify import verify
from tlm.ir.walk import loops


def test_first_stage_has_short_loop_names_and_later_ones_are_prefixed():
    assert [loop.var for loop in loops(matmul().body)] == ["i", "j", "k"]
    assert [loop.var for loop in loops(linear_relu().body)] == ["i", "j", "k", "y_i", "y_j"]


def test_intermediates_are_heap_temporaries_in_order():
    b = Builder("chain")
    x = b.input("x", (3,), "f32")
    first = b.compute("first", (3,), lambda i: x[i] + 1)
    second = b.compute("second", (3,), lambda i: first[i] * 2)
    b.compute("y", (3,), lambda i: second[i] - x[i], output=True)
    program = b.build()
    verify(program)
    outer = program.body
    assert isinstance(outer, Alloc)
    assert isinstance(outer.body, Alloc)
    assert (outer.buffer.name, outer.body.buffer.name) == ("first", "second")
    assert (outer.buffer.memory, outer.body.buffer.memory) == ("heap", "heap")


def test_dtypes_follow_the_values_or_the_request():
    b = Builder("types")
    x = b.input("x", (2, 3), "bfloat16")
    assert x.dtype == bf16
    assert b.compute("a", (2, 3), lambda i, j: x[i, j]).dtype == bf16
    assert b.compute("b", (2, 3), lambda i, j: x[i, j], dtype="f64").dtype == f64
    assert b.compute("c", (2,), lambda i: i).dtype == i64
    assert b.compute("d", (2,), lambda i: 1.0, dtype=f32).dtype == f32
    assert b.reduce("e", (2,), {"k": 3}, lambda i, k: Cast(x[i, k], f32)).dtype == f32
    value, at = b.reduce("m", (2,), {"k": 3}, lambda i, k: (x[i, k], k), "argmax")
    assert (value.name, at.name, value.dtype, at.dtype) == ("m.0", "m.1", bf16, i64)


def test_axes_of_every_rank():
    assert default_axes(0) == ()
    assert default_axes(1) == ("i",)
    assert default_axes(3) == ("b", "i", "j")
    assert default_axes(5) == ("b0", "b1", "b2", "i", "j")


def test_a_scalar_output():
    b = Builder("total")
    x = b.input("x", (3,), "f32")
    total = b.reduce("total", (), {"k": 3}, lambda k: x[k])
    b.compute("y", (), lambda: total[()] * 2.0, output=True)
    verify(b.build())


def test_mistakes_are_named():
    b = Builder("bad")
    x = b.input("x", (3, 4), "f32")
    with pytest.raises(ArgumentError, match="x has 2 dimensions, got 1"):
        x[0]
    with pytest.raises(ArgumentError, match="already has a buffer x"):
        b.input("x", (3,), "f32")
    with pytest.raises(ArgumentError, match="one a dimension"):
        b.compute("y", (3, 4), lambda i: x[i, 0], axes=("i",))
    with pytest.raises(ArgumentError, match="unknown combiner 'mean'"):
        b.reduce("y", (3,), {"k": 4}, lambda i, k: x[i, k], "mean")
    with pytest.raises(ArgumentError, match="needs 2 values, fn gave 1"):
        b.reduce("y", (3,), {"k": 4}, lambda i, k: x[i, k], "argmax")
    with pytest.raises(ArgumentError, match="2 names are needed"):
        b.reduce(("y",), (3,), {"k": 4}, lambda i, k: (x[i, k], k), "argmax")
    with pytest.raises(ArgumentError, match="pass dtype="):
        b.compute("y", (3,), lambda i: 1.0)
    with pytest.raises(ArgumentError, match="has no output"):
        b.build()
    with pytest.raises(DTypeError, match="complex64 is not supported"):
        b.input("z", (3,), "complex64")
