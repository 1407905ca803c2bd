"""Corpora: batches hold exactly the sentences, whatever order they were stored in."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from tlm.errors import RecordError
from tlm.lang import options
from tlm.lang.encode import prompt, vectors
from tlm.lang.features import Picked
from tlm.lang.vocabulary import CHOICE_INDEX
from tlm.model import data
from tlm.model.config import Config
from tlm.model.shapes import Shape
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

TARGET = Target("avx512", threads=2)
SHAPES = [Shape("x", 64, 96, 160), Shape("x", 20, 30, 40, batch=3), Shape("x", 33, 65, 97, epilogue="relu")]

Sentences = list[tuple[int, Picked, float]]


@pytest.fixture(scope="module")
def sentences() -> Sentences:
    rng = Random(0)
    return [
        (n % 3, run(space_for(SHAPES[n % 3].program(), TARGET), at_random(rng)).choices, 0.1 * (n + 1))
        for n in range(7)
    ]


@pytest.fixture(scope="module")
def prompts() -> list[np.ndarray]:
    return [vectors(prompt(s.program(), TARGET)) for s in SHAPES]


def check(batch: object, row: int, words: np.ndarray, picked: Picked, weight: float) -> None:
    t = batch.asked.shape[1]
    np.testing.assert_array_equal(batch.prompt[row, : len(words)], words)
    assert not batch.prompt[row, len(words) :].any()
    assert batch.length[row] == len(words)
    assert batch.weight[row] == pytest.approx(weight)
    assert batch.asked[row].tolist() == [CHOICE_INDEX[c.name] for c, _ in picked] + [-1] * (t - len(picked))
    for place, (choice, index) in enumerate(picked):
        mine = np.flatnonzero(batch.owner == row * t + place)
        np.testing.assert_array_equal(batch.options[mine], options.dense(options.pack([choice])))
        assert batch.picked[row, place] == mine[index]


def test_batches_hold_the_sentences(prompts: list[np.ndarray], sentences: Sentences):
    corpus = data.corpus(prompts, sentences)
    order = np.random.default_rng([4, 0]).permutation(7)
    (batch,) = data.batches(corpus, Config(), 7, 1, seed=4)
    for row, number in enumerate(order):
        which, picked, weight = sentences[number]
        check(batch, row, prompts[which], picked, weight)
    padding = batch.owner == batch.asked.size
    assert padding.any()
    assert not batch.options[padding].any()


def test_parts_put_together_and_stored_are_the_whole(
    prompts: list[np.ndarray], sentences: Sentences, tmp_path: Path
):
    whole = data.corpus(prompts * 2, [*sentences, *((n + 3, p, w) for n, p, w in sentences)])
    part = data.corpus(prompts, sentences)
    data.save(tmp_path / "a.npz", part)
    joined = data.concatenate([data.load(tmp_path / "a.npz"), part])
    assert len(joined) == len(whole) == 14
    for one, two in zip(
        data.batches(joined, Config(), 5, 4, 1), data.batches(whole, Config(), 5, 4, 1), strict=True
    ):
        for name in ("prompt", "length", "asked", "options", "owner", "picked", "weight"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_starting_later_gives_the_same_batches(prompts: list[np.ndarray], sentences: Sentences):
    corpus = data.corpus(prompts, sentences)
    all_of_them = list(data.batches(corpus, Config(), 3, 9, seed=2))
    later = list(data.batches(corpus, Config(), 3, 9, seed=2, start=5))
    assert len(later) == 4
    for one, two in zip(all_of_them[5:], later, strict=True):
        np.testing.assert_array_equal(one.options, two.options)


def test_every_pass_sees_every_sentence_once(prompts: list[np.ndarray], sentences: Sentences):
    corpus = data.corpus(prompts, sentences)
    weights = np.concatenate([b.weight for b in data.batches(corpus, Config(), 1, 14, seed=0)])
    assert sorted(weights[:7].tolist()) == sorted(weights[7:].tolist()) == sorted(corpus.weight.tolist())


def test_bad_corpora_are_refused(prompts: list[np.ndarray], sentences: Sentences, tmp_path: Path):
    (tmp_path / "b.npz").write_bytes(b"PK not a zip")
    with pytest.raises(RecordError, match="not a corpus"):
        data.load(tmp_path / "b.npz")
    with pytest.raises(RecordError, match="the model takes 3"):
        next(data.batches(data.corpus(prompts, sentences), Config(decisions=3), 2, 1, 0))
