"""Schedules of a fast matrix product: register tiles, cache blocks, packing, partial sums, epilogues."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from tlm.ir.build import Builder
from tlm.ir.exprs import const, op
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.ir.verify import verify
from tlm.schedule import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    DecomposeReduction,
    Inline,
    Parallel,
    PrefetchAhead,
    Reorder,
    ReverseComputeAt,
    ReverseInline,
    RFactor,
    Schedule,
    Split,
    Step,
    Unroll,
    Vectorize,
    apply,
)

SHAPES = [(13, 37, 11), (1, 1, 1), (8, 32, 4), (17, 5, 3), (1, 40, 7), (20, 1, 9), (9, 33, 1)]


def matmul(m: int, n: int, k: int) -> Program:
    b = Builder("matmul")
    x, w = b.input("A", (m, k), "f32"), b.input("B", (k, n), "f32")
    b.reduce("C", (m, n), {"k": k}, lambda i, j, r: x[i, r] * w[r, j], output=True)
    return b.build()


def linear(m: int, n: int, k: int) -> Program:
    b = Builder("linear")
    x, w, v = b.input("A", (m, k), "f32"), b.input("B", (k, n), "f32"), b.input("bias", (n,), "f32")
    c = b.reduce("C", (m, n), {"k": k}, lambda i, j, r: x[i, r] * w[r, j])
    y = b.compute("Y", (m, n), lambda i, j: c[i, j] + v[j])
    b.compute("Z", (m, n), lambda i, j: op("maximum", y[i, j], const(0, y.dtype)), output=True)
    return b.build()


def blocked(
    rows: int, columns: int, lanes: int, m: int = 0, n: int = 0, k: int = 0, packed: bool = False
) -> tuple[Step, ...]:
    """Register tiles of rows x columns; blocks of m and n tiles and of k steps, where given; B packed."""
    steps: list[Step] = [Split("i", rows), Split("j", columns), Split("j.1", lanes)]
    outer, tiles, inner = [], {"i": "i.0", "j": "j.0"}, "k"
    for axis, size in (("j", n), ("k", k), ("i", m)):
        if size and axis == "k":
            steps.append(Split("k", size))
            outer.append("k.0")
            inner = "k.1"
        elif size:
            steps.append(Split(f"{axis}.0", size))
            outer.append(f"{axis}.0.0")
            tiles[axis] = f"{axis}.0.1"
    tile = ("i.1", "j.1.0", "j.1.1")
    steps.append(Reorder((*outer, tiles["j"], tiles["i"], inner, *tile)))
    place = [x for x in outer if x[0] in "jk"]
    steps.append(CacheRead("B", place[-1] if place else "", layout=(tiles["j"], inner, *tile[1:]), pad=True))
    if packed:
        place = [x for x in outer if x[0] in "ik"]
        steps.append(CacheRead("A", place[-1] if place else "", layout=(tiles["i"], inner, "i.1"), pad=True))
    steps += [CacheWrite("C", tiles["i"], layout=tile), DecomposeReduction("C_acc", inner)]
    for copy in ("", "@init", "@C_acc"):
        steps += [Unroll("i.1" + copy), Unroll("j.1.0" + copy), Vectorize("j.1.1" + copy)]
    return (*steps, Vectorize("j.1.1@B_pack"), PrefetchAhead("B_pack", inner, 2))


SCHEDULES = {
    "register tiles": dict(rows=8, columns=32, lanes=16),
    "partial sums": dict(rows=8, columns=32, lanes=16, k=4),
    "blocks": dict(rows=4, columns=8, lanes=4, m=2, n=2, k=4),
    "both packed": dict(rows=4, columns=16, lanes=8, m=3, n=2, k=5, packed=True),
    "nothing divides": dict(rows=3, columns=6, lanes=4, m=2, n=2, k=3, packed=True),
}


def values(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, s).astype("f4") for s in shapes]


def check(program: Program, steps: tuple[Step, ...]) -> Program:
    new = apply(program, steps)
    verify(new)
    arrays = values(*[b.shape for b in program.inputs])
    want = arrays[0] @ arrays[1]
    if len(arrays) == 3:
        want = np.maximum(want + arrays[2], 0)
    assert interpret(new, arrays)[0].tobytes() == want.tobytes()
    return new


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_blocked_products_are_exact(name: str, shape: tuple[int, int, int]) -> None:
    check(matmul(*shape), blocked(**SCHEDULES[name]))


def test_the_text_of_a_blocked_product() -> None:
    steps = blocked(rows=4, columns=8, lanes=4, n=2, k=5, packed=True)
    assert (
        str(Schedule(matmul(10, 20, 9)).apply(*steps))
        == """\
program matmul(A: f32[10, 9], B: f32[9, 20]) -> (C: f32[10, 20])
for j.0.0 in 2:
  for k.0 in 2:
    alloc B_pack: f32[2, 5, 2, 4] heap:
      alloc A_pack: f32[3, 5, 4] heap:
        for i.0@A_pack in 3:
          for k.1@A_pack in 5:
            for i.1@A_pack in 4:
              A_pack[i.0@A_pack, k.1@A_pack, i.1@A_pack] = where(i.0@A_pack * 4 + i.1@A_pack < 10 & \
k.0 * 5 + k.1@A_pack < 9, A[i.0@A_pack * 4 + i.1@A_pack, k.0 * 5 + k.1@A_pack], 0.0)
        for j.0.1@B_pack in 2:
          for k.1@B_pack in 5:
            for j.1.0@B_pack in 2:
              vectorize for j.1.1@B_pack in 4:
                B_pack[j.0.1@B_pack, k.1@B_pack, j.1.0@B_pack, j.1.1@B_pack] = \
where(k.0 * 5 + k.1@B_pack < 9 & j.0.0 * 16 + j.0.1@B_pack * 8 + j.1.0@B_pack * 4 + j.1.1@B_pack < 20, \
B[k.0 * 5 + k.1@B_pack, j.0.0 * 16 + j.0.1@B_pack * 8 + j.1.0@B_pack * 4 + j.1.1@B_pack], 0.0)
        for j.0.1 in 2:
          if j.0.0 * 2 + j.0.1 < 3:
            for i.0 in 3:
              alloc C_acc: f32[4, 2, 4] register:
                unroll for i.1@init in 4:
                  unroll for j.1.0@init in 2:
                    vectorize for j.1.1@init in 4:
                      C_acc[i.1@init, j.1.0@init, j.1.1@init] = 0.0
                for k.1 in 5:
                  unroll for j.1.0@B_pack.prefetch in 2:
                    prefetch B_pack[j.0.1, k.1 + 2, j.1.0@B_pack.prefetch, 0] locality 3
                  if k.0 * 5 + k.1 < 9:
                    unroll for i.1 in 4:
                      unroll for j.1.0 in 2:
                        vectorize for j.1.1 in 4:
                          C_acc[i.1, j.1.0, j.1.1] (k.1; no init)+= A_pack[i.0, k.1, i.1] \
* B_pack[j.0.1, k.1, j.1.0, j.1.1]
                unroll for i.1@C_acc in 4:
                  unroll for j.1.0@C_acc in 2:
                    vectorize for j.1.1@C_acc in 4:
                      if i.0 * 4 + i.1@C_acc < 10 \
& j.0.0 * 16 + j.0.1 * 8 + j.1.0@C_acc * 4 + j.1.1@C_acc < 20:
                        C[i.0 * 4 + i.1@C_acc, \
j.0.0 * 16 + j.0.1 * 8 + j.1.0@C_acc * 4 + j.1.1@C_acc] (k.0)+= \
C_acc[i.1@C_acc, j.1.0@C_acc, j.1.1@C_acc]"""
    )


EPILOGUES: dict[str, tuple[Step, ...]] = {
    "in registers": (ReverseInline("Y"), ReverseInline("Z")),
    "inlined first": (Inline("Y"), ReverseInline("Z")),
    "on the tile": (ReverseComputeAt("Y", "i.0.1"), ReverseComputeAt("Z", "i.0.1")),
    "on the block": (Inline("Y"), ReverseComputeAt("Z", "j.0.0")),
    "apart": (Inline("Y"), Split("Z_j", 8), Vectorize("Z_j.1"), Parallel("Z_i")),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_see_finished_sums_only(name: str, shape: tuple[int, int, int]) -> None:
    for tile in (dict(rows=4, columns=8, lanes=4), dict(rows=3, columns=6, lanes=4)):
        new = check(linear(*shape), blocked(**tile, m=2, n=2, packed=True) + EPILOGUES[name])
        assert ("alloc C:" in str(Schedule(new))) == (name not in ("in registers", "inlined first"))


@pytest.mark.parametrize("factor", [1, 3, 4, 16])
@pytest.mark.parametrize("shape", SHAPES)
def test_split_reductions(shape: tuple[int, int, int], factor: int) -> None:
    parallel = (
        Split("k", factor),
        RFactor("k.0"),
        Reorder(("k.0", "i", "j")),
        Parallel("k.0"),
        Parallel("i@C_rf"),
    )
    check(matmul(*shape), parallel)
    lanes = (
        Split("k", factor),
        RFactor("k.1", "register", "j"),
        DecomposeReduction("C_rf", "k.0"),
        *[Vectorize(f"k.1{copy}") for copy in ("", "@init", "@C_rf")],
        Parallel("i"),
    )
    check(matmul(*shape), lanes)


def test_producers_are_computed_where_they_are_read() -> None:
    tile = (Split("Z_i", 5), Split("Z_j", 8), Reorder(("Z_i.0", "Z_j.0", "Z_i.1", "Z_j.1")))
    for shape in SHAPES:
        new = check(
            linear(*shape), (*tile, ComputeAt("Y", "Z_j.0"), ComputeAt("C", "Z_j.0"), Parallel("Z_i.0"))
        )
        assert str(Schedule(new)).count("alloc") == 2


def test_random_blocks_and_tiles() -> None:
    rng = random.Random(5)
    for _ in range(60):
        shape = (rng.randint(1, 24), rng.randint(1, 40), rng.randint(1, 12))
        columns = rng.choice([1, 4, 6, 8, 16])
        steps = blocked(
            rng.randint(1, 6),
            columns,
            rng.randint(1, columns),
            m=rng.choice([0, 1, 2, 3]),
            n=rng.choice([0, 1, 2]),
            k=rng.choice([0, 1, 3, 5]),
            packed=rng.random() < 0.5,
        )
        check(matmul(*shape), steps)


def test_thirty_steps_apply_in_milliseconds() -> None:
    program = matmul(768, 3072, 768)
    steps = blocked(8, 32, 16, m=12, n=7, k=250, packed=True)
    best = min(_seconds(program, steps) for _ in range(5))
    assert best * 30 / len(steps) < 0.06  # 0.008 s when nothing else runs


def _seconds(program: Program, steps: tuple[Step, ...]) -> float:
    start = time.process_time()
    apply(program, steps)
    return time.process_time() - start
