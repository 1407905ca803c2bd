"""Weights on disk: whole, aligned by name, and refused where they do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tlm.errors import RecordError, TlmWarning
from tlm.lang import options
from tlm.model import weights
from tlm.model.config import Config
from tlm.model.files import digest, value_path
from tlm.model.infer import Network
from tlm.space.choice import Choice, Option

CHOICE = Choice("rows", tuple(Option(n, (("waste", 3.0 * n), ("size", n))) for n in (1, 2, 4, 8)))


@pytest.fixture
def stored(tmp_path: Path, small: Config, small_weights: dict[str, Any]) -> Path:
    path = tmp_path / "model" / "cpu.safetensors"
    weights.save(path, small_weights, small, {"measured": 3})
    return path


def embedded(path: Path) -> np.ndarray:
    found = weights.card(path)
    network = Network(Config.from_json(found["config"]), weights.read(path))
    return network.embed(options.dense(options.pack([CHOICE])))


def test_round_trip(stored: Path, network: Network):
    assert weights.card(stored)["measured"] == 3
    assert weights.load(stored) is weights.load(stored)
    np.testing.assert_array_equal(embedded(stored), network.embed(options.dense(options.pack([CHOICE]))))
    assert sorted(p.name for p in stored.parent.iterdir()) == ["cpu.json", "cpu.safetensors"]


def test_another_value_model_is_another_digest(stored: Path):
    alone = digest(stored)
    value_path(stored).write_bytes(b"one")
    one = digest(stored)
    value_path(stored).write_bytes(b"two")
    assert len({alone, one, digest(stored)}) == 3
    assert digest(stored.with_name("absent.safetensors")) == ""


def test_a_missing_value_model_is_told_once_for_each_path(stored: Path):
    with pytest.warns(TlmWarning) as caught:
        assert weights.load_value(stored) is None
    assert len(caught) == 1
    # Warnings are errors here: a second one would be raised.
    assert weights.load_value(stored) is None
    message = str(caught[0].message)
    assert f"no value model at {value_path(stored)}" in message
    assert f"`tlm train --steps 0 --start {stored} --out FOLDER`" in message


def test_rows_follow_their_names_when_the_vocabulary_changes(stored: Path, small_weights: dict[str, Any]):
    """Columns in another order, one that is gone and one that is new: known ones keep their meaning."""
    from safetensors.numpy import save_file

    want = embedded(stored)
    card = json.loads(stored.with_suffix(".json").read_text())
    order = np.random.default_rng(0).permutation(len(card["columns"]["options"]))
    names = [card["columns"]["options"][n] for n in order]
    changed = dict(small_weights)
    changed["fact.kernel"] = np.concatenate(
        [small_weights["fact.kernel"][order], np.ones((1, 16), np.float32)]
    )
    card["columns"]["options"] = [*names, "fact.retired/log"]
    unused = names.index("fact.imbalance/log")
    card["columns"]["options"][unused] = "fact.of another version/log"
    save_file(changed, stored)
    stored.with_suffix(".json").write_text(json.dumps(card))
    np.testing.assert_allclose(embedded(stored), want, atol=1e-12)


def test_what_does_not_fit_is_refused(stored: Path):
    card = json.loads(stored.with_suffix(".json").read_text())
    for change, message in [
        ({"format": 999}, "format 1"),
        ({"config": {"width": 4}}, "sizes of a model"),
        ({"config": card["config"] | {"width": 10**9}}, "1 to 4096"),
        ({"columns": {}}, "names of the columns"),
        ({"columns": card["columns"] | {"choices": ["rows"]}}, "one row for each"),
    ]:
        stored.with_suffix(".json").write_text(json.dumps(card | change))
        weights.load.cache_clear()
        with pytest.raises(RecordError, match=message):
            weights.load(stored)


def test_missing_or_torn_files_are_named(stored: Path, tmp_path: Path):
    with pytest.raises(RecordError, match=r"no card of a model at .*absent\.json"):
        weights.card(tmp_path / "absent.safetensors")
    stored.write_bytes(stored.read_bytes()[:100])
    with pytest.raises(RecordError, match="not a safetensors file"):
        weights.read(stored)
