"""Where reductions start: before their outermost loop, or in the first round of a write-back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lower.programs import dtypes, lines, lowered, matmul, row_sums, same, scheduled
from tlm.ir.dtypes import f32
from tlm.ir.exprs import const
from tlm.ir.nodes import Program, Store, Update
from tlm.ir.walk import walk
from tlm.lower.initial import explicit_init


def explicit(program: Program) -> Program:
    out = replace(program, body=explicit_init(program.body, dtypes(program)))
    assert not any(isinstance(n, Update) and n.init for n in walk(out.body))
    same(out, program)
    return out


def test_before_the_outermost_reduction_loop() -> None:
    program = explicit(scheduled(matmul(), ("reorder", "k", "i", "j")))
    assert lines(program.body) == [
        "for i@init in 4:",
        "  for j@init in 5:",
        "    C[i@init, j@init] = 0.0",
        "for k in 6:",
        "  for i in 4:",
        "    for j in 5:",
        "      C[i, j] (k; no init)+= A[i, k] * B[k, j]",
    ]


def test_under_the_loops_around_it() -> None:
    program = explicit(scheduled(matmul(), ("split", "k", 4), ("reorder", "i", "k.0", "j", "k.1")))
    assert lines(program.body)[:4] == [
        "for i in 4:",
        "  for j@init in 5:",
        "    C[i, j@init] = 0.0",
        "  for k.0 in 2:",
    ]


def test_a_tile_summed_inside_is_stored_in_the_first_round() -> None:
    steps = [
        ("split", "k", 2),
        ("reorder", "k.0", "i", "j", "k.1"),
        ("cache_write", "C", "k.0", "heap", ("i", "j")),
    ]
    program = explicit(scheduled(matmul(), *steps))
    assert "      if k.0 < 1:" in [line[2:] for line in lines(program.body)]
    assert sum("= 0.0" in line for line in lines(program.body)) == 1


def test_guards_of_the_reduction_are_left_out_and_others_kept() -> None:
    steps = [("split", "i", 3), ("split", "k", 4), ("reorder", "k.0", "k.1", "i.0", "i.1", "j")]
    text = lines(explicit(scheduled(matmul(), *steps)).body)
    start = text[: text.index("for k.0 in 2:")]
    assert any("if i.0@init * 3 + i.1@init < 4:" in line for line in start)
    assert not any("k." in line for line in start)


@pytest.mark.parametrize("combiner", ["max", "min", "prod"])
def test_identities(combiner: str) -> None:
    program = explicit(row_sums(combiner=combiner))
    want = {"max": "-inf", "min": "inf", "prod": "1.0"}[combiner]
    assert lines(program.body)[1] == f"  s[i] = {want}"


def test_an_update_without_loops_is_a_store() -> None:
    body = Update(("y",), (const(0),), (const(2.0, f32),), "sum", ())
    out = explicit_init(body, {"y": f32})
    assert out == Store("y", (const(0),), const(2.0, f32))


def test_peeled_tails_start_once() -> None:
    lowered(scheduled(matmul(k=7), ("split", "k", 3, "peel"), ("reorder", "k.0", "k.1")))
