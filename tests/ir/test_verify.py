"""Each rule of the IR has a program that breaks it; the message shows the node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.ir.programs import argmax_rows, linear_relu, matmul, tiled_matmul, with_body
from tlm.errors import VerifyError
from tlm.ir.dtypes import boolean, f32, i32
from tlm.ir.exprs import Cast, Const, Load, Op, Var, const, op
from tlm.ir.nodes import Alloc, Block, Buffer, For, If, Prefetch, Store, Update
from tlm.ir.verify import verify

P = matmul()
i, j, k = Var("i"), Var("j"), Var("k")
A = Load("A", (i, k), f32)
B = Load("B", (k, j), f32)


def nest(stmt):
    """C's loops around a statement."""
    return For("i", 4, For("j", 5, For("k", 6, stmt)))


def update(**changes):
    return nest(replace(Update(("C",), (i, j), (A * B,), "sum", ("k",)), **changes))


def store(value, index=(i, j)):
    return nest(Store("C", index, value))


@pytest.mark.parametrize("program", [P, linear_relu(), argmax_rows(), tiled_matmul()])
def test_good_programs_pass(program):
    verify(program)


T = Buffer("T", (4,), f32, "stack")
ZERO = const(0, f32)
BROKEN = {
    "undefined buffer": (store(Load("D", (i,), f32)), "D is not defined around D\\[i\\]"),
    "undefined target": (nest(Store("D", (i,), ZERO)), "buffer D is not defined"),
    "index count": (store(Load("A", (i,), f32)), "takes 2 indices: A\\[i\\]"),
    "index count of a write": (store(ZERO, (i,)), "takes 2 indices: C\\[i\\] = 0.0"),
    "index dtype": (store(ZERO, (i, Cast(j, i32))), "index i32\\(j\\) is i32"),
    "loop variable outside": (store(Load("A", (i, Var("z")), f32)), "loop variable z is used outside"),
    "dtype of a read": (store(Load("A", (i, k), i32)), "is read as i32"),
    "dtype of a write": (store(i), "C is f32 but the value is i64"),
    "dtype of an operation": (store(Op("add", (A, B), i32)), "add of f32, f32 is f32, not i32"),
    "mixed operands": (store(Op("add", (A, i), f32)), "one dtype, got f32, i64"),
    "unknown operation": (store(Op("mystery", (A,), f32)), "unknown operation 'mystery'"),
    "constant too large": (store(Cast(Const(2**31, i32), f32)), "i32 cannot hold the constant 2147483648"),
    "constant of a wrong type": (store(Const(1, f32)), "f32 cannot hold the constant 1"),
    "nested loops of one name": (For("i", 4, nest(Store("C", (i, j), ZERO))), "loop i is inside another"),
    "loop name": (For("i;", 4, store(ZERO)), "loop name 'i;'"),
    "buffer defined twice": (Alloc(replace(T, name="A"), store(ZERO)), "buffer A is defined twice"),
    "temporary array": (Alloc(replace(T, memory="array"), store(ZERO)), "cannot have memory array"),
    "strides": (Alloc(replace(T, strides=(1, 2)), store(ZERO)), "1 strides are needed"),
    "input written": (nest(Store("A", (i, k), ZERO)), "input A is written"),
    "output not written": (nest(Prefetch("A", (i, k))), "output C: f32\\[4, 5\\] is never written"),
    "condition dtype": (nest(If(i, Store("C", (i, j), ZERO))), "must be bool, got i64"),
    "unroll on a parallel loop": (For("z", 4, store(ZERO), "parallel", unroll=2), "only for serial loops"),
    "bound dtype": (For("z", 4, store(ZERO), bound=i < 2), "loop variable i is used outside"),
    "negative extent": (For("z", -1, store(ZERO)), "the extent must be 0 to"),
    "read outside": (store(Load("A", (i + 1, k), f32)), "i \\+ 1 reaches 1..4, outside A: f32\\[4, 6\\]"),
    "read below": (store(Load("A", (i - 1, k), f32)), "reaches -1..2"),
    "write outside": (store(ZERO, (i, j * 2)), "index j \\* 2 reaches 0..8"),
    "guarded and still outside": (nest(If(i < 3, Store("C", (i + 4, j), ZERO))), "reaches 4..7"),
    "unknown combiner": (update(combiner="mean"), "unknown combiner 'mean'"),
    "parts": (update(combiner="argmax"), "argmax needs 2 targets and values"),
    "target twice": (
        update(targets=("C", "C"), values=(A, B), combiner="argmax"),
        "must be different buffers",
    ),
    "axis not around": (update(axes=("z",)), "reduction axis z is not a loop around"),
    "axis in the indices": (update(axes=("i",)), "reduction axis i occurs in the indices"),
    "axis twice": (update(axes=("k", "k")), "named twice"),
    "value dtype": (update(values=(k,)), "C is f32 but its value is i64"),
    "locality": (
        nest(Block((Prefetch("A", (i, k), 5), Store("C", (i, j), ZERO)))),
        "locality must be 0 to 3",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_rule_is_checked(name):
    body, message = BROKEN[name]
    with pytest.raises(VerifyError, match=message):
        verify(with_body(P, body))


def test_guards_where_and_data_make_an_access_possible():
    shifted = Load("A", (i - 1, k), f32)
    for body in (
        nest(If(i >= 1, Store("C", (i, j), shifted))),
        nest(If(i < 1, Store("C", (i, j), ZERO), Store("C", (i, j), shifted))),
        store(op("where", i >= 1, shifted, ZERO)),
        store(op("where", i < 1, ZERO, shifted)),
        store(Load("A", (op("maximum", i - 1, const(0)), k), f32)),
        For("i", 4, For("j", 5, For("k", 6, Store("C", (i + 1, j), ZERO), bound=3 - i))),
        For("z", 0, store(ZERO, (Var("z") + 99, j))),
    ):
        verify(with_body(P, Block((store(ZERO), body))))


def test_parameters_are_checked():
    with pytest.raises(VerifyError, match="has no output"):
        verify(replace(P, outputs=()))
    with pytest.raises(VerifyError, match="defined twice"):
        verify(replace(P, inputs=(P.inputs[0], P.inputs[0])))
    with pytest.raises(VerifyError, match="must have memory array"):
        verify(replace(P, inputs=(replace(P.inputs[0], memory="heap"), P.inputs[1])))
    with pytest.raises(VerifyError, match="program name"):
        verify(replace(P, name="a b"))
    with pytest.raises(VerifyError, match="at most"):
        verify(replace(P, inputs=(replace(P.inputs[0], shape=(2**40, 2**40)), P.inputs[1])))


def test_an_empty_output_needs_no_write():
    verify(matmul(0, 5, 6))
    verify(replace(matmul(0, 5, 6), body=Block(())))


def test_deep_nests_are_refused():
    body = store(ZERO)
    for n in range(70):
        body = For(f"x{n}", 1, body)
    with pytest.raises(VerifyError, match="more than 64 statements around"):
        verify(with_body(P, body))


def test_a_condition_may_be_a_constant():
    verify(with_body(P, nest(If(const(True, boolean), Store("C", (i, j), ZERO)))))
