"""The measurer: every way in which a candidate can misbehave ends as a record, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import tlm
from tlm.measure.child import Child
from tlm.measure.limits import Limits
from tlm.measure.measure import Measurer
from tlm.measure.record import Record
from tlm.measure.store import Store
from tlm.measure.timer import MORE_ROUNDS, ROUNDS, THOROUGH_ROUNDS

from .helpers import TARGET, matmul

LIMITS = Limits(build=1.0, run=1.0, memory=1 << 30)
Make = Callable[..., Measurer]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    made: list[Measurer] = []

    def measurer(**options: object) -> Measurer:
        fields = dict(builders=2, limits=LIMITS, toolchain="faulty:Faulty") | options
        made.append(Measurer(TARGET, **fields))  # type: ignore[arg-type]
        return made[-1]

    before = children()
    yield measurer
    for m in made:
        m.close()
    assert children() <= before


@pytest.fixture(scope="module")
def shared() -> Iterator[Measurer]:
    """A measurer for the tests that need no limits of their own: starting workers takes most of the time."""
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(Path(__file__).parent))
    with Measurer(TARGET, builders=2, limits=LIMITS, toolchain="faulty:Faulty") as measurer:
        yield measurer
    patch.undo()


def children(of: int | None = None) -> set[int]:
    """Processes that this one (or `of`) has started and that have not ended."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == (of or os.getpid()) and state != "Z":
            found.add(int(path.parent.name))
    return found


def statuses(records: list[Record]) -> list[str]:
    return [r.status for r in records]


def test_a_good_candidate(shared: Measurer):
    (record,) = shared.measure(matmul(), [("ok", 50)], kind="model")
    assert record.status == "ok"
    assert 2 <= len(record.seconds) <= 10
    assert 5e-5 < record.score < 2e-3
    assert record.choices == ("ok", 50)
    assert record.kind == "model"
    assert record.versions == {"faulty": "1"}
    assert record.steps == ({"step": "split", "factor": 2},)


def test_every_fault_is_a_record_and_the_good_go_on(shared: Measurer):
    faults = {
        "build-hangs": ("timeout", "not built in 1 s"),
        "build-segfaults": ("crash", "SIGSEGV"),
        "build-raises": ("error", "no loop z"),
        "build-breaks": ("error", "ZeroDivisionError"),
        "build-exits": ("crash", "exit status 3: last words"),
        "build-eats": ("error", "memory"),
        "load-raises": ("error", "no such symbol"),
        "run-hangs": ("timeout", "no end after 1 s"),
        "run-hangs-later": ("timeout", "no end after 1 s"),
        "run-segfaults": ("crash", "SIGSEGV"),
        "run-is-killed": ("crash", "SIGKILL"),
        "run-writes-outside": ("wrong", "wrote outside C"),
        "writes-an-input": ("wrong", "wrote into the input A"),
        "wrong": ("wrong", "1 of 96 elements wrong; at [0, 0]"),
        "races": ("wrong", "1 of 96 elements wrong; at [0, 0]"),
    }
    candidates: list[tuple] = [("ok", 10)]
    for fault in faults:
        candidates += [(fault, 10), ("ok", 20)]
    start = time.monotonic()
    records = shared.measure(matmul(), candidates)
    assert time.monotonic() - start < 30.0
    assert [r.choices for r in records] == candidates
    assert statuses(records[0::2]) == ["ok"] * (len(faults) + 1)
    for record, (status, says) in zip(records[1::2], faults.values(), strict=True):
        assert (record.status, says in record.message) == (status, True), record
        assert record.seconds == ()


def test_a_worker_killed_from_outside_costs_one_record(make: Make):
    measurer, before = make(limits=Limits(build=20.0, run=20.0)), children()
    assert statuses(measurer.measure(matmul(), [("ok", 1)])) == ["ok"]
    builder, pids = measurer._pool._slots[0].child, children() - before
    assert builder is not None

    def kill() -> None:
        while builder.idle:
            time.sleep(0.01)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Timer(0.5, kill)
    killer.start()
    records = measurer.measure(matmul(), [("build-hangs", 0), *[("ok", n) for n in range(4)]])
    killer.join()
    assert records[0].status == "crash"
    assert "SIGKILL" in records[0].message
    assert statuses(records[1:]) == ["ok"] * 4


@pytest.mark.parametrize("whose", ["builder", "timer"])
def test_a_worker_that_died_before_its_job_costs_no_record(
    make: Make, whose: str, monkeypatch: pytest.MonkeyPatch
):
    """As one that is still dying when the next job comes: not yet known to be gone."""
    measurer = make(limits=Limits(build=20.0, run=20.0), builders=1)
    assert statuses(measurer.measure(matmul(), [("ok", 1)])) == ["ok"]
    child = measurer._pool._slots[0].child if whose == "builder" else measurer._timer._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    child._process.wait()
    monkeypatch.setattr(Child, "alive", True)
    assert statuses(measurer.measure(matmul(), [("ok", 2), ("ok", 3)])) == ["ok", "ok"]


def test_a_far_slower_candidate_is_run_once(shared: Measurer):
    (fast, slow) = shared.measure(matmul(9, 9, 9), [("ok", 100), ("ok", 50_000)])
    assert len(fast.seconds) >= 3
    assert len(slow.seconds) == 1
    assert slow.score >= 0.05


def test_a_first_run_that_had_to_wait_is_no_verdict(shared: Measurer):
    """As that of a team of threads one of which the system has put beside another process."""
    (_, late) = shared.measure(matmul(9, 9, 9), [("ok", 100), ("first-run-waits", 100)])
    assert len(late.seconds) >= 3
    assert late.score < 4e-3


@pytest.mark.timed
def test_runs_are_bounded_for_kernels_of_any_speed(shared: Measurer):
    shared.measure(matmul(), [("ok", 0)] * 4)
    spent = []
    for micros in (0, 100, 3000):
        start = time.monotonic()
        shared.measure(matmul(), [("ok", micros)] * 4)
        spent.append(time.monotonic() - start)
    assert spent[0] < 2 * spent[2] + 0.2
    assert max(spent) < 3.0


def test_records_do_not_depend_on_the_number_of_builders(make: Make):
    candidates = [("ok", n) for n in range(40)] + [("build-raises", 0)]
    runs = [make(builders=n, clock=lambda v: 1.0 + v[1]).measure(matmul(), candidates) for n in (1, 4)]
    assert runs[0] == runs[1]
    assert [r.seconds for r in runs[0][:3]] == [(1.0,), (2.0,), (3.0,)]


def test_batches_reach_the_sink_as_they_are_done(make: Make):
    sizes: list[int] = []
    records = make(clock=lambda v: 1.0).measure(
        matmul(), [("ok", n) for n in range(70)], sink=lambda r: sizes.append(len(r))
    )
    assert sizes == [32, 32, 6]
    assert len(records) == 70


@pytest.mark.timed
def test_watch_is_called_and_stops(make: Make):
    measurer = make(limits=Limits(build=60.0, run=60.0))
    calls: list[float] = []

    def watch(done: int) -> bool:
        calls.append(time.monotonic())
        return len(calls) < 6

    start = time.monotonic()
    records = measurer.measure(matmul(), [("ok", 1), ("build-hangs", 0)], watch=watch)
    assert time.monotonic() - start < 10.0
    assert len(records) <= 1
    assert max(b - a for a, b in pairwise(calls)) < 1.5
    assert statuses(measurer.measure(matmul(), [("ok", 1)])) == ["ok"]


@pytest.mark.timed
def test_stopping_a_run_that_hangs(make: Make):
    measurer = make(limits=Limits(build=60.0, run=60.0))
    measurer.measure(matmul(), [("ok", 1)])
    end = time.monotonic() + 1.5
    records = measurer.measure(
        matmul(), [("ok", 1), ("run-hangs", 0)], watch=lambda _: time.monotonic() < end
    )
    assert time.monotonic() < end + 2.0
    assert all(r.choices != ("run-hangs", 0) for r in records)


def test_an_exception_of_the_caller_leaves_no_worker(make: Make):
    measurer, before = make(), children()

    def watch(done: int) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measurer.measure(matmul(), [("ok", 1)], watch=watch)
    assert children() <= before


COLLECT = """
import sys
sys.path[:0] = sys.argv[2:]
from helpers import TARGET, matmul
from tlm.measure.measure import Measurer
from tlm.measure.store import Store
if __name__ == "__main__":
    with Store(sys.argv[1]) as store, Measurer(TARGET, builders=2, toolchain="faulty:Faulty") as measurer:
        candidates = [("ok", n % 7) for n in range(96)] + [("build-hangs", 0), ("build-hangs", 1)]
        done = 0
        def sink(records):
            global done
            store.add(records)
            done += len(records)
            print(done, flush=True)
        measurer.measure(matmul(), candidates, sink=sink)
"""


def test_a_killed_collection_keeps_its_batches_and_leaves_no_worker(tmp_path: Path):
    here, root = Path(__file__).parent, Path(tlm.__file__).parents[1]
    command = [sys.executable, "-c", COLLECT, str(tmp_path / "s"), str(root), str(here)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while int(process.stdout.readline()) < 96:
        pass
    time.sleep(0.3)
    workers = children(process.pid)
    assert len(workers) == 3
    process.kill()
    process.wait()
    process.stdout.close()
    end = time.monotonic() + 10.0
    while any(running(pid) for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(running(pid) for pid in workers)
    with Store(tmp_path / "s") as store:
        assert len(store.records()) == 96


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workloads_alternate(shared: Measurer):
    for _ in range(2):
        for shape in ((4, 4, 4), (9, 5, 7)):
            assert statuses(shared.measure(matmul(*shape), [("ok", 1), ("wrong", 1)])) == ["ok", "wrong"]


def test_cold_caches_are_told_apart(make: Make):
    (record,) = make(cache="cold").measure(matmul(), [("ok", 10)])
    assert (record.status, record.cache) == ("ok", "cold")


def test_thorough_means_more_rounds_for_all(shared: Measurer):
    records = shared.measure(matmul(), [("ok", 10), ("ok", 400)], thorough=True)
    assert [len(r.seconds) for r in records] == [THOROUGH_ROUNDS] * 2
    assert THOROUGH_ROUNDS > ROUNDS + MORE_ROUNDS
