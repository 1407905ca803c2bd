"""Timing again: what is chosen, once, and how its times and the first ones come to one scale."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tlm.ir import canonical, serialize
from tlm.measure.record import Record
from tlm.measure.store import Store
from tlm.model.collect import collect
from tlm.model.measured import read
from tlm.model.retime import KNOWN, MIDDLING, retime
from tlm.model.shapes import Shape
from tlm.search.heuristic import heuristic
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target, host

MACHINE = host().with_threads(1)


def store_of(path: Path, fake: Any, targets: list[Target], shapes: int = 2) -> Path:
    collect(path, shapes=shapes, trials=40, targets=targets, measurer=fake, heuristic=heuristic)
    return path


def test_the_fastest_some_middling_ones_and_sentences_of_the_model(tmp_path: Path, fake_measurer: Any):
    path = store_of(tmp_path / "s", fake_measurer, [MACHINE])
    done = retime(path, proposed=3, measurer=fake_measurer)
    assert (done.measured, done.skipped, done.failures) == (2, 0, 0)
    with Store(path) as store:
        records = store.records()
    for key in {r.workload for r in records}:
        first = [r for r in records if r.workload == key and r.kind == "collect"]
        again = [r.choices for r in records if r.workload == key and r.kind == "final"]
        ranked = list(dict.fromkeys(r.choices for r in sorted(first, key=lambda r: r.score)))
        assert again[:KNOWN] == ranked[:KNOWN]
        assert set(again[KNOWN : KNOWN + MIDDLING]) <= set(ranked[KNOWN:])
        assert KNOWN + MIDDLING <= len(again) <= KNOWN + MIDDLING + 3
        assert len(set(again)) == len(again)


def test_a_workload_is_timed_again_once(tmp_path: Path, fake_measurer: Any):
    path = store_of(tmp_path / "s", fake_measurer, [MACHINE], shapes=3)
    assert retime(path, seconds=-1.0, proposed=0, measurer=fake_measurer).measured == 0
    assert retime(path, proposed=0, measurer=fake_measurer).measured == 3
    second = retime(path, proposed=0, measurer=fake_measurer)
    assert (second.measured, second.skipped, second.programs) == (0, 3, 0)


def test_workloads_of_a_target_share_a_measurer_and_foreign_targets_are_left_out(
    tmp_path: Path, fake_measurer: Any
):
    two = host().with_threads(2)
    foreign = Target("neon") if host().isa != "neon" else Target("avx2")
    path = store_of(tmp_path / "s", fake_measurer, [MACHINE, two, foreign], shapes=9)
    made: list[Target] = []

    def counted(target: Target) -> Any:
        made.append(target)
        return fake_measurer(target)

    retime(path, proposed=0, measurer=counted)
    assert len(made) == len(set(made))
    assert set(made) <= {MACHINE, two}


@pytest.mark.parametrize("slower", [1.0, 1.5])
def test_first_times_are_scaled_to_those_of_the_later_session(tmp_path: Path, slower: float):
    program = Shape("x", 64, 96, 160).program()
    rng = Random(1)
    dice = list(dict.fromkeys(run(space_for(program, MACHINE), at_random(rng)).values for _ in range(30)))[
        :12
    ]
    true = np.linspace(1.0, 2.1, len(dice))

    def record(n: int, seconds: float, kind: str) -> Record:
        key, body = canonical.key(program), serialize.to_json(program)
        return Record(key, body, MACHINE.to_json(), dice[n], "ok", (seconds,) * 3, kind=kind)

    with Store(tmp_path / "s") as store:
        # The first program was lucky when it was timed first.
        store.add([record(n, true[n] * slower * (0.5 if n == 0 else 1), "collect") for n in range(len(dice))])
        store.add([record(n, true[n], "final") for n in range(6)])
    ((workload,), unused) = read(tmp_path / "s")
    assert unused == 0
    by_values = {d.values: s for d, s in zip(workload.programs, workload.seconds, strict=True)}
    np.testing.assert_allclose([by_values[v] for v in dice], true)
