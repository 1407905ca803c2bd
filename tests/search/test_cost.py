"""The cost model: it ranks, it is the same every time, and a file for other features is refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tlm.errors import RecordError
from tlm.search import cost
from tlm.search.cost import COLUMNS, fit, labels, load, save


def data(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.zeros((rows, len(COLUMNS)), np.float32)
    x[:, 5:45] = rng.integers(0, 9, (rows, 40))
    y = -0.3 * np.abs(x[:, 5] - 4) - (x[:, 9] > 3) * (x[:, 12] < 5) - 0.1 * np.abs(x[:, 20] - x[:, 21])
    return x, np.maximum(y - y.max(), cost.SLOWEST)


def test_it_ranks_what_it_has_not_seen():
    model = fit(*data(300))
    x, y = data(300, seed=1)
    assert np.corrcoef(model.predict(x), y)[0, 1] > 0.85
    top = np.argsort(-model.predict(x))[:20]
    assert y[top].mean() > np.quantile(y, 0.9)


def test_fitting_twice_gives_the_same_model():
    x, y = data(100)
    assert (fit(x, y).predict(x) == fit(x, y).predict(x)).all()


def test_growing_and_predicting_agree():
    x, y = data(200)
    many = fit(x, y, cost.Settings(trees=1))
    (tree,) = many.trees
    assert set(np.unique(tree(x))) <= set(tree.leaf)
    assert np.abs(many.predict(x) - y).mean() < np.abs(y - many.base).mean()


def test_nothing_to_learn_from():
    x, y = data(3)
    assert fit(x[:0], y[:0]).predict(x).tolist() == [0.0, 0.0, 0.0]
    assert fit(np.ones_like(x), y).predict(x) == pytest.approx([y.mean()] * 3)


def test_labels_are_within_each_workload():
    got = labels([1.0, 2.0, float("inf"), 8.0, 4.0, 1e9], ["a", "a", "a", "b", "b", "b"])
    assert got == pytest.approx([0.0, -np.log(2), cost.SLOWEST, -np.log(2), 0.0, cost.SLOWEST])
    assert labels([float("inf")], ["a"]).tolist() == [cost.SLOWEST]


def test_files(tmp_path: Path):
    path = tmp_path / "model.json"
    x, y = data(100)
    model = fit(x, y)
    save(model, path)
    assert load(path).predict(x) == pytest.approx(model.predict(x), abs=1e-6)
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"features": len(COLUMNS) + 1}, f"{len(COLUMNS) + 1} features"),
        ({"vocabulary": "0" * 16}, "0" * 16),
        ({"format": 9}, "format"),
        (
            {"trees": [{"column": [10**6], "threshold": [0.0], "leaf": [0.0, 0.0]}]},
            "column that is not there",
        ),
        ({"trees": [{"column": [0, 0], "threshold": [0.0], "leaf": [0.0]}]}, "not complete"),
        ({"trees": 3}, "damaged"),
        ({"base": "x"}, "damaged"),
    ],
)
def test_a_file_for_something_else_is_refused(tmp_path: Path, change: dict, says: str):
    path = tmp_path / "model.json"
    save(fit(*data(30)), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RecordError, match=says):
        load(path)


def test_no_file_and_no_json(tmp_path: Path):
    with pytest.raises(RecordError, match="cannot be read"):
        load(tmp_path / "none")
    (tmp_path / "torn").write_text('{"format": 1')
    with pytest.raises(RecordError, match="cannot be read"):
        load(tmp_path / "torn")
