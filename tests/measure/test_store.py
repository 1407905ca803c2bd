"""The store: transactions, several processes, and what is left after a kill."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import tlm
from tlm.errors import RecordError, TlmWarning
from tlm.measure.standing import fastest
from tlm.measure.store import Store

from .helpers import TARGET, failed, matmul, record

ROOT = str(Path(tlm.__file__).parents[1])
KEY = record().workload


def test_records_come_back_in_order_and_by_workload(tmp_path: Path):
    other = record(matmul(4, 4, 4))
    rows = [record(choices=(1,)), other, failed(choices=(2,), status="timeout", message="no end")]
    with Store(tmp_path / "new" / "s.sqlite") as store:
        store.add(rows)
        store.add([])
        assert store.records() == rows
        assert store.records(KEY) == [rows[0], rows[2]]
        assert store.records(KEY, TARGET.with_threads(2).key) == []
        assert {(n, c) for _, n, c in store.workloads()} == {("matmul", 2), ("matmul", 1)}
    with Store(tmp_path / "new" / "s.sqlite") as store:
        assert store.records() == rows


def test_best_prefers_what_was_timed_again():
    lucky, steady = record(choices=(1,), seconds=(1e-5,)), record(choices=(2,), seconds=(1.2e-5,))
    assert fastest([lucky, steady, failed()]) is lucky
    again = [
        record(choices=(1,), seconds=(1.4e-5,), kind="final"),
        record(choices=(2,), seconds=(1.2e-5,), kind="final"),
    ]
    assert fastest([lucky, steady, *again]) is again[1]
    assert fastest([failed()]) is None
    assert fastest([record(cache="cold", seconds=(1e-9,)), steady]) is steady


def test_importing_twice_adds_nothing(tmp_path: Path):
    rows = [record(choices=(1,)), failed(choices=(2,), status="timeout"), record(choices=(1,), kind="final")]
    with Store(tmp_path / "a") as store:
        store.add(rows)
        assert store.export_jsonl(tmp_path / "log") == store.export_jsonl(tmp_path / "log") == 3
        assert store.import_jsonl(tmp_path / "log") == 0
    with Store(tmp_path / "b") as store:
        assert store.import_jsonl(tmp_path / "log") == 3
        assert store.import_jsonl(tmp_path / "log") == 0
        assert store.records() == rows


def test_a_failed_commit_leaves_the_store_usable(tmp_path: Path):
    class Failing:
        """A connection whose first COMMIT meets a full disk."""

        def __init__(self, db) -> None:
            self.db, self.failures = db, 1

        def execute(self, statement, *values):
            if statement == "COMMIT" and self.failures:
                self.failures = 0
                raise sqlite3.OperationalError("database or disk is full")
            return self.db.execute(statement, *values)

        def __getattr__(self, name):
            return getattr(self.db, name)

    with Store(tmp_path / "s") as store:
        store._db = Failing(store._db)
        with pytest.raises(RecordError, match="disk is full"):
            store.add([record()])
        store.add([record(choices=(2,))])
        assert [r.choices for r in store.records()] == [(2,)]


def test_one_bad_record_stores_none_of_its_batch(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        with pytest.raises(RecordError):
            store.add([record(), record(target={"name": "pdp11"})])
        assert store.records() == []


def test_rows_that_cannot_be_read_are_counted(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        store.add([record(choices=(n,)) for n in range(5)])
        db = sqlite3.connect(tmp_path / "s")
        db.execute("UPDATE records SET choices = '[1' WHERE id = 2")
        db.execute("UPDATE records SET version = 999 WHERE id = 3")
        db.commit()
        db.close()
        with pytest.warns(TlmWarning, match="3 records read, 2 skipped.*not JSON.*version 999"):
            assert len(store.records()) == 3


def test_a_newer_or_foreign_file_is_left_alone(tmp_path: Path):
    path = tmp_path / "s"
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 7")
    db.close()
    with pytest.raises(RecordError, match="schema 7"):
        Store(path)
    path.write_bytes(b"not a database, but long enough to look at" * 30)
    before = path.read_bytes()
    with pytest.raises(RecordError, match="cannot be used"):
        Store(path)
    assert path.read_bytes() == before


def test_json_lines_there_and_back(tmp_path: Path):
    rows = [record(choices=(n,)) for n in range(3)] + [failed(choices=(9,))]
    with Store(tmp_path / "a") as a, Store(tmp_path / "b") as b:
        a.add(rows)
        assert a.export_jsonl(tmp_path / "log") == 4
        assert b.import_jsonl(tmp_path / "log") == 4
        assert b.records() == rows


WRITE = """
import sys
sys.path[:0] = sys.argv[2:4]
from helpers import record
from tlm.measure.store import Store
with Store(sys.argv[1]) as store:
    for n in range(int(sys.argv[4])):
        store.add([record(choices=(n,))] * 2)
        print(n, flush=True)
"""


def writer(path: Path, count: int) -> subprocess.Popen[str]:
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", WRITE, str(path), ROOT, here, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_many_open_a_new_store_at_once(tmp_path: Path):
    wrong: list[str] = []
    for n in range(20):
        start = threading.Barrier(8)

        def opened(path: Path = tmp_path / f"{n}.sqlite", start: threading.Barrier = start) -> None:
            start.wait()
            try:
                Store(path).close()
            except RecordError as error:
                wrong.append(str(error))

        threads = [threading.Thread(target=opened) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_two_processes_write_one_store(tmp_path: Path):
    both = [writer(tmp_path / "s", 100) for _ in range(2)]
    for w in both:
        w.communicate(timeout=60)
    with Store(tmp_path / "s") as store:
        assert len(store.records()) == 400


def test_a_kill_loses_at_most_the_batch_in_work(tmp_path: Path):
    process = writer(tmp_path / "s", 10**6)
    assert process.stdout is not None
    while int(process.stdout.readline()) < 20:
        pass
    os.kill(process.pid, signal.SIGKILL)
    said = [int(line) for line in process.stdout.read().split()]
    process.wait()
    process.stdout.close()
    with Store(tmp_path / "s") as store:
        choices = [r.choices[0] for r in store.records()]
        assert choices == [n for n in range(len(choices) // 2) for _ in range(2)]
        assert len(choices) // 2 >= max(said, default=20)
        start = time.perf_counter()
        store.add([record()])
        assert time.perf_counter() - start < 5.0
