"""Stack and compile time are bounded, whatever the schedule asks for."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.backend.programs import check, outputs, plain_matmul, run, target, whole_numbers
from tlm.backend import compile
from tlm.ir.dtypes import f32
from tlm.ir.exprs import Load, Var, const
from tlm.ir.nodes import Alloc, Buffer, For, Program, Store, Update, block
from tlm.ir.walk import loops, walk
from tlm.lower import lower
from tlm.schedule import Schedule


def local_copy(rows: int, columns: int, memory: str, kind: str = "serial") -> Program:
    """y[i] = 2 * x[i] through a temporary of `rows` x `columns` inside a loop of 4."""
    x, y = Buffer("x", (4, rows, columns), f32), Buffer("y", (4, rows, columns), f32)
    t = Buffer("t", (rows, columns), f32, memory)  # type: ignore[arg-type]
    at = (Var("i"), Var("r"), Var("c"))
    fill = For("r", rows, For("c", columns, Store("t", at[1:], Load("x", at, f32)), "vectorize"))
    after = (Var("i"), Var("s"), Var("d"))
    back = For("s", rows, For("d", columns, Store("y", after, Load("t", after[1:], f32) * 2.0), "vectorize"))
    body = For("i", 4, Alloc(t, block(fill, back)), kind)  # type: ignore[arg-type]
    return Program("local", (x,), (y,), body)


SMALL_STACK = """
import threading
import numpy as np
from tests.backend.test_limits import local_copy
from tests.backend.programs import run, target
from tlm.backend import compile
threading.stack_size(512 << 10)
good = []
def work():
    for memory in ("stack", "register", "heap"):
        program = local_copy(2048, 1024, memory, "parallel")
        x = np.arange(4 * 2048 * 1024, dtype="f4").reshape(4, 2048, 1024)
        kernel = compile(program, target("avx2"), cache=False)
        good.append((run(kernel, [x], 2)[0] == 2 * x).all())
t = threading.Thread(target=work)
t.start(); t.join()
assert good == [True] * 3, good
"""


def test_big_temporaries_go_to_the_heap() -> None:
    """An 8 MiB tile in each round of a parallel loop, called from a thread with a stack of 512 KiB."""
    subprocess.run([sys.executable, "-c", SMALL_STACK], check=True, timeout=120)


def test_small_temporaries_are_allocated_once() -> None:
    """A local of 256 bytes in 10**6 rounds takes no more stack than in one."""
    x, y = Buffer("x", (64,), f32), Buffer("y", (64,), f32)
    t = Buffer("t", (64,), f32, "stack")
    fill = For("a", 64, Store("t", (Var("a"),), Load("x", (Var("a"),), f32)))
    back = For("b", 64, Store("y", (Var("b"),), Load("t", (Var("b"),), f32)))
    program = Program("local", (x,), (y,), For("i", 10**6, Alloc(t, block(fill, back))))
    source = compile(program, target("avx2"), cache=False).source
    entry = source[: source.index("\nloop")]
    assert entry.count("alloca") == source.count("alloca") == 1


@pytest.mark.parametrize("memory", ["stack", "register", "heap"])
@pytest.mark.parametrize("kind", ["serial", "parallel", "unroll", "vectorize"])
def test_temporaries_in_every_kind_of_loop(memory: str, kind: str, isa: str) -> None:
    check(local_copy(3, 21, memory, kind), isa)


def test_unrolling_is_capped() -> None:
    x, y = Buffer("x", (64, 4096), f32), Buffer("y", (64, 4096), f32)
    at = (Var("i"), Var("j"))
    body = For("i", 64, For("j", 4096, Store("y", at, Load("x", at, f32)), "unroll"), "unroll")
    start = time.process_time()
    kernel = compile(Program("copy", (x,), (y,), body), target("avx2"), cache=False)
    assert time.process_time() - start < 2
    data = np.arange(64 * 4096, dtype="f4").reshape(64, 4096)
    np.testing.assert_array_equal(run(kernel, [data])[0], data)


def test_unroll_of_a_billion_is_a_loop() -> None:
    body = For("i", 10**9, Store("y", (const(0),), const(1.0, f32)), "unroll")
    start = time.process_time()
    kernel = compile(Program("p", (), (Buffer("y", (1,), f32),), body), target("avx2"), cache=False)
    assert time.process_time() - start < 1
    assert len(kernel.object) < 4096


def test_partial_unroll_of_a_large_body_is_capped() -> None:
    """From a record: a serial loop of 64 copies of a body that is unrolled 2048 times itself."""
    program = plain_matmul(32, 64, 64)
    update = next(n for n in walk(program.body) if isinstance(n, Update))
    body = For("k", 64, For("i", 32, For("j", 64, update, "unroll"), "unroll"), unroll=64)
    program = replace(program, body=body)
    start = time.process_time()
    kernel = compile(program, target("avx2"), cache=False)
    assert time.process_time() - start < 5
    arrays = whole_numbers(program)
    np.testing.assert_array_equal(run(kernel, arrays)[0], arrays[0] @ arrays[1])


@pytest.mark.parametrize("unroll", [2, 3, 4, 8, 100])
@pytest.mark.parametrize("k", [1, 3, 8, 13])
def test_unrolled_loops_with_a_remainder(unroll: int, k: int) -> None:
    s = Schedule(plain_matmul(4, 9, k))
    s.unroll("k", unroll)
    check(s.program, "avx2")


def test_long_vector_loops_are_cut_to_the_machine(isa: str) -> None:
    x, y = Buffer("x", (1000,), f32), Buffer("y", (1000,), f32)
    body = For("i", 1000, Store("y", (Var("i"),), Load("x", (Var("i"),), f32) + 1.0), "vectorize")
    program = Program("add", (x,), (y,), body)
    lanes = target(isa).vector_bytes // 4
    assert max(v.extent for v in loops(lower(program, target(isa)).body) if v.kind == "vectorize") == lanes
    check(program, isa)


def test_no_iterations_and_one() -> None:
    for extent in (0, 1):
        y = Buffer("y", (1,), f32)
        for kind in ("serial", "parallel", "vectorize", "unroll"):
            body = block(
                Store("y", (const(0),), const(5.0, f32)),
                For("i", extent, Store("y", (Var("i"),), const(7.0, f32)), kind),  # type: ignore[arg-type]
            )
            program = Program("p", (), (y,), body)
            out = outputs(program)
            compile(program, target("avx2"), cache=False)(*out)
            assert out[0].tolist() == [7.0 if extent else 5.0]
