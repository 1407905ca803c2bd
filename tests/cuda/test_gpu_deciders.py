"""Deciding for a GPU that is not here: by a model, or by a search of estimates, never as if by measuring."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tlm
from bench.sentences import product
from tests.cuda.gpu_programs import SMALL
from tests.model.dice import dice_value_model
from tlm.cli.showing import as_text, as_values
from tlm.errors import TlmWarning
from tlm.measure import gpu
from tlm.measure.measure import Measurer
from tlm.measure.record import Record
from tlm.model import weights
from tlm.model.files import value_path
from tlm.ops import deciders
from tlm.ops.scheduled import Scheduled
from tlm.ops.settings import Heuristic
from tlm.schedule import apply
from tlm.search.gpu_cost import estimate
from tlm.search.gpu_modelled import Modelled, outcomes
from tlm.target import Target

SM_90 = Target("sm_90")
PROGRAM = product((1, 96, 64, 80), 0)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and store, no weights, and no GPU."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(weights, "FOLDER", tmp_path / "weights")
    monkeypatch.setattr(gpu, "is_here", lambda target: False)
    return tmp_path


def put(folder: Path, trained: dict[str, Any], about: dict[str, Any]) -> None:
    path = folder / "weights" / "cuda.safetensors"
    weights.save(path, trained, SMALL, about)
    dice_value_model().save(value_path(path))
    weights.load.cache_clear()


def test_a_model_trained_on_estimates_writes_and_the_plan_says_so(folders: Path, small_weights: Any):
    put(folders, small_weights, {"estimated": {"programs": 9}})
    plan = deciders.decide(PROGRAM, SM_90, tlm.Generate())
    assert plan.evidence == "modelled"
    assert plan.kept
    assert plan.probabilities
    assert deciders.decide(PROGRAM, SM_90, tlm.Generate()) == plan
    estimate(apply(PROGRAM, plan.steps), SM_90)


def test_a_model_trained_on_measurements_says_that(folders: Path, small_weights: Any):
    put(folders, small_weights, {"measured": {"programs": 9}})
    assert deciders.decide(PROGRAM, SM_90, tlm.Generate()).evidence == "measured"


def test_without_weights_there_is_one_warning_and_the_heuristic(folders: Path):
    with pytest.warns(TlmWarning, match=r"weights are missing .*cuda\.safetensors.*'heuristic' is used"):
        plan = deciders.decide(PROGRAM, SM_90, tlm.Generate())
    assert plan.steps == deciders.decide(PROGRAM, SM_90, Heuristic()).steps
    assert (plan.kept, plan.evidence) == (False, "")


def test_a_search_goes_by_estimate_and_is_remembered_so(folders: Path, monkeypatch: pytest.MonkeyPatch):
    how = tlm.Search(trials=24, seed=1)
    plan = deciders.decide(PROGRAM, SM_90, how)
    assert plan.evidence == "modelled"
    heuristic = deciders.decide(PROGRAM, SM_90, Heuristic())
    times = outcomes(PROGRAM, SM_90, [plan.values, heuristic.values])
    assert times[0] <= times[1]
    assert not list(folders.rglob("records.sqlite"))
    with monkeypatch.context() as patch:
        patch.setattr(Modelled, "measure", lambda *_, **__: pytest.fail("it was estimated again"))
        assert deciders.decide(PROGRAM, SM_90, how) == plan


def test_where_the_gpu_is_estimates_are_not_taken_for_measurements(
    folders: Path, monkeypatch: pytest.MonkeyPatch
):
    """The same search on the machine that has the GPU measures, and does not go by what was estimated."""
    how = tlm.Search(trials=8)
    deciders.decide(PROGRAM, SM_90, how)
    asked: list[Any] = []

    def measure(self: Measurer, program: Any, candidates: Any, kind: str = "x", **_: Any) -> list[Record]:
        made = Modelled(SM_90).measure(program, candidates)
        asked.extend(candidates)
        return [Record(r.workload, r.program, r.target, r.choices, "ok", r.seconds, kind=kind) for r in made]

    monkeypatch.setattr(gpu, "is_here", lambda target: True)
    monkeypatch.setattr(Measurer, "measure", measure)
    plan = deciders.decide(PROGRAM, SM_90, how)
    assert plan.evidence == "measured"
    assert len(set(asked)) == 8
    assert list(folders.rglob("records.sqlite"))


def test_several_proposals_are_told_apart_by_estimate(folders: Path, small_weights: Any):
    put(folders, small_weights, {"measured": {"programs": 9}})
    plan = deciders.decide(PROGRAM, SM_90, tlm.Generate(samples=6, measure=6))
    assert plan.evidence == "modelled"
    one = deciders.decide(PROGRAM, SM_90, tlm.Generate())
    times = outcomes(PROGRAM, SM_90, [plan.values, one.values])
    assert times[0] <= times[1]


def test_show_tells_what_was_only_estimated():
    problem: Any = SimpleNamespace(program=PROGRAM)
    told = "== evidence: estimates of an analytic model; no GPU has run or timed any of it"
    made, closed = (
        Scheduled(problem, deciders.decide(PROGRAM, SM_90, how), SM_90)
        for how in (tlm.Search(trials=8), Heuristic())
    )
    how: dict[str, Any] = dict(source=False, assembly=False)
    assert told in as_text(cast(Any, made), steps=False, **how)
    assert as_values(cast(Any, made), **how)["evidence"] == "modelled"
    assert told not in as_text(cast(Any, closed), steps=False, **how)
