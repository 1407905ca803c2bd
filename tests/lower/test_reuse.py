"""Temporaries that move into an output, and those that must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.lower.programs import lines, same
from tlm.backend import compile as compile_program
from tlm.ir.build import Builder
from tlm.ir.dtypes import DType, f32, f64
from tlm.ir.exprs import Cast, Expr, Load, Var, const
from tlm.ir.nodes import Alloc, Buffer, For, If, Program, Stmt, Store, Update, block
from tlm.ir.verify import verify
from tlm.ir.walk import statements
from tlm.lower.reuse import reuse_outputs
from tlm.schedule import Schedule
from tlm.target import Target

ROWS, COLUMNS = 3, 2000
R, J, K, ZERO = Var("i"), Var("j"), Var("k"), const(0)
X = Buffer("x", (ROWS, COLUMNS), f32)
Y = Buffer("y", (ROWS, COLUMNS), f32)
SUM = Buffer("s", (1,), f32, "heap")


def made(at: Expr = R) -> For:
    return For("j", COLUMNS, Store("e", (at, J), Load("x", (R, J), f32) * 2.0))


def summed(at: Expr = R) -> For:
    return For("m", COLUMNS, Update(("s",), (ZERO,), (Load("e", (at, Var("m")), f32),), "sum", ("m",)))


def stored(value: Expr, at: tuple[Expr, ...] = (R, K)) -> Store:
    return Store("y", at, value)


def program(body: Stmt, *, rows: int = 1, dtype: DType = f32, outer: bool = True) -> Program:
    inside = Alloc(Buffer("e", (rows, COLUMNS), dtype, "heap"), Alloc(SUM, body))
    out = replace(Y, dtype=dtype)
    return Program("p", (X,), (out,), For("i", ROWS, inside) if outer else inside)


E, S = Load("e", (ZERO, K), f32), Load("s", (ZERO,), f32)


def moved(p: Program) -> bool:
    body = reuse_outputs(p.body, p.outputs)
    gone = not any(isinstance(s, Alloc) and s.buffer.name == "e" for s in statements(body))
    assert gone or body == p.body
    return gone


def test_a_row_is_made_where_it_ends() -> None:
    p = program(block(made(ZERO), summed(ZERO), For("k", COLUMNS, stored(E / S))))
    out = replace(p, body=reuse_outputs(p.body, p.outputs))
    verify(out)
    same(out, p)
    assert lines(out.body) == [
        "for i in 3:",
        "  alloc s: f32[1] heap:",
        "    for j in 2000:",
        "      y[i, j] = x[i, j] * 2.0",
        "    for m in 2000:",
        "      s[0] (m)+= y[i, m]",
        "    for k in 2000:",
        "      y[i, k] = y[i, k] / s[0]",
    ]


def test_a_whole_array_too() -> None:
    b = Builder("two")
    x = b.input("x", (40, 50), "f32")
    e = b.compute("e", (40, 50), lambda i, j: x[i, j] + 1.0, axes=("i", "j"))
    b.compute("y", (40, 50), lambda i, j: e[i, j] * x[i, 49 - j], axes=("u", "v"), output=True)
    p = b.build()
    assert moved(p)
    same(replace(p, body=reuse_outputs(p.body, p.outputs)), p)


def test_a_tail_behind_a_guard() -> None:
    at = Var("k") * 64 + Var("l")
    inner = If(at < COLUMNS, stored(Load("e", (ZERO, at), f32) / S, (R, at)))
    assert moved(program(block(made(ZERO), summed(ZERO), For("k", 32, For("l", 64, inner)))))


def test_several_rows_at_once() -> None:
    row = Var("o") * 3 + Var("i")
    write = For("i", 3, For("j", COLUMNS, Store("e", (R, J), Load("x", (R, J), f32))))
    read = For("i", 3, For("k", COLUMNS, stored(Load("e", (R, K), f32) * 2.0, (row, K))))
    inside = Alloc(Buffer("e", (3, COLUMNS), f32, "heap"), block(write, read))
    p = Program("p", (X,), (replace(Y, shape=(6, COLUMNS)),), For("o", 2, inside))
    assert moved(p)
    out = replace(p, body=reuse_outputs(p.body, p.outputs))
    assert "      y[i + o * 3, j] = x[i, j]" in lines(out.body)
    same(out, p)


@pytest.mark.parametrize(
    ("why", "body"),
    [
        ("another place", block(made(ZERO), For("k", COLUMNS, stored(Load("e", (ZERO, 1999 - K), f32))))),
        ("two places", block(made(ZERO), For("k", COLUMNS, stored(E + Load("e", (ZERO, ZERO), f32))))),
        ("used later", block(made(ZERO), For("k", COLUMNS, stored(E)), summed(ZERO))),
        ("one loop", For("k", COLUMNS, block(Store("e", (ZERO, K), Load("x", (R, K), f32)), stored(E)))),
        ("twice", block(made(ZERO), For("r", 2, For("k", COLUMNS, stored(E))))),
        ("nothing", block(made(ZERO), For("k", COLUMNS, stored(Load("x", (R, K), f32))))),
    ],
)
def test_what_must_stay(why: str, body: Stmt) -> None:
    assert not moved(program(body)), why


def test_rows_that_several_iterations_share_stay() -> None:
    """Each of the two halves makes the whole row again, over what the other has finished."""
    at = Var("h") * 1000 + K
    half = block(made(ZERO), For("k", 1000, stored(Load("e", (ZERO, at), f32) * 2.0, (R, at))))
    inside = For("h", 2, Alloc(Buffer("e", (1, COLUMNS), f32, "heap"), half))
    assert not moved(Program("p", (X,), (Y,), For("i", ROWS, inside)))


def test_rows_beyond_the_output_stay() -> None:
    row = Var("o") * 2 + Var("i")
    read = If(row < ROWS, For("k", COLUMNS, stored(Load("e", (ZERO, K), f32), (row, K))))
    write = For("j", COLUMNS, Store("e", (ZERO, J), Load("x", (ZERO, J), f32)))
    inside = For("i", 2, Alloc(Buffer("e", (1, COLUMNS), f32, "heap"), block(write, read)))
    assert not moved(Program("p", (X,), (Y,), For("o", 2, inside)))


def test_small_temporaries_and_other_types_stay() -> None:
    small = Buffer("e", (1, 8), f32, "heap")
    body = block(For("j", 8, Store("e", (ZERO, J), Load("x", (R, J), f32))), For("k", 8, stored(E * 2.0)))
    out = (Buffer("y", (ROWS, 8), f32),)
    assert not moved(Program("p", (X,), out, For("i", ROWS, Alloc(small, body))))
    wide = Cast(E, f64)
    p = program(block(made(ZERO), For("k", COLUMNS, stored(wide))))
    assert not moved(replace(p, outputs=(replace(Y, dtype=f64),)))


def test_an_output_that_is_read_or_written_elsewhere_stays() -> None:
    first = For("q", COLUMNS, Store("y", (R, Var("q")), Load("x", (R, Var("q")), f32)))
    assert not moved(program(block(made(ZERO), first, For("k", COLUMNS, stored(E)))))


def test_another_temporary_of_the_same_name_is_another_one() -> None:
    def part(n: int, out: str, plus: float, times: float) -> Stmt:
        j, k = Var(f"j{n}"), Var(f"k{n}")
        make = For(j.name, COLUMNS, Store("e", (j,), Load("x", (j,), f32) + plus))
        end = For(k.name, COLUMNS, Store(out, (k,), Load("e", (k,), f32) * times))
        return Alloc(Buffer("e", (COLUMNS,), f32, "heap"), block(make, end))

    x, y, z = (Buffer(n, (COLUMNS,), f32) for n in "xyz")
    p = Program("p", (x,), (y, z), block(part(1, "y", 1.0, 2.0), part(2, "z", 5.0, 3.0)))
    verify(p)
    assert moved(p)
    same(replace(p, body=reuse_outputs(p.body, p.outputs)), p)


@pytest.mark.parametrize("loop", ["r", "e.0", "e.1"])
def test_a_loop_named_like_a_part_of_the_temporary(loop: str) -> None:
    """Two runs of it store to places between each other's: whatever its loop is called, it stays."""
    r = Var(loop)
    make = For("j", COLUMNS, Store("e", (J,), Load("x", (J,), f32) + 1.0))
    end = For("k", COLUMNS // 2, Store("y", (K * 2 + r,), Load("e", (K * 2,), f32) * 2.0))
    inside = Alloc(Buffer("e", (COLUMNS,), f32, "heap"), block(make, end))
    x, y = Buffer("x", (COLUMNS,), f32), Buffer("y", (2 * COLUMNS,), f32)
    p = Program("p", (x,), (y,), For(loop, 2, inside))
    verify(p)
    assert not moved(p)


def test_runs_that_overlap_stay_and_machine_code_writes_nothing_beyond() -> None:
    tile, tiles = 1025, 4
    n = tile * tiles
    b = Builder("p")
    x = b.input("x", (n + 1,), "f32")
    e = b.compute("y_e", (n + 1,), lambda i: x[i] + 1.0, axes=("a",))
    t = b.compute("t", (n,), lambda i: e[i] + e[i + 1], axes=("c",))
    b.compute("y", (n,), lambda i: e[i] * t[i], axes=("e",), output=True)
    s = Schedule(b.build()).split("y_e", tile).compute_at("t", "y_e.0").compute_at("y_e", "y_e.0")
    s = s.parallel("y_e.0")
    verify(replace(s.program, body=reuse_outputs(s.program.body, s.program.outputs)))
    data = (np.arange(n + 1) % 7).astype(np.float32)
    room = np.full(n + 64, -5, np.float32)
    compile_program(s.program, Target("avx2", threads=2))(data, room[:n])
    np.testing.assert_array_equal(room[:n], (data + 1)[:n] * ((data + 1)[:n] + (data + 1)[1:]))
    assert (room[n:] == -5).all()
