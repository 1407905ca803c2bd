"""Which records of a candidate count: verdicts stay, first timings are lucky, the best so far counts."""

from __future__ import annotations

import pytest

from tlm.measure.standing import fastest, times

from .helpers import failed, record


def first(number: int, seconds: float):
    return record(choices=(number,), seconds=(seconds,))


def final(number: int, seconds: float):
    return record(choices=(number,), seconds=(seconds,), kind="final")


def test_what_was_wrong_once_is_out():
    race = failed(choices=(1,), status="wrong", kind="final")
    for records in ([first(1, 1e-3), first(2, 2e-3), race], [race, first(1, 1e-3), first(2, 2e-3)]):
        assert fastest(records).choices == (2,)
        assert times(records) == {(2,): 2e-3}


def test_a_failure_that_is_no_verdict_does_not_acquit_or_condemn():
    late = failed(choices=(1,), status="timeout", kind="final")
    assert fastest([first(1, 1e-3), late, first(2, 2e-3)]).choices == (1,)


def test_a_far_better_first_timing_beats_old_finals():
    old = [first(1, 2.1e-3), final(1, 2e-3), first(2, 2.2e-3), final(2, 2.3e-3)]
    assert fastest(old).choices == (1,)
    assert fastest([*old, first(3, 1e-4)]).choices == (3,)
    assert fastest([*old, first(3, 2.15e-3)]).choices == (1,)


def test_the_latest_final_counts():
    assert fastest([final(1, 1e-3), final(2, 2e-3), final(1, 3e-3)]).choices == (2,)


def test_first_times_are_scaled_to_the_session_of_the_finals():
    records = [first(n, n * 1e-3) for n in (1, 2, 3, 4)] + [final(n, n * 2e-3) for n in (1, 2, 3)]
    assert times(records)[4,] == pytest.approx(8e-3)
    assert times(records)[2,] == pytest.approx(4e-3)
