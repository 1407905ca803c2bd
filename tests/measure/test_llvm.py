"""Measuring with the real compiler: what it builds is right, and threads and forks do not disturb it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from tlm.backend import compile
from tlm.errors import BackendError
from tlm.measure.measure import Measurer
from tlm.measure.record import Values
from tlm.schedule.steps import Parallel, apply, from_json
from tlm.search.evolve import search
from tlm.space.decide import at_random, replay, run
from tlm.space.spaces import space_for
from tlm.target import Target, host

from .helpers import matmul

ONE, TWO = host().with_threads(1), host().with_threads(2)


@pytest.fixture(scope="module")
def measurer() -> Iterator[Measurer]:
    with Measurer(ONE) as m:
        yield m


def candidates(program, target: Target, count: int, seed: int = 0) -> list[Values]:
    rng = Random(seed)
    return [run(space_for(program, target), at_random(rng)).values for _ in range(count)]


@pytest.mark.parametrize("shape", [(24, 40, 16), (7, 13, 5), (1, 64, 33)])
def test_random_candidates_are_right(measurer: Measurer, shape: tuple[int, int, int]):
    program = matmul(*shape)
    values = candidates(program, ONE, 6)
    records = measurer.measure(program, values)
    assert [(r.status, r.message) for r in records] == [("ok", "")] * 6
    assert [r.choices for r in records] == values
    assert all(0 < r.score < 1e-2 for r in records)
    steps = replay(space_for(program, ONE), values[0]).steps
    assert from_json(list(records[0].steps)) == steps
    assert {"tlm", "backend"} <= set(records[0].versions)


def test_values_that_the_space_does_not_offer_are_an_error(measurer: Measurer):
    (record,) = measurer.measure(matmul(), [("no such word",)])
    assert record.status == "error"
    assert "no such word" in record.message


def test_a_target_that_cannot_run_here_is_refused():
    other = Target("neon" if ONE.isa != "neon" else "avx2")
    with pytest.raises(BackendError, match=f"cannot run code for the target {other.name}"):
        Measurer(other)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:os.fork.*JAX:RuntimeWarning")
def test_tuning_after_a_parallel_kernel_and_running_it_in_a_fork():
    program = matmul(64, 64, 64)
    kernel = compile(apply(program, [Parallel("i")]), TWO, cache=False)
    a, b = np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)
    c = np.empty((64, 64), np.float32)
    kernel(a, b, c)
    start = time.monotonic()
    with Measurer(TWO) as m:
        result = search(program, TWO, m, trials=8)
    assert result.measured == 8
    assert result.best is not None
    child = os.fork()
    if child == 0:
        c[:] = 0
        kernel(a, b, c)
        os._exit(0 if (c == 64).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert time.monotonic() - start < 60.0


@pytest.mark.timed
def test_a_small_shape_is_measured_no_slower_than_a_large_one(measurer: Measurer):
    spent = {}
    for size in (16, 256):
        program = matmul(size, size, size)
        values = candidates(program, ONE, 8)
        measurer.measure(program, values[:2])
        start = time.monotonic()
        measurer.measure(program, values)
        spent[size] = time.monotonic() - start
    assert spent[16] < 2 * spent[256]
