"""Generation: legal, greedy or seeded, the same in any process and any batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tlm
from tests.model.dice import dice_value_model
from tlm.errors import ArgumentError
from tlm.lang import options
from tlm.lang.encode import vectors
from tlm.model import weights
from tlm.model.config import Config
from tlm.model.files import value_path
from tlm.model.generate import generate
from tlm.model.infer import Network, probabilities
from tlm.model.shapes import Shape
from tlm.space.decide import Decided, replay
from tlm.space.spaces import space_for
from tlm.target import Target

SHAPES = [
    Shape("x", 128, 96, 160), Shape("x", 1, 300, 40), Shape("x", 31, 1, 7),
    Shape("x", 60, 50, 3, layout="nt"),
    Shape("x", 20, 30, 40, batch=3), Shape("x", 33, 65, 97, epilogue="relu"), Shape("x", 1, 1, 1),
]  # fmt: skip
TARGETS = [
    Target("avx512"),
    Target("avx2", threads=4),
    Target("sse", threads=2),
    Target("neon", threads=8, l3=0),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
def test_every_sentence_is_legal_on_machines_nobody_trained_on(target: Target, network: Network):
    programs = [s.program() for s in SHAPES]
    for program, sentences in zip(
        programs, generate(programs, target, samples=3, seed=1, network=network), strict=True
    ):
        for sentence in sentences:
            again = replay(space_for(program, target), sentence.decided.values)
            assert again.steps == sentence.decided.steps
            for (choice, _), chances in zip(sentence.decided.choices, sentence.probabilities, strict=True):
                assert len(chances) == len(choice.options)
                assert sum(chances) == pytest.approx(1.0)


def test_greedy_picks_the_likeliest_option(network: Network):
    sentence = generate([SHAPES[0].program()], TARGETS[0], network=network)[0][0]
    for (_, index), chances in zip(sentence.decided.choices, sentence.probabilities, strict=True):
        assert chances[index] == pytest.approx(max(chances))


def test_company_in_the_batch_changes_nothing(network: Network):
    programs = [s.program() for s in SHAPES]
    together = generate(programs, TARGETS[1], samples=4, seed=7, network=network)
    for program, mine in zip(programs, together, strict=True):
        alone = generate([program], TARGETS[1], samples=4, seed=7, network=network)[0]
        assert [s.decided.values for s in alone] == [s.decided.values for s in mine]


def test_samples_differ_and_follow_the_seed(network: Network):
    program = SHAPES[0].program()
    first = [s.decided.values for s in generate([program], TARGETS[0], samples=6, seed=3, network=network)[0]]
    assert len(set(first)) == len(first) == 6
    assert first[0] == generate([program], TARGETS[0], network=network)[0][0].decided.values
    same = [s.decided.values for s in generate([program], TARGETS[0], samples=6, seed=3, network=network)[0]]
    other = [s.decided.values for s in generate([program], TARGETS[0], samples=6, seed=4, network=network)[0]]
    assert same == first
    assert other != first


def test_sentences_share_what_they_have_in_common_and_nothing_more(network: Network):
    """Each option has the probability that it has when the sentence is written alone."""
    for sentence in generate([SHAPES[0].program()], TARGETS[0], samples=8, seed=1, network=network)[0]:
        session = network.start([vectors(sentence.prompt)])
        for (choice, index), chances in zip(sentence.decided.choices, sentence.probabilities, strict=True):
            embedded = network.embed(options.dense(options.pack([choice])))
            scores = session.scores(np.array([0]), [choice.name], embedded, [len(embedded)])
            np.testing.assert_allclose(probabilities(scores), chances, rtol=0, atol=1e-9)
            session.pick(np.array([0]), embedded[[index]])


def test_what_is_given_up_early_would_not_have_been_kept(network: Network, monkeypatch: pytest.MonkeyPatch):
    programs = [s.program() for s in SHAPES]

    def written() -> list[list[Decided]]:
        made = generate(programs, TARGETS[0], samples=4, seed=2, network=network)
        return [[s.decided for s in sentences] for sentences in made]

    quick = written()
    monkeypatch.setattr("tlm.model.generate._late", lambda row, draws, samples: set())
    assert written() == quick
    assert any(len(sentences) == 4 for sentences in quick)


def test_arguments_are_checked(network: Network):
    assert generate([], TARGETS[0], network=network) == []
    with pytest.raises(ArgumentError, match="samples >= 1, temperature > 0 and seed >= 0"):
        generate([SHAPES[0].program()], TARGETS[0], samples=0, network=network)
    with pytest.raises(ArgumentError, match="temperature > 0"):
        generate([SHAPES[0].program()], TARGETS[0], temperature=0.0, network=network)


CHILD = """
import json, sys
from pathlib import Path
from tlm.model.generate import generate
from tlm.model.shapes import Shape
from tlm.model.weights import load, load_value
from tlm.target import Target
network, value = load(Path(sys.argv[1])), load_value(Path(sys.argv[1]))
programs = [Shape("x", 128, 96, 160).program(), Shape("x", 33, 65, 97).program()]
found = generate(programs, Target("avx512", threads=2), samples=4, seed=2, network=network, value=value)
heavy = [m for m in ("jax", "flax", "optax", "orbax") if m in sys.modules]
print(json.dumps([[(s.decided.values, s.value) for s in made] for made in found] + [heavy]))
"""


def test_same_sentences_in_any_process_without_jax(
    tmp_path: Path, small: Config, small_weights: dict[str, Any]
):
    path = tmp_path / "cpu.safetensors"
    weights.save(path, small_weights, small, {})
    dice_value_model().save(value_path(path))
    outputs = set()
    for threads, hashing in (("1", "0"), ("2", "random")):
        env = os.environ | {
            "OPENBLAS_NUM_THREADS": threads, "PYTHONHASHSEED": hashing,
            "PYTHONPATH": str(Path(tlm.__file__).parent.parent),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(path)], env=env, capture_output=True, text=True, check=True
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    *found, heavy = json.loads(outputs.pop())
    assert heavy == []
    for made in found:
        expected = [value for _, value in made]
        assert len(set(expected)) > 1
        assert expected == sorted(expected, reverse=True)
