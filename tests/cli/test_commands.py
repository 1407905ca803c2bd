"""The command line: commands do their job, pipes get plain text, JSON parses, errors are one line (X)."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import tlm
from tlm.cli import timing
from tlm.cli.learning import app
from tlm.cli.progress import Lines, Log
from tlm.cli.running import tolerance
from tlm.cli.workload import Workload, free_memory, workload
from tlm.errors import ArgumentError, DTypeError, TlmError
from tlm.ir import canonical, serialize
from tlm.measure.measure import Measurer
from tlm.measure.record import Record

runner = CliRunner()


def call(*words: str) -> Result:
    return runner.invoke(app, [*words], catch_exceptions=False)


def test_run_prints_sentence_nest_times_and_verdict():
    done = call("run", "matmul", "33", "40", "50", "--schedule", "heuristic", "--threads", "1")
    assert done.exit_code == 0
    for part in ("== sentence", "== loop nest", "program matmul", "numpy / tlm", "GFLOP/s", ": right"):
        assert part in done.output


@pytest.mark.parametrize(
    "words", [("--dtype", "bf16"), ("--dtype", "i8"), ("--dtype", "f64"), ("--target", "sse")]
)
def test_run_as_json(words: tuple[str, ...]):
    done = call("run", "matmul", "2", "9", "10", "11", "--schedule", "heuristic", "--json", *words)
    report = json.loads(done.output)
    assert report["right"] is True
    assert report["seconds"] > 0
    assert "for " in report["program"]


@pytest.mark.parametrize(
    "words",
    [
        "matmul 64 512 64 --dtype i8", "matmul 64 600 64 --dtype u8", "matmul 8 40000 8 --dtype i16",
        "matmul 8 300 8 --dtype bool", "linear 8 300 8 --dtype bool",
        "linear 8 300 8 --dtype i8 --activation relu", "matmul 8 300 8 --dtype i64",
    ],
)  # fmt: skip
def test_sums_beyond_their_integers_are_right(words: str):
    done = call("run", *words.split(), "--schedule", "heuristic", "--threads", "1", "--json")
    report = json.loads(done.output)
    assert (done.exit_code, report["right"], report["error"]) == (0, True, 0.0)


def test_a_wrong_result_is_called_wrong(monkeypatch: pytest.MonkeyPatch):
    reference = Workload.reference
    for dtype, off in (("i8", 1), ("f32", 1)):
        monkeypatch.setattr(Workload, "reference", lambda *a, off=off: reference(*a) + off)
        done = call("run", "matmul", "8", "9", "8", "--schedule", "heuristic", "--json", "--dtype", dtype)
        assert (done.exit_code, json.loads(done.output)["right"]) == (1, False)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "bool", "i32", "f32"])
def test_the_reference_is_what_numpy_computes(dtype: str):
    work = workload("matmul", (3, 40000, 4), dtype)
    a, b = work.operands()
    want = a.astype("f8") @ b.astype("f8") if dtype == "f32" else a @ b
    found = work.reference([a, b])
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


def test_more_terms_may_differ_by_more_rounding():
    found = {
        (k, d): tolerance(workload("matmul", (2, k, 2), d)) for k in (9, 4096, 16384) for d in ("f32", "f16")
    }
    assert found[9, "f32"] == found[4096, "f32"] == found[16384, "f32"] / 2 == 1e-5
    assert found[9, "f16"] == found[16384, "f16"]
    assert tolerance(workload("linear", (2, 16384, 2), "i32")) == 0


def test_what_needs_more_memory_than_there_is_is_refused(monkeypatch: pytest.MonkeyPatch):
    work = workload("matmul", (3, 5, 7), "f32")
    assert work.bytes == (15 + 35) * 12 + 21 * 44
    monkeypatch.setattr("tlm.cli.workload.free_memory", lambda: 10 << 30)
    with pytest.raises(ArgumentError, match=r"matmul 100000 1 100000 f32 takes 409.8 GiB .*, 10.0 are free"):
        call("run", "matmul", "100000", "1", "100000", "--schedule", "heuristic")
    with pytest.raises(ArgumentError, match="matmul 100000 1 100000 f32 takes"):
        call("bench", "100000x1x100000")


def test_free_memory(tmp_path: Path):
    assert free_memory(tmp_path) is None
    own = tmp_path / "sys/fs/cgroup/mine"
    (tmp_path / "proc/self").mkdir(parents=True)
    own.mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:   8000 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/mine\n")
    (own / "memory.current").write_text("1000\n")
    for limit, want in (("max", 8000 << 10), ("5096", 4096), (str(1 << 40), 8000 << 10), ("500", 0)):
        (own / "memory.max").write_text(f"{limit}\n")
        assert free_memory(tmp_path) == want


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    words = [sys.executable, "-m", "tlm", "train", "--out", str(tmp_path / "file" / "out")]
    done = subprocess.run([*words, "--store", str(tmp_path / "store.db")], capture_output=True, text=True)
    assert done.returncode == 2
    assert re.fullmatch(r"tlm: .*Not a directory: '.*/file/out'\n", done.stderr)


def test_run_linear_with_activation():
    done = call(
        "run", "linear", "16", "24", "32", "--activation", "gelu", "--schedule", "heuristic", "--json"
    )
    assert json.loads(done.output)["right"] is True


def test_show_tells_every_choice_and_step():
    words = ("show", "matmul", "64", "64", "64", "--schedule", "heuristic")
    plain = call(*words, "--source", "--asm").output
    values = json.loads(call(*words, "--json").output)
    assert all(f"== step {n}:" in plain for n in range(1, len(values["steps"]) + 1))
    assert all(f"{c['name']}: *{c['picked']}" in plain for c in values["choices"])
    assert "== LLVM IR" in plain
    assert "== assembly" in plain
    assert "source" not in values


def test_doctor_on_a_healthy_machine():
    found = json.loads(call("doctor", "--json").output)
    assert found["compiler"] == "a 5x7x9 product is right"
    assert found["threads"] >= 1


def test_bench():
    done = call("bench", "16x16x16", "8x24x40", "--schedule", "heuristic", "--seconds", "0.05")
    lines = done.output.strip().splitlines()
    assert len(lines) == 3
    assert lines[-1].startswith("numpy/tlm: geometric mean")
    rows = json.loads(
        call("bench", "16x16x16", "--schedule", "heuristic", "--seconds", "0.05", "--json").output
    )
    assert rows[0]["error"] < 1e-6


def test_cache_shows_and_clears(monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "tlm" / "sentences").mkdir(parents=True)
    (tmp_path / "tlm" / "sentences" / "x.json").write_text("{}")
    assert json.loads(call("cache", "--json").output)["files"] == 1
    assert "sentences: 1 files, 2 bytes" in call("cache").output
    assert json.loads(call("cache", "--clear", "--json").output) == {
        "folder": str(tmp_path / "tlm"), "files": 0, "bytes": 0, "removed": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("run", "conv9d", "1", "2", "3"), ArgumentError),
        (("run", "matmul", "1", "2"), ArgumentError),
        (("run", "matmul", "0", "2", "3"), ArgumentError),
        (("run", "matmul", "9000000", "9000000", "3"), ArgumentError),
        (("run", "matmul", "2", "2", "2", "--schedule", "no"), ArgumentError),
        (("run", "matmul", "2", "2", "2", "--target", "no"), ArgumentError),
        (("run", "matmul", "2", "2", "2", "--dtype", "f8"), DTypeError),
        (("run", "matmul", "2", "2", "2", "--activation", "relu"), ArgumentError),
        (("run", "linear", "2", "2", "2", "--activation", "no"), ArgumentError),
        (("bench", "16x16"), ArgumentError),
        (("run", "foo"), ArgumentError),
        (("run", "matmul"), ArgumentError),
    ],
)
def test_wrong_calls(words: tuple[str, ...], error: type[TlmError]):
    with pytest.raises(error):
        call(*words)


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "--seed", "-1"), ("train", "--seed", "-1"), ("collect", "--seconds", "nan"),
        ("search", "matmul", "8", "8", "8", "--seconds", "nan"), ("bench", "8x8x8", "--seconds", "nan"),
    ],
)  # fmt: skip
def test_options_out_of_range(words: tuple[str, ...]):
    done = runner.invoke(app, [*words])
    assert done.exit_code == 2
    assert f"Invalid value for '{words[-2]}'" in done.output


def test_errors_are_one_line_and_exit_code_2():
    words = [sys.executable, "-m", "tlm", "run", "matmul", "1", "2"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "tlm: matmul takes extents [B ...] M K N, each at least 1; got 1 2\n"


def test_search_by_measuring_is_resumed(tmp_path: Any):
    words = ("search", "matmul", "24", "24", "24", "--trials", "6", "--threads", "1", "--json")
    words = (*words, "--store", str(tmp_path / "store.db"))
    first, again = (json.loads(call(*words).stdout.splitlines()[-1]) for _ in range(2))
    assert first["measured"] == 6
    assert first["seconds"] > 0
    assert (again["measured"], again["reused"]) == (0, 6)


MEASURED = r"\d+/\d+ measured, \d+ failed, best ([0-9.]+ ms|none yet), \d+ s"


def test_a_piped_search_says_how_far_it_is_in_plain_lines(tmp_path: Any):
    words = [sys.executable, "-m", "tlm", "search", "matmul", "9", "9", "9", "--trials", "8", "--json"]
    words += ["--threads", "1", "--store", str(tmp_path / "store.db")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["measured"] == 8
    assert re.search(MEASURED, done.stderr)
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_search_without_a_result_tells_why(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
):
    def broken(self: Measurer, program: Any, candidates: Any, **_: Any) -> list[Record]:
        about = canonical.key(program), serialize.to_json(program), self.target.to_json()
        return [Record(*about, values, "timeout", (), "no end after 10 s") for values in candidates]

    monkeypatch.setattr(Measurer, "measure", broken)
    path = str(tmp_path / "store.db")
    done = call("search", "matmul", "9", "9", "9", "--trials", "3", "--store", path, *words)
    assert done.exit_code == 1
    for part in ("3 measured (3 timeout)", "no end after 10 s", f"all 3 records of matmul in {path} failed"):
        assert part in done.stdout


def test_a_search_inside_of_a_run_says_how_far_it_is(capsys: pytest.CaptureFixture[str]):
    logger, handler = logging.getLogger("tlm"), Log()
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        a = np.ones((7, 7), "f4")
        tlm.ops.matmul.kernel(a, a, schedule=tlm.Search(trials=4), threads=1)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert re.search("matmul: " + MEASURED, capsys.readouterr().err)


def test_lines_are_printed_every_five_seconds_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    now = [0.0]
    monkeypatch.setattr("tlm.cli.progress.time.monotonic", lambda: now[0])
    show = Lines()
    for second in range(23):
        now[0] = float(second)
        show(f"at {second}", second == 22)
    assert capsys.readouterr().err.split("\n")[:-1] == ["at 0", "at 5", "at 10", "at 15", "at 20", "at 22"]


def test_numpy_side_of_workloads():
    work = workload("linear", (3, 4, 5), activation="relu")
    x, w, b = work.operands()
    want = np.maximum(x.astype("f8") @ w + b, 0)
    np.testing.assert_allclose(work.reference([x, w, b]), want)


def test_relative_error():
    assert timing.relative_error(np.ones(3), np.ones(3)) == 0
    assert timing.relative_error(np.ones(3), np.ones(2)) == float("inf")
    assert timing.relative_error(np.array([np.nan]), np.ones(1)) == float("inf")
    assert timing.relative_error(np.array([1.0, 3.0]), np.array([1.0, 2.0])) == 0.5


def test_paired_times_both():
    calls = []
    times = timing.paired(lambda: calls.append("a"), lambda: calls.append("b"), seconds=0.01, least=3)
    assert times.ours > 0
    assert times.theirs > 0
    assert calls.count("a") == calls.count("b")
