"""Fewer loops and dimensions: the same results from the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm.ir.build import Builder
from tlm.ir.collapse import collapse
from tlm.ir.exprs import op
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.ir.verify import verify
from tlm.ir.walk import buffers, loops


def names(program: Program) -> list[str]:
    return [loop.var for loop in loops(program.body)]


def same(program: Program, *arrays: Any) -> Program:
    """Checks that the collapsed program computes what `program` does, and returns it."""
    made = collapse(program)
    verify(made)
    want = interpret(program, arrays)
    given = [
        np.lib.stride_tricks.as_strided(a, b.shape, [s * a.itemsize for s in b.element_strides])
        for a, b in zip(arrays, made.inputs, strict=True)
    ]
    for g, w in zip(interpret(made, given), want, strict=True):
        np.testing.assert_array_equal(g.reshape(w.shape), w)
    return made


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype="f4").reshape(shape)


def test_contiguous_axes_become_one():
    b = Builder("double")
    x = b.input("X", (2, 3, 4), "f32")
    b.compute("Y", (2, 3, 4), lambda *at: x[at] * 2.0, output=True)
    made = same(b.build(), numbers(2, 3, 4))
    assert names(made) == ["b*i*j"]
    assert made.inputs[0].shape == (24,)


def test_rows_become_one_axis_in_every_stage():
    b = Builder("rows")
    x = b.input("X", (2, 3, 4), "f32")
    s = b.reduce("s", (2, 3), {"k": 4}, lambda i, j, k: x[i, j, k])
    b.compute("Y", (2, 3, 4), lambda i, j, k: x[i, j, k] - s[i, j], output=True, axes=("i", "j", "k"))
    made = same(b.build(), numbers(2, 3, 4))
    assert names(made) == ["i*j", "k", "Y_i*j", "Y_k"]
    assert buffers(made)["s"].shape == (6,)


def test_reduced_axes_become_one():
    b = Builder("total")
    x = b.input("X", (2, 3, 4), "f32")
    b.reduce("Y", (), {"r": 2, "s": 3, "t": 4}, lambda *k: x[k], output=True)
    assert names(same(b.build(), numbers(2, 3, 4))) == ["r*s*t"]


def test_strided_and_broadcast_axes_stay():
    b = Builder("add")
    x = b.input("X", (2, 3, 4), "f32", (24, 8, 1))
    y = b.input("Y", (4,), "f32")
    b.compute("Z", (2, 3, 4), lambda i, j, k: x[i, j, k] + y[k], output=True)
    room = np.zeros((2, 3, 8), "f4")[:, :, :4]
    room[...] = numbers(2, 3, 4)
    assert names(same(b.build(), room, numbers(4))) == ["b*i", "j"]


def test_variables_used_as_values_stay():
    b = Builder("mask")
    x = b.input("X", (3, 4), "f32")
    b.compute("Y", (3, 4), lambda i, j: op("where", j < i, x[i, j], x[i, j] * 0.0), output=True)
    assert names(same(b.build(), numbers(3, 4))) == ["i", "j"]


def test_axes_of_one_element_go():
    b = Builder("ones")
    x = b.input("X", (1, 3, 1), "f32")
    b.compute("Y", (1, 3, 1), lambda *at: x[at] + 1.0, output=True)
    made = same(b.build(), numbers(1, 3, 1))
    assert len(names(made)) == 1
    assert made.outputs[0].shape == (3,)


def test_a_contraction_keeps_an_axis_for_each_role():
    b = Builder("vector")
    x, y = b.input("X", (1, 1, 5), "f32"), b.input("Y", (5, 7), "f32")
    b.reduce("Z", (1, 1, 7), {"k": 5}, lambda n, i, j, k: x[n, i, k] * y[k, j], output=True)
    made = same(b.build(), numbers(1, 1, 5), numbers(5, 7))
    assert [loop.extent for loop in loops(made.body)] == [1, 7, 5]


def test_windows_keep_their_axes():
    b = Builder("window")
    x = b.input("X", (1, 6, 4), "f32")
    b.reduce(
        "Y",
        (1, 4, 4),
        {"r": 3},
        lambda n, i, c, r: op("where", i + r < 6, x[n, i + r, c], x[n, i, c]),
        output=True,
    )
    assert [loop.extent for loop in loops(same(b.build(), numbers(1, 6, 4)).body)] == [4, 4, 3]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_random_programs(data: st.DataObject):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=5)))
    rank = len(shape)
    order = data.draw(st.permutations(range(rank)))
    laid = np.ascontiguousarray(numbers(*[shape[n] for n in order])).transpose(np.argsort(order))
    b = Builder("random")
    x = b.input("X", shape, "f32", [s // 4 for s in laid.strides])
    y = b.input("Y", shape[rank // 2 :], "f32")
    reduced = [n for n in range(rank) if data.draw(st.booleans())]
    kept = [n for n in range(rank) if n not in reduced]

    def element(*at: Any) -> Any:
        named = dict(zip([*kept, *reduced], at, strict=True))
        return x[tuple([named[n] for n in range(rank)])]

    over = {f"r{n}": shape[n] for n in reduced}
    part = tuple([shape[n] for n in kept])
    if over:
        s = b.reduce("s", part, over, element, axes=[f"k{n}" for n in kept])
    else:
        s = b.compute("s", part, element, axes=[f"k{n}" for n in kept])
    b.compute(
        "Z", shape, lambda *at: x[at] + s[tuple([at[n] for n in kept])] * y[at[rank // 2 :]], output=True,
        axes=[f"z{n}" for n in range(rank)],
    )  # fmt: skip
    made = same(b.build(), laid, numbers(*shape[rank // 2 :]))
    assert len(names(made)) <= 2 * rank
