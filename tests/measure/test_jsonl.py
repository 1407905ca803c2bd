"""Files of JSON lines: a torn or foreign line costs one record, and appending processes tear none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tlm.errors import TlmWarning
from tlm.measure import jsonl
from tlm.measure.record import to_json

from .helpers import record


def write(path: Path, count: int = 10) -> list[str]:
    jsonl.append(path, [record(choices=(n,)) for n in range(count)])
    return path.read_text().splitlines()


def test_round_trip(tmp_path: Path):
    write(tmp_path / "log")
    assert [r.choices for r in jsonl.read(tmp_path / "log").records] == [(n,) for n in range(10)]


def cut(lines: list[str]) -> str:
    return "\n".join(lines)[: -len(lines[-1]) // 2]


def garbage(lines: list[str]) -> str:
    return "\n".join([*lines[:4], "\x00\xff{garbage", *lines[5:], ""])


def other(lines: list[str]) -> str:
    return "\n".join([*lines[:5], json.dumps({"shape": [1, 2]}), *lines[6:], ""])


@pytest.mark.parametrize("damage", [cut, garbage, other])
def test_a_bad_line_costs_one_record_and_one_warning(tmp_path: Path, damage):
    path = tmp_path / "log"
    text = damage(write(path))
    path.write_text(text)
    with pytest.warns(TlmWarning, match="9 records read, 1 skipped") as caught:
        loaded = jsonl.read(path)
    assert len(loaded.records) == 9
    assert len(caught) == 1
    assert path.read_text() == text


def test_appending_after_a_torn_line_keeps_the_new_record(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text(cut(write(path)))
    jsonl.append(path, [record(choices=(77,))])
    with pytest.warns(TlmWarning, match="10 records read, 1 skipped"):
        assert jsonl.read(path).records[-1].choices == (77,)


def parts(data, path=()):
    """The place of every value inside of a JSON value."""
    yield path
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inside:
        yield from parts(value, (*path, key))


def put(data, path, value):
    data = json.loads(json.dumps(data))
    inside = data
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return data


@pytest.mark.parametrize("odd", [10**400, -1, [], {}, "x", None], ids=str)
def test_no_damaged_value_stops_the_reading(tmp_path: Path, odd):
    """Every value of a record in turn becomes another: the line is read, or skipped and counted."""
    path, data = tmp_path / "log", to_json(record())
    lines = [json.dumps(put(data, where, odd)) for where in parts(data) if where]
    path.write_text("\n".join(lines) + "\n")
    loaded = jsonl.read(path, warn=False)
    assert len(loaded.records) + sum(loaded.skipped.values()) == len(lines)
    assert sum(loaded.skipped.values()) > len(lines) / 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 999}, "version 999"),
        ({"new": 1}, "unknown field new"),
        ({"version": None}, "version None"),
    ],
)
def test_other_versions_are_skipped_with_the_reason(tmp_path: Path, change: dict, reason: str):
    path = tmp_path / "log"
    write(path, 2)
    with path.open("a") as f:
        f.write(json.dumps(to_json(record()) | change) + "\n")
    before = path.read_bytes()
    with pytest.warns(TlmWarning, match=f"2 records read, 1 skipped.*{reason}"):
        assert len(jsonl.read(path).records) == 2
    assert path.read_bytes() == before


def test_missing_version_and_missing_field(tmp_path: Path):
    path = tmp_path / "log"
    for field in ("version", "choices"):
        data = to_json(record())
        del data[field]
        with path.open("a") as f:
            f.write(json.dumps(data) + "\n")
    with pytest.warns(TlmWarning, match="0 records read, 2 skipped.*no version.*missing field choices"):
        assert jsonl.read(path).records == []


def test_a_giant_line_is_refused_in_bounded_memory(tmp_path: Path):
    path = tmp_path / "log"
    write(path, 1)
    os.truncate(path, path.stat().st_size + (1 << 28))
    with path.open("ab") as f:
        f.write(b'"\n')
    jsonl.append(path, [record()])
    start = time.perf_counter()
    with pytest.warns(TlmWarning, match="2 records read, 1 skipped.*longer"):
        assert len(jsonl.read(path).records) == 2
    assert time.perf_counter() - start < 5.0


APPEND = """
import sys
sys.path.insert(0, sys.argv[3])
from tlm.measure import jsonl
from tlm.measure.record import from_json
import json
record = from_json(json.loads(sys.argv[2]))
for _ in range(1000):
    jsonl.append(sys.argv[1], [record])
"""


def test_two_processes_append_whole_lines(tmp_path: Path):
    import tlm

    path, root = tmp_path / "log", str(Path(tlm.__file__).parents[1])
    line = json.dumps(to_json(record()))
    command = [sys.executable, "-c", APPEND, str(path), line, root]
    writers = [subprocess.Popen(command) for _ in range(2)]
    assert [w.wait(60) for w in writers] == [0, 0]
    assert len(jsonl.read(path).records) == 2000
