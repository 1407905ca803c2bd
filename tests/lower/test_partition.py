"""Versions of a tile: whole, last with constant sizes, none."""

from __future__ import annotations

import pytest

from tests.lower.programs import double, lines, lowered, matmul, scheduled
from tlm.ir.affine import conjunction
from tlm.ir.dtypes import f32
from tlm.ir.exprs import Load, Op, Var, const, op
from tlm.ir.nodes import Alloc, Block, For, If, Stmt, Store
from tlm.ir.walk import free_vars, walk
from tlm.lower.partition import Scope, partition

I0, I1 = Var("i.0"), Var("i.1")


def tile(extent: int, size: int, n: int, outer: str = "serial", inner: str = "unroll") -> Stmt:
    body = If(I0 * size + I1 < n, Store("y", (I0 * size + I1,), const(1.0, f32)))
    return For("i.0", extent, For("i.1", size, body, inner), outer)  # type: ignore[arg-type]


def test_the_last_round_is_peeled_with_a_constant_size() -> None:
    assert lines(partition(tile(13, 8, 100), Scope({}))) == [
        "for i.0 in 12:", "  unroll for i.1 in 8:", "    y[i.0 * 8 + i.1] = 1.0",
        "unroll for i.1 in 8:", "  if i.1 < 4:", "    y[12 * 8 + i.1] = 1.0",
    ]  # fmt: skip


def test_a_parallel_loop_keeps_its_rounds() -> None:
    out = lines(partition(tile(13, 8, 100, "parallel", "vectorize"), Scope({})))
    assert out[:2] == ["parallel for i.0 in 13:", "  if i.0 * 8 < 93:"]
    assert "      if i.1 < 4:" in out


def test_rounds_beyond_the_end_do_nothing() -> None:
    out = lines(partition(tile(20, 8, 100), Scope({})))
    assert out[0] == "for i.0 in 12:"
    assert not any("20" in line for line in out)


def test_whole_tiles_have_one_version() -> None:
    out = partition(tile(12, 8, 96), Scope({}))
    assert not any(isinstance(n, If) for n in walk(out))
    assert out.extent == 12


def test_lower_limits_too() -> None:
    """The start of a padded row: reads before the array are cut off."""
    at = I0 * 4 + I1
    body = If(op("lt", const(1), at), Store("y", (at,), const(1.0, f32)))
    nest = For("i.0", 5, For("i.1", 4, body, "vectorize"))
    out = partition(nest, Scope({}))
    assert "y[i.0 * 4 + i.1] = 1.0" in lines(out)[-1] or len(lines(out)) > 4
    assert sum(isinstance(n, If) for n in walk(out)) <= 3


def test_where_takes_its_side() -> None:
    at = I0 * 8 + I1
    value = op("where", at < 20, Load("x", (at,), f32), const(0.0, f32))
    nest = For("i.0", 3, For("i.1", 8, Store("y", (at,), value), "vectorize"))
    out = partition(nest, Scope({}))
    wheres = [n for n in walk(out) if isinstance(n, Op) and n.op == "where"]
    assert len(wheres) == 1
    assert lines(out)[-1] == "  y[2 * 8 + i.1] = where(i.1 < 4, x[2 * 8 + i.1], 0.0)"


def test_dynamic_sizes_where_several_rounds_are_partial() -> None:
    """Tiles that overlap much: the size of a partial one is not known, and the guard stays."""
    body = If(I0 * 2 + I1 < 9, Store("y", (I0 * 2 + I1,), const(1.0, f32)))
    out = partition(For("i.0", 6, For("i.1", 8, body, "vectorize")), Scope({}))
    assert any("if i.0 * 2 + i.1 < 9:" in line for line in lines(out))


def test_a_few_partial_rounds_have_versions_of_their_own() -> None:
    body = If(I0 * 2 + I1 < 9, Store("y", (I0 * 2 + I1,), const(1.0, f32)))
    out = lines(partition(For("i.0", 6, For("i.1", 4, body, "vectorize")), Scope({})))
    assert [line.strip() for line in out if "if " in line] == [
        "if i.0 * 2 < 6:", "if i.0 * 2 < 7:", "if i.1 < 3:", "if i.0 * 2 < 9:", "if i.1 < 1:",
    ]  # fmt: skip


def test_both_edges_of_an_image_under_a_window() -> None:
    """Only the first round reads before the row and only the last beyond it, whatever s is."""
    s = Var("s")
    at = I0 * 4 + I1 + s - 1
    body = If(conjunction([op("lt", const(-1), at), at < 16]), Store("y", (I0 * 4 + I1,), const(1.0, f32)))
    nest = For("i.0", 4, For("s", 3, For("i.1", 4, body, "unroll")))
    out = lines(partition(nest, Scope({})))
    assert [line.strip() for line in out if "if " in line] == [
        "if 0 < i.0 * 4 + s:", "if i.0 * 4 + s < 14:", "if i.1 < 3:", "if 0 < i.1:",
    ]  # fmt: skip


def test_a_guard_that_a_loop_further_in_moves_is_another_one() -> None:
    """The same limit on the same outer part: of the tile, and of a read that is also moved by r."""
    at, r = I0 * 2 + I1, Var("r")
    inner = If(r + at < 5, Store("y", (r + at,), const(1.0, f32)))
    body = Block((If(at < 5, Store("z", (at,), const(1.0, f32))), For("r", 3, inner)))
    out = partition(For("i.0", 3, For("i.1", 2, body, "unroll")), Scope({}))
    moved = [n for n in walk(out) if isinstance(n, Store) and n.buffer == "y"]
    guards = [n for n in walk(out) if isinstance(n, If) and "r" in free_vars(n.cond)]
    assert len(guards) == len(moved) > 0


TILE = [
    ("split", "i", 4), ("split", "j", 16), ("split", "j.1", 8),
    ("reorder", "i.0", "j.0", "k", "i.1", "j.1.0", "j.1.1"),
    ("cache_write", "C", "j.0", "register", ("i.1", "j.1.0", "j.1.1")),
    ("unroll", "i.1"), ("unroll", "j.1.0"), ("vectorize", "j.1.1"),
    ("unroll", "i.1@C_acc"), ("unroll", "j.1.0@C_acc"), ("vectorize", "j.1.1@C_acc"),
]  # fmt: skip


@pytest.mark.parametrize(("m", "n"), [(8, 32), (9, 32), (8, 37), (9, 37), (3, 5), (4, 16), (1, 1), (11, 47)])
def test_register_tiles(m: int, n: int) -> None:
    """One version for each combination of whole and partial; accumulators always in registers."""
    out = lowered(scheduled(matmul(m, n, 6), *TILE))
    versions = [n.buffer for n in walk(out.body) if isinstance(n, Alloc)]
    partial = (m % 4 > 0 and m > 4) + (n % 16 > 0 and n > 16)
    assert len(versions) == 2**partial
    assert all(b.memory == "register" for b in versions)
    # Inside the loop over k only lanes are told apart, by constants.
    for loop in walk(out.body):
        if isinstance(loop, For) and loop.var == "k":
            guards = [x.cond for x in walk(loop) if isinstance(x, If)]
            assert all(free_vars(c) <= {"j.1.0", "j.1.1"} for c in guards)


def test_blocks_of_tiles() -> None:
    """Ragged blocks of ragged tiles: the guard of the blocks is a bound, that of the tiles makes versions."""
    for m, block in ((29, 3), (50, 5), (13, 2)):
        cut = [("split", "i", 4), ("split", "i.0", block)]
        order = ("reorder", "i.0.0", "i.0.1", "j", "i.1")
        lowered(scheduled(double(m, 8), *cut, order, ("unroll", "i.1")))
        order = ("reorder", "i.0.0", "k.0", "i.0.1", "k.1", "i.1", "j")
        lowered(
            scheduled(matmul(m, 9, 7), *cut, ("split", "k", 3), order, ("unroll", "i.1"), ("vectorize", "j"))
        )


def test_unrolled_sums_with_a_tail() -> None:
    out = lowered(scheduled(matmul(4, 8, 7), ("split", "k", 4), ("unroll", "k.1")))
    assert not any(isinstance(n, If) for n in walk(out.body))
