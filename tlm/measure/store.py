"""The store of measurements: one SQLite file in write-ahead mode, shared by several processes."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RecordError
from ..target import Target
from . import jsonl
from .record import MODELLED, VERSION, Record, from_json
from .standing import fastest

SCHEMA = 1
_WAIT_SECONDS = 30.0

_TABLES = """
CREATE TABLE IF NOT EXISTS workloads (key TEXT PRIMARY KEY, name TEXT NOT NULL, program TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS targets (key TEXT PRIMARY KEY, target TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    workload TEXT NOT NULL REFERENCES workloads (key),
    target TEXT NOT NULL REFERENCES targets (key),
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    cache TEXT NOT NULL,
    choices TEXT NOT NULL,
    seconds TEXT NOT NULL,
    message TEXT NOT NULL,
    versions TEXT NOT NULL,
    steps TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS records_by_workload ON records (workload, target);
"""

_SELECT = """
SELECT r.version, r.workload, w.program, t.target, r.choices, r.status, r.seconds, r.message, r.versions,
       r.kind, r.cache, r.steps
FROM records r JOIN workloads w ON w.key = r.workload JOIN targets t ON t.key = r.target
"""
_COLUMNS = (
    "version", "workload", "program", "target", "choices", "status", "seconds", "message", "versions", "kind",
    "cache", "steps",
)  # fmt: skip
_AS_JSON = frozenset({"program", "target", "choices", "seconds", "versions", "steps"})


@dataclass(frozen=True, slots=True)
class Counts:
    """How many records a store holds of one workload, and of everything else."""

    statuses: Counter[str]
    others: int
    other_names: tuple[str, ...]


class Store:
    """Records on disk. Every `add` is one transaction: a killed process loses only the batch it measured.

    `path` None is `default_path()`; missing folders are made. RecordError where the file cannot be used.
    estimates: it takes estimates, and no measurements; any other store takes no estimates.
    """

    def __init__(self, path: str | Path | None = None, *, estimates: bool = False) -> None:
        self.path = Path(path) if path is not None else default_path()
        self.estimates = estimates
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                self.path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except (sqlite3.Error, OSError) as e:
            raise RecordError(f"the store {self.path} cannot be used: {e}") from e

    def _prepare(self) -> None:
        # Write-ahead logging lets readers go on while one process writes; not every file system can do it.
        self._patiently("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found > SCHEMA:
            raise RecordError(
                f"the store {self.path} has schema {found}, newer than {SCHEMA}: it needs a newer tlm"
            )
        if found < SCHEMA:
            with self._transaction():
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    def _patiently(self, statement: str) -> None:
        """Execute what SQLite does not wait for by itself where others open the same new file."""
        end = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                self._db.execute(statement)
                return
            except sqlite3.OperationalError as e:
                if "locked" not in str(e) or time.monotonic() > end:
                    raise
            time.sleep(0.01)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        finally:
            # A commit that fails (a full disk) may leave the transaction open, or may have ended it.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def add(self, records: Iterable[Record], *, again: bool = True) -> int:
        """Store records, all or none; returns how many. Without `again`, those only that are not here yet.

        RecordError where one is an estimate, or is none in a store of them.
        """
        rows = list(records)
        if not rows:
            return 0
        if any((r.kind == MODELLED) != self.estimates for r in rows):
            takes = "estimates" if self.estimates else "measurements"
            raise RecordError(f"the store {self.path} takes only {takes}; none of these records was added")
        try:
            with self._transaction():
                return sum([self._insert(record, again) for record in rows])
        except sqlite3.Error as e:
            raise RecordError(f"{len(rows)} records could not be written to {self.path}: {e}") from e

    def _insert(self, record: Record, again: bool) -> bool:
        target = Target.from_json(record.target).key
        cells = {
            "version": VERSION, "workload": record.workload, "target": target, "kind": record.kind,
            "status": record.status, "cache": record.cache, "choices": _dump(record.choices),
            "seconds": _dump(record.seconds), "message": record.message,
            "versions": _dump(dict(record.versions)), "steps": _dump(record.steps),
        }  # fmt: skip
        same = " AND ".join(f"{name} = ?" for name in cells)
        query = f"SELECT 1 FROM records WHERE {same} LIMIT 1"
        if not again and self._db.execute(query, tuple(cells.values())).fetchone():
            return False
        self._db.execute(
            "INSERT OR IGNORE INTO workloads VALUES (?, ?, ?)",
            (record.workload, record.name, _dump(record.program)),
        )
        self._db.execute("INSERT OR IGNORE INTO targets VALUES (?, ?)", (target, _dump(record.target)))
        names, marks = ", ".join(cells), ", ".join("?" * len(cells))
        self._db.execute(f"INSERT INTO records ({names}) VALUES ({marks})", tuple(cells.values()))
        return True

    def load(self, workload: str | None = None, target: str | None = None) -> jsonl.Loaded:
        """Records in the order in which they were added, of one workload key or target key where given.

        Rows that this version cannot read are skipped and counted.
        """
        wheres = {"r.workload = ?": workload, "r.target = ?": target}
        used = {k: v for k, v in wheres.items() if v is not None}
        query = _SELECT + (" WHERE " + " AND ".join(used) if used else "") + " ORDER BY r.id"
        records: list[Record] = []
        skipped: Counter[str] = Counter()
        try:
            for row in self._db.execute(query, tuple(used.values())):
                try:
                    records.append(_record(row))
                except RecordError as e:
                    skipped[str(e)] += 1
        except sqlite3.Error as e:
            raise RecordError(f"the store {self.path} cannot be read: {e}") from e
        return jsonl.Loaded(records, skipped)

    def records(self, workload: str | None = None, target: str | None = None) -> list[Record]:
        """`load`, with one warning where rows were skipped."""
        loaded = self.load(workload, target)
        loaded.warn(str(self.path))
        return loaded.records

    def best(self, workload: str, target: str) -> Record | None:
        """The fastest known record of a workload on a target, or None."""
        return fastest(self.records(workload, target))

    def counts(self, workload: str, target: str) -> Counts:
        """What the store holds of this workload on this target, and how much of anything else."""
        mine = self._db.execute(
            "SELECT status, count(*) FROM records WHERE workload = ? AND target = ? GROUP BY status",
            (workload, target),
        )
        statuses = Counter(dict(mine.fetchall()))
        total = self._db.execute("SELECT count(*) FROM records").fetchone()[0]
        names = self._db.execute(
            "SELECT DISTINCT w.name || ' on ' || r.target FROM records r"
            " JOIN workloads w ON w.key = r.workload WHERE NOT (r.workload = ? AND r.target = ?) LIMIT 4",
            (workload, target),
        )
        return Counts(statuses, total - statuses.total(), tuple(n for (n,) in names))

    def workloads(self) -> list[tuple[str, str, int]]:
        """(key, name, number of records) of every workload, by key."""
        rows = self._db.execute(
            "SELECT w.key, w.name, count(*) FROM records r JOIN workloads w ON w.key = r.workload"
            " GROUP BY w.key ORDER BY w.key"
        )
        return [(str(k), str(n), int(c)) for k, n, c in rows]

    def export_jsonl(self, path: str | Path) -> int:
        """Append every record to a file of JSON lines; returns how many."""
        records = self.records()
        jsonl.append(path, records)
        return len(records)

    def import_jsonl(self, path: str | Path) -> int:
        """Add the good records of a file of JSON lines that are not here yet; returns how many.

        One warning counts those that are not good.
        """
        return self.add(jsonl.read(path).records, again=False)

    def close(self) -> None:
        """Close the file; the store cannot be used after it."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def default_path() -> Path:
    """Where measurements are kept: the user's data folder."""
    import platformdirs

    return Path(platformdirs.user_data_dir("tlm")) / "records.sqlite"


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _record(row: tuple[Any, ...]) -> Record:
    try:
        data = {
            name: json.loads(cell) if name in _AS_JSON else cell
            for name, cell in zip(_COLUMNS, row, strict=True)
        }
    except (ValueError, TypeError, RecursionError) as e:
        raise RecordError("a row is not JSON") from e
    return from_json(data)
