"""einsum as numpy, and sums of products that are contractions to the space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.values import FEW, LAYOUTS, array, dtype_of, wide
from tlm import ops
from tlm.errors import ArgumentError
from tlm.space.problem import contraction

PLAIN = {"schedule": "default"}


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]), ("bhqd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 3, 5)]),
        ("ii->i", [(4, 4)]), ("ii", [(4, 4)]), ("iij->j", [(3, 3, 4)]),
        ("ij->", [(4, 5)]), ("ij->ji", [(4, 5)]),
        ("...ij,...jk", [(2, 1, 3, 4), (5, 4, 2)]), ("...->...", [(2, 3)]),
        ("i...,...j->i...j", [(3, 4), (4, 5)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 6)]), ("i,j", [(3,), (4,)]), ("i,i", [(3,), (3,)]),
        ("ijk,jkl->il", [(3, 4, 5), (4, 5, 6)]), ("ij,ij->ij", [(3, 4), (3, 4)]), ("ba,ac", [(3, 4), (4, 2)]),
        ("a,b,c,d->abcd", [(2,), (3,), (4,), (2,)]),
        ("ij,j", [(3, 1), (4,)]), ("...a,...a->...", [(3, 4), (4,)]),
        ("ijk->k", [(2, 3, 4)]), ("ab,bc,cd,de->ae", [(2, 3), (3, 4), (4, 2), (2, 5)]),
    ],
)  # fmt: skip
def test_as_numpy(subscripts: str, shapes: list[tuple[int, ...]]):
    operands = [array(s, seed=n) for n, s in enumerate(shapes)]
    got = ops.einsum(subscripts, *operands, **PLAIN)
    want = np.einsum(subscripts, *operands)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


@FEW
@given(st.data())
def test_any_two_operands(data: st.DataObject):
    sizes = {c: data.draw(st.integers(1, 6)) for c in "abcde"}
    left, right = [data.draw(st.permutations("abcde"))[: data.draw(st.integers(1, 4))] for _ in range(2)]
    letters = sorted({*left, *right})
    out = data.draw(st.permutations(letters))[: data.draw(st.integers(0, len(letters)))]
    dtype = data.draw(st.sampled_from(["f32", "f64", "f16", "bf16"]))
    operands = [
        array(tuple([sizes[c] for c in part]), dtype, n, data.draw(st.sampled_from(LAYOUTS)))
        for n, part in enumerate((left, right))
    ]
    subscripts = f"{''.join(left)},{''.join(right)}->{''.join(out)}"
    got = ops.einsum(subscripts, *operands, **PLAIN)
    want = np.einsum(subscripts, *[wide(x) for x in operands])
    assert got.dtype == dtype_of(dtype)
    np.testing.assert_array_equal(got, want.astype(got.dtype))


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ik,kj->ij", [(8, 9), (9, 7)]), ("bik,bkj->bij", [(2, 8, 9), (2, 9, 7)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]), ("ijk,jkl->il", [(3, 4, 5), (4, 5, 6)]),
    ],
)  # fmt: skip
def test_products_are_contractions(subscripts: str, shapes: list[tuple[int, ...]]):
    program = ops.einsum.program(subscripts, *[np.ones(s, "f4") for s in shapes])
    assert contraction(program) is not None


def test_small_integers():
    x, y = array((5, 40), "i8", low=-100), array((40, 3), "i8", 1, low=-100)
    np.testing.assert_array_equal(ops.einsum("ij,jk", x, y, **PLAIN), np.einsum("ij,jk", x, y))
    got = ops.einsum("ij,jk", x, y, dtype=np.int32, **PLAIN)
    np.testing.assert_array_equal(got, np.einsum("ij,jk", x, y, dtype=np.int32))


def test_empty_sums():
    got = ops.einsum("ij,jk->ik", np.ones((2, 0), "f4"), np.ones((0, 3), "f4"), **PLAIN)
    np.testing.assert_array_equal(got, np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((3, np.ones(2)), "subscripts are a string"),
        (("ij,jk", np.ones((2, 2))), "names 2 operands, got 1"),
        (("ij", np.ones(2)), r"names 2 axes, the operand has shape \(2,\)"),
        (("ij,jk", np.ones((2, 3)), np.ones((4, 2))), "'j' in 'ij,jk' has sizes 3 and 4"),
        (("ii->i", np.ones((1, 3))), "'i' in 'ii->i' has sizes 3 and 1"),
        (("ii", np.ones((3, 1))), "'i' in 'ii' has sizes 1 and 3"),
        (("i1", np.ones((2, 3))), "is not letters"),
        (("ij->k", np.ones((2, 3))), "has one of no operand"),
        (("ij->ii", np.ones((2, 3))), "repeats a letter"),
        (("i...->i", np.ones((2, 3))), "needs the '...' of its operands"),
    ],
)
def test_wrong_calls(arguments: Any, words: str):
    with pytest.raises(ArgumentError, match=words):
        ops.einsum(*arguments)
