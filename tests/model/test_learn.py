"""Training of the language model: it learns its sentences, and a killed run ends like an unbroken one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tlm.lang.encode import prompt, vectors
from tlm.model import learn as module
from tlm.model.config import Config
from tlm.model.data import Corpus, corpus
from tlm.model.generate import generate
from tlm.model.infer import Network
from tlm.model.learn import learn
from tlm.model.shapes import Shape
from tlm.space.decide import Decided, at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

TARGET = Target("avx512")
SHAPES = [Shape("x", 64, 96, 160), Shape("x", 1, 300, 40), Shape("x", 33, 65, 97, epilogue="relu")]


@pytest.fixture(scope="module")
def wanted() -> list[Decided]:
    rng = Random(4)
    return [run(space_for(s.program(), TARGET), at_random(rng)) for s in SHAPES]


@pytest.fixture(scope="module")
def sentences(wanted: list[Decided]) -> Corpus:
    prompts = [vectors(prompt(s.program(), TARGET)) for s in SHAPES]
    return corpus(prompts, [(n, d.choices, 1.0) for n, d in enumerate(wanted)])


def test_learns_to_write_its_sentences_and_goes_on_from_given_weights(
    sentences: Corpus, wanted: list[Decided], small: Config
):
    said: list[tuple[int, int, float]] = []
    weights = learn(sentences, small, steps=150, size=3, rate=1e-2, report=lambda *a: said.append(a))
    found = generate([s.program() for s in SHAPES], TARGET, network=Network(small, weights))
    assert [s[0].decided.values for s in found] == [d.values for d in wanted]
    assert said[-1][:2] == (150, 150)
    assert said[-1][2] < 0.05
    again: list[float] = []
    learn(sentences, small, steps=1, size=3, rate=0.0, start=weights, report=lambda *a: again.append(a[2]))
    assert again[0] < 0.05


class Killed(Exception):
    pass


def test_a_killed_run_ends_where_an_unbroken_one_does(
    sentences: Corpus, small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(module, "REPORT_SECONDS", -1.0)
    plain = learn(sentences, small, steps=8, size=2, seed=1)
    steps: list[int] = []

    def kill_at(place: int) -> Callable[[int, int, float], None]:
        def report(step: int, total: int, loss: float) -> None:
            steps.append(step)
            if step == place:
                raise Killed

        return report

    with pytest.raises(Killed):
        learn(sentences, small, steps=8, size=2, seed=1, checkpoints=tmp_path / "c", report=kill_at(5))
    resumed = learn(sentences, small, steps=8, size=2, seed=1, checkpoints=tmp_path / "c", report=kill_at(-1))
    assert steps == [1, 2, 3, 4, 5, 5, 6, 7, 8]
    for name, values in plain.items():
        np.testing.assert_allclose(resumed[name], values, atol=1e-6, err_msg=name)
