"""Which guards stay around a computation whose results go to a temporary, and which ones are no longer
needed."""

from __future__ import annotations

import numpy as np

from tlm.ir.build import Builder
from tlm.ir.dtypes import f32
from tlm.ir.exprs import Load, Var, const, op
from tlm.ir.nodes import Alloc, Block, Buffer, For, If, Program, Store
from tlm.ir.verify import verify
from tlm.schedule import Schedule

LAYOUTS = {"A": ("i.0", "k", "i.1"), "B": ("j.0", "k", "j.1")}


def matmul() -> Program:
    b = Builder("matmul")
    x, w = b.input("A", (7, 3), "f32"), b.input("B", (3, 10), "f32")
    b.reduce("C", (7, 10), {"k": 3}, lambda i, j, r: x[i, r] * w[r, j], output=True)
    return b.build()


def tiled() -> Schedule:
    return Schedule(matmul()).tile(("i", "j"), (4, 4)).reorder("i.0", "j.0", "k", "i.1", "j.1")


def guards_of_sum(s: Schedule) -> str:
    lines = str(s).splitlines()
    at = next(n for n, line in enumerate(lines) if "+=" in line)
    return " ".join(line.strip() for line in lines[: at + 1] if line.strip().startswith("if "))


def exact(s: Schedule) -> Schedule:
    verify(s.program)
    rng = np.random.default_rng(0)
    x, w = rng.integers(-4, 5, (7, 3)).astype("f4"), rng.integers(-4, 5, (3, 10)).astype("f4")
    assert np.array_equal(s.run(x, w)[0], x @ w)
    return s


def test_a_guard_that_protects_a_read_stays() -> None:
    s = exact(tiled().cache_read("B", layout=("j.0", "k", "j.1"), pad=True).cache_write("C", "j.0"))
    assert guards_of_sum(s) == "if i.0 * 4 + i.1 < 7:"


def test_no_guard_is_left_where_both_operands_are_padded() -> None:
    for order in (("A", "B", "C"), ("C", "A", "B"), ("A", "C", "B")):
        s = tiled()
        for buffer in order:
            if buffer == "C":
                s.cache_write("C", "j.0")
            else:
                s.cache_read(
                    buffer, layout=("i.0", "k", "i.1") if buffer == "A" else ("j.0", "k", "j.1"), pad=True
                )
        assert guards_of_sum(exact(s)) == ""


def test_a_copy_with_gaps_keeps_the_guard() -> None:
    s = exact(tiled().cache_read("B", layout=("j.0", "k", "j.1")).cache_write("C", "j.0"))
    assert "j.0 * 4 + j.1 < 10" in guards_of_sum(s)


def test_a_guard_on_steps_of_the_reduction_stays() -> None:
    s = Schedule(matmul()).split("k", 2).cache_read("B", layout=("k.0", "k.1", "j"), pad=True)
    s.cache_read("A", layout=("i", "k.0", "k.1"), pad=True).cache_write("C", "j")
    assert guards_of_sum(exact(s)) == "if k.0 * 2 + k.1 < 3:"


def test_a_guard_stays_where_others_read_what_it_leaves_out() -> None:
    x, y, t = Buffer("x", (3,), f32), Buffer("y", (4,), f32), Buffer("t", (4,), f32, "stack")
    a, i, j = map(Var, "aij")
    body = Block(
        (
            For("a", 4, Store("t", (a,), const(5, f32))),
            For("i", 4, If(i < 3, Store("t", (i,), Load("x", (i,), f32)))),
            For("j", 4, Store("y", (j,), Load("t", (j,), f32))),
        )
    )
    s = Schedule(Program("keep", (x,), (y,), Alloc(t, body))).cache_read("x", layout=("i",), pad=True)
    assert s.run(np.arange(3, dtype="f4"))[0].tolist() == [0, 1, 2, 5]


def test_copies_stay_inside_on_both_sides() -> None:
    b = Builder("shift")
    x = b.input("x", (6,), "f32")
    zero = const(0, f32)
    b.compute(
        "y", (9,), lambda i: op("where", op("and", i > 0, i < 7), x[i - 1], zero), axes=("i",), output=True
    )
    data = np.arange(1, 7, dtype="f4")
    for pad in (True, False):
        s = Schedule(b.build()).cache_read("x", layout=("i",), pad=pad)
        verify(s.program)
        assert s.run(data)[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 0]
        assert str(s).count("0 < i@x_pack & i@x_pack < 7") + str(s).count("i@x_pack < 7 & 0 < i@x_pack") == 1


def test_two_guards_do_not_excuse_each_other() -> None:
    """Either alone keeps the row below 12; without both it would be 13."""
    b = Builder("head")
    x = b.input("A", (12, 3), "f32")
    b.reduce("C", (10,), {"k": 3}, lambda i, k: x[i, k], axes=("i",), output=True)
    s = Schedule(b.build()).split("i", 4).split("i.1", 3).cache_write("C", at="i.0")
    verify(s.program)
    data = np.arange(36, dtype="f4").reshape(12, 3)
    assert np.array_equal(s.run(data)[0], data[:10].sum(1))
