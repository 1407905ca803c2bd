"""Features of whole programs."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from tlm.errors import RecordError
from tlm.ir.build import Builder
from tlm.ir.nodes import Program
from tlm.lang import features
from tlm.lang.encode import prompt
from tlm.space.choice import Choice, Option
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

TARGET = Target("avx512", threads=2)


def matmul(m: int, k: int, n: int) -> Program:
    b = Builder("matmul")
    left, right = b.input("A", (m, k), "f32"), b.input("B", (k, n), "f32")
    b.reduce(
        "C", (m, n), over={"k": k}, fn=lambda i, j, r: left[i, r] * right[r, j], axes=("i", "j"), output=True
    )
    return b.build()


def test_shape_and_names():
    program = matmul(128, 96, 160)
    decided = run(space_for(program, TARGET), at_random(Random(0)))
    x = features.features(prompt(program, TARGET), decided.choices)
    assert x.shape == (features.LENGTH,)
    assert x.dtype == np.float32
    named = dict(zip(features.COLUMNS, x.tolist(), strict=True))
    assert named["threads"] == pytest.approx(math.log2(3) / 8)
    assert named["reduce0.log"] == pytest.approx(math.log2(97) / 8)
    assert named["first0.log"] == pytest.approx(math.log2(129) / 8)
    assert named["rest0.log"] == pytest.approx(math.log2(161) / 8)
    for choice, index in decided.choices:
        option = choice.options[index]
        assert named[f"{choice.name}.asked"] == 1
        if isinstance(option.value, str):
            assert named[f"{choice.name}.word.{option.value}"] == 1
        for fact, amount in option.facts:
            assert named[f"{choice.name}.fact.{fact}"] == pytest.approx(math.log2(1 + amount) / 8, abs=1e-6)


def test_many_at_once_and_some_columns():
    program = matmul(64, 33, 70)
    words, rng = prompt(program, TARGET), Random(1)
    many = [run(space_for(program, TARGET), at_random(rng)).choices for _ in range(5)]
    whole = features.matrix(words, many)
    np.testing.assert_array_equal(whole, np.stack([features.features(words, m) for m in many]))
    columns = np.flatnonzero(whole.any(0))[::3]
    np.testing.assert_array_equal(features.matrix(words, many, columns), whole[:, columns])


def test_other_decisions_have_other_features():
    program = matmul(96, 200, 300)
    words, rng = prompt(program, TARGET), Random(2)
    found = {
        d.values: d.choices for d in (run(space_for(program, TARGET), at_random(rng)) for _ in range(60))
    }
    rows = {features.features(words, choices).tobytes() for choices in found.values()}
    assert len(rows) == len(found) > 30


def test_unknown_choice_is_refused():
    choice = Choice("colour", (Option(1), Option(2)))
    with pytest.raises(RecordError, match="colour"):
        features.features(prompt(matmul(4, 4, 4), TARGET), [(choice, 0)])
