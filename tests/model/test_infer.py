"""The numpy network against the Flax model, and its behaviour in lockstep."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tlm.errors import ArgumentError, RecordError
from tlm.lang import options
from tlm.lang.vocabulary import CHOICE_INDEX, PROMPT_COLUMNS
from tlm.model.config import Config
from tlm.model.gpt import GPT, Batch, flatten, log_probabilities
from tlm.model.infer import Network, best, probabilities
from tlm.space.choice import Choice, Option

CONFIG = Config(width=32, layers=2, heads=2, option_width=16, decisions=6)
CHOICES = [
    Choice("rows", tuple(Option(n, (("waste", 3.0 * n), ("size", n))) for n in (1, 2, 4, 8))),
    Choice("order", tuple(Option(w, (("traffic", 100.0),)) for w in ("mnk", "nmk"))),
    Choice("unroll", (Option(1), Option(4))),
]
PICKED = (2, 1, 0)


@pytest.fixture(scope="module")
def model() -> GPT:
    made = GPT(CONFIG, nnx.Rngs(3))
    # The gate starts at zero: give it values, or a mistake in it would not show.
    made.gate.kernel[...] = jax.random.normal(jax.random.key(1), made.gate.kernel.shape) * 0.3
    return made


@pytest.fixture(scope="module")
def network(model: GPT) -> Network:
    return Network(CONFIG, flatten(model))


def prompts(*lengths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((n, len(PROMPT_COLUMNS)), dtype=np.float32) for n in lengths]


def one_by_one(network: Network, prompt: np.ndarray) -> list[np.ndarray]:
    session, only = network.start([prompt]), np.array([0])
    out = []
    for choice, index in zip(CHOICES, PICKED, strict=True):
        embedded = network.embed(options.dense(options.pack([choice])))
        out.append(session.scores(only, [choice.name], embedded, [len(choice.options)]))
        session.pick(only, embedded[[index]])
    return out


def flax_scores(model: GPT, many: list[np.ndarray]) -> list[np.ndarray]:
    b, longest = len(many), max(map(len, many))
    padded = np.zeros((b, longest, len(PROMPT_COLUMNS)), np.float32)
    for row, prompt in enumerate(many):
        padded[row, : len(prompt)] = prompt
    dense = options.dense(options.pack(CHOICES * b))
    counts = [len(c.options) for c in CHOICES] * b
    starts = np.cumsum([0, *counts[:-1]])
    batch = Batch(
        jnp.asarray(padded), jnp.asarray([len(p) for p in many]),
        jnp.asarray([[CHOICE_INDEX[c.name] for c in CHOICES]] * b), jnp.asarray(dense),
        jnp.asarray(np.repeat(np.arange(len(counts)), counts)),
        jnp.asarray((starts + np.array(PICKED * b)).reshape(b, -1)), jnp.ones(b),
    )  # fmt: skip
    scores = model(batch)
    logs = log_probabilities(scores, batch)
    for row in range(b):
        for t, index in enumerate(PICKED):
            mine = probabilities(np.split(np.asarray(scores, np.float64), starts[1:])[row * len(CHOICES) + t])
            assert np.isclose(np.log(mine[index]), logs[row, t], atol=1e-5)
    return np.split(np.asarray(scores), starts[1:])


def test_equals_flax_model_with_padded_prompts(model: GPT, network: Network) -> None:
    many = prompts(3, 7)
    theirs = flax_scores(model, many)
    ours = one_by_one(network, many[0]) + one_by_one(network, many[1])
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4)
        assert np.argmax(x) == np.argmax(y)


def test_lockstep_equals_one_by_one_when_sentences_end_early(network: Network) -> None:
    many = prompts(5, 2, 4)
    alone = [one_by_one(network, p) for p in many]
    session = network.start(many)
    for step, (choice, index) in enumerate(zip(CHOICES, PICKED, strict=True)):
        numbers = np.array([0, 1, 2] if step == 0 else [0, 1] if step < len(CHOICES) - 1 else [1])
        count = len(choice.options)
        embedded = network.embed(options.dense(options.pack([choice] * len(numbers))))
        scores = session.scores(numbers, [choice.name] * len(numbers), embedded, [count] * len(numbers))
        for number, row in zip(numbers, scores.reshape(len(numbers), count), strict=True):
            np.testing.assert_allclose(row, alone[number][step], atol=1e-12)
        session.pick(numbers, embedded[np.arange(len(numbers)) * count + index])


def test_first_of_equal_scores_wins() -> None:
    assert best(np.array([0.5, 1.0, 1.0 + 1e-9])) == [1]
    assert best(np.array([0.5, 1.0, 1.001])) == [2]
    assert best(np.array([2.0, 1.0, 1.0 + 1e-9, 0.0, 5.0]), [1, 2, 2]) == [0, 0, 1]


def test_limits_are_errors(network: Network) -> None:
    with pytest.raises(ArgumentError, match="at most 24 phrases, got 25"):
        network.start(prompts(25))
    session, only = network.start(prompts(2)), np.array([0])
    embedded = network.embed(options.dense(options.pack([CHOICES[2]])))
    for _ in range(CONFIG.decisions):
        session.scores(only, ["unroll"], embedded, [2])
        session.pick(only, embedded[[0]])
    with pytest.raises(RecordError, match="it makes at most 6 decisions"):
        session.scores(only, ["unroll"], embedded, [2])
