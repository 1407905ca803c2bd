"""Formulas and steps at the edge of what the compiler decides by itself: they compute what they mean."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tlm
from tlm.errors import ArgumentError
from tlm.ir.printer import text


def both(op, schedule: tlm.Schedule, *arrays: np.ndarray) -> np.ndarray:
    """The compiled result of a schedule by hand, which is what the unscheduled program computes."""
    (want,) = tlm.Schedule(op.program(*arrays)).run(*arrays)
    got = op(*arrays, schedule=schedule, threads=1)
    want = want.reshape(got.shape)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    return got


@pytest.mark.parametrize("mark", ["vectorize", "unroll"])
def test_a_condition_in_an_index_that_reaches_further_is_not_decided_with_its_neighbour(mark: str):
    @tlm.operator
    def inner(x):
        m, n = x.shape

        def formula(i, j):
            return tlm.where(8 * i + j < 20, x[tlm.where(8 * i + 3 * j < 20, i, 0), j], 0)

        return tlm.compute((m, n), formula)

    x = np.arange(32, dtype="f4").reshape(4, 8) + 1
    s = tlm.Schedule(inner.program(x))
    getattr(s, mark)("j")
    assert list(both(inner, s, x)[1]) == [9, 10, 11, 12, 5, 6, 7, 8]


def test_lanes_that_are_far_apart_are_compared_in_64_bits():
    @tlm.operator
    def far(x, z):
        m, n = x.shape

        def formula(i, j):
            return tlm.where(j * 1000000007 < i * 1000000009 + 5, x[i, j], z[j])

        return tlm.compute((m, n), formula)

    x, z = np.arange(256, dtype="f4").reshape(16, 16), -np.arange(16, dtype="f4")
    got = both(far, tlm.Schedule(far.program(x, z)).vectorize("j"), x, z)
    np.testing.assert_array_equal(got[0], [x[0, 0], *z[1:]])


def test_a_read_that_no_lane_makes():
    @tlm.operator
    def up(x):
        m, _ = x.shape
        return tlm.compute((m, 19), lambda i, j: tlm.where(j % 8 >= 4, x[i, (j % 8 - 4) // 2], 0))

    x = np.arange(6, dtype="f4").reshape(3, 2) + 1
    both(up, tlm.Schedule(up.program(x)).split("j", 8).vectorize("j.1"), x)


def test_a_read_that_is_hidden_by_data_touches_nothing_far_away():
    @tlm.operator
    def hidden(x, f):
        (m,) = f.shape
        n = x.shape[1]

        def formula(i, j):
            return tlm.where(f[i] > 0, x[i, tlm.where(j < 4, n - 2, n - 1)], 0)

        return tlm.compute((m, 8), formula)

    x, f = np.zeros((1, 50_000_000), "i1"), np.zeros(1, "f4")
    assert not both(hidden, tlm.Schedule(hidden.program(x, f)).vectorize("j"), x, f).any()


def test_an_index_that_too_many_values_of_loops_decide_is_cut():
    @tlm.operator
    def guarded(x, y):
        (n,) = x.shape
        return tlm.compute((n,), lambda i: tlm.where(tlm.equal(x[i], 0), 0, y[(i * i) // 7]))

    assert "minimum" in text(guarded.program(np.empty(2**21, "f4"), np.empty(5, "f4")))


def test_unrolled_copies_share_their_temporary_on_the_stack():
    @tlm.operator
    def reversed_sum(x):
        m, n = x.shape
        a = tlm.compute((m, n), lambda i, j: x[i, j] * 2, name="a")
        return tlm.sum((m,), lambda i, j: a[i, n - 1 - j], over={"j": n}, name="y")

    x = np.ones((128, 1024), "f4")
    s = tlm.Schedule(reversed_sum.program(x)).compute_at("a", "y_i").set_scope("a", "stack").unroll("y_i")
    kernel = reversed_sum.kernel(x, schedule=s, threads=1)
    assert kernel.source.count("= alloca [1024 x float]") == 1
    found: list[np.ndarray] = []
    before = threading.stack_size(256 << 10)
    try:
        thread = threading.Thread(target=lambda: found.append(kernel(x)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    np.testing.assert_array_equal(found[0], np.full(128, 2048.0))


def test_loops_of_different_stages_have_different_names():
    @tlm.operator
    def twice(x):
        a = tlm.compute((4, 100), lambda u, s_i: x[u * 16 + s_i % 16], name="a")
        return tlm.compute((4, 10), lambda v, i: a[v, i + 90], name="s")

    x = np.arange(64, dtype="f4")
    both(twice, tlm.Schedule(twice.program(x)).split("u", 2), x)


@pytest.mark.parametrize("name", ["j.l", "j@init", "i*j", "", "é", 3])
def test_names_that_schedules_make_are_not_for_formulas(name):
    def axes(x):
        return tlm.compute(x.shape, lambda p, q: x[p, q], axes=(name, "j"))

    def buffer(x):
        return tlm.compute(x.shape, lambda p, q: x[p, q], name=name)

    def over(x):
        return tlm.sum(x.shape[:1], lambda p, q: x[p, q], over={name: x.shape[1]})

    for function in (axes, buffer) if name == 3 else (axes, buffer, over):
        with pytest.raises(ArgumentError, match="is no name of a loop or a buffer"):
            tlm.operator(function)(np.ones((3, 4), "f4"))


def test_a_padded_copy_keeps_negative_zeros():
    @tlm.operator
    def padded(x):
        (m,) = x.shape

        def formula(i, j):
            return tlm.where((i >= 1) & (i < m + 1), x[i - 1], -0.0) * (j + 1)

        return tlm.compute((m + 2, 3), formula, name="p")

    x = np.ones(5, "f4")
    got = both(padded, tlm.Schedule(padded.program(x)).cache_read("X", pad=True), x)
    assert np.signbit(got).sum() == 6


def test_a_copy_for_one_stage_leaves_the_reads_of_others_alone():
    @tlm.operator
    def two(x):
        (m,) = x.shape
        a = tlm.compute((m + 2,), lambda i: tlm.where((i >= 1) & (i < m + 1), x[i - 1], 0.0), name="a")
        return tlm.compute((m + 2,), lambda i: tlm.where((i >= 1) & (i < m + 1), x[i - 1], 0.0) + a[i])

    x = np.arange(6, dtype="f4") + 1
    s = tlm.Schedule(two.program(x)).cache_read("X", pad=True, stage="a")
    assert text(s.program).count("X[") == 2
    both(two, s, x)


@pytest.mark.parametrize("level", ["avx2", "sse"])
@pytest.mark.parametrize("combiner", ["sum", "max", "argmax"])
def test_a_total_stays_where_no_lane_adds_to_it(combiner: str, level: str):
    """Of a triangle, cut into tiles and vectors along the sum, some vectors are empty in some rows."""

    @tlm.operator
    def lower(a, b):
        n = a.shape[0]

        def term(i, k):
            return tlm.where(k <= i, a[i, k] * b[k], 0.0)

        if combiner == "argmax":
            return tlm.argmax((n,), term, {"k": n})
        return getattr(tlm, combiner)((n,), term, {"k": n})

    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (96, 96)).astype("f4"), rng.integers(-3, 4, 96).astype("f4")
    (want,) = tlm.Schedule(lower.program(a, b)).run(a, b)
    s = tlm.Schedule(lower.program(a, b)).split("i", 6).split("k", 8)
    s.reorder("k.0", "i.0", "i.1", "k.1").unroll("i.1").vectorize("k.1")
    got = lower(a, b, schedule=s, target=level, threads=1)
    np.testing.assert_array_equal(got, want)
