"""Barriers stand where threads meet, and nowhere else; taking any of them out is seen."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.cuda import programs, shim
from tests.cuda.emitted import SM_80, laid, values
from tlm.backend.cuda.emitter import emit
from tlm.ir.dtypes import f32
from tlm.ir.exprs import Expr, Load, Var
from tlm.ir.nodes import Alloc, Buffer, For, Program, Stmt, Store, Update, block

N = 8
X, Y = Buffer("x", (N, N), f32), Buffer("y", (N, N), f32)
ROW, COL, STEP = Var("i"), Var("j"), Var("k")


def load(name: str, *indices: Expr) -> Load:
    return Load(name, indices, f32)


def nest(target: str, indices: tuple[Expr, ...], value: Expr) -> Stmt:
    """A store by the threads i (y) and j (x)."""
    return For("i", N, For("j", N, Store(target, indices, value), "threadIdx.x"), "threadIdx.y")


def program(*stmts: Stmt, shared: tuple[str, ...] = ("s",), rows: int = N) -> Program:
    body: Stmt = block(*stmts)
    for name in shared:
        body = Alloc(Buffer(name, (rows, N), f32, "shared"), body)
    return Program("p", (X,), (Y,), body)


def lines(p: Program) -> list[str]:
    """What each stage is and where the barriers are, from the text."""
    found = re.findall(r"// (\w+)|(__syncthreads)", emit(in_block(p), SM_80).text)
    return ["|" if b else name for name, b in found]


def in_block(p: Program) -> Program:
    return Program(p.name, p.inputs, p.outputs, For("b", 1, p.body, "blockIdx.x"))


FILL = nest("s", (ROW, COL), load("x", ROW, COL))


def test_a_thread_that_reads_what_it_wrote_needs_no_barrier():
    assert lines(program(FILL, nest("y", (ROW, COL), load("s", ROW, COL)))) == ["s", "y"]


def test_a_thread_that_reads_what_another_wrote_waits():
    assert lines(program(FILL, nest("y", (ROW, COL), load("s", COL, ROW)))) == ["s", "|", "y"]


def test_elements_that_never_meet_need_no_barrier():
    even = nest("s", (ROW, COL), load("x", ROW, COL))
    other = nest("y", (ROW, COL), load("s", COL + N, ROW))
    assert lines(program(even, other, rows=2 * N)) == ["s", "y"]
    assert lines(program(even, nest("y", (ROW, COL), load("s", COL, ROW)), rows=2 * N)) == ["s", "|", "y"]


def test_writing_what_another_thread_read_waits():
    turned = nest("y", (ROW, COL), load("s", COL, ROW))
    assert lines(program(FILL, turned, nest("s", (ROW, COL), load("x", COL, ROW)))) == [
        "s",
        "|",
        "y",
        "|",
        "s",
    ]


def test_one_barrier_serves_two_buffers():
    both = nest("y", (ROW, COL), load("s", COL, ROW) + load("t", COL, ROW))
    assert lines(program(FILL, nest("t", (ROW, COL), load("x", ROW, COL)), both, shared=("s", "t"))) == [
        "s", "t", "|", "y",
    ]  # fmt: skip


def test_a_loop_waits_once_for_what_came_before_it():
    step = nest("y", (ROW, COL), load("s", COL, STEP))
    assert lines(program(FILL, For("k", N, step))) == ["s", "|", "y"]


def test_a_loop_that_fills_and_reads_waits_twice():
    body = block(nest("s", (ROW, COL), load("x", ROW, STEP)), nest("y", (ROW, COL), load("s", COL, ROW)))
    assert lines(program(For("k", N, body))) == ["|", "s", "|", "y"]
    assert lines(program(For("k", 1, body))) == ["s", "|", "y"]


def test_global_memory_that_a_block_writes_and_reads_is_waited_for():
    turned = nest("s", (ROW, COL), load("y", COL, ROW))
    assert lines(program(nest("y", (ROW, COL), load("x", ROW, COL)), turned)) == ["y", "|", "s"]
    assert lines(
        program(nest("s", (ROW, COL), load("x", COL, ROW)), nest("y", (ROW, COL), load("x", ROW, COL)))
    ) == [
        "s",
        "y",
    ]


def test_a_merge_of_threads_is_waited_for_before_all_read_it():
    top = Alloc(
        Buffer("m", (N,), f32, "shared"),
        block(
            For(
                "i",
                N,
                For("j", N, Update(("m",), (ROW,), (load("x", ROW, COL),), "max", ("j",)), "threadIdx.x"),
                "threadIdx.y",
            ),
            nest("y", (ROW, COL), load("x", ROW, COL) - load("m", ROW)),
        ),
    )
    assert lines(program(top, shared=())) == ["m", "|", "y"]


@pytest.mark.parametrize("stages", [1, 2])
def test_taking_out_any_barrier_of_the_tiled_product_is_caught(stages):
    s = programs.bound_product(m=32, n=32, k=24, tile=(4, 4), block=(8, 8), stages=stages)
    source = emit(s.program, SM_80)
    marks = [m.span() for m in re.finditer(r"__syncthreads\(\);", source.text)]
    assert len(marks) == (2 if stages == 1 else 1)
    for start, end in marks:
        text = source.text[:start] + source.text[end:]
        arrays = [*values(s.program), *[laid(b, None) for b in s.program.outputs]]
        with pytest.raises(shim.ShimError):
            shim.run(text, source.kernels, arrays)


def test_barriers_do_not_change_the_result():
    s = programs.bound_product(m=32, n=32, k=24, tile=(4, 4), block=(8, 8))
    given = values(s.program)
    out = [laid(b, None) for b in s.program.outputs]
    source = emit(s.program, SM_80)
    shim.run(source.text, source.kernels, [*given, *out], passes=shim.ALL_PASSES)
    np.testing.assert_array_equal(out[0], given[0] @ given[1])
