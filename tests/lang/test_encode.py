"""Prompts: what they say, and that they say it from structure alone."""

from __future__ import annotations

import numpy as np
import pytest

from tlm.ir.build import Builder
from tlm.ir.exprs import const, op
from tlm.ir.nodes import Program
from tlm.lang import text
from tlm.lang.encode import PROMPT_TOKENS, prompt, vectors
from tlm.lang.vocabulary import PROMPT_COLUMNS
from tlm.target import Target


def matmul(
    m: int, k: int, n: int, names: str = "ABC", loops: tuple[str, ...] = ("i", "j", "k"), **strides
) -> Program:
    b = Builder("x".join(names))
    left = b.input(names[0], (m, k), "f32", strides.get("left"))
    right = b.input(names[1], (k, n), "f32", strides.get("right"))
    b.reduce(
        names[2],
        (m, n),
        over={loops[2]: k},
        fn=lambda i, j, r: left[i, r] * right[r, j],
        axes=loops[:2],
        output=True,
    )
    return b.build()


GOLDEN = """\
target cpu fma vector_bytes=64 registers=32 l1=49152 l2=2097152 l3=33554432 threads=1
stage combiner.sum dtype.f32 reads.f32 final work=96 bytes=256 operands=2 op.mul=1
axis extent=4 out out.stride=6 in0 in0.stride=4
axis extent=6 out out.unit in1 in1.unit
axis reduce extent=4 in0 in0.unit in1 in1.stride=6"""


def test_golden_text_of_a_matmul():
    words = prompt(matmul(4, 4, 6), Target("avx512"))
    assert "\n".join(map(text.phrase, words.phrases)) == GOLDEN


def test_names_do_not_matter():
    plain, renamed = matmul(8, 5, 7), matmul(8, 5, 7, names="PQR", loops=("row", "col", "depth"))
    target = Target("avx2")
    np.testing.assert_array_equal(vectors(prompt(plain, target)), vectors(prompt(renamed, target)))


@pytest.mark.parametrize(
    "other",
    [matmul(8, 5, 9), matmul(8, 5, 7, left=(1, 8)), matmul(8, 5, 7, right=(1, 5))],
    ids=["extent", "left transposed", "right transposed"],
)
def test_sizes_and_layouts_matter(other: Program):
    target = Target("avx512")
    assert not np.array_equal(vectors(prompt(matmul(8, 5, 7), target)), vectors(prompt(other, target)))


def test_machines_matter():
    program = matmul(8, 5, 7)
    first = [
        vectors(prompt(program, t))[0] for t in (Target("avx512"), Target("sse"), Target("avx512", threads=2))
    ]
    assert len({v.tobytes() for v in first}) == 3


def elementwise_chain(stages: int) -> Program:
    b = Builder("chain")
    x = b.input("x", (3, 5), "f32")
    for n in range(stages):
        last = x
        x = b.compute(f"t{n}", (3, 5), lambda i, j, last=last: last[i, j] + 1.0, output=n == stages - 1)
    return b.build()


def test_long_programs_keep_whole_stages():
    words = prompt(elementwise_chain(20), Target("avx512"))
    assert len(words.phrases) <= PROMPT_TOKENS
    kinds = [phrase[0][0] for phrase in words.phrases]
    assert kinds[0] == "target"
    assert kinds[1:] == ["stage", "axis", "axis"] * ((PROMPT_TOKENS - 1) // 3)


def test_windows_and_irregular_indices_are_marked():
    b = Builder("pool")
    x = b.input("x", (9,), "f32")
    b.reduce("y", (4,), over={"r": 3}, fn=lambda i, r: x[i * 2 + r], combiner="max", output=True)
    axes = prompt(b.build(), Target("sse")).stages[0].axes
    assert [a.window for a in axes] == [True, True]
    b = Builder("wrap")
    x = b.input("x", (9,), "f32")
    b.compute("y", (20,), lambda i: x[i % 9], output=True)
    assert ("irregular", None) in prompt(b.build(), Target("sse")).phrases[2]


def test_epilogue_operations_are_counted():
    b = Builder("relu")
    x = b.input("x", (4,), "f32")
    b.compute("y", (4,), lambda i: op("maximum", x[i] * x[i] + x[i], const(0.0, x.dtype)), output=True)
    words = dict(prompt(b.build(), Target("sse")).phrases[1])
    assert (words["op.mul"], words["op.add"], words["op.maximum"], words["operands"]) == (1, 1, 1, 1)


def test_vectors_are_named_columns():
    row = vectors(prompt(matmul(8, 5, 7), Target("avx512")))[4]
    named = dict(zip(PROMPT_COLUMNS, row.tolist(), strict=True))
    assert named["axis"] == named["reduce"] == named["in0.unit"] == 1
    assert named["out"] == named["window"] == 0
    assert named["extent/0"] == pytest.approx(np.log2(6) / 8)
