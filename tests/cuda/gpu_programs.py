"""Small programs of every family, and checks of random GPU schedules of them without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import ml_dtypes
import numpy as np

import tlm
from bench.sentences import product, shapes
from tests.space.conv_programs import random_program
from tests.space.row_programs import ATTENTION, MAPS, ROWS, _values
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Alloc, Block, Buffer, For, Program, Stmt
from tlm.model.config import Config
from tlm.schedule import apply
from tlm.space.conv_problem import convolution
from tlm.space.decide import Decided, at_random, run
from tlm.space.gpu.limits import GRID_X, GRID_YZ
from tlm.space.spaces import space_for
from tlm.target import Target

TARGETS = ("sm_80", "sm_90")

SMALL = Config(width=32, layers=1, heads=2, option_width=16, decisions=24)
"""A model that is quick to make."""

EXACT_ROWS = tuple(
    [n for n in ROWS if n.split()[0] in ("sum", "max", "min", "argmax", "argmin", "any", "cumsum", "prod")]
)
EXACT_MAPS = tuple(
    [n for n in MAPS if n not in ("exp", "gelu of a scalar", "batch_norm", "batch_norm of NCHW")]
)


def products(count: int, seed: int) -> Iterator[Program]:
    """Matrix products of small awkward shapes: plain, with transposed operands, with an epilogue."""
    for shape, form in shapes(count, 24, Random(seed)):
        yield product(shape, form)


def halves(count: int, seed: int) -> Iterator[Program]:
    """Products of bf16 and f16 that matrix instructions can multiply: plain, batched, transposed."""
    rng = Random(seed)
    for n in range(count):
        dtype = (ml_dtypes.bfloat16, np.float16)[n % 2]
        m, k, width = (rng.choice((16, 17, 24, 40)) for _ in range(3))
        a, b = np.empty((m, k), dtype), np.empty((k, width), dtype)
        if n % 3 == 1:
            b = np.empty((width, k), dtype).T
        if n % 3 == 2:
            a, b = np.empty((2, m, k), dtype), np.empty((2, k, width), dtype)
        yield tlm.ops.matmul.program(a, b)


def stencils(count: int, seed: int) -> Iterator[Program]:
    """Depthwise convolutions and pools."""
    return _convolutions(count, seed, True)


def convolutions(count: int, seed: int) -> Iterator[Program]:
    """Convolutions with channels, in groups or not."""
    return _convolutions(count, seed, False)


def _convolutions(count: int, seed: int, stencil: bool) -> Iterator[Program]:
    rng = Random(seed)
    while count:
        program = random_program(rng)
        found = convolution(program)
        if found is not None and found.stencil == stencil:
            count -= 1
            yield program


def named(table: dict[str, Callable[[], Program]]) -> Iterator[tuple[str, Program]]:
    return ((name, make()) for name, make in table.items())


TABLES = {"rows": ROWS, "maps": MAPS, "attention": ATTENTION}


def decided(program: Program, seed: int) -> tuple[Target, Decided]:
    """A random sentence for one of the targets."""
    target = Target(TARGETS[seed % 2])
    return target, run(space_for(program, target), at_random(Random(seed)))


def check(program: Program, seed: int, exact: bool = True) -> Program:
    """Compare a random schedule with the program in the interpreter, and it with the limits of its target."""
    target, found = decided(program, seed)
    scheduled = apply(program, found.steps)
    within(scheduled, target)
    inputs = _values(program, seed)
    for got, wanted in zip(interpret(scheduled, inputs), interpret(program, inputs), strict=True):
        if exact:
            np.testing.assert_array_equal(got, wanted, err_msg=str(found.values))
        else:
            tolerance = 2e-3 if wanted.dtype.itemsize == 2 else 1e-5
            np.testing.assert_allclose(
                got.astype("f8"), wanted.astype("f8"), tolerance, tolerance, err_msg=str(found.values)
            )
    return scheduled


def within(program: Program, target: Target) -> None:
    """Assert that every kernel of a scheduled program can be launched, as its loops and buffers stand."""
    for kernel in kernels(program.body):
        loops = list(_loops(kernel))
        for kind, limit in (("blockIdx.x", GRID_X), ("blockIdx.y", GRID_YZ), ("blockIdx.z", GRID_YZ)):
            assert all(f.extent <= limit for f in loops if f.kind == kind)
        threads = 1
        for axis in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
            threads *= max([f.extent for f in loops if f.kind == axis], default=1)
        assert threads <= target.block_threads
        made = list(_made(kernel))
        assert all(b.memory in ("shared", "register") for b in made), "no global memory inside of a block"
        assert sum(_bytes(b) for b in made if b.memory == "shared") <= target.block_shared
        held = sum(_private(b, loops) * -(-b.dtype.bytes // 4) for b in made if b.memory == "register")
        assert held <= target.thread_registers


def _bytes(buffer: Buffer) -> int:
    """Bytes of all stages of a shared buffer with its padding."""
    last = sum((n - 1) * step for n, step in zip(buffer.shape, buffer.element_strides, strict=True))
    return (1 + last) * buffer.dtype.bytes * buffer.stages


def kernels(stmt: Stmt) -> Iterator[Stmt]:
    """The nests at the top of a program; what is made around them is global scratch."""
    match stmt:
        case Alloc(buffer, body):
            assert buffer.memory == "heap", f"{buffer.name} is {buffer.memory} but outlives a kernel"
            yield from kernels(body)
        case Block(stmts):
            for s in stmts:
                yield from kernels(s)
        case _:
            yield stmt


def _loops(stmt: Stmt) -> Iterator[For]:
    match stmt:
        case For(body=body):
            yield stmt
            yield from _loops(body)
        case Alloc(_, body):
            yield from _loops(body)
        case Block(stmts):
            for s in stmts:
                yield from _loops(s)
        case _ if hasattr(stmt, "then"):
            yield from _loops(stmt.then)


def _made(stmt: Stmt) -> Iterator[Buffer]:
    match stmt:
        case Alloc(buffer, body):
            yield buffer
            yield from _made(body)
        case For(body=body):
            yield from _made(body)
        case Block(stmts):
            for s in stmts:
                yield from _made(s)
        case _ if hasattr(stmt, "then"):
            yield from _made(stmt.then)


def _private(buffer: Buffer, loops: list[For]) -> int:
    """Elements that one thread holds at least: dimensions as long as a thread loop belong to the threads."""
    threads = [f.extent for f in loops if f.kind.startswith("thread")]
    size = 1
    for extent in buffer.shape:
        size *= 1 if extent in threads else extent
    return size
