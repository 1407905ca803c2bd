"""Conditions: as far out as they can be, as bounds of serial loops, or gone."""

from __future__ import annotations

from tests.lower.programs import double, lines, lowered, matmul, scheduled
from tlm.ir.dtypes import f32
from tlm.ir.exprs import Load, Var, const, op
from tlm.ir.nodes import Alloc, Block, Buffer, For, If, Stmt, Store, block
from tlm.lower.guards import NOTHING, bounds, hoist

A, B, N = Var("i"), Var("j"), Var("n")


def store(*at: Var) -> Stmt:
    return Store("y", at, const(1.0, f32))


def test_out_of_loops_blocks_and_allocations() -> None:
    nest = For(
        "i", 4, For("j", 8, Alloc(Buffer("t", (1,), f32, "stack"), If(op("and", A < 3, B < 5), store(A, B))))
    )
    assert lines(hoist(nest)) == [
        "for i in 4:", "  if i < 3:", "    for j in 8:", "      if j < 5:", "        alloc t: f32[1] stack:",
        "          y[i, j] = 1.0",
    ]  # fmt: skip
    both = For("i", 4, block(If(op("and", N < 2, A < 1), store(A)), If(N < 2, store(A))))
    assert lines(hoist(both))[:3] == ["if n < 2:", "  for i in 4:", "    if i < 1:"]


def test_two_sided_conditions_leave_the_loops_that_they_do_not_use() -> None:
    nest = For("i", 4, For("j", 8, If(A < 1, store(A, B), store(B, A))))
    assert lines(hoist(nest)) == [
        "for i in 4:", "  if i < 1:", "    for j in 8:", "      y[i, j] = 1.0", "  else:", "    for j in 8:",
        "      y[j, i] = 1.0",
    ]  # fmt: skip


def test_serial_loops_get_bounds() -> None:
    nest = For("i", 4, For("j", 8, If(A * 8 + B < 27, store(A, B))))
    assert lines(bounds(nest, {})) == ["for i in 4:", "  for j in 8 upto 27 - i * 8:", "    y[i, j] = 1.0"]
    strided = For("i", 4, For("j", 8, If(A * 8 + B * 3 < 27, store(A, B))))
    assert lines(bounds(strided, {}))[1] == "  for j in 8 upto (29 - i * 8) // 3:"


def test_constant_limits_shorten_loops() -> None:
    for kind in ("serial", "unroll", "parallel"):
        assert bounds(For("j", 8, If(B < 5, store(B)), kind), {}) == For("j", 5, store(B), kind)
    lanes = For("j", 8, If(B < 5, store(B)), "vectorize")
    assert bounds(lanes, {}) == lanes


def test_what_follows_from_loops_and_guards_is_decided() -> None:
    assert bounds(For("j", 8, If(B < 8, store(B))), {}) == For("j", 8, store(B))
    assert bounds(For("j", 8, If(const(8) < B, store(B))), {}) == NOTHING
    inner = If(B < 3, If(B < 4, store(B)))
    assert bounds(For("j", 8, inner, "vectorize"), {}) == For("j", 8, If(B < 3, store(B)), "vectorize")
    assert bounds(If(N < 3, If(N < 2, store(N), Block(()))), {"n": 2}) == store(N)


def test_empty_branches_disappear() -> None:
    assert hoist(For("i", 4, If(A < 2, NOTHING))) == NOTHING
    assert hoist(Alloc(Buffer("t", (1,), f32), NOTHING)) == NOTHING


def test_ragged_splits_mean_the_same() -> None:
    for factors in ((4, 3), (7, 2), (9, 5)):
        a, b = factors
        for program, *steps in (
            (double(13, 17), ("split", "i", a), ("split", "j", b), ("reorder", "j.0", "i.0", "i.1", "j.1")),
            (double(13, 17), ("split", "i", a), ("split", "i.0", b), ("split", "i.1", 2)),
            (double(13, 17), ("fuse", "i", "j"), ("split", "i*j", a), ("split", "i*j.1", b)),
            (matmul(7, 5, 11), ("split", "k", a), ("split", "k.0", b), ("reorder", "k.0.0", "i", "j")),
        ):
            lowered(scheduled(program, *steps))


def test_bounds_are_not_read_from_data() -> None:
    nest = For("j", 8, If(Load("x", (B,), f32) < 1.0, store(B)))
    assert bounds(hoist(nest), {}) == nest
