"""Operators that a user writes: formulas, rules of dtype, settings, schedules, errors."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import tlm
from tests.ops.values import array, near, normal, wide
from tlm.errors import ArgumentError, DTypeError, TlmWarning
from tlm.ir.interpret import interpret
from tlm.ir.verify import verify
from tlm.ops.settings import Random

PLAIN = {"schedule": "default"}


@tlm.operator
def row_norms(x):
    m, n = x.shape
    square = tlm.sum((m,), lambda i, k: x[i, k] * x[i, k], over={"k": n})
    return tlm.compute((m,), lambda i: tlm.sqrt(square[i]))


@tlm.operator
def scaled(x, y, *, scale=1.0, shift: float = 0.0):
    m, n = x.shape
    return tlm.compute((m, n), lambda i, j: scale * x[i, j] * y[j] + shift)


def test_a_schedule_runs_on_the_arrays_of_its_operator():
    """The program has one axis where both arrays lie in memory as one; arrays have the operator's."""
    x = normal((5, 8))
    s = tlm.Schedule(tlm.ops.exp.program(x))
    assert s.program.inputs[0].shape == (40,)
    near(s.run(x)[0].reshape(5, 8), np.exp(wide(x)))
    near(s.run(x.ravel())[0].reshape(5, 8), np.exp(wide(x)))
    with pytest.raises(ArgumentError, match=r"f32\[40\]"):
        s.run(x[:4])


def test_an_operator_may_have_any_name():
    """Also that of what all kernels share."""

    @tlm.operator
    def team(x):
        return tlm.compute(x.shape, lambda i, j: x[i, j] * 2.0)

    x = normal((640, 1000))
    kernel = team.kernel(x, schedule="heuristic", threads=2)
    assert "@tlm.team(" in kernel.source
    np.testing.assert_array_equal(kernel(x), x * 2)


def test_several_reductions_over_tuples_in_one_formula():
    @tlm.operator
    def furthest(x):
        m, n = x.shape
        high = tlm.argmax((m,), lambda i, k: x[i, k], over={"k": n})
        low = tlm.argmax((m,), lambda i, k: -x[i, k], over={"k": n})
        return tlm.compute((m,), lambda i: high[i] - low[i])

    x = normal((6, 11))
    np.testing.assert_array_equal(furthest(x, **PLAIN), x.argmax(1) - x.argmin(1))


@pytest.mark.parametrize("schedule", ["heuristic", "generate", "random"])
def test_stages_that_read_the_one_before_twice_do_not_grow_without_end(schedule: str):
    """Thirty steps of Newton's method: computed where they are read, each would double what is written."""

    def step(x, y):
        return tlm.compute(x.shape, lambda i: y[i] * (2.0 - x[i] * y[i]))

    @tlm.operator
    def inverse(x):
        y = tlm.compute(x.shape, lambda i: 0.1 + x[i] * 0.0)
        for _ in range(30):
            y = step(x, y)
        return y

    x = np.linspace(1, 5, 100).astype(np.float32)
    near(inverse(x, schedule=schedule), 1 / wide(x))


@pytest.mark.parametrize("schedule", ["default", "random", "heuristic", "generate"])
def test_a_new_operator_has_every_schedule(schedule: str):
    x = normal((37, 53))
    near(row_norms(x, schedule=schedule), np.sqrt((wide(x) ** 2).sum(1)))


def test_it_is_called_like_the_others():
    x, y = array((6, 8)), array((8,), seed=1)
    want = x * y * 2 + 1
    out = np.zeros_like(x)
    assert scaled(x, y, scale=2.0, shift=1.0, out=out, threads=2, target="avx2", **PLAIN) is out
    np.testing.assert_array_equal(out, want)
    kernel = scaled.kernel(x, y, scale=2.0, shift=1.0, **PLAIN)
    np.testing.assert_array_equal(kernel(x, y), want)
    program = scaled.program(x, y, scale=2.0, shift=1.0)
    verify(program)
    np.testing.assert_array_equal(interpret(program, [x, y])[0], want)
    schedule = tlm.Schedule(program)
    schedule.split("j", 4).vectorize("j.1")
    np.testing.assert_array_equal(scaled(x, y, scale=2.0, shift=1.0, schedule=schedule), want)
    assert kernel.time(x, y) > 0
    assert tlm.ops.exp.kernel(x, **PLAIN).time(x[:, ::-1]) > 0
    assert list(inspect.signature(scaled).parameters) == [
        "x", "y", "scale", "shift", "schedule", "target", "threads", "out",
    ]  # fmt: skip
    assert "scale=1.0" in repr(scaled)


def test_its_function_runs_once_for_each_shape_dtype_and_setting():
    runs = []

    @tlm.operator
    def double(x, *, times=2):
        runs.append(x.shape)
        return tlm.compute(x.shape, lambda *at: x[at] * times)

    x = np.ones((3, 4), "f4")
    for _ in range(3):
        assert double(x, **PLAIN)[0, 0] == 2
        assert double(x, times=3, **PLAIN)[0, 0] == 3
        assert double(x=x, times=3, **PLAIN)[0, 0] == 3
    assert len(runs) == 2
    double(x.astype("f8"), **PLAIN)
    double(x[:, :2], **PLAIN)
    assert len(runs) == 4


def test_results_do_not_share_memory():
    """Kind F."""
    first = scaled(np.ones((2, 3), "f4"), np.ones(3, "f4"), **PLAIN)
    second = scaled(np.ones((2, 3), "f4") * 2, np.ones(3, "f4"), **PLAIN)
    assert (first == 1).all()
    assert not np.shares_memory(first, second)


def test_formulas_promote_as_numpy():
    @tlm.operator
    def mixed(x, y):
        return tlm.compute(x.shape, lambda i: x[i] * y[i] + 1)

    for left in ("f32", "f64", "f16", "i8", "i32", "bool"):
        for right in ("f32", "f16", "i16", "i64"):
            x, y = array((5,), left), array((5,), right, 1)
            got = mixed(x, y, **PLAIN)
            assert got.dtype == (x * y + 1).dtype
            np.testing.assert_array_equal(got, x * y + 1)


def test_loops_and_numbers_take_the_dtype_of_elements():
    @tlm.operator
    def ramp(x):
        return tlm.compute(x.shape, lambda i: tlm.where(i < 3, x[i] * i, -1))

    got = ramp(np.ones(5, "f2"), **PLAIN)
    assert got.dtype == np.float16
    assert got.tolist() == [0, 1, 2, -1, -1]


def test_a_sum_of_halves_is_computed_in_f32():
    @tlm.operator
    def dot(x, y):
        return tlm.sum((), lambda k: x[k] * y[k], over={"k": x.shape[0]})

    x = np.full(3000, 100, "f2")
    got = dot(x, x, **PLAIN)
    assert got.dtype == np.float32
    assert got == 3e7
    ints = np.full(300, 100, "i1")
    assert dot(ints, ints, **PLAIN) == 300 * 10000


def test_every_reduction_and_tuples():
    x = array((4, 6))

    @tlm.operator
    def apply(x, *, name):
        m, n = x.shape
        return getattr(tlm, name)((m,), lambda i, k: x[i, k], over={"k": n})

    for name in ("sum", "prod", "max", "min", "argmax", "argmin"):
        np.testing.assert_array_equal(apply(x, name=name, **PLAIN), getattr(np, name)(x, 1))
    for name in ("any", "all"):
        np.testing.assert_array_equal(apply(x > 0, name=name, **PLAIN), getattr(np, name)(x > 0, 1))

    @tlm.operator
    def softsum(x):
        top, total = tlm.reduce("logsumexp", (), lambda k: (x[k], tlm.cast(1, "f32")), over={"k": x.shape[0]})
        return tlm.compute((), lambda: top[()] + tlm.log(total[()]))

    near(softsum(x[0], **PLAIN), np.log(np.exp(wide(x[0])).sum()))


def test_gathers_windows_and_inputs_as_results():
    @tlm.operator
    def pick(x, at):
        return tlm.compute(at.shape, lambda i: x[at[i]])

    at = np.array([2, 0, 1], "i4")
    assert pick(np.array([5, 6, 7], "f4"), at, **PLAIN).tolist() == [7, 5, 6]

    @tlm.operator
    def same(x):
        return x

    x = np.ones((2, 3), "f4")
    got = same(x, **PLAIN)
    assert not np.shares_memory(got, x)
    np.testing.assert_array_equal(got, x)


def wrong(formula: Any) -> Any:
    return tlm.operator(formula)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (lambda x: x[0, 0], "returns the tensor that tlm.compute or a reduction made, got Load"),
        (lambda x: None, "returns the tensor .* got NoneType"),
        (lambda x: tlm.compute((2, 3), lambda i: x[i, 0]), r"takes 1 indices \(i\); its shape has 2 axes"),
        (lambda x: tlm.sum((2,), lambda i: x[i, 0], over={"k": 3}), "has 1 axes and it reduces over k"),
        (lambda x: tlm.compute((2,), lambda i: x[i]), "X has 2 dimensions, got 1"),
        (lambda x: tlm.compute((2,), lambda i: x[i, 7]), "index 7 of X is outside of axis 1, which has 3"),
        (
            lambda x: tlm.compute((2,), lambda i: x[i, 0.5]),
            "X is indexed with integers, got float for axis 1",
        ),
        (lambda x: tlm.compute((2,), lambda i: x[i, x[i, 0]]), "indexed with integers, got f32"),
        (
            lambda x: tlm.compute(("n",), lambda i: x[i, 0]),
            "axis 0 of map has size 'n'; a size is an integer",
        ),
        (lambda x: tlm.compute((-1,), lambda i: x[i, 0]), "a size is at least 0"),
        (lambda x: tlm.compute((2,), lambda i: x), "a formula gave the whole of X; index it"),
        (lambda x: tlm.compute((2,), lambda i: 1.0), "pass dtype="),
        (lambda x: tlm.compute((2,), lambda i: "a"), "a formula gives an element, got str"),
        (lambda x: tlm.sum((2,), lambda i, k: x[i, k], over=3), "names the reduced loops"),
        (lambda x: tlm.compute((2, 2), lambda i, j: x[i, j], axes=("i", "i")), "give each another name"),
        (lambda x: tlm.reduce("mean", (2,), lambda i, k: x[i, k], over={"k": 3}), "unknown combiner 'mean'"),
    ],
)
def test_wrong_formulas(formula: Any, words: str):
    with pytest.raises(ArgumentError, match=words):
        wrong(formula)(np.ones((2, 3), "f4"))


def test_wrong_operands():
    with pytest.raises(ArgumentError, match=r"row_norms of X \(3,\): not enough values to unpack"):
        row_norms(np.ones(3, "f4"))
    with pytest.raises(TypeError, match=r"row_norms.*missing a required argument: 'x'"):
        row_norms()
    with pytest.raises(DTypeError, match="complex64 is not supported"):
        row_norms(np.ones((2, 2), "c8"))
    with pytest.raises(ArgumentError, match="call it in a function decorated"):
        tlm.compute((3,), lambda i: i)
    with pytest.raises(DTypeError, match="computes with elements and numbers, got ndarray"):
        tlm.exp(np.ones(3))
    with pytest.raises(DTypeError, match="300 is out of range for i8"):
        wrong(lambda x: tlm.compute(x.shape, lambda i: x[i] + 300))(np.ones(3, "i1"))
    with pytest.raises(ArgumentError, match="unknown schedule"):
        row_norms(np.ones((2, 2), "f4"), schedule="fastest")


def test_parameters_of_any_names():
    """Operands whose buffers would be called the same, and settings without a name."""
    one, two = np.ones(3, "f4"), np.full(3, 2, "f4")
    lower = tlm.operator(lambda x, X: tlm.compute(x.shape, lambda i: x[i] - 3 * X[i]))
    np.testing.assert_array_equal(lower(one, two, **PLAIN), one - 3 * two)
    assert [b.name for b in lower.program(one, two).inputs] == ["X", "X2"]

    @tlm.operator
    def grouped(X0, *x):
        return tlm.compute(X0.shape, lambda i: X0[i] - 3 * x[0][i] + 7 * x[1][i])

    np.testing.assert_array_equal(grouped(one, two, one, **PLAIN), one - 3 * two + 7 * one)
    with pytest.raises(ArgumentError, match=r"an operator has no \*\*kw: name each setting"):
        tlm.operator(lambda x, **kw: tlm.compute(x.shape, lambda i: x[i]))(one, **PLAIN)


@pytest.mark.parametrize("name", ["sum_acc", "X_pack", "W_pack", "sum_rf", "sum_lanes", "sum2", "map_"])
def test_parameters_are_not_taken_for_what_schedules_make(name: str):
    """A schedule's copies and totals have names of their own, whatever those of the operands."""

    def biased(x, w, z):
        p = tlm.sum((x.shape[0], w.shape[1]), lambda i, j, k: x[i, k] * w[k, j], over={"k": x.shape[1]})
        return tlm.compute(p.shape, lambda i, j: p[i, j] + z[j])

    spelled = {"biased": biased}
    exec(f"def named(x, w, {name}): return biased(x, w, {name})", spelled)
    made = tlm.operator(spelled["named"])
    rng = np.random.default_rng(0)
    x, w, z = (rng.integers(-4, 5, s).astype("f4") for s in ((9, 160), (160, 40), (40,)))
    for schedule in ("default", "heuristic", "generate", *map(Random, range(12))):
        np.testing.assert_array_equal(made(x, w, z, schedule=schedule), x @ w + z)


def test_reads_outside_are_found():
    from tlm.errors import VerifyError

    shifted = wrong(lambda x: tlm.compute(x.shape, lambda i: x[i + 1]))
    with pytest.raises(VerifyError, match=r"outside|bounds"):
        shifted(np.ones(4, "f4"), **PLAIN)


def test_a_bias_as_a_start_is_added_once():
    """Kind B: whatever the number of threads and the schedule."""

    @tlm.operator
    def total(x):
        s = tlm.sum((), lambda k: x[k], over={"k": x.shape[0]})
        return tlm.compute((), lambda: s[()] + 3.0)

    for threads in (1, 2, 3, 8):
        for schedule in ("default", "random", "heuristic"):
            assert total(np.ones(100, "f4"), threads=threads, schedule=schedule) == 103


def test_known_calls_run_on_any_array_of_their_form_and_no_other():
    """The first call of a form and the later ones, which skip the checks, agree."""

    class Own(np.ndarray):
        pass

    x = np.linspace(-3, 3, 35, dtype="f4").reshape(5, 7)
    shifted = np.ndarray(x.shape, "f4", bytearray(x.nbytes + 1), offset=1)
    shifted[...] = x
    fixed = x.copy()
    fixed.flags.writeable = False
    kernel = tlm.ops.add.kernel(x, x, **PLAIN)
    for y in (x, shifted, fixed, x.view(Own), np.asfortranarray(x), x.astype(">f4"), x.astype("f8")):
        for _ in range(3):
            assert np.array_equal(tlm.ops.add(x, y, **PLAIN), 2 * x)
            assert np.array_equal(tlm.ops.add(y, x, **PLAIN), 2 * x)
        if y.dtype == x.dtype:
            assert np.array_equal(kernel(y, x), 2 * x)
            assert np.array_equal(kernel(x, y, out=np.empty_like(x)), 2 * x)
    for wrong in ((x,), (x, x, x), (x, x[:4]), (x, x.astype("f8")), (x, 1.0), (x, [1.0])):
        with pytest.raises(ArgumentError):
            kernel(*wrong)


@pytest.mark.timed
def test_small_calls_are_quick():
    """Kind O: no recompilation, and little more than the call itself."""
    import time

    x = np.ones(16, "f4")
    tlm.ops.add(x, x, **PLAIN)
    before = time.perf_counter()
    for _ in range(2000):
        tlm.ops.add(x, x, **PLAIN)
    assert (time.perf_counter() - before) / 2000 < 100e-6


def test_small_powers_are_products():
    program = wrong(lambda x: tlm.compute(x.shape, lambda i: x[i] ** 3 + tlm.pow(x[i], 2.0))).program(
        np.ones(3)
    )
    assert "pow" not in str(program)
    assert "X[i] * (X[i] * X[i]) + X[i] * X[i]" in str(program)


def test_programs_that_are_too_large_for_the_model_still_get_a_schedule():
    """Of a stage with more loops than a prompt has room for the inner ones are told."""
    a, b = np.ones((2, 1) * 12, "f4"), np.arange(2.0**12, dtype="f4").reshape((1, 2) * 12)
    np.testing.assert_array_equal(tlm.ops.add(a, b, threads=1), a + b)


def test_what_has_a_default_is_no_index():
    @tlm.operator
    def thrice(x):
        for scale in (2.0, 3.0):
            x = tlm.compute(x.shape, lambda i, j, x=x, scale=scale: x[i, j] * scale)
        return tlm.sum(x.shape[:1], lambda i, j=0: x[i, j], over={"j": x.shape[1]})

    np.testing.assert_array_equal(thrice(np.ones((3, 4), "f4"), threads=1), np.full(3, 24.0))
    with pytest.raises(ArgumentError, match=r"takes 1 indices \(i\); its shape has 3 axes"):
        tlm.operator(lambda x: tlm.compute((3, 4, 5), lambda i, x=x: x[i, 0]))(np.ones((3, 4), "f4"))


def test_more_decisions_than_the_model_makes_fall_back_to_the_heuristic():
    @tlm.operator
    def chain(x):
        n = x.shape[0]
        for _ in range(36):
            x = tlm.compute((n,), lambda i, x=x: x[i] * 0.5 + x[n - 1 - i] * 0.25)
        return x

    x = np.ones(64, "f4")
    with pytest.warns(TlmWarning, match="at most 32 decisions.*schedule='heuristic' is used instead"):
        got = chain(x, threads=1)
    np.testing.assert_allclose(got, np.full(64, 0.75**36), rtol=1e-5)
