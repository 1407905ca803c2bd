"""Register tiles: exact results with every kind of tail, and the inner loop that the schedule asked for."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.backend.programs import check, outputs, plain_matmul, run, target, tiled_matmul, whole_numbers
from tlm.backend import compile

TILES = {"avx512": (8, 48, 16), "avx2": (6, 16, 8), "sse": (4, 8, 4)}


@pytest.mark.parametrize(
    ("m", "n", "k", "unroll"),
    [
        (16, 96, 8, 1),
        (13, 100, 5, 2),
        (3, 5, 7, 1),
        (33, 65, 1, 4),
        (1, 1, 1, 1),
        (8, 47, 6, 4),
        (25, 49, 9, 3),
    ],
)
def test_tiles_with_tails(m: int, n: int, k: int, unroll: int, isa: str) -> None:
    check(tiled_matmul(m, n, k, *TILES[isa], unroll=unroll), isa)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
def test_unscheduled_product(dtype: str, isa: str) -> None:
    check(plain_matmul(5, 7, 9, dtype), isa)


def inner_loop(assembly: str, mark: str) -> str:
    """The basic block with the most instructions `mark`."""
    return max(re.split(r"\n(?=\.L)", assembly), key=lambda block: block.count(mark))


@pytest.mark.parametrize(
    ("level", "tile", "unroll"),
    [
        ("avx512", (8, 48, 16), 1), ("avx512", (12, 32, 16), 1), ("avx512", (14, 32, 16), 1),
        ("avx512", (12, 32, 16), 4),
        ("avx2", (6, 16, 8), 1), ("avx2", (4, 24, 8), 1),
    ],
)  # fmt: skip
def test_inner_loop_has_nothing_to_spare(level: str, tile: tuple[int, int, int], unroll: int) -> None:
    """Only multiply-adds, vector loads of B, broadcasts of A, and three instructions of the loop itself."""
    rows, columns, lanes = tile
    kernel = compile(
        tiled_matmul(8 * rows, 4 * columns, 64, *tile, unroll=unroll), target(level), cache=False
    )
    block = inner_loop(kernel.assembly, "vfmadd231ps")
    body = [line.split()[0] for line in block.splitlines()[1:]]
    body = body[: next(i for i, op in enumerate(body) if op.startswith("j")) + 1]
    vectors = columns // lanes
    counts = {name: body.count(name) for name in ("vfmadd231ps", "vbroadcastss", "vmovups")}
    assert counts == {
        "vfmadd231ps": rows * vectors * unroll, "vbroadcastss": rows * unroll, "vmovups": vectors * unroll,
    }  # fmt: skip
    assert len(body) <= sum(counts.values()) + 4, body
    assert "%rsp" not in block
    assert ("%zmm" in block) == (level == "avx512")


def test_tail_versions_are_chosen_outside_the_tile() -> None:
    """With tails in both directions there are four versions; the last ones compute only the vectors that
    count."""
    kernel = compile(tiled_matmul(45, 100, 64, 8, 48, 16), target("avx512"), cache=False)
    loops = [b for b in re.split(r"\n(?=\.L)", kernel.assembly) if b.count("vfmadd231ps") >= 3]
    assert len(loops) == 4
    assert sorted(b.count("vfmadd231ps") for b in loops) == [5, 8, 15, 24]
    assert "%rsp" not in "".join(loops)


def test_sse_has_no_fused_instruction_and_no_call() -> None:
    kernel = compile(tiled_matmul(8, 16, 8, 4, 8, 4), target("sse"), cache=False)
    assert "fmadd" not in kernel.assembly
    assert "call" not in kernel.assembly
    assert "mulps" in kernel.assembly


@pytest.mark.parametrize("level", ["avx2", "sse"])
def test_code_stays_within_the_level(level: str) -> None:
    """Even where this CPU has more."""
    kernel = compile(tiled_matmul(17, 33, 8, *TILES[level]), target(level), cache=False)
    assert "%zmm" not in kernel.assembly
    assert "%k1" not in kernel.assembly
    if level == "sse":
        assert not re.search(r"^\tv", kernel.assembly, re.MULTILINE)


def test_sums_in_memory_are_kept_in_registers() -> None:
    """The plain nest stores each element once, after its loop."""
    kernel = compile(plain_matmul(5, 7, 50), target("avx2"), cache=False)
    block = inner_loop(kernel.assembly, "vfmadd")
    assert block.count("vfmadd") == 1
    assert not re.search(r"movss\s+%xmm\d+, .*\(", block.split("jl")[0])


def test_results_do_not_depend_on_what_the_output_held() -> None:
    program = tiled_matmul(13, 50, 6, 8, 48, 16)
    kernel = compile(program, target("avx512"), cache=False)
    arrays = whole_numbers(program)
    (first,) = run(kernel, arrays)
    out = outputs(program)
    out[0][:] = np.nan
    kernel(*arrays, *out)
    kernel(*arrays, *out)
    np.testing.assert_array_equal(out[0], first)
