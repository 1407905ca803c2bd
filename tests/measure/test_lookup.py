"""Looking up measured schedules: the fastest one, or the reason why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tlm.ir.build import Builder
from tlm.ir.exprs import op
from tlm.measure.lookup import look_up
from tlm.measure.store import Store

from .helpers import TARGET, failed, matmul, record


def test_the_fastest_is_found(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        store.add([failed(), record(choices=(1,), seconds=(2.0,)), record(choices=(2,), seconds=(1.0,))])
        found = look_up(store, matmul(), TARGET)
        assert found.record is not None
        assert found.record.choices == (2,)
        assert found.reason == ""


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "is empty"),
        ([failed(), failed(), failed(status="timeout")], "failed (1 timeout, 2 wrong)"),
        ([record(matmul(3, 3, 3))] * 2, "holds 2 records, but none of matmul"),
    ],
)
def test_the_reason_has_counts_and_the_path(tmp_path: Path, rows: list, says: str):
    with Store(tmp_path / "s") as store:
        store.add(rows)
        found = look_up(store, matmul(), TARGET)
        assert found.record is None
        assert says in found.reason
        assert str(tmp_path / "s") in found.reason


def part(name: str, moved: bool, x: str = "X") -> object:
    """tanh before or after a scaling, with names of its own."""
    b = Builder(name)
    t = b.input(x, (64,), "f32")
    inner = (lambda v: op("tanh", v * 2.0)) if moved else (lambda v: op("tanh", v) * 2.0)
    b.compute(f"{x}_out", (64,), lambda i: inner(t[i]), output=True)
    return b.build()


def test_names_do_not_count_and_operations_do(tmp_path: Path):
    with Store(tmp_path / "s") as store:
        store.add([record(matmul()), record(part("a", False)), failed(matmul(5, 5, 5))])
        for known in (part("b", False, "Z"), matmul(name="dense")):
            assert look_up(store, known, TARGET).record is not None
        for unknown in (part("tail", True), matmul(5, 5, 5, name="mm5")):
            assert look_up(store, unknown, TARGET).record is None
