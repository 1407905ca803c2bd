"""The search: the same seed finds the same, it resumes, it stops when told, and luck does not win."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tlm.errors import TlmWarning
from tlm.measure.limits import Limits
from tlm.measure.measure import Measurer
from tlm.measure.store import Store
from tlm.search import cost
from tlm.search.evolve import search
from tlm.search.progress import Progress
from tlm.search.propose import Proposer
from tlm.space.choice import Choice
from tlm.space.decide import at_random, run

from .fakes import TARGET, Clock, Fake, hashed, matmul, option, smooth, space, tiny


def find(fake, **options):
    return search(matmul(), TARGET, fake, **({"space": space, "now": Clock()} | options))


def test_it_finds_the_valley_and_beats_dice():
    result = find(Fake(smooth), trials=150)
    rng = random.Random(0)
    dice = min(smooth(run(space(), at_random(rng)).values) for _ in range(150))
    assert result.seconds <= dice
    assert result.best is not None
    assert result.best[:4] == (6, 8, 12, "nmk")
    assert result.measured == 150
    assert result.stopped == "trials"
    assert {r.kind for r in result.records} == {"search", "final"}


def test_the_same_seed_searches_the_same():
    a, b, c = (Fake(hashed) for _ in range(3))
    results = [find(f, trials=100, seed=s) for f, s in ((a, 0), (b, 0), (c, 1))]
    assert a.calls == b.calls
    assert a.calls != c.calls
    assert results[0].best == results[1].best
    assert len(set(a.asked)) == 100


def test_one_and_four_workers_search_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "measure"))
    results = []
    for builders in (1, 4):
        with Measurer(TARGET, builders=builders, clock=hashed, toolchain="faulty:Faulty") as measurer:
            results.append(find(measurer, trials=60))
    assert [r.choices for r in results[0].records] == [r.choices for r in results[1].records]
    assert results[0].best == results[1].best


def test_clones_draw_different_numbers_but_repeat():
    draws = [[Proposer(space, random.Random(seed)).random().values for _ in range(1)] for seed in range(100)]
    again = [[Proposer(space, random.Random(seed)).random().values for _ in range(1)] for seed in range(100)]
    assert draws == again
    assert len({d[0] for d in draws}) > 50


def test_a_lucky_timing_does_not_win():
    # Half of the candidates look 30 % faster the first time than they are.
    def noisy(values, kind):
        lucky = kind == "search" and hash(values[:3]) % 2 == 0
        return smooth(values) * (0.7 if lucky else 1.0)

    result = find(Fake(noisy), trials=150)
    finals = [r for r in result.records if r.kind == "final"]
    assert len(finals) == 8
    assert result.seconds == pytest.approx(min(smooth(r.choices) for r in finals))
    assert smooth(result.best) == result.seconds


def test_resuming_measures_nothing_twice(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        first = Fake(smooth)
        before = find(first, trials=60, store=store)
        again = Fake(smooth)
        result = find(again, trials=60, store=store)
        assert again.asked == []
        assert (result.measured, result.reused) == (0, 60)
        assert result.best == before.best
        more = Fake(smooth)
        assert find(more, trials=61, store=store).measured == 1
        assert len(more.asked) == 1
        assert more.asked[0] not in first.asked
        anew = Fake(smooth)
        assert find(anew, trials=20, store=store, resume=False).measured == 20


def test_every_batch_is_stored_at_once(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        counts: list[int] = []
        fake = Fake(smooth)
        measure = fake.measure
        fake.measure = lambda *a, **k: (counts.append(len(store.records())), measure(*a, **k))[1]  # type: ignore[method-assign]
        find(fake, trials=64, store=store)
        sizes = [len(v) for _, v in fake.calls]
        assert counts == [sum(sizes[:n]) for n in range(len(sizes))]


def test_records_of_another_space_are_left_out_with_one_warning(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        find(Fake(smooth), trials=10, store=store)
        with pytest.warns(TlmWarning, match=r"18 records of matmul are of another version") as caught:
            result = find(Fake(lambda v: 1e-4), trials=4, store=store, space=tiny)
        assert len(caught) == 1
        assert result.measured == 4


def test_a_small_space_is_exhausted():
    fake = Fake(lambda v: 1e-4 * v[0])
    result = find(fake, trials=1000, space=tiny)
    assert result.stopped == "exhausted"
    assert sorted(fake.asked) == [(a, b) for a in (1, 2, 3) for b in (1, 2)]
    assert result.best[0] == 1


def test_failures_are_counted_and_all_failing_gives_no_best():
    half = find(Fake(smooth, lambda v: "ok" if v[3] == "nmk" else "wrong"), trials=60)
    assert half.best[3] == "nmk"
    nothing = find(Fake(smooth, lambda v: "timeout" if v[4] == 1 else "crash"), trials=20)
    assert (nothing.best, nothing.seconds) == (None, float("inf"))
    assert "crash" in nothing.summary
    assert "timeout" in nothing.summary
    assert "20 measured" in nothing.summary
    assert nothing.failures.startswith(nothing.summary + "; ")
    assert "crash: it broke" in nothing.failures


def test_time_ends_it_and_progress_is_regular():
    clock, said = Clock(), []
    times: list[float] = []

    def progress(p: Progress) -> None:
        said.append(p)
        times.append(clock.time)

    result = find(Fake(smooth, clock=clock), seconds=100.0, now=clock, progress=progress)
    assert result.stopped == "seconds"
    assert clock.time - 100.0 <= 100.0 + 8 + 1
    assert max(b - a for a, b in zip([100.0, *times], times, strict=False)) <= 10.0
    assert all(p.total is None and p.left is not None and p.left <= 100.0 for p in said)
    assert said[-1].done == result.measured
    last = str([p for p in said if not p.again][-1])
    assert "measured, 0 failed, best 0." in last
    assert "s left" in last


def test_progress_with_a_number_of_trials():
    clock, said = Clock(), []
    find(Fake(smooth, lambda v: "wrong", clock), trials=40, now=clock, progress=said.append)
    assert str(said[-1]) == "40/40 measured, 40 failed, best none yet, 40 s, 0 s left"
    middle = next(p for p in said if p.done == 20)
    assert middle.left == pytest.approx(20.0, abs=3.0)


def test_a_store_may_hold_more_than_is_asked_for():
    assert str(Progress(5, 9, 1, 0.5, 2.0, None)) == "5/9 measured, 1 failed, best 500 ms, 2 s"
    assert str(Progress(88, 3, 1, 0.5, 2.0, None)) == "88 measured, 1 failed, best 500 ms, 2 s"


def test_timing_the_fastest_again_is_reported_and_ends_in_time():
    clock, said = Clock(), []

    def slow(values, kind):
        clock.tick(8.0 if kind == "final" else 0.0)
        return smooth(values)

    result = find(Fake(slow, clock=clock), seconds=40.0, now=clock, progress=said.append)
    assert clock.time - 100.0 <= 40.0 + 10.0 + 9.0
    assert said[-1].again
    assert str(said[-1]).endswith("timing the fastest again")
    assert result.best is not None
    assert 1 <= len(result.records) - result.measured < 8


@pytest.mark.parametrize("fault", ["build-hangs", "run-hangs"])
def test_stuck_candidates_do_not_outlast_the_budget(monkeypatch: pytest.MonkeyPatch, fault: str):
    """Far longer limits for one candidate than for all: the search ends in time and no worker is left."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "measure"))

    def stuck():
        yield Choice("order", tuple(option(v) for v in ("ok", fault)))
        yield Choice("rows", tuple(option(v) for v in (1, 2, 3)))
        return ()

    start = time.monotonic()
    with Measurer(TARGET, builders=2, limits=Limits(100.0, 100.0), toolchain="faulty:Faulty") as measurer:
        result = find(measurer, space=stuck, seconds=3.0, now=time.monotonic)
        workers = [c.pid for c in [measurer._timer._child, *(s.child for s in measurer._pool._slots)] if c]
    assert time.monotonic() - start < 12.0
    assert result.stopped == "seconds"
    assert all(not Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C works, also where the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def noisy(values, kind):
    """Final timings are slower, each by another part."""
    return smooth(values) * (1.0 if kind == "search" else 1.02 + 0.1 * hashed(values) / 2e-4)


def test_a_finished_search_measures_nothing_when_it_is_asked_again(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        before = find(Fake(noisy), trials=60, store=store)
        again = Fake(noisy)
        assert find(again, trials=60, store=store).best == before.best
        assert again.calls == []


def test_failures_to_build_are_not_tried_again(tmp_path: Path):
    """They have no versions: nobody told them before the build failed."""

    class Failing(Fake):
        def __init__(self, *args) -> None:
            super().__init__(*args)
            self.environment = {"tlm": "1"}

        def measure(self, *args, **settings):
            made = super().measure(*args, **settings)
            return [r if r.status == "ok" else replace(r, versions={}) for r in made]

    def fails(values):
        return "ok" if values[3] == "nmk" else "crash"

    with Store(tmp_path / "s") as store:
        assert find(Failing(smooth, fails), trials=40, store=store).measured == 40
        result = find(Failing(smooth, fails), trials=40, store=store)
        assert (result.measured, result.reused) == (0, 40)


def test_times_of_another_machine_are_not_taken_for_those_of_this_one(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        there, here = Fake(lambda v: smooth(v) / 100), Fake(smooth)
        there.environment, here.environment = {"machine": "fast"}, {"machine": "slow"}
        before = find(there, trials=60, store=store)
        result = find(here, trials=60, store=store)
        assert (result.measured, result.reused) == (60, 0)
        assert before.best in here.calls[0][1]
        assert result.seconds == smooth(result.best) <= smooth(before.best)
        assert find(here, trials=60, store=store).measured == 0


def test_what_was_wrong_once_is_neither_found_nor_a_parent(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        fake = Fake(smooth)
        best = find(fake, trials=60, store=store).best
        race = next(r for r in store.records() if r.choices == best)
        store.add([replace(race, status="wrong", seconds=(), kind="final")])
        result = find(Fake(smooth), trials=60, store=store)
        assert result.best not in (None, best)
        assert store.best(race.workload, TARGET.key).choices == result.best


@pytest.mark.usefixtures("interruptible")
def test_interrupting_a_resumed_search_gives_what_it_has_found(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        slow = find(Fake(lambda v: 1.0 + smooth(v)), trials=20, store=store)
        fake = Fake(smooth)

        def fails(values):
            if len(fake.asked) > 10:
                os.kill(os.getpid(), signal.SIGINT)
            return "ok"

        fake.fails = fails
        result = find(fake, trials=10_000, store=store)
        assert result.stopped == "interrupted"
        assert result.seconds < 1.0 < slow.seconds


@pytest.mark.usefixtures("interruptible")
def test_interrupting_gives_the_best_so_far():
    fake = Fake(smooth)

    def fails(values):
        if len(fake.asked) > 30:
            os.kill(os.getpid(), signal.SIGINT)
        return "ok"

    fake.fails = fails
    result = find(fake, trials=10_000)
    assert result.stopped == "interrupted"
    assert result.measured < 100
    assert result.best is not None
    assert result.seconds == min(r.score for r in result.records)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_runs_in_another_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(find(Fake(smooth), trials=10)))
    thread.start()
    thread.join()
    assert results[0].measured == 10


def test_a_cost_model_for_other_features_is_fitted_again(tmp_path: Path):
    path = tmp_path / "model.json"
    find(Fake(smooth), trials=40, model=path)
    assert isinstance(cost.load(path), cost.CostModel)
    path.write_text(
        path.read_text().replace(f'"features": {len(cost.COLUMNS)}', f'"features": {len(cost.COLUMNS) + 1}')
    )
    with pytest.warns(TlmWarning, match=f"{len(cost.COLUMNS) + 1} features.*fits a new one") as caught:
        result = find(Fake(smooth), trials=40, model=path)
    assert len(caught) == 1
    assert result.measured == 40
    cost.load(path)


def test_first_candidates_come_first():
    fake = Fake(smooth)
    find(fake, trials=20, first=[(6, 8, 12, "nmk", 1), (999, 8, 12, "nmk", 1)])
    assert fake.asked[0] == (6, 8, 12, "nmk", 1)
    assert fake.asked[1] != (999, 8, 12, "nmk", 1)
