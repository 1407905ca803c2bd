"""Products with more elements than an int counts: each index of the text is computed without overflow, and
grids that would be too long are folded. Kind I: index width and launch limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import tlm
from bench.gpu_product import again
from tests.cuda import gpu_programs
from tlm.backend.cuda.emitter import emit
from tlm.schedule import apply
from tlm.search.heuristic import heuristic
from tlm.space.decide import run
from tlm.space.spaces import space_for
from tlm.target import Target

SM_90 = Target("sm_90")
MOST = 2**31 - 1


@dataclass(frozen=True)
class C:
    """An integer of C: 32 bits unless `wide`; OverflowError where a result does not fit."""

    value: int
    wide: bool = False

    def __post_init__(self):
        if not self.wide and not -MOST <= self.value <= MOST:
            raise OverflowError(f"{self.value} is no int")

    def _joined(self, other, made):
        other = other if isinstance(other, C) else C(other)
        return C(made(self.value, other.value), self.wide or other.wide)

    def __add__(self, other):
        return self._joined(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._joined(other, lambda a, b: a - b)

    def __mul__(self, other):
        return self._joined(other, lambda a, b: a * b)

    def __floordiv__(self, other):
        return self._joined(other, lambda a, b: a // b)

    def __mod__(self, other):
        return self._joined(other, lambda a, b: a % b)

    def __xor__(self, other):
        return self._joined(other, lambda a, b: a ^ b)

    def __rpow__(self, other):
        return C(self.value, True)

    __radd__ = __add__


class Wide:
    """`(long long)x` is written as WIDE ** x, which binds as tightly."""

    def __pow__(self, x):
        return C(x.value, True)


def evaluated(code: str, names: dict[str, C]) -> C:
    code = re.sub(r"\b(\d+)LL\b", r"C(\1, True)", code.replace("(long long)", "WIDE ** ").replace("/", "//"))
    # A number that no int holds is a long.
    code = re.sub(r"(?<![\w(.])(\d+)\b(?!,)", lambda m: f"C({m[1]}, {int(m[1]) > MOST})", code)
    return eval(code, {"C": C, "WIDE": Wide()} | names)


def indices(text: str, arrays: tuple[str, ...]) -> list[tuple[str, str]]:
    """(array, index) of every access of the text to one of `arrays`."""
    found = []
    for m in re.finditer(rf"\b({'|'.join(arrays)})\[", text):
        depth, at = 1, m.end()
        while depth:
            depth += {"[": 1, "]": -1}.get(text[at], 0)
            at += 1
        found.append((m.group(1), text[m.end() : at - 1]))
    return found


def last(text: str, launch) -> dict[str, C]:
    """The largest value of every variable of a kernel."""
    names: dict[str, C] = {}
    sizes = dict(zip("xyz", launch.block, strict=True)), dict(zip("xyz", launch.grid, strict=True))
    for m in re.finditer(
        r"const int (\w+) = ([^;]+);|for \((?:int|long long) (\w+) = 0; \w+ < ([^;]+);", text
    ):
        name, value, loop, limit = m.groups()
        if loop:
            size = re.search(r"\d+", limit)
            names[loop] = C(int(size.group()) - 1) if size else names[limit]
        elif axis := re.fullmatch(r"(threadIdx|blockIdx)\.(\w)", value):
            names[name] = C(sizes[axis.group(1) == "blockIdx"][axis.group(2)] - 1)
        else:
            names[name] = evaluated(value, names)
    return names


def shaped(m, k, n, dtype):
    a, b = (SimpleNamespace(shape=s, dtype=np.dtype(dtype)) for s in ((m, k), (k, n)))
    return tlm.ops.matmul.program(a, b)


SHAPES = [
    (100_003, 64, 40_000, "f4", {}),
    (100_000, 64, 40_000, ml_dtypes.bfloat16, {}),
    (64, 50_000_000, 64, "f4", {"slices": 1}),
    (2_200_000, 1024, 32, "f4", {"raster": 0}),
]


@pytest.mark.parametrize(("m", "k", "n", "dtype", "picks"), SHAPES, ids=lambda x: str(x)[:12])
def test_indices_of_large_arrays_are_computed_in_64_bits(m, k, n, dtype, picks):
    program = shaped(m, k, n, dtype)
    scheduled = apply(program, run(space_for(program, SM_90), again(picks)).steps)
    gpu_programs.within(scheduled, SM_90)
    source = emit(scheduled, SM_90)
    sizes = {b.name: b.size for b in source.buffers}
    assert max(sizes.values()) > MOST
    met = set()
    for launch, text in zip(source.kernels, source.text.split('extern "C"')[1:], strict=True):
        names = last(text, launch)
        for array, code in indices(text, tuple(sizes)):
            place = evaluated(code, names)
            assert place.value >= 0
            if place.value > MOST:
                met.add(array)
            elif sizes[array] < MOST // 4:
                assert "long long" not in code
    assert {name for name, size in sizes.items() if size > MOST} <= met


def test_an_overflow_would_be_seen():
    names = {"i": C(100_000), "j": C(39_999)}
    assert evaluated("(long long)i * 40000 + j", names) == C(4_000_039_999, True)
    with pytest.raises(OverflowError):
        evaluated("i * 40000 + j", names)
    with pytest.raises(OverflowError):
        evaluated("(long long)(i * 40000) + j", names)


def test_a_product_with_64_bit_indices_compiles():
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="NVRTC comes with CuPy")
    from tlm.backend.cuda import compile

    program = shaped(*SHAPES[0][:4])
    kernel = compile(apply(program, run(space_for(program, SM_90), heuristic).steps), SM_90)
    assert "(long long)" in kernel.source
    assert kernel.stats.spills == 0
    assert kernel.grid[1] <= 65535


def test_rows_of_blocks_beyond_the_limit_are_folded_onto_x():
    """2,200,000 rows in tiles of 32 are 68,750 blocks, which y cannot have."""
    program = shaped(2_200_000, 16, 8, "f4")
    found = run(space_for(program, SM_90), again({"cta_m": 32, "cta_n": 8, "raster": 1}))
    source = emit(apply(program, found.steps), SM_90)
    x, y, z = source.kernels[0].grid
    assert x * y * z >= 68_750
    assert max(y, z) <= 65_535
