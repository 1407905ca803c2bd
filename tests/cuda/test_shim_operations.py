"""Warp operations, matrix products, conversions and counts of the shim against numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.cuda import shim_operations as kernels
from tests.cuda.shim import Launch, Report, run

LANES = np.arange(32)
RNG = np.random.default_rng(1)


def go(
    name: str, *arrays: object, block: tuple[int, ...] = (32,), grid: tuple[int, ...] = (1,), shared: int = 0
) -> Report:
    return run(kernels.OPERATIONS, [Launch(name, grid, block, shared, tuple(range(len(arrays))))], arrays)


@pytest.mark.parametrize(("amount", "width"), [(1, 32), (5, 32), (3, 8), (6, 16), (16, 32)])
def test_shuffles(amount: int, width: int) -> None:
    c = np.zeros((4, 32), np.int32)
    go("shuffles", c, np.int32(amount), np.int32(width))
    first = LANES // width * width
    last = first + width - 1
    np.testing.assert_array_equal(c[0], first + amount % width)
    np.testing.assert_array_equal(c[1], np.where(LANES - amount < first, LANES, LANES - amount))
    np.testing.assert_array_equal(c[2], np.where(LANES + amount > last, LANES, LANES + amount))
    np.testing.assert_array_equal(c[3], np.where(LANES ^ amount > last, LANES, LANES ^ amount))


def test_a_shuffle_of_doubles() -> None:
    c = np.zeros(32)
    go("wide_shuffle", c)
    np.testing.assert_array_equal(c, 1 / np.minimum(LANES + 2, 32))


@pytest.mark.parametrize("chosen", [0, 0x80000001, 0xFFFFFFFF])
def test_votes_and_barriers_that_count(chosen: int) -> None:
    c = np.zeros((3, 32), np.uint32)
    go("votes", c, np.uint32(chosen))
    every = chosen == 0xFFFFFFFF
    assert (c[0] == chosen).all()
    assert (c[1] == (chosen != 0) + 2 * every).all()
    assert (c[2] == chosen.bit_count() + 100 * every + 1000 * (chosen != 0)).all()


def test_halves_of_a_warp_on_their_own() -> None:
    c = np.zeros(32, np.int32)
    go("half_warps", c)
    np.testing.assert_array_equal(c, np.where(LANES < 16, LANES ^ 8, LANES ^ 4))


def test_indices_of_three_dimensions_and_constants() -> None:
    c, d = np.zeros(2 * 3 * 2 * 24, np.int32), np.zeros(2 * 3 * 2 * 24, np.float32)
    go("indices", c, d, block=(4, 3, 2), grid=(2, 3, 2))
    np.testing.assert_array_equal(c, np.arange(c.size))
    np.testing.assert_array_equal(d, 10.0 ** (np.arange(c.size) % 4))


def test_halves_widen_exactly() -> None:
    h = np.arange(65536, dtype=np.uint16)
    f, b = np.zeros(65536, np.float32), np.zeros(65536, np.float32)
    go("widen", h, f, b, block=(256,))
    np.testing.assert_array_equal(f, h.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(b, h.view(ml_dtypes.bfloat16).astype(np.float32))


def test_halves_round_to_nearest_even() -> None:
    bits = RNG.integers(0, 1 << 32, 4000, dtype=np.uint32)
    near = np.arange(65536, dtype=np.uint16)[::17].view(np.float16).astype(np.float32)
    near = near[np.isfinite(near)]
    ties = (near + np.nextafter(near.astype(np.float16), np.float16(np.inf)).astype(np.float32)) / 2
    small = RNG.standard_normal(2000).astype(np.float32) * np.float32(2.0**-15)
    ends = np.array([65504, 65519.99, 65520, -65536, 0.0, -0.0, np.inf, -np.inf, 3.4e38], np.float32)
    x = np.concatenate([bits.view(np.float32), near, ties, small, ends])
    x = x[~np.isnan(x)]
    f, b = np.zeros(x.size, np.uint16), np.zeros(x.size, np.uint16)
    t, p = np.zeros(x.size, np.uint32), np.zeros(x.size, np.uint32)
    go("narrow", x, f, b, t, p, np.int32(x.size), block=(256,))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(f, x.astype(np.float16).view(np.uint16))
        rounded = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(b, rounded)
    np.testing.assert_array_equal(p, rounded.astype(np.uint32) << 16 | rounded[0])
    inside = np.abs(x) < 3e38
    assert (t & 0x1FFF == 0)[np.isfinite(x)].all()
    error = np.abs(t.view(np.float32)[inside] - x[inside])
    assert (error <= np.maximum(np.abs(x[inside]) * 2.0**-11, 2.0**-137)).all()


def test_nan_stays_nan() -> None:
    x = np.array([np.nan], np.float32)
    f, b, t, p = (
        np.zeros(1, np.uint16),
        np.zeros(1, np.uint16),
        np.zeros(1, np.uint32),
        np.zeros(1, np.uint32),
    )
    go("narrow", x, f, b, t, p, np.int32(1), block=(256,))
    assert (f[0], b[0], p[0]) == (0x7FFF, 0x7FFF, 0x7FFF7FFF)
    assert np.isnan(t.view(np.float32)[0])


@pytest.mark.parametrize(("name", "depth"), kernels.PRODUCTS.items())
def test_matrix_products(name: str, depth: int) -> None:
    dtype = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32}[name.split("_")[1]]
    a, b = RNG.integers(-9, 10, (16, depth)).astype(dtype), RNG.integers(-9, 10, (depth, 8)).astype(dtype)
    c, d = RNG.integers(-9, 10, (16, 8)).astype(np.float32), np.full((16, 8), np.nan, np.float32)
    assert go(name, a, b, c, d).at(f"tlm_shim_mma_{name}").matrix_operations == 1
    np.testing.assert_array_equal(d, a.astype(np.float32) @ b.astype(np.float32) + c)


def test_tf32_reads_the_upper_bits_only() -> None:
    a, b = np.full((16, 8), np.uint32(0x3F801FFF)).view(np.float32), np.ones((8, 8), np.float32)
    d = np.zeros((16, 8), np.float32)
    go("m16n8k8_tf32", a, b, d.copy(), d)
    assert (d == 8).all()


def test_asynchronous_copies_fill_with_zeros() -> None:
    a, c = np.arange(1, 33, dtype=np.float32).reshape(8, 4), np.full((32, 4), np.nan, np.float32)
    go("zero_filled", a, c)
    np.testing.assert_array_equal(c[:8], a)
    np.testing.assert_array_equal(c[8:16], a * [1, 0, 0, 0])
    assert not c[16:].any()


@pytest.mark.parametrize(
    ("step", "sectors", "ideal"), [(0, 1, 1), (1, 4, 4), (2, 8, 4), (8, 32, 4), (33, 32, 4)]
)
def test_sectors_of_strided_reads(step: int, sectors: int, ideal: int) -> None:
    a, c = np.ones(33 * 32, np.float32), np.zeros(32, np.float32)
    reads = go("strided", a, c, np.int32(step)).at("C[threadIdx.x] = A[").global_reads
    assert (reads.requests, reads.transactions, reads.ideal) == (1, sectors, ideal)


@pytest.mark.parametrize(("step", "passes"), [(0, 1), (1, 1), (2, 2), (3, 1), (8, 8), (31, 1)])
def test_banks_of_strided_reads(step: int, passes: int) -> None:
    c = np.zeros(64, np.float32)
    report = go("banks", c, np.int32(step), shared=4096)
    reads = report.at("buffer[step * threadIdx.x]").shared_reads
    assert (reads.requests, reads.transactions, reads.ideal) == (1, passes, 1)
    vectors = report.at("float4 v = ").shared_reads
    assert (vectors.requests, vectors.transactions, vectors.ideal) == (1, 4, 4)
    np.testing.assert_array_equal(c[:32], step * LANES)
