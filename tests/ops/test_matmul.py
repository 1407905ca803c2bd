"""matmul and linear on arrays: right for every rank, layout, dtype and `out=` (kinds D, E, F, J, K, O)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tlm
from tlm.ops import linear, matmul

RNG = np.random.default_rng(0)
# Every decider that neither measures nor needs the shipped model.
QUICK = ("default", "heuristic", "random")


def integers(*shape: int, dtype: Any = "f4") -> np.ndarray:
    """Small integers: any order of summation is exact, so results must agree bit for bit."""
    return RNG.integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("schedule", QUICK)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (3,)), ((3,), (5, 3, 4)), ((2, 3), (3,)), ((2, 1, 3, 4), (5, 4, 6)), ((7, 3, 4), (4, 5)),
        ((7, 4, 33), (7, 33, 17)), ((1, 40), (40, 70)), ((70, 40), (40, 1)), ((1, 1), (1, 1)),
        ((33, 65), (65, 17)),
    ],
)  # fmt: skip
def test_shapes_and_values_as_numpy(left: tuple[int, ...], right: tuple[int, ...], schedule: str):
    a, b = integers(*left), integers(*right)
    got = matmul(a, b, schedule=schedule)
    want = a @ b
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((0, 2, 3), (1, 3, 4)),
        ((0, 3), (3, 4)),
        ((2, 3), (3, 0)),
        ((2, 0), (0, 3)),
        ((0,), (0,)),
        ((5, 2, 0), (0, 3)),
    ],
)
def test_nothing_to_sum_or_to_write(left: tuple[int, ...], right: tuple[int, ...]):
    a, b = np.zeros(left, "f4"), np.zeros(right, "f4")
    want = a @ b
    out = np.full(want.shape, np.nan, "f4")
    for got in (matmul(a, b, schedule="heuristic"), matmul(a, b, schedule="heuristic", out=out)):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_array_equal(got, want)


def test_an_empty_sum_leaves_bias_and_activation():
    x, w, b = np.zeros((2, 0), "f4"), np.zeros((0, 3), "f4"), np.array([-1, 0, 2], "f4")
    np.testing.assert_array_equal(linear(x, w, b, activation="relu", schedule="heuristic"), [[0, 0, 2]] * 2)


LAYOUTS = {
    "c": lambda a: np.ascontiguousarray(a),
    "fortran": lambda a: np.asfortranarray(a),
    "reversed": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "every second": lambda a: np.repeat(np.repeat(a, 2, 0), 2, 1)[::2, ::2],
    "inside": lambda a: np.pad(a, 3)[3:-3, 3:-3],
    "swapped bytes": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_any_layout(left: str, right: str):
    a, b = LAYOUTS[left](integers(6, 9)), LAYOUTS[right](integers(9, 17))
    copies = a.copy(), b.copy()
    got = matmul(a, b, schedule="heuristic")
    np.testing.assert_array_equal(got, copies[0] @ copies[1])
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(a, copies[0])
    np.testing.assert_array_equal(b, copies[1])


def test_reversed_view():
    x = np.arange(12, dtype="f4").reshape(3, 4)
    view = x[::-1, ::-2]
    got = matmul(view, np.eye(2, dtype="f4"), schedule="heuristic")
    np.testing.assert_array_equal(got, [[11, 9], [7, 5], [3, 1]])
    out = np.zeros((3, 4), "f4")[::-1, ::-2]
    assert matmul(view, np.eye(2, dtype="f4"), schedule="heuristic", out=out) is out
    np.testing.assert_array_equal(out, [[11, 9], [7, 5], [3, 1]])
    np.testing.assert_array_equal(x, np.arange(12).reshape(3, 4))


def test_alignment_is_seen_when_only_it_changes():
    a = integers(5, 8)
    unaligned = LAYOUTS["unaligned"](a)
    for x in (a, unaligned, a):
        np.testing.assert_array_equal(matmul(x, a.T, schedule="heuristic"), a @ a.T)


def test_results_share_no_memory():
    a = integers(4, 4)
    first = matmul(a, a, schedule="heuristic")
    kept = first.copy()
    second = matmul(a, a + 1, schedule="heuristic")
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)


def test_operands_are_read_anew_each_call():
    x, w = integers(20, 40), integers(40, 50)
    first = matmul(x, w, schedule="heuristic")
    w *= 2
    np.testing.assert_array_equal(matmul(x, w, schedule="heuristic"), 2 * first)
    for _ in range(20):
        w = integers(40, 50)
        np.testing.assert_array_equal(matmul(x, w, schedule="heuristic"), x @ w)
        del w


@pytest.mark.parametrize("overlap", ["left", "right", "partly", "transposed"])
def test_out_may_overlap_an_operand(overlap: str):
    room = integers(12, 8)
    a, b = room[:8], integers(8, 8)
    out = {"left": a, "right": b, "partly": room[3:11], "transposed": a.T}[overlap]
    want = a @ b
    assert matmul(a, b, schedule="heuristic", out=out) is out
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("make", [np.asfortranarray, lambda o: np.pad(o, 2)[2:-2, 2:-2], lambda o: o[::-1]])
def test_out_of_any_layout(make: Any):
    a, b = integers(5, 6), integers(6, 7)
    out = make(np.zeros((5, 7), "f4"))
    matmul(a, b, schedule="heuristic", out=out)
    np.testing.assert_array_equal(out, a @ b)


def test_what_out_held_does_not_matter():
    """Sums split over threads start from nothing, whatever memory held, and start anew in each call."""
    a, b = integers(16, 700), integers(700, 24)
    split = 0
    for seed in range(12):
        kernel = matmul.kernel(a, b, schedule=tlm.Random(seed), threads=8)
        split += "C_rf" in str(kernel.program)
        out = np.full((16, 24), np.nan, "f4")
        for _ in range(2):
            kernel(a, b, out=out)
            np.testing.assert_array_equal(out, a @ b)
    assert split


def test_out_of_no_dimensions():
    out = np.empty((), "f4")
    assert matmul(integers(3) * 0 + 2, np.ones(3, "f4"), schedule="heuristic", out=out) is out
    assert out == 6


@pytest.mark.parametrize("schedule", ["default", "heuristic"])
@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]
)
def test_every_dtype(name: str, schedule: str):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    a, b = np.abs(integers(9, 21)).astype(dtype), np.abs(integers(21, 18)).astype(dtype)
    got = matmul(a, b, schedule=schedule)
    assert got.dtype == dtype
    want = (a.astype("f8") @ b.astype("f8")) if dtype.kind != "i" else a.astype("i8") @ b.astype("i8")
    np.testing.assert_array_equal(got.astype("f8"), want.astype(dtype).astype("f8"))


@pytest.mark.parametrize("schedule", ["default", "heuristic"])
def test_bool_is_any_of_and(schedule: str):
    a, b = integers(5, 9) > 1, integers(9, 6) > 1
    np.testing.assert_array_equal(matmul(a, b, schedule=schedule), a @ b)


def test_promotion_and_a_wanted_dtype():
    a, b = integers(4, 5, dtype="i1"), integers(5, 6, dtype="i1")
    assert matmul(a, b.astype("f4"), schedule="heuristic").dtype == np.float32
    big = np.full((4, 5), 100, np.int8)
    got = matmul(big, big.T, schedule="heuristic", dtype=np.int32)
    np.testing.assert_array_equal(got, np.full((4, 4), 50000, np.int32))


def test_halves_sum_in_single():
    for dtype in (np.float16, ml_dtypes.bfloat16):
        a, b = np.ones((2, 4096), dtype), np.ones((4096, 3), dtype)
        assert (matmul(a, b, schedule="heuristic").astype("f4") == 4096).all()


@pytest.mark.parametrize("schedule", [*QUICK, tlm.Random(1)])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 9, 7), (1, 40, 70), (33, 65, 17), (17, 3, 33)])
def test_nan_and_infinity_as_numpy(shape: tuple[int, int, int], dtype: str, schedule: Any):
    """inf * 0 is NaN, and tails, masks and padding bring in no zeros of their own."""
    m, k, n = shape
    a, b = integers(m, k, dtype=dtype), integers(k, n, dtype=dtype)
    a[0, 0], a[-1, -1], b[0, -1], b[k // 2, 0] = np.inf, np.nan, -np.inf, np.nan
    a[m // 2, k // 2], b[-1, n // 2] = 0, np.inf
    with np.errstate(invalid="ignore"):
        want = (a.astype("f8") @ b.astype("f8")).astype(dtype)
    np.testing.assert_array_equal(matmul(a, b, schedule=schedule), want)


NUMPY_ACTIVATIONS = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", NUMPY_ACTIVATIONS)
@pytest.mark.parametrize("schedule", QUICK)
def test_linear(name: str | None, schedule: str):
    x, w, b = (RNG.standard_normal(s).astype("f4") for s in ((2, 5, 33), (33, 19), (19,)))
    got = linear(x, w, b, activation=name, schedule=schedule)
    want = NUMPY_ACTIVATIONS[name](x.astype("f8") @ w + b)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("name", NUMPY_ACTIVATIONS)
def test_activations_at_the_edges(name: str | None, dtype: str):
    """NaN stays, large arguments do not overflow, digits near zero stay, at every place of a vector."""
    edges = np.array([10, 50, 100, 1e4, np.inf, 1e-3, 0], dtype)
    edges = np.concatenate([edges, -edges, np.array([np.nan], dtype)])
    for n in (1, 7, 8, 19, 33):
        for start in range(0, len(edges), max(1, len(edges) - n)):
            bias = np.resize(np.roll(edges, -start), n)
            got = linear(
                np.zeros((1, 3), dtype), np.zeros((3, n), dtype), bias, activation=name, schedule="heuristic"
            )
            with np.errstate(invalid="ignore", over="ignore"):
                want = NUMPY_ACTIVATIONS[name](bias.astype("f8"))
            tolerance = {"f2": 2e-3, "f4": 1e-5, "f8": 1e-12}[dtype]
            np.testing.assert_allclose(got[0].astype("f8"), want, rtol=tolerance, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_linear_in_half(dtype: Any):
    x, w, b = integers(5, 9, dtype=dtype), integers(9, 6, dtype=dtype), integers(6, dtype=dtype)
    want = np.maximum(x.astype("f4") @ w.astype("f4") + b.astype("f4"), 0)
    got = linear(x, w, b, activation="relu", schedule="heuristic")
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype("f4"), want)


def test_linear_without_bias_is_matmul():
    x, w = integers(5, 9), integers(9, 6)
    np.testing.assert_array_equal(linear(x, w, schedule="heuristic"), x @ w)


def test_lists_and_scalars_of_arrays():
    np.testing.assert_array_equal(matmul([[1, 2]], [[3], [4]], schedule="heuristic"), [[11]])


def test_jax_in_jax_out():
    jax = pytest.importorskip("jax")
    a, b = integers(5, 9), integers(9, 6)
    got = matmul(jax.numpy.asarray(a), jax.numpy.asarray(b), schedule="heuristic")
    assert isinstance(got, jax.Array)
    np.testing.assert_array_equal(np.asarray(got), a @ b)


def test_levels_of_this_machine_agree():
    a, b = integers(37, 45), integers(45, 53)
    for name in ("avx512", "avx2", "sse", "neon"):
        if tlm.Target(name).runs_here():
            np.testing.assert_array_equal(matmul(a, b, schedule="heuristic", target=name), a @ b)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 40),
    st.sampled_from(sorted(LAYOUTS)), st.sampled_from(sorted(LAYOUTS)), st.integers(0, 5),
)  # fmt: skip
def test_random_products(m: int, k: int, n: int, left: str, right: str, seed: int):
    a, b = LAYOUTS[left](integers(m, k)), LAYOUTS[right](integers(k, n))
    got = matmul(a, b, schedule=tlm.Random(seed))
    np.testing.assert_array_equal(got, a.astype("f4") @ b.astype("f4"))
