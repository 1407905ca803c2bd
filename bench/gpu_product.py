"""What the machine code of a large product does, read from its cubin without a GPU.

python -m bench.gpu_product [--arch sm_90] [--dtype f32] [--size 4096] [--schedule heuristic] [--json FILE]

Registers, spills and occupancy are the compiler's; widths and counts are those of the main loop in the
disassembly. Bank conflicts and traffic of shared memory are counted on the same text with fewer blocks and
fewer steps of k, run on the CPU in the tests' shim: all blocks and steps make the same addresses. What the
instructions of warpgroups read by themselves is not among that traffic.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

import tlm
from tests.cuda import shim
from tlm.backend.cuda import compile
from tlm.backend.cuda.disassembly import BARRIER, Body, disassemble, main_loop
from tlm.backend.cuda.emitter import Source, emit
from tlm.errors import ArgumentError, TlmWarning
from tlm.ir.dtypes import to_numpy
from tlm.schedule import apply
from tlm.search.heuristic import heuristic
from tlm.space.choice import Choice, Value
from tlm.space.decide import run
from tlm.space.spaces import space_for
from tlm.target import Target

DTYPES = {"f32": np.dtype("f4"), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype("f2")}
INSTRUCTIONS = ("HGMMA", "HMMA", "FFMA")
WARP = 32
Picks = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Row:
    """One product. Counts are of the main loop, an iteration of which is `barriers` steps of k through shared
    memory; a loop in it that multiplies counts as often as it runs, `trips` times, others once. Widths are
    {bits: instructions}. Bytes of shared memory that move count 128 for each pass over the
    banks; `conflicts` are passes beyond the fewest possible, of reads and of writes.
    """

    arch: str
    dtype: str
    size: int
    schedule: str
    picks: dict[str, Value]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    spills: int
    shared_bytes: int
    blocks: int
    occupancy: float
    multiply: str
    multiplies: int
    trips: int
    barriers: int
    per_barrier: float
    matrix_loads: int
    async_copies: int
    global_loads: dict[int, int]
    shared_loads: dict[int, int]
    shared_stores: dict[int, int]
    flops_per_global_byte: float
    flops_per_shared_byte: float
    read_conflicts: int
    write_conflicts: int


def per_thread(name: str) -> int:
    """Multiply-adds of a thread in an instruction: FFMA, HMMA.16816.F32 of a warp, HGMMA.64x256x16.F32 of
    four."""
    base, *parts = name.split(".")
    if base == "HGMMA":
        return prod(map(int, parts[0].split("x"))) // (4 * WARP)
    return 16 * 8 * 16 // WARP if base == "HMMA" else 1


def operands(m: int, k: int, n: int, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Both factors, without memory."""
    return tuple([SimpleNamespace(shape=shape, dtype=dtype) for shape in ((m, k), (k, n))])  # type: ignore[return-value]


def decided(size: int, dtype: str, target: Target, schedule: str | None) -> tuple[Any, str]:
    """(kernel, the schedule it has): generated where this is offered for GPUs, else the closed form."""
    a, b = operands(size, size, size, DTYPES[dtype])
    if schedule is None:
        with warnings.catch_warnings():
            # Where there are no weights for GPUs, a warning says that another schedule is taken.
            warnings.simplefilter("error", TlmWarning)
            try:
                return tlm.ops.matmul.kernel(a, b, schedule="generate", target=target), "generate"
            except (ArgumentError, TlmWarning):
                schedule = "heuristic"
    return tlm.ops.matmul.kernel(a, b, schedule=schedule, target=target), schedule


def again(picks: Picks) -> Callable[[Choice, tuple[Any, ...]], int]:
    """A decider that gives these answers, and the closed form's where it cannot."""

    def decide(choice: Choice, picked: tuple[Any, ...]) -> int:
        value = picks.get(choice.name)
        return choice.values.index(value) if value in choice.values else heuristic(choice, picked)

    return decide


def small(picks: Picks, dtype: str, target: Target, steps: int = 0) -> tuple[Source, shim.Report]:
    """The same block on one tile and a few steps of k, checked: (text, counts)."""
    # Warpgroups always take 64 steps of k at a time.
    m, n, deep = int(picks["cta_m"]), int(picks["cta_n"]), int(picks.get("cta_k", 64))
    steps = steps or int(picks.get("stages", 1)) + 1
    a, b = operands(m, deep * steps, n, DTYPES[dtype])
    program = tlm.ops.matmul.program(a, b)
    source = emit(
        apply(program, run(space_for(program, target), again({**picks, "slices": 1})).steps), target
    )
    return source, counted(source)


@cache
def counted(source: Source) -> shim.Report:
    """The counts of a product on the CPU, which must be right; targets of one text share them."""
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, x.shape).astype(to_numpy(x.dtype)) for x in source.buffers[:2]]
    rest = [np.zeros(x.shape, to_numpy(x.dtype)) for x in source.buffers[2:]]
    report = shim.run(source.text, source.kernels, [*given, *rest], passes=shim.PASSES[1:])
    right = given[0].astype("f4") @ given[1].astype("f4")
    np.testing.assert_array_equal(rest[0].astype("f4"), right.astype(rest[0].dtype).astype("f4"))
    return report


def measure(size: int, dtype: str, target: Target, schedule: str | None = None) -> Row:
    """The figures of the product of two square matrices."""
    kernel, how = decided(size, dtype, target, schedule)
    return figures(kernel, {name: value for name, _, value, _ in kernel.choices}, size, dtype, target, how)


def picked(size: int, dtype: str, target: Target, picks: Picks) -> Row:
    """The same where some questions are answered by `picks`, and the others by the closed form."""
    program = tlm.ops.matmul.program(*operands(size, size, size, DTYPES[dtype]))
    found = run(space_for(program, target), again(picks))
    made = {choice.name: value for (choice, _), value in zip(found.choices, found.values, strict=True)}
    return figures(compile(apply(program, found.steps), target), made, size, dtype, target, "picked")


def products(body: Body) -> int:
    """Multiply-adds of a thread in a loop."""
    return sum([per_thread(i.name) for i in body.code if i.base in INSTRUCTIONS])


def iteration(kernel: Any, picks: Picks) -> tuple[Body, int]:
    """What runs in one iteration of the main loop, and how often the loop in it that multiplies does.

    That is told by what is multiplied in all, as the machine code only shows one iteration of it. ValueError
    where there is no main loop, or loops in it do not add up.
    """
    body = main_loop(max(disassemble(kernel.cubin).values(), key=len))
    if body is None:
        raise ValueError(f"{kernel.target.name}: the main loop is missing")
    if body.inner is None:
        return body, 1
    # Copies that run ahead need one barrier in a step of k, others two.
    steps = max(1, body.count(BARRIER) // (1 if int(picks.get("stages", 1)) > 1 else 2))
    tile = int(picks["cta_m"]) * int(picks["cta_n"]) * int(picks.get("cta_k", 64))
    inside = products(body.inner)
    trips, rest = divmod(steps * tile // prod(kernel.block) - (products(body) - inside), inside)
    if rest or trips < 1 or body.inner.inner is not None:
        raise ValueError(f"{kernel.target.name}: the loops in the main loop do not add up to {picks}")
    return body.repeated(trips), trips


def figures(kernel: Any, picks: dict[str, Value], size: int, dtype: str, target: Target, how: str) -> Row:
    """The figures of a compiled product."""
    body, trips = iteration(kernel, picks)
    source, report = small(picks, dtype, target)
    launch, stats = source.kernels[0], kernel.stats
    if (launch.block, launch.shared_bytes + launch.static_shared) != (
        kernel.launches[0].block,
        kernel.shared_bytes,
    ):
        raise ValueError("the small product has another block")
    multiply = next(x for x in INSTRUCTIONS if body.count(x))
    multiplies, barriers = body.count(multiply), body.count(BARRIER)
    m, n = int(picks["cta_m"]), int(picks["cta_n"])
    each = DTYPES[dtype].itemsize
    near, far = report.total.shared_reads, report.total.shared_writes
    steps = source.buffers[0].shape[1]
    return Row(
        target.name, dtype, size, how, picks, kernel.grid, kernel.block, stats.registers, stats.spills,
        kernel.shared_bytes, stats.blocks, stats.occupancy, multiply, multiplies, trips, barriers,
        products(body) / max(barriers, 1), body.count("LDSM"),
        body.count("LDGSTS"), body.widths("LDG"), body.widths("LDS"), body.widths("STS"),
        2.0 * m * n * size / (size * (m + n) * each + m * n * each),
        2.0 * m * n * steps / (128.0 * max(1, near.transactions + far.transactions)),
        near.transactions - near.ideal, far.transactions - far.ideal,
    )  # fmt: skip


COLUMNS: dict[str, Callable[[Row], str]] = {
    "arch": lambda r: r.arch,
    "dtype": lambda r: r.dtype,
    "schedule": lambda r: r.schedule,
    "tile": lambda r: "x".join(str(r.picks.get(x, 64)) for x in ("cta_m", "cta_n", "cta_k")),
    "stages": lambda r: str(r.picks.get("stages", 1)),
    "regs": lambda r: str(r.registers),
    "spills": lambda r: str(r.spills),
    "shared": lambda r: str(r.shared_bytes),
    "blocks": lambda r: str(r.blocks),
    "occup.": lambda r: f"{r.occupancy:.0%}",
    "instr.": lambda r: f"{r.multiplies} {r.multiply}/{r.barriers} BAR",
    "FMA/thread/barrier": lambda r: f"{r.per_barrier:.0f}",
    "LDG": lambda r: _widths(r.global_loads),
    "LDGSTS": lambda r: str(r.async_copies),
    "LDS": lambda r: _widths(r.shared_loads),
    "LDSM": lambda r: str(r.matrix_loads),
    "flop/B global": lambda r: f"{r.flops_per_global_byte:.1f}",
    "flop/B shared": lambda r: f"{r.flops_per_shared_byte:.1f}",
    "conflicts r/w": lambda r: f"{r.read_conflicts}/{r.write_conflicts}",
}


def table(rows: list[Row]) -> str:
    """The columns of all rows."""
    cells = [list(COLUMNS), *[[show(r) for show in COLUMNS.values()] for r in rows]]
    widths = [max(len(row[n]) for row in cells) for n in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def _widths(found: Mapping[int, int]) -> str:
    return " ".join(f"{count}x{bits}" for bits, count in found.items()) or "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--arch", nargs="+", default=["sm_80", "sm_90", "sm_90a"])
    parser.add_argument("--dtype", nargs="+", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--schedule", help="default: generate where it is offered for GPUs, else heuristic")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = [
        measure(asked.size, dtype, Target(arch), asked.schedule)
        for arch in asked.arch
        for dtype in asked.dtype
    ]
    print(table(rows))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
