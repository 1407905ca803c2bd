"""The language of GPUs, and training without one: on estimates, which are told apart from measurements."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.sentences import product
from tests.cuda.gpu_programs import SMALL
from tests.model.dice import dice_value_model
from tlm.cli.learning import app
from tlm.errors import ArgumentError, BackendError, RecordError, ScheduleError
from tlm.lang import features, text
from tlm.lang.encode import prompt, vectors
from tlm.lang.vocabulary import GPU_QUANTITIES, NUMBER, PROMPT_COLUMNS, PROMPT_QUANTITIES
from tlm.measure.record import MODELLED
from tlm.measure.store import Store
from tlm.model import train as training_module
from tlm.model import weights
from tlm.model.estimated import Sample, train_on_estimates
from tlm.model.eval import evaluate
from tlm.model.files import value_path
from tlm.model.fleet import Fleet
from tlm.model.generate import generate
from tlm.model.imagine import Effort
from tlm.model.infer import Network
from tlm.model.measured import read
from tlm.model.shapes import draw
from tlm.model.train import Recipe
from tlm.ops.gpu_workloads import (
    GPU_FAMILIES,
    GPUS,
    MOST_IMAGINED,
    gpu_fleet,
    gpu_others_held_out,
    gpu_products_held_out,
)  # fmt: skip
from tlm.schedule import apply
from tlm.search.evolve import search
from tlm.search.gpu_modelled import NAME, Modelled, modelled_in, seconds
from tlm.search.heuristic import heuristic
from tlm.space.decide import at_random, replay, run
from tlm.space.spaces import space_for
from tlm.target import Target

SM_90 = Target("sm_90")


@pytest.fixture(scope="module")
def network(small_weights: dict[str, Any]) -> Network:
    return Network(SMALL, small_weights)


def test_only_prompts_for_gpus_tell_a_gpus_figures():
    program = product((1, 64, 96, 80), 0)
    first = dict(prompt(program, SM_90).phrases[0])
    assert {name: first[name] for name in GPU_QUANTITIES} == {n: getattr(SM_90, n) for n in GPU_QUANTITIES}
    assert "warp=32" in text.phrase(prompt(program, SM_90).phrases[0])
    assert "warp" not in dict(prompt(program, Target("avx512")).phrases[0])
    assert {len({getattr(Target(name), q) for name in GPUS}) for q in ("sm_threads", "bandwidth")} == {3, 6}


def test_what_a_gpu_adds_stands_behind_what_cpus_have():
    program = product((1, 64, 96, 80), 0)
    added = len(GPU_QUANTITIES)
    assert PROMPT_QUANTITIES[-added:] == GPU_QUANTITIES
    assert PROMPT_COLUMNS[-added * NUMBER] == f"{GPU_QUANTITIES[0]}/0"
    assert features.COLUMNS[-added:] == GPU_QUANTITIES
    for target, some in ((Target("avx2"), False), (SM_90, True)):
        assert vectors(prompt(program, target))[:, -added * NUMBER :].any() == some
        decided = run(space_for(program, target), at_random(Random(0)))
        tail = features.features(prompt(program, target), decided.choices)[-added:]
        assert tail.all() == some
        assert tail.any() == some
    columns = np.array([3, features.LENGTH - 1])
    x = features.matrix(prompt(program, SM_90), [decided.choices], columns)
    np.testing.assert_allclose(x[0, 1], np.log2(1 + SM_90.bandwidth) / 8, rtol=1e-6)


WORKLOADS = [next(draw(8, {name: GPU_FAMILIES[name]})) for name in GPU_FAMILIES]


@pytest.mark.parametrize("name", ["sm_75", "sm_90"])
def test_every_sentence_of_every_family_is_legal_by_whatever_weights(name: str, network: Network):
    target = Target(name)
    programs = [w.program() for w in WORKLOADS]
    for program, made in zip(programs, generate(programs, target, samples=2, network=network), strict=True):
        for sentence in made:
            again = replay(space_for(program, target), sentence.decided.values)
            assert again.steps == sentence.decided.steps
            assert all(sum(p) == pytest.approx(1.0) for p in sentence.probabilities)
        apply(program, made[0].decided.steps)


@pytest.mark.timed
def test_the_same_sentence_in_any_company_and_in_milliseconds(network: Network):
    programs = [w.program() for w in WORKLOADS]
    together = generate(programs, SM_90, samples=3, seed=4, network=network)
    for program, mine in list(zip(programs, together, strict=True))[::3]:
        alone = generate([program], SM_90, samples=3, seed=4, network=network)[0]
        assert [s.decided.values for s in alone] == [s.decided.values for s in mine]
    times = []
    for program in programs:
        began = time.perf_counter()
        generate([program], SM_90, network=network)
        times.append(time.perf_counter() - began)
    assert np.median(times) < 0.1


def test_workloads_are_larger_and_the_held_out_ones_are_kept_apart():
    drawn = list(islice(draw(2, GPU_FAMILIES, MOST_IMAGINED), 150))
    assert sum(w.work > 6e9 for w in drawn) >= 6
    for work in drawn[:40]:
        extents = [b.shape for b in work.program().inputs]
        assert all(n >= 1 for shape in extents for n in shape)
    fleet = gpu_fleet(SM_90, Modelled)
    assert sum(share for _, share in fleet.shares) == pytest.approx(1.0)
    assert {t.isa for t, _ in fleet.shares} == set(GPUS)
    jobs = training_module.imagined_jobs(200, 1, fleet)
    held_out = {*gpu_products_held_out(), *gpu_others_held_out()}
    assert len({str(w) for w in held_out}) == len(fleet.held_out) > 100
    assert not any(work.pairs & fleet.hidden for work, _ in jobs)
    assert max(jobs, key=lambda job: job[0].work)[0].work > 6e9
    assert sum(t == SM_90 for _, t in jobs) > 50
    alone = gpu_fleet(SM_90, Modelled, alone=True)
    assert alone.shares == ((SM_90, 1.0),)


def test_estimates_never_enter_a_store_of_measurements(tmp_path: Path):
    program = product((1, 64, 96, 80), 0)
    values = [run(space_for(program, SM_90), at_random(Random(n))).values for n in range(3)]
    records = Modelled(SM_90).measure(program, values, kind="final", sink=None)
    with Store(tmp_path / "s") as store, pytest.raises(RecordError, match="takes only measurements"):
        Modelled(SM_90).measure(program, values, sink=store.add)
    with Store(tmp_path / "s") as store, pytest.raises(RecordError, match="takes only measurements"):
        search(program, SM_90, Modelled(SM_90), trials=4, store=store)
    with Store(tmp_path / "s") as store:
        assert store.records() == []
    with Store(tmp_path / "e", estimates=True) as store:
        store.add(records)
        with pytest.raises(RecordError, match="takes only estimates"):
            store.add([replace(records[0], kind="collect")])
    with pytest.raises(RecordError, match="holds estimates; measurements are needed"):
        read(tmp_path / "e", kind="cuda")
    (workload,), unused = read(tmp_path / "e", kind="cuda", estimates=True)
    assert (len(workload.programs), unused) == (3, 0)
    assert read(tmp_path / "e", estimates=True) == ([], 0)


def test_a_schedule_that_is_refused_is_a_record(monkeypatch: pytest.MonkeyPatch):
    def refused(program: Any, steps: Any) -> Any:
        raise ScheduleError("bind: no loop z")

    monkeypatch.setattr("tlm.search.gpu_modelled.apply", refused)
    program = product((1, 16, 16, 16), 0)
    (record,) = Modelled(SM_90).measure(program, [run(space_for(program, SM_90), heuristic).values])
    assert (record.status, record.seconds, record.kind) == ("error", (), MODELLED)
    assert record.message == "ScheduleError: bind: no loop z"


def test_processes_share_estimates_and_change_none(tmp_path: Path):
    program = product((1, 256, 256, 256), 0)
    values = [run(space_for(program, SM_90), at_random(Random(n))).values for n in range(5)]
    alone = Modelled(SM_90).measure(program, values)
    with modelled_in(2) as modelled, modelled(SM_90) as shared:
        assert shared.measure(program, values) == alone
        assert shared.measure(program, []) == []
    first = run(space_for(program, SM_90), at_random(Random(0)))
    assert alone[0].seconds == (seconds(program, SM_90, first),)
    stopped = Modelled(SM_90).measure(program, values, watch=lambda done: done < 2)
    assert [r.choices for r in stopped] == values[:2]


@pytest.fixture
def fleet() -> Fleet:
    """Few small workloads, so that estimates take milliseconds."""
    small = gpu_fleet(SM_90, Modelled, estimates=NAME, judge=seconds)
    families = {name: GPU_FAMILIES[name] for name in ("small", "elementwise")}
    some = tuple(work for work in small.held_out if work.family in families)
    return replace(small, families=families, held_out=some, most_work=2_000_000, most_imagined=2_000_000)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, small_weights: dict[str, Any]) -> Recipe:
    """A small one, whose language model is not trained: that is as for CPUs, and takes long to compile."""

    def learn(recipe: Recipe, corpus: Any, here: Path, start: Any, steps: int, progress: Any) -> Any:
        assert len(corpus) >= 4
        assert (start, steps) == (None, 1)
        return small_weights

    effort = Effort(first=6, proposed=2, rounds=1, parents=2, children=2, keep=3)
    monkeypatch.setattr(training_module, "imagine_many", _here)
    monkeypatch.setattr(training_module, "_learn", learn)
    return Recipe(rounds=1, imagined=4, steps=1, size=8, value_steps=20, effort=effort, config=SMALL)


def _here(chunks: Any, how: Any, processes: int) -> Iterator[Any]:
    from tlm.model.imagine import imagined

    return ((n, imagined(chunk, how)) for n, chunk in enumerate(chunks))


def test_training_on_estimates_goes_on_after_a_kill_and_says_that_nothing_was_measured(
    tmp_path: Path, fleet: Fleet, recipe: Recipe
):
    said: list[str] = []

    def progress(what: str, done: int, total: int, remark: str) -> None:
        said.append(f"{what}: {remark}")
        if what == "value" and "killed" not in said:
            said.append("killed")
            raise KeyboardInterrupt

    how: dict[str, Any] = dict(sample=Sample(5, 8), common=(), heuristic=heuristic, progress=progress)
    with pytest.raises(KeyboardInterrupt):
        train_on_estimates(tmp_path / "a", fleet, recipe, **how)
    path = train_on_estimates(tmp_path / "a", fleet, recipe, **how)
    assert [line.split(":")[0] for line in said].count("value") == 1
    assert path == tmp_path / "a" / "cuda.safetensors"
    card = weights.card(path)
    assert card["note"].startswith("No measurement of a GPU went into these weights")
    assert NAME in card["note"]
    assert card["measured"]["programs"] == 0
    assert card["estimated"]["workloads"] == 5
    assert len({line for line in said if "GFLOP/s by estimate" in line}) == 5
    with Store(tmp_path / "a" / "estimates-0-5x8.sqlite", estimates=True) as store:
        assert {r.kind for r in store.records()} == {MODELLED}
    with pytest.raises(ArgumentError, match="another targets"):
        train_on_estimates(tmp_path / "a", replace(fleet, shares=fleet.shares[:2]), recipe, **how)
    with pytest.raises(ArgumentError, match="whose programs are estimated"):
        train_on_estimates(tmp_path / "c", replace(fleet, estimates=""), recipe)


def test_a_judgement_by_estimate_says_so_and_stores_nothing(tmp_path: Path, small_weights: dict[str, Any]):
    path = tmp_path / "m" / "cuda.safetensors"
    weights.save(path, small_weights, SMALL, {})
    dice_value_model().save(value_path(path))
    shapes = list(islice(draw(3, {"small": GPU_FAMILIES["small"]}, 2_000_000), 1))
    how: dict[str, Any] = dict(
        shapes=shapes, trials=10, target=SM_90, search=search, heuristic=heuristic, measurer=Modelled,
        estimates=NAME, rows=tmp_path / "rows.jsonl",
    )  # fmt: skip
    report = evaluate(None, [tmp_path / "m"], **how)
    assert report.text().splitlines()[0] == f"by estimate of the analytic model {NAME}: nothing was measured"
    assert report.about["estimates"] == NAME
    row = report.rows[0]
    assert row.fraction["search"] == 1.0
    assert row.fraction["one of 8"] >= row.fraction["one"] > 0
    assert evaluate(None, [tmp_path / "m"], **how) == report
    with pytest.raises(ArgumentError, match=r"no weights at .*cuda\.safetensors"):
        evaluate(None, [tmp_path], **how)


def test_commands_for_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from tlm.measure.gpu import is_here

    if is_here(SM_90):
        pytest.skip("this machine measures")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def call(*words: str) -> str:
        return CliRunner().invoke(app, [*words], catch_exceptions=False).stdout

    words = ("search", "matmul", "64", "64", "64", "--target", "sm_90", "--trials", "8")
    found = json.loads(call(*words, "--json").splitlines()[-1])
    assert found["evidence"] == "modelled"
    assert found["seconds"] > 0
    assert "on sm_90 by estimate: nothing was measured" in call(*words)
    assert "estimated (" in call(*words)
    with pytest.raises(BackendError, match="needs a GPU here that runs code for sm_90"):
        call("collect", "--target", "sm_90", "--shapes", "1")
    with pytest.raises(ArgumentError, match="SHAPESxPROGRAMS"):
        call("train", "--target", "sm_90", "--estimated", "many", "--out", str(tmp_path / "t"))
    with pytest.raises(ArgumentError, match="a GPU such as sm_90, got 'avx2'"):
        call("train", "--target", "avx2", "--out", str(tmp_path / "t"))
    for target, start, kinds in (("sm_90", "cpu", "cpu .* cuda"), ("cpu", "cuda", "cuda .* cpu")):
        with pytest.raises(ArgumentError, match=f"was trained for {kinds} targets"):
            call(
                "train", "--target", target, "--start", str(weights.shipped(start)), "--steps", "0",
                "--out", str(tmp_path / "t"),
            )  # fmt: skip
    assert not (tmp_path / "t").exists()
    assert not list(tmp_path.rglob("records.sqlite"))
