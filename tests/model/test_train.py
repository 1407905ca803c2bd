"""Collecting, training and judging, with a measurer that only computes."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.model.dice import dice_value_model
from tlm.errors import ArgumentError, RecordError
from tlm.measure.record import Record
from tlm.measure.store import Store
from tlm.model import eval as judging
from tlm.model import train as module
from tlm.model import weights
from tlm.model.collect import collect, jobs
from tlm.model.config import Config
from tlm.model.eval import evaluate
from tlm.model.files import value_path
from tlm.model.imagine import Effort
from tlm.model.measured import keys, read, taught
from tlm.model.shapes import PRODUCTS, Shape, all_held_out, held_out, training
from tlm.model.train import Recipe, run_recipe
from tlm.search.heuristic import heuristic
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

TARGETS = [Target("avx512"), Target("avx2", threads=2)]


@pytest.fixture
def store(tmp_path: Path, fake_measurer: Any) -> Path:
    path = tmp_path / "records.sqlite"
    collect(path, shapes=6, trials=16, targets=TARGETS, measurer=fake_measurer, heuristic=heuristic)
    return path


def test_collect_measures_each_shape_once(store: Path, fake_measurer: Any):
    workloads, unused = read(store)
    assert len(workloads) == 6
    assert unused == 0
    assert all(10 <= len(w.programs) <= 16 for w in workloads)
    assert all(w.quality.max() == 0 and w.quality.min() < 0 for w in workloads)
    again = collect(store, shapes=8, trials=16, targets=TARGETS, measurer=fake_measurer, heuristic=heuristic)
    assert (again.measured, again.skipped, again.failures) == (2, 6, 0)


class Killed(Exception):
    """In place of SIGKILL, after a batch."""


def test_collect_measures_no_program_twice(tmp_path: Path, fake_measurer: Any):
    """Not of a space that has fewer programs than are asked for, nor after a kill within a shape."""
    how: dict[str, Any] = dict(trials=40, targets=TARGETS[1:], heuristic=heuristic)
    for shape in (Shape("x", 1, 1, 1), Shape("x", 2, 2, 2)):
        path = tmp_path / str(shape)
        first, again = (collect(path, shapes=[shape], measurer=fake_measurer, **how) for _ in range(2))
        assert first.programs > 0
        assert (again.measured, again.skipped, again.programs) == (0, 1, 0)

    class Dying(fake_measurer):
        def measure(self, *args: Any, **kwargs: Any) -> Any:
            super().measure(*args, **kwargs)
            raise Killed

    path, shape = tmp_path / "killed", Shape("x", 64, 96, 160)
    with pytest.raises(Killed):
        collect(path, shapes=[shape], measurer=Dying, **how)
    collect(path, shapes=[shape], measurer=fake_measurer, **how)
    with Store(path) as opened:
        found = [r.choices for r in opened.records()]
    assert len(set(found)) == len(found) == 40


def test_collect_is_by_seed_and_starts_with_the_heuristic(tmp_path: Path, fake_measurer: Any):
    found = []
    for name in "ab":
        collect(
            tmp_path / name, shapes=[Shape("x", 64, 96, 160)], trials=12, targets=TARGETS[:1], seed=5,
            measurer=fake_measurer, heuristic=heuristic,
        )  # fmt: skip
        with Store(tmp_path / name) as opened:
            found.append([r.choices for r in opened.records()])
    assert found[0] == found[1]
    assert found[0][0] == run(space_for(Shape("x", 64, 96, 160).program(), TARGETS[0]), heuristic).values
    assert len(set(found[0])) == len(found[0]) == 12


def test_collect_ends_in_time_and_says_what_it_does(tmp_path: Path, fake_measurer: Any):
    lines: list[tuple[str, int, int, str]] = []
    some = collect(
        tmp_path / "s",
        shapes=3,
        trials=4,
        targets=TARGETS,
        measurer=fake_measurer,
        progress=lambda *a: lines.append(a),
    )
    assert some.measured == len(lines) == 3
    assert lines[0][:3] == ("collect", 1, 3)
    assert "4 programs, 0 failed, best" in lines[0][3]
    assert (
        collect(tmp_path / "t", shapes=3, seconds=-1.0, targets=TARGETS, measurer=fake_measurer).measured == 0
    )


def test_jobs_are_dealt_by_share_and_slow_ones_go_to_the_fastest_target():
    shares = [(Target("avx512"), 0.5), (Target("sse"), 0.5)]
    dealt = jobs([*training(200, 0), Shape("x", 1000, 1000, 1200)], shares, 0)
    slow = [target.isa for shape, target in dealt if shape.work > 1e9]
    assert slow
    assert set(slow) == {"avx512"}
    assert 50 < sum(target.isa == "sse" for _, target in dealt) < 150


@pytest.fixture
def recipe(small: Config) -> Recipe:
    effort = Effort(first=8, proposed=2, rounds=1, parents=2, children=2, keep=3)
    return Recipe(
        rounds=2,
        imagined=9,
        steps=4,
        size=8,
        proposals=4,
        samples=2,
        value_steps=40,
        effort=effort,
        config=small,
    )


def test_training_makes_weights_that_write_and_goes_on_after_a_kill(
    store: Path, tmp_path: Path, recipe: Recipe, fake_measurer: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "Measurer", fake_measurer)
    out, said = tmp_path / "out", []

    def progress(what: str, done: int, total: int, remark: str) -> None:
        said.append(what)
        if said.count("measure") == 2 and "killed" not in said:
            said.append("killed")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_recipe(recipe, store, out, progress=progress, resume=True, measure=True)
    first = (out / "round0" / "cpu.safetensors").stat().st_mtime_ns
    path = run_recipe(recipe, store, out, progress=progress, resume=True, measure=True)
    assert (out / "round0" / "cpu.safetensors").stat().st_mtime_ns == first
    order = [name for name, _ in itertools.groupby(said)]
    assert order[:5] == ["read", "value", "imagine", "train", "measure"]
    assert order[6:] == ["measure", "read", "value", "imagine", "train"]
    card = weights.card(path)
    assert weights.load_value(path) is not None
    assert card["round"] == 1
    assert card["recipe"]["imagined"] == 9
    assert card["measured"]["workloads"] >= 8
    with Store(store) as opened:
        assert any(r.kind == "round 0" for r in opened.records())
    with pytest.raises(ArgumentError, match="another steps"):
        run_recipe(replace(recipe, steps=5), store, out, progress=progress, resume=True, measure=False)


def test_no_steps_fit_only_the_value_model(
    store: Path, tmp_path: Path, recipe: Recipe, fake_measurer: Any, monkeypatch: pytest.MonkeyPatch,
    small_weights: dict[str, np.ndarray], small: Config,
):  # fmt: skip
    monkeypatch.setattr(module, "Measurer", fake_measurer)
    start, said = tmp_path / "start.safetensors", []
    weights.save(start, small_weights, small, {"measured": {"programs": 7}, "targets": [TARGETS[0].key]})
    kept = replace(recipe, steps=0, rounds=1, start=str(start))
    path = run_recipe(
        kept, store, tmp_path / "out", progress=lambda what, *_: said.append(what), resume=True, measure=True
    )
    assert said == ["read", "value"]
    assert weights.load_value(path) is not None
    card = weights.card(path)
    assert card["recipe"]["steps"] == 0
    assert card["config"] == small.to_json()
    assert card["language_model"] == {"recipe": None, "measured": {"programs": 7}, "sentences": None}
    for name, array in weights.read(path).items():
        np.testing.assert_array_equal(array, small_weights[name])


def test_weights_that_cannot_be_gone_on_from_are_refused_before_any_work(
    tmp_path: Path, recipe: Recipe, small_weights: dict[str, np.ndarray], small: Config
):
    def stored(name: str, targets: list[str], config: Config = small) -> Path:
        path = tmp_path / name / "some.safetensors"
        weights.save(path, small_weights, config, {"targets": targets})
        return path

    def refused(error: type[Exception], message: str, **changes: Any) -> None:
        out = tmp_path / "out"
        with pytest.raises(error, match=message):
            run_recipe(
                replace(recipe, **changes), tmp_path / "no store", out, progress=pytest.fail, resume=True,
                measure=True,
            )  # fmt: skip
        assert not out.exists()

    mine, gpus = TARGETS[0].key, Target("sm_90").key
    refused(ArgumentError, r"steps=0 .* needs start=", steps=0)
    refused(
        ArgumentError, r"there is none at .*absent\.safetensors", start=str(tmp_path / "absent.safetensors")
    )
    refused(ArgumentError, "there is none at", start=str(tmp_path))
    refused(
        ArgumentError,
        r"some\.safetensors was trained for cuda targets, and this trains for cpu targets; "
        "give weights of `tlm train --target cpu`",
        start=str(stored("a", [gpus])),
    )
    refused(ArgumentError, "trained for cpu and cuda targets", start=str(stored("b", [mine, gpus])))
    refused(ArgumentError, "trained for no targets", start=str(stored("c", [])))
    wide = replace(small, width=2 * small.width)
    refused(ArgumentError, "is a model of Config.* is trained", start=str(stored("d", [mine], wide)))
    stored("e", [mine]).write_bytes(b"none")
    refused(RecordError, "is not a safetensors file", start=str(tmp_path / "e" / "some.safetensors"))
    (tmp_path / "f.safetensors").touch()
    refused(RecordError, r"no card of a model at .*f\.json", start=str(tmp_path / "f.safetensors"))


def test_held_out_measurements_are_not_trained_on(tmp_path: Path, fake_measurer: Any):
    path = tmp_path / "records.sqlite"
    out = held_out()[0]
    beside = Shape("x", out.m, out.k, out.n + 1, epilogue="relu")
    shapes = [out, Shape("x", 64, 96, 160), beside]
    collect(path, shapes=shapes, trials=6, targets=TARGETS[:1], measurer=fake_measurer)
    works = all_held_out(PRODUCTS)
    hidden, pairs = keys(works), frozenset().union(*[w.pairs for w in works])
    kept, _ = read(path, lambda program: taught(program, hidden, pairs))
    assert [w.program for w in kept] == [shapes[1].program()]


def fake_search(program, target, measurer, *, trials, seed, store, resume):
    """The best of `trials` random programs."""
    from random import Random

    rng = Random(seed)
    values = [run(space_for(program, target), at_random(rng)).values for _ in range(trials)]
    records = measurer.measure(program, values)
    store.add(records)

    class Found:
        best = min(records, key=lambda r: r.score).choices

    return Found


def test_evaluation_is_paired_and_goes_on(
    tmp_path: Path, small: Config, small_weights: dict[str, np.ndarray], fake_measurer: Any
):
    for name in "ab":
        path = tmp_path / name / "cpu.safetensors"
        weights.save(path, small_weights, small, {})
        dice_value_model().save(value_path(path))
    made: list[Any] = []

    def measurer(target: Target) -> Any:
        made.append(fake_measurer(target))
        return made[-1]

    arguments: dict[str, Any] = dict(
        trials=40, target=TARGETS[0], search=fake_search, heuristic=heuristic, rows=tmp_path / "rows.jsonl",
        measurer=measurer,
    )  # fmt: skip
    first = evaluate(tmp_path / "s", [tmp_path / "a", tmp_path / "b"], shapes=2, **arguments)
    row = first.rows[0]
    assert row.fraction["search"] == 1.0
    assert row.fraction["search"] > row.fraction["random"]
    assert row.fraction["one #0"] == row.fraction["one #1"]
    assert row.fraction["one of 8 #0"] >= row.fraction["one #0"]
    assert set(row.fraction) == {
        "search", "greedy #0", "one #0", "one of 8 #0", "greedy #1", "one #1", "one of 8 #1",
        "heuristic", "random", "best of 10 random",
    }  # fmt: skip
    summary = first.summary()["search"]
    values = [r.fraction["search"] for r in first.rows]
    assert summary["mean"] == pytest.approx(np.exp(np.mean(np.log(values))))
    assert summary["worst"] == min(values)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"about": torn')
    again = evaluate(tmp_path / "s", [tmp_path / "a", tmp_path / "b"], shapes=2, **arguments)
    assert made[-1].calls == []
    assert again == first
    assert "one of 8 #0" in again.text()
    assert json.loads(json.dumps(again.to_json()))["summary"].keys() == first.summary().keys()


def test_a_torn_row_costs_no_other(tmp_path: Path):
    path, about = tmp_path / "rows.jsonl", {"search": 500}
    for name in "ab":
        judging._append(path, about, name, {"seconds": 1.0})
    path.write_bytes(path.read_bytes()[:-20])
    for name in "bc":
        judging._append(path, about, name, {"seconds": 3.0})
    assert {n: r["seconds"] for n, r in judging._read(path, about).items()} == {"a": 1.0, "b": 3.0, "c": 3.0}


@pytest.mark.parametrize("text", ["", '{"seed": 0, "rou', "[]"])
def test_a_folder_that_was_begun_otherwise(text: str, store: Path, tmp_path: Path, recipe: Recipe):
    out = tmp_path / "out"
    out.mkdir()
    (out / "recipe.json").write_text(text)
    with pytest.raises(RecordError, match=r"recipe\.json is no recipe of tlm train; give another folder"):
        run_recipe(recipe, store, out, progress=pytest.fail, resume=True, measure=True)


def test_seeds_are_not_negative(tmp_path: Path, recipe: Recipe):
    with pytest.raises(ArgumentError, match="seed is 0 or more, got -1"):
        evaluate(None, [], shapes=1, seed=-1)
    with pytest.raises(ArgumentError, match="seed is 0 or more, got -2"):
        run_recipe(
            replace(recipe, seed=-2), tmp_path, tmp_path / "out", progress=pytest.fail, resume=True,
            measure=True,
        )  # fmt: skip


def test_one_slow_process_does_not_judge_a_program(
    tmp_path: Path, small: Config, small_weights: dict[str, np.ndarray], fake_measurer: Any
):
    """Pages that lie badly slow a program for the life of a process, so the median of several counts."""
    path = tmp_path / "cpu.safetensors"
    weights.save(path, small_weights, small, {})
    dice_value_model().save(value_path(path))

    class Moody(fake_measurer):
        process = 0

        def close(self) -> None:
            self.process += 1

        def measure(self, *args: Any, **kwargs: Any) -> list[Record]:
            records = super().measure(*args, **kwargs)
            if self.process != 1:
                return records
            return [replace(r, seconds=tuple(s * (1 + n) for s in r.seconds)) for n, r in enumerate(records)]

    how: dict[str, Any] = dict(trials=40, target=TARGETS[0], search=fake_search, shapes=2)
    steady = evaluate(tmp_path / "s", [path], measurer=fake_measurer, **how)
    assert evaluate(tmp_path / "s", [path], measurer=Moody, **how).rows[0].fraction == steady.rows[0].fraction


def test_missing_models_are_named(tmp_path: Path):
    with pytest.raises(ArgumentError, match=r"no weights at .*nothing\.safetensors"):
        evaluate(tmp_path / "s", [tmp_path / "nothing.safetensors"], shapes=1)
