"""The driver of measurements on a GPU, without one: numpy for CuPy, and a clock that says what it is told."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import tlm
from bench import cuda as driver
from bench import cuda_cases, cuda_lines
from bench.cuda_line import Bar, Device
from bench.cuda_timing import measure

PLAIN = {"schedule": "default"}
NUMPY = SimpleNamespace(asarray=np.asarray, asnumpy=np.asarray)
FACTS = {"device": "none", "schedule": "default"}


class Clock:
    """`seconds(name, round)` for the calls that it knows by name; cold ones take ten times as long."""

    def __init__(self, names, seconds):
        self.names, self.seconds, self.count, self.order = names, seconds, {}, []

    def warm(self, call, number):
        call()
        name = self.names.get(call, "tlm")
        n = self.count[name] = self.count.get(name, -1) + 1
        self.order.append(name)
        return self.seconds(name, n)

    def cold(self, call, number):
        return 10 * self.warm(call, number)


def test_ratios_are_of_rounds():
    """A disturbance of one round moves neither the medians nor the ratios."""
    calls = {"tlm": lambda: None, "peer": lambda: 0}
    slow = {3: 100.0, 7: 50.0}
    clock = Clock(
        {calls["peer"]: "peer"}, lambda name, n: (2.0 if name == "peer" else 1.0) * slow.get(n, 1.0)
    )
    times = measure(calls, clock, rounds=9, cold=False)
    assert times.ratios == {"peer": 2.0}
    assert times.seconds == {"tlm": 1.0, "peer": 2.0}
    assert clock.order[2:8] == ["tlm", "peer", "peer", "tlm", "tlm", "peer"]
    assert (
        measure(calls, Clock({calls["peer"]: "peer"}, lambda *_: 1.0), rounds=3, cold=True).seconds["tlm"]
        == 10.0
    )


def test_what_fails_is_left_out():
    def broken():
        raise RuntimeError("no such kernel\nand more")

    calls = {"tlm": lambda: None, "early": broken, "late": lambda: 0}

    def seconds(name, n):
        if name == "late" and n == 3:
            raise MemoryError
        return 1.0

    times = measure(calls, Clock({calls["late"]: "late"}, seconds), rounds=6, cold=False)
    assert times.failures == {
        "early": "RuntimeError: no such kernel", "late": "MemoryError: no reason given",
    }  # fmt: skip
    assert times.seconds == {"tlm": 1.0}
    assert times.ratios == {}
    assert measure({"tlm": broken}, Clock({}, seconds), rounds=3, cold=True).seconds == {}


def line(**more):
    return cuda_lines._product(8, 16, 4, family="small and skinny products", **more)


def run(lines, tmp_path, seconds=lambda name, n: 1e-6, cases=(), left=lambda: 1.0):
    report, said = driver.Report(tmp_path / "out" / "cuda.json", dict(FACTS)), []
    driver._COPY, kept = 1 << 10, driver._COPY
    try:
        driver.bench(
            report, Device(np, None), Clock({}, seconds), tlm.ops, cases=cases, lines=lines, how=PLAIN,
            seconds=0.01, left=left, say=said.append,
        )  # fmt: skip
    finally:
        driver._COPY = kept
    return report, said


def test_a_line_is_checked_timed_and_judged(tmp_path):
    report, said = run([line(bar=Bar("cuBLAS", 0.9))], tmp_path)
    (row,) = report.data["lines"]
    assert row["error"] < 1e-6
    assert row["warm"]["seconds"]["tlm"] == 1e-6
    assert row["cold"]["seconds"]["cuBLAS"] == pytest.approx(1e-5)
    assert row["warm"]["ratios"] == {"cuBLAS": 1.0}
    assert row["failures"] == {"torch": "ModuleNotFoundError: torch is not installed"}
    assert row["figures"]["tflops"] == pytest.approx(2 * 8 * 16 * 4 / 1e-6 / 1e12)
    assert row["figures"]["bar"] == {"of": "cuBLAS", "least": 0.9, "value": 1.0, "holds": True}
    assert not driver.failed(report.data)
    assert json.loads((tmp_path / "out" / "cuda.json").read_text()) == json.loads(json.dumps(report.data))
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["cuda.json"]
    assert "cuBLAS 1.00 (1.00)" in said[0]


def test_a_share_of_a_copy(tmp_path):
    """Ours takes as long as a copy of 2 KiB: the share is ours in bytes over that."""
    report, _ = run([line(bar=Bar("copy", 0.85))], tmp_path)
    figures = report.data["lines"][0]["figures"]
    moved = 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert figures["share_of_copy"] == pytest.approx(moved / 2048)
    assert figures["bar"]["holds"] == (moved / 2048 >= 0.85)
    missed, _ = run([line(bar=Bar("copy", 5.0)), line(bar=Bar("cuDNN", 1.0))], tmp_path)
    assert [r["figures"]["bar"]["holds"] for r in missed.data["lines"]] == [False, False]
    assert not driver.failed(missed.data), "a missed bar is a finding"


def test_a_failure_is_recorded_and_the_rest_goes_on(tmp_path):
    def broken(ops, x, how):
        raise ValueError("cannot")

    def wrong(ops, x, how):
        x["out"][...] = 7

    bad = [replace(line(), ours=f) for f in (broken, wrong)]
    report, _ = run([*bad, line()], tmp_path)
    first, second, third = report.data["lines"]
    assert first["failures"] == {"tlm": "ValueError: cannot"}
    assert first["figures"] == {}
    assert second["failures"]["tlm"].startswith("wrong: error")
    assert "tlm" not in third["failures"]
    assert driver.failed(report.data)


def test_no_time_left_is_told(tmp_path):
    cases = cuda_cases.cases(["layouts"])[:2]
    report, _ = run([line()], tmp_path, cases=cases, left=lambda: -1.0)
    assert report.data["lines"][0]["failures"] == {"tlm": "left out: no time left"}
    assert [c["problem"] for c in report.data["checks"]["failed"]] == ["left out: no time left"] * 2


def test_the_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "cuda.json"
    report = driver.Report(path, dict(FACTS))
    before = path.read_text()
    with pytest.raises(TypeError):
        report.line({"no": {1, 2}})
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["cuda.json"]
    driver.Report(None, dict(FACTS)).write()


def test_the_table(tmp_path):
    from rich.console import Console

    report, _ = run([line(bar=Bar("cuBLAS", 2.0)), cuda_lines._product(4, 4, 4)], tmp_path)
    console = Console(width=220, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(driver.table(report.data))
    console.file.close()
    text = console.export_text()
    families, figures = (
        ("small and skinny products", "f32 products"),
        ("cuBLAS 2.0: MISSED", "cuBLAS 1.00 (1.00)"),
    )
    for words in (*families, *figures, "8x16x4", "torch: ModuleNotFoundError"):
        assert words in text


def test_families():
    cases, lines = driver.chosen(["softmax"], False)
    assert not cases
    assert {x.family for x in lines} == {"softmax and norms"}
    quick_cases, quick = driver.chosen([], True)
    assert 10 <= len(quick) <= 20
    assert len({x.family for x in quick}) == len({x.family for x in cuda_lines.lines()})
    assert {c.op for c in quick_cases} == {c.op for c in cuda_cases.cases()}
    with pytest.raises(SystemExit, match="no family has nothing in its name"):
        driver.chosen(["nothing"], False)


def test_every_operator_has_a_case():
    assert {c.op for c in cuda_cases.cases()} == set(tlm.ops.__all__) - {"Kernel"}
    names = [c.name for c in cuda_cases.cases()]
    assert len(set(names)) == len(names)


def test_errors():
    one = np.ones(3)
    assert cuda_cases.error(one, one) == 0
    assert cuda_cases.error(one * 3, one * 2) == 0.5
    assert cuda_cases.error(np.ones(2), one) == float("inf")
    assert cuda_cases.error(np.array([1, np.nan, 1]), one) == float("inf")
    special = np.array([np.nan, np.inf, 1])
    assert cuda_cases.error(special, special) == 0


FIRST = driver.chosen([], True)[0]


@pytest.mark.parametrize("case", FIRST, ids=lambda c: c.name.replace(" ", "-"))
def test_the_cases_are_right(case):
    """On the CPU: the first case of every operator."""
    assert driver.check(case, tlm.ops, NUMPY, {**PLAIN, "threads": 1}) == ""
