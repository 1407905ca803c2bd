"""What programs mean: loops, temporaries, marked loops, and the errors of wrong programs."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.ir.programs import argmax_rows, linear_relu, matmul, tiled_matmul, with_body
from tlm.errors import ArgumentError, VerifyError
from tlm.ir.build import Builder
from tlm.ir.dtypes import bf16, f32, f64, i32, to_numpy
from tlm.ir.exprs import Cast, Load, Var, const, op
from tlm.ir.interpret import BoundsError, RaceError, compile_python, interpret
from tlm.ir.nodes import Alloc, Block, Buffer, For, If, Prefetch, Store, Update
from tlm.ir.verify import verify

i, j, k = Var("i"), Var("j"), Var("k")
RNG = np.random.default_rng(0)
A, B = RNG.integers(-4, 5, (4, 6)).astype("f4"), RNG.integers(-4, 5, (6, 5)).astype("f4")


def test_matmul_and_its_tiled_form():
    for program in (matmul(), tiled_matmul()):
        verify(program)
        a = A.copy()
        (c,) = interpret(program, [a, B])
        np.testing.assert_array_equal(c, A @ B)
        assert c.flags.c_contiguous
        assert a.tobytes() == A.tobytes()


def test_bf16_operands_accumulate_in_f32_and_round_at_the_end():
    x = RNG.standard_normal((4, 6)).astype(to_numpy(bf16))
    w = RNG.standard_normal((6, 5)).astype(to_numpy(bf16))
    bias = RNG.standard_normal(5).astype("f4")
    (y,) = interpret(linear_relu(), [x, w, bias])
    acc = np.zeros((4, 5), "f4")
    for n in range(6):
        acc += x[:, n : n + 1].astype("f4") * w[n].astype("f4")
    assert y.tobytes() == np.maximum(acc + bias, 0).astype(to_numpy(bf16)).tobytes()


def test_arrays_of_any_strides():
    program = matmul(3, 2, 4)
    x = np.arange(24, dtype="f4").reshape(6, 4)[::-2, ::-1]
    y = np.arange(8, dtype="f4").reshape(2, 4).T
    np.testing.assert_array_equal(interpret(program, [x, y])[0], x @ y)


def _program(body, n=8, outputs=("y",), dtype=f32):
    b = Builder("p")
    x = b.input("x", (n,), dtype)
    for name in outputs:
        b.compute(name, (n,), lambda i: x[i], output=True)
    return with_body(b.build(), body)


X = Load("x", (i,), f32)
INPUT = np.arange(8, dtype="f4")


def test_init_false_continues_and_init_true_starts_again():
    start = For("i", 8, Store("y", (i,), const(3, f32)))
    add = Update(("y",), (i,), (Load("x", (k,), f32),), "sum", ("k",), init=False)
    (y,) = interpret(_program(Block((start, For("i", 8, For("k", 8, add))))), [INPUT])
    assert y.tolist() == [31.0] * 8
    again = Update(("y",), (i,), (Load("x", (k,), f32),), "sum", ("k",))
    (y,) = interpret(_program(For("z", 3, For("i", 8, For("k", 8, again)))), [INPUT])
    assert y.tolist() == [28.0] * 8


def test_bounds_and_both_sides_of_an_if():
    body = For("i", 8, If(i < 5, Store("y", (i,), X), Store("y", (i,), -X)))
    assert interpret(_program(body), [INPUT])[0].tolist() == [0, 1, 2, 3, 4, -5, -6, -7]
    tail = For("i.0", 3, For("i.1", 3, _at(Var("i.0") * 3 + Var("i.1")), bound=8 - Var("i.0") * 3))
    assert interpret(_program(tail), [INPUT])[0].tolist() == INPUT.tolist()


def _at(index):
    return Store("y", (index,), Load("x", (index,), f32))


def test_what_is_not_written_is_poison():
    (y,) = interpret(_program(If(const(1) < 0, For("i", 8, _at(i)))), [INPUT])
    assert np.isnan(y).all()
    (n,) = interpret(_program(Block(()), dtype=i32), [INPUT.astype("i4")])
    assert n.tolist() == [int.from_bytes(b"\xa5" * 4, "little", signed=True)] * 8


def test_a_temporary_is_fresh_in_every_iteration():
    scratch = Buffer("t", (1,), f32, "stack")
    zero = const(0)
    body = Block((Store("y", (i,), Load("t", (zero,), f32)), Store("t", (zero,), X)))
    (y,) = interpret(_program(For("i", 8, Alloc(scratch, body))), [INPUT])
    assert np.isnan(y).all()
    (y,) = interpret(_program(Alloc(scratch, For("i", 8, body))), [INPUT])
    assert y.tolist()[1:] == INPUT.tolist()[:-1]


def test_where_evaluates_only_the_side_it_picks():
    safe = op("where", i < 3, Load("x", (i + 5,), f32), const(-1, f32))
    assert interpret(_program(For("i", 8, Store("y", (i,), safe))), [INPUT])[0].tolist() == [
        5,
        6,
        7,
        *[-1] * 5,
    ]


def test_indices_from_data():
    at = op("minimum", Cast(Load("x", (i,), f32), (i + 0).dtype), const(3))
    (y,) = interpret(_program(For("i", 8, Store("y", (i,), Load("x", (at,), f32)))), [INPUT])
    assert y.tolist() == [0, 1, 2, 3, 3, 3, 3, 3]


def test_more_loops_than_python_nests():
    body = For("i", 8, Update(("y",), (i,), (X,), "sum", tuple(f"k{n}" for n in range(40))))
    for n in range(40):
        body = For(f"k{n}", 2 if n % 10 == 0 else 1, body, "parallel" if n == 5 else "serial")
    assert interpret(_program(body), [INPUT])[0].tolist() == (INPUT * 16).tolist()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (i + 1, r"x\[8\] is outside its shape \(8,\)"),
        (i - 1, r"x\[-1\]"),
        (op("mod", i * 5, const(9)), r"x\[8\]"),
    ],
)
def test_accesses_outside_are_refused(index, message):
    body = For("i", 8, Store("y", (i,), Load("x", (index,), f32)))
    with pytest.raises(BoundsError, match=message):
        interpret(_program(body), [INPUT])
    with pytest.raises(BoundsError, match=r"y\["):
        interpret(_program(For("i", 8, Store("y", (index,), X))), [INPUT])
    hint = For("i", 8, Block((Prefetch("x", (index,)), _at(i))))
    assert interpret(_program(hint), [INPUT])[0].tolist() == INPUT.tolist()


KINDS = ["parallel", "vectorize", "blockIdx.x", "threadIdx.y", "vthread"]
CELL = Store("y", (const(0),), const(1, f32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (CELL, r"iterations 0 and 1 both touch y\[0\]"),  # all write the same value: still a race
        (Store("y", (i // 4,), X), r"iterations 0 and 1 both touch y\[0\]"),
        (
            If(i < 1, _at(i), Store("y", (i,), Load("y", (const(0),), f32))),
            r"iterations 0 and 1 both touch y\[0\]",
        ),
        (
            If(i > 6, _at(i), Store("y", (i,), Load("y", (const(7),), f32))),
            r"iterations 0 and 7 both touch y\[7\]",
        ),
        (
            Block((Store("y", (i,), X), If(i >= 3, Store("y", (i - 3,), X)))),
            r"iterations 0 and 3 both touch y\[0\]",
        ),
        (Update(("y",), (const(0),), (X,), "sum", ("z",)), r"iterations 0 and 1 both touch y\[0\]"),
    ],
    ids=["same value", "shared cell", "read after write", "write after read", "far apart", "other axis"],
)
def test_races_are_found(kind, body, message):
    for outer in (lambda s: For("z", 1, s), lambda s: For("z", 3, s)):
        with pytest.raises(RaceError, match=message) as caught:
            interpret(_program(outer(For("i", 8, body, kind))), [INPUT])
        assert f"{kind} loop i" in str(caught.value)
    interpret(_program(For("z", 3, For("i", 8, body))), [INPUT])


@pytest.mark.parametrize("kind", KINDS)
def test_independent_iterations_are_no_race(kind):
    own = For("z", 3, For("i", 8, Block((_at(i), Store("y", (i,), Load("y", (i,), f32) + 1))), kind))
    assert interpret(_program(own), [INPUT])[0].tolist() == (INPUT + 1).tolist()
    # The same element in two runs of the loop, and read by all iterations without a write.
    shared = Block((CELL, For("i", 8, If(i > 0, Store("y", (i,), Load("y", (const(0),), f32))), "serial")))
    assert interpret(_program(shared), [INPUT])[0].tolist() == [1.0] * 8
    private = Alloc(Buffer("t", (1,), f32, "stack"), Block((Store("t", (const(0),), X), _from_t())))
    assert interpret(_program(For("i", 8, private, kind)), [INPUT])[0].tolist() == INPUT.tolist()
    outside = Alloc(Buffer("t", (1,), f32, "stack"), For("i", 8, private.body, kind))
    with pytest.raises(RaceError, match=r"both touch t\[0\]"):
        interpret(_program(outside), [INPUT])


def _from_t():
    return Store("y", (i,), Load("t", (const(0),), f32))


def test_races_of_outer_and_inner_marked_loops():
    update = matmul().body.body.body.body
    ok = For("i", 4, For("j", 5, For("k", 6, update), "vectorize"), "parallel")
    np.testing.assert_array_equal(interpret(with_body(matmul(), ok), [A, B])[0], A @ B)
    bad = For("k", 6, For("i", 4, For("j", 5, update, "vectorize")), "parallel")
    with pytest.raises(RaceError, match="parallel loop k: iterations 0 and 1"):
        interpret(with_body(matmul(), bad), [A, B])


def test_reducing_across_lanes():
    """Kind C: vectorize over a reduction axis sums the lanes, GPU threads merge; other uses are refused."""
    ones = np.ones(128, "f4")
    total = Update(("y",), (const(0),), (Load("x", (k,), f32),), "sum", ("k",))
    spoiled = Block((total, Store("y", (k,), Load("y", (const(0),), f32))))
    for kind, across in (("vectorize", "lanes"), ("threadIdx.x", "threads")):
        (y,) = interpret(_program(For("k", 128, total, kind), 128), [ones])
        assert y[0] == 128
        with pytest.raises(RaceError, match=f"across its {across}"):
            interpret(_program(For("k", 128, spoiled, kind), 128), [ones])
    for kind in ("parallel", "blockIdx.x"):
        with pytest.raises(RaceError):
            interpret(_program(For("k", 128, total, kind), 128), [ones])


def test_wrong_calls_and_programs_are_named():
    with pytest.raises(ArgumentError, match="takes 2 inputs, got 1"):
        interpret(matmul(), [A])
    with pytest.raises(ArgumentError, match=r"A must be f32\[4, 6\], got float64\[4, 6\]"):
        interpret(matmul(), [A.astype("f8"), B])
    with pytest.raises(ArgumentError, match=r"B must be f32\[6, 5\], got float32\[5, 6\]"):
        interpret(matmul(), [A, B.T])
    with pytest.raises(VerifyError, match="buffer q is not defined"):
        interpret(_program(Store("q", (const(0),), const(0, f32))), [INPUT])
    with pytest.raises(VerifyError, match="loop k is not around"):
        interpret(_program(For("i", 8, Store("y", (k,), X))), [INPUT])
    with pytest.raises(VerifyError, match="not a known combiner"):
        interpret(_program(For("i", 8, Update(("y",), (i,), (X,), "mean", ()))), [INPUT])
    with pytest.raises(VerifyError, match="inside another loop"):
        interpret(_program(For("i", 8, For("i", 8, _at(i)))), [INPUT])


def test_names_do_not_reach_the_source():
    name = "x'); raise SystemExit('"
    b = Builder("p")
    x = b.input(name, (8,), "f32")
    b.compute("y", (8,), lambda i: x[i], axes=("__import__('os')",), output=True)
    assert interpret(b.build(), [INPUT])[0].tolist() == INPUT.tolist()


def test_empty_arrays():
    (c,) = interpret(matmul(0, 5, 6), [np.zeros((0, 6), "f4"), B])
    assert c.shape == (0, 5)
    value, at = interpret(argmax_rows(0, 7), [np.zeros((0, 7), "f4")])
    assert value.shape == at.shape == (0,)


def test_a_compiled_program_runs_again_and_returns_new_arrays():
    run = compile_python(matmul())
    (first,), (second,) = run([A, B]), run([A * 2, B])
    np.testing.assert_array_equal(second, 2 * first)
    assert not np.shares_memory(first, second)


def test_a_hundred_thousand_iterations_are_fast():
    """Random schedules are tested by the thousand: this size takes about 0.03 s on one core."""
    program = matmul(48, 48, 48)
    x = RNG.integers(-3, 4, (48, 48)).astype("f4")
    start = time.process_time()
    (c,) = interpret(program, [x, x])
    assert time.process_time() - start < 1
    np.testing.assert_array_equal(c, x @ x)


def test_a_long_formula_is_translated_once():
    """Translating each operand twice would take 2^60 steps."""

    def chain(v):
        for _ in range(20):
            v = Cast(Cast(op("tanh", v) * 0.5, f64), f32)
        return v

    b = Builder("chain")
    x = b.input("x", (8,), "f32")
    b.compute("y", (8,), lambda i: chain(x[i]), output=True)
    start = time.process_time()
    (y,) = interpret(b.build(), [INPUT])
    assert time.process_time() - start < 1
    assert abs(y).max() < 1e-5
