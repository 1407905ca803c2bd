"""Records are data under a strict schema: what they hold is never run, and never trusted as a size."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from tlm.errors import RecordError
from tlm.measure.record import Record, check_program, from_json, to_json

from .helpers import failed, matmul, record


def plain(r: Record | None = None) -> dict[str, Any]:
    return json.loads(json.dumps(to_json(r or record())))


def test_round_trip():
    for r in (
        record(),
        failed(message="C: wrong"),
        record(kind="final", cache="cold", steps=({"step": "split"},)),
    ):
        assert from_json(plain(r)) == r


def test_score_is_the_fastest_round_and_inf_for_failures():
    assert record().score == 1.5e-5
    assert record().spread == pytest.approx(1.0)
    assert failed().score == float("inf")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 999}, "version 999"),
        ({"version": True}, "version True"),
        ({"version": 1.0}, "version 1.0"),
        ({"extra": 1}, "unknown field extra"),
        ({"workload": "xyz"}, "workload"),
        ({"workload": 'x"); system("touch m");//'}, "workload"),
        ({"status": "fine"}, "status"),
        ({"kind": "<img src=x>"}, "kind"),
        ({"kind": "../../x\n"}, "kind"),
        ({"seconds": [float("nan")]}, "seconds"),
        ({"seconds": [-1.0]}, "seconds"),
        ({"seconds": []}, "status ok"),
        ({"status": "wrong"}, "status wrong"),
        ({"choices": ["__import__('os').system('touch m')"]}, "choice"),
        ({"choices": [10**12]}, "choice"),
        ({"choices": [True]}, "choice"),
        ({"choices": [1.5]}, "choice"),
        ({"choices": [1] * 1000}, "choices"),
        ({"steps": [{"step": "split", "factor": 10**12}]}, "1000000000000"),
        ({"steps": [{"step": "unroll", "factor": 10**9}]}, "1000000000"),
        ({"steps": [{}] * 10**6}, "steps"),
        ({"steps": ["split"]}, "step"),
        ({"message": "x" * 10**6}, "message"),
        ({"program": []}, "program"),
        ({"program": {"name": "x" * 1000}}, "text of 1000"),
        ({"target": {"l1": list(range(10**5))}}, "parts"),
        ({"versions": {"tlm": 1}}, "versions"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(change: dict[str, Any], says: str):
    start = time.perf_counter()
    with pytest.raises(RecordError, match=says):
        from_json(plain() | change)
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize("field", sorted(to_json(record())))
def test_a_missing_field_is_named(field: str):
    data = plain()
    del data[field]
    with pytest.raises(RecordError, match=f"missing field {field}|no version"):
        from_json(data)


@pytest.mark.parametrize("data", [None, 3, "record", [], [1]])
def test_only_objects_are_records(data: Any):
    with pytest.raises(RecordError):
        from_json(data)


def test_a_record_is_about_the_program_that_it_names():
    check_program(record())
    with pytest.raises(RecordError, match="not the key"):
        check_program(record(workload="0" * 64))
    with pytest.raises(RecordError, match="bad program"):
        check_program(replace(record(), program={"name": "x"}))
    huge = to_json(record(matmul()))
    huge["program"]["inputs"] = [{"name": "A", "shape": [10**12, 10**12]}]
    with pytest.raises(RecordError):
        check_program(from_json(json.loads(json.dumps(huge))))
