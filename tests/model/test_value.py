"""The value model: it ranks programs of shapes it never saw, and searching with it finds good ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tlm.errors import RecordError
from tlm.lang import features
from tlm.lang.encode import prompt
from tlm.model.fit import Group, fit
from tlm.model.generate import generate
from tlm.model.imagine import Effort, Imagination, imagine, imagined, weights
from tlm.model.infer import Network
from tlm.model.shapes import Shape, held_out, training
from tlm.model.value import ValueModel
from tlm.space.decide import Decided, at_random, changed, replay, run
from tlm.space.spaces import space_for
from tlm.target import Target

TARGET = Target("avx512", threads=2)
Cost = Callable[[Decided], float]


@pytest.fixture(scope="module")
def model(cost_of: Cost) -> ValueModel:
    groups, rng = [], Random(0)
    for shape in training(60, 0):
        program = shape.program()
        many = [run(space_for(program, TARGET), at_random(rng)) for _ in range(24)]
        seconds = np.array([cost_of(d) for d in many])
        x = features.matrix(prompt(program, TARGET), [d.choices for d in many])
        groups.append(Group(x, np.log(seconds.min() / seconds).astype(np.float32)))
    return fit(groups, networks=4, steps=300)


def test_ranks_programs_of_unseen_shapes(model: ValueModel, cost_of: Cost):
    rng, agreement = Random(1), []
    for shape in held_out()[:8]:
        program = shape.program()
        many = [run(space_for(program, TARGET), at_random(rng)) for _ in range(40)]
        guess = model.scores(prompt(program, TARGET), [d.choices for d in many])
        ranks = [np.argsort(np.argsort(v)) for v in (guess, [-cost_of(d) for d in many])]
        agreement.append(np.corrcoef(*ranks)[0, 1])
    assert np.mean(agreement) > 0.8


def test_search_with_it_beats_dice(model: ValueModel, cost_of: Cost):
    ratios = []
    for shape in held_out()[:6]:
        program, rng = shape.program(), Random(2)
        found = imagine(program, TARGET, model, rng, Effort(first=30, rounds=2, parents=6, children=5))
        dice = [cost_of(run(space_for(program, TARGET), at_random(rng))) for _ in range(30)]
        ratios.append(cost_of(found[0][0]) / np.quantile(dice, 0.1))
        assert [s for _, s in found] == sorted((s for _, s in found), reverse=True)
    assert np.exp(np.mean(np.log(ratios))) < 1.0


def test_what_is_written_is_ranked(model: ValueModel, network: Network, cost_of: Cost):
    ratios = []
    for shape in held_out()[:8]:
        drawn = generate([shape.program()], TARGET, samples=12, seed=3, network=network)[0]
        liked = generate([shape.program()], TARGET, samples=12, seed=3, network=network, value=model)[0]
        assert {s.decided for s in drawn} == {s.decided for s in liked}
        expected = [s.value for s in liked]
        assert None not in expected
        assert expected == sorted(expected, key=lambda v: -(v or 0.0))
        ratios.append(cost_of(liked[0].decided) / np.mean([cost_of(s.decided) for s in drawn]))
    assert np.exp(np.mean(np.log(ratios))) < 0.9


def test_a_value_model_of_ones_own_ranks_what_the_shipped_weights_write(model: ValueModel):
    made = generate([held_out()[0].program()], TARGET, samples=3, value=model)[0]
    want = model.scores(made[0].prompt, [s.decided.choices for s in made], exact=True)
    np.testing.assert_allclose([s.value for s in made], want, rtol=0, atol=1e-6)


def test_stored_model_is_the_same(model: ValueModel, tmp_path: Path):
    model.save(tmp_path / "value.safetensors")
    again = ValueModel.load(tmp_path / "value.safetensors")
    x = np.random.default_rng(0).random((5, len(model.columns)), dtype=np.float32)
    np.testing.assert_array_equal(model.predict(x), again.predict(x))


def test_model_over_other_features_is_refused(
    model: ValueModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "value.safetensors"
    model.save(path)
    fewer = tuple(name for n, name in enumerate(features.COLUMNS) if n != model.columns[0])
    monkeypatch.setattr(features, "COLUMNS", fewer)
    with pytest.raises(RecordError, match="fit it again"):
        ValueModel.load(path)
    path.write_text(json.dumps({}))
    with pytest.raises(RecordError, match="fit it again"):
        ValueModel.load(path)


@pytest.mark.parametrize("damage", ["absent", "short", "nan"])
def test_parts_that_do_not_fit_are_refused(model: ValueModel, tmp_path: Path, damage: str):
    parts = dict(model.weights)
    match damage:
        case "absent":
            del parts["w3"]
        case "short":
            parts["w1"] = parts["w1"][:, :-1]
        case "nan":
            parts["b3"] = np.full_like(parts["b3"], np.nan)
    replace(model, weights=parts).save(tmp_path / "value.safetensors")
    with pytest.raises(RecordError, match="is not a value model of this version"):
        ValueModel.load(tmp_path / "value.safetensors")


def test_nothing_measured_is_an_error():
    few = Group(np.zeros((3, features.LENGTH), np.float32), np.zeros(3, np.float32))
    with pytest.raises(RecordError, match="4 or more"):
        fit([few])


def test_mutants_differ_in_one_decision_first_and_are_legal():
    program, rng = Shape("x", 128, 96, 160).program(), Random(3)
    parent = run(space_for(program, TARGET), at_random(rng))
    first = set()
    for _ in range(40):
        child = changed(space_for(program, TARGET), parent, rng)
        assert replay(space_for(program, TARGET), child.values).values == child.values
        pairs = zip(parent.values, child.values, strict=False)
        first.add(next(n for n, (a, b) in enumerate(pairs) if a != b))
    assert len(first) >= 8


def test_imagined_sentences_are_by_seed(model: ValueModel, tmp_path: Path):
    model.save(tmp_path / "value.safetensors")
    effort = Effort(first=12, rounds=1, parents=2, children=3, keep=4)
    jobs = [(Shape("x", 40, 50, 60), TARGET), (Shape("x", 7, 300, 20), Target("sse"))]
    one, two, other = (
        imagined(jobs, Imagination(tmp_path / "value.safetensors", None, s, effort)) for s in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.picked, two.picked)
    assert one.picked.tolist() != other.picked.tolist()
    for number in range(2):
        assert one.weight[one.prompt == number].sum() == pytest.approx(1.0)


def test_weights_prefer_better_scores():
    w = weights([0.0, -0.02, -1.0], tau=0.02)
    assert w.sum() == pytest.approx(1.0)
    assert w[1] / w[0] == pytest.approx(np.exp(-1.0))
    assert w[2] < 1e-10
