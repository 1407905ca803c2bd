"""Looking up measured schedules: the reason where there is none, and the coverage of a model."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tlm.errors import TlmWarning
from tlm.ir.build import Builder
from tlm.ir.nodes import op
from tlm.measure.lookup import best_choices, coverage
from tlm.measure.store import Store

from .helpers import TARGET, failed, matmul, record


def test_the_best_is_found_without_a_warning(tmp_path: Path):
    with Store(tmp_path / "s") as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        store.add([failed(), record(choices=(1,), seconds=(2.0,)), record(choices=(2,), seconds=(1.0,))])
        assert best_choices(store, matmul(), TARGET) == (2,)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "is empty"),
        ([failed(), failed(), failed(status="timeout")], r"all 3 records .* failed \(1 timeout, 2 wrong\)"),
        ([record(matmul(3, 3, 3))] * 2, "holds 2 records, but none of matmul"),
    ],
)
def test_the_case_is_told_once_with_counts_and_path(tmp_path: Path, rows: list, says: str):
    with Store(tmp_path / "s") as store:
        store.add(rows)
        with pytest.warns(TlmWarning, match=says) as caught:
            assert best_choices(store, matmul(), TARGET) is None
        assert len(caught) == 1
        assert str(tmp_path / "s") in str(caught[0].message)
        assert "default" in str(caught[0].message)


def part(name: str, moved: bool, x: str = "X") -> object:
    """tanh before or after a scaling, with names of its own."""
    b = Builder(name)
    t = b.input(x, (64,), "f32")
    inner = (lambda v: op("tanh", v * 2.0)) if moved else (lambda v: op("tanh", v) * 2.0)
    b.compute(f"{x}_out", (64,), lambda i: inner(t[i]), output=True)
    return b.build()


def test_coverage_counts_and_names_the_missed(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        store.add([record(matmul()), record(part("a", False)), failed(matmul(5, 5, 5))])
        renamed = coverage(store, [part("b", False, "Z"), matmul(name="dense")], TARGET)
        assert str(renamed) == "2 of 2 workloads found"
        changed = coverage(store, [matmul(), part("tail", True), matmul(5, 5, 5, name="mm5")], TARGET)
        assert str(changed).startswith("1 of 3 workloads found; missed: tail ")
        assert "mm5" in str(changed)
