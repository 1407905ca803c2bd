"""Kernels written by hand run in the shim: right results, no false alarm, and every removed barrier found."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from tests.cuda import shim_kernels as kernels
from tests.cuda.shim import ALL_PASSES, Launch, ShimError, run


def whole(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small integers: any order of summation is exact."""
    return rng.integers(-4, 5, shape).astype(np.float32)


def without_barrier(text: str, which: int) -> str:
    found = [m.span() for m in re.finditer(r"__syncthreads\(\);", text)]
    start, end = found[which]
    return text[:start] + text[end:]


RNG = np.random.default_rng(0)


def test_vector_add_with_guard() -> None:
    a, b, c = whole(RNG, 100), whole(RNG, 100), np.full(100, np.nan, np.float32)
    report = run(
        kernels.VECTOR_ADD,
        [Launch("add", (4,), (32,), 0, ("A", "B", "C", "n"))],
        {"A": a, "B": b, "C": c, "n": np.int32(100)},
        passes=ALL_PASSES,
    )
    np.testing.assert_array_equal(c, a + b)
    line = report.at("C[i] = A[i] + B[i]")
    # Three full warps write four sectors of 32 bytes each, and one of four lanes writes one.
    assert line.global_writes.requests == 4
    assert line.global_writes.transactions == line.global_writes.ideal == 3 * 4 + 1
    assert line.global_reads.requests == 8
    assert report.total.barriers == 0
    assert not report.truncated


SGEMM_LAUNCH = Launch("sgemm", (1, 2), (256,), 0, ("A", "B", "C"))


def sgemm_arrays() -> dict[str, np.ndarray]:
    return {"A": whole(RNG, 128, 32), "B": whole(RNG, 32, 64), "C": np.full((128, 64), np.nan, np.float32)}


def test_double_buffered_product() -> None:
    arrays = sgemm_arrays()
    report = run(kernels.SGEMM, [SGEMM_LAUNCH], arrays, passes=ALL_PASSES)
    np.testing.assert_array_equal(arrays["C"], arrays["A"] @ arrays["B"])
    assert report.at("__syncthreads").barriers == 2 * 5
    # 128-bit accesses: one request a warp, not four.
    loads = report.at("float4 y = ")
    assert loads.shared_reads.requests == 2 * 4 * 8 * 8
    assert loads.shared_reads.transactions == loads.shared_reads.ideal
    stores = report.at("make_float4")
    assert stores.global_writes.requests == 2 * 8 * 4
    assert stores.global_writes.transactions == stores.global_writes.ideal == 128 * 64 * 4 // 32


def test_double_buffered_product_without_its_barrier() -> None:
    with pytest.raises(ShimError, match="no barrier is between the two") as caught:
        run(without_barrier(kernels.SGEMM, 0), [SGEMM_LAUNCH], sgemm_arrays())
    assert caught.value.kind == "race"
    assert "shared memory" in str(caught.value)


def tiled(text: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    a, b, c = whole(RNG, m, k), whole(RNG, k, n), np.full((m, n), np.nan, np.float32)
    sizes = {"m": np.int32(m), "n": np.int32(n), "k": np.int32(k)}
    grid = (-(-n // 16), -(-m // 16))
    launch = Launch("tiled", grid, (16, 16), 2048, ("A", "B", "C", "m", "n", "k"))
    run(text, [launch], {"A": a, "B": b, "C": c, **sizes})
    return c, a @ b


@pytest.mark.parametrize(("m", "n", "k"), [(33, 17, 40), (16, 16, 16), (1, 5, 3)])
def test_tiled_product_with_tails(m: int, n: int, k: int) -> None:
    np.testing.assert_array_equal(*tiled(kernels.TILED, m, n, k))


@pytest.mark.parametrize(
    ("which", "first", "second"), [(0, "s[ty][tx] = ", "acc += As"), (1, "acc += As", "s[ty][tx] = ")]
)
def test_tiled_product_without_a_barrier(which: int, first: str, second: str) -> None:
    with pytest.raises(ShimError) as caught:
        tiled(without_barrier(kernels.TILED, which), 32, 16, 32)
    assert caught.value.kind == "race"
    lines = [kernels.TILED.splitlines()[n - 1] for n in caught.value.lines]
    assert first in lines[0]
    assert second in lines[1]


def softmax(text: str) -> tuple[np.ndarray, np.ndarray]:
    x = RNG.standard_normal((3, 200)).astype(np.float32)
    y = np.full_like(x, np.nan)
    run(text, [Launch("softmax", (3,), (128,), 0, ("x", "y", "n"))], {"x": x, "y": y, "n": np.int32(200)})
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return y, e / e.sum(1, keepdims=True)


def test_softmax_with_shuffles() -> None:
    y, expected = softmax(kernels.SOFTMAX)
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize("which", [0, 1])
def test_softmax_without_a_barrier(which: int) -> None:
    with pytest.raises(ShimError) as caught:
        softmax(without_barrier(kernels.SOFTMAX, which))
    assert caught.value.kind == "race"
    # The lines are those of the kernel; the message also shows the helper's.
    assert "reduce<" in kernels.SOFTMAX.splitlines()[caught.value.lines[0] - 1]
    assert "(in `" in str(caught.value)


def bf16_product(text: str) -> tuple[np.ndarray, np.ndarray]:
    a, b = (whole(RNG, 64, 64).astype(ml_dtypes.bfloat16), whole(RNG, 64, 32).astype(ml_dtypes.bfloat16))
    c = np.full((64, 32), np.nan, np.float32)
    launch = Launch("product", (1, 2), (128,), 0, ("A", "B", "C"))
    report = run(text, [launch], {"A": a, "B": b, "C": c}, passes=ALL_PASSES)
    assert report.at("mma_bf16(acc[0]").matrix_operations == 2 * 4 * 4
    fragments = report.at("ldmatrix_x4(a").shared_reads
    assert fragments.transactions == fragments.ideal == 2 * 4 * 4 * 4
    assert report.at("cp_async_16(&As").global_reads.transactions == 2 * 4 * 32
    return c, a.astype(np.float32) @ b.astype(np.float32)


def test_matrix_product_with_asynchronous_copies() -> None:
    np.testing.assert_array_equal(*bf16_product(kernels.BF16_PRODUCT))


@pytest.mark.parametrize("which", [0, 1])
def test_matrix_product_without_a_barrier(which: int) -> None:
    with pytest.raises(ShimError) as caught:
        bf16_product(without_barrier(kernels.BF16_PRODUCT, which))
    assert caught.value.kind in ("race", "pending")
    assert len(caught.value.lines) == 2


def test_matrix_product_that_waits_for_too_little() -> None:
    with pytest.raises(ShimError, match="has not waited for the copy"):
        bf16_product(kernels.BF16_PRODUCT.replace("cp_async_wait<1>()", "cp_async_wait<2>()"))


@pytest.mark.parametrize(("pad", "transactions"), [(0, 4096), (1, 128)])
def test_bank_conflicts_of_a_transpose(pad: int, transactions: int) -> None:
    x = RNG.standard_normal((64, 64)).astype(np.float32)
    y = np.full_like(x, np.nan)
    text = kernels.TRANSPOSE.replace("PAD", str(pad))
    report = run(text, [Launch("transpose", (2, 2), (32, 8), 0, (0, 1))], [x, y])
    np.testing.assert_array_equal(y, x.T)
    reads = report.at("= tile[threadIdx.x][i]").shared_reads
    assert (reads.requests, reads.transactions, reads.ideal) == (128, transactions, 128)
    assert report.at("tile[i][threadIdx.x] =").shared_writes.transactions == 128
    assert report.total.global_writes.transactions == report.total.global_writes.ideal == 512


def test_launches_share_scratch_and_are_ordered() -> None:
    text = """
extern "C" __global__ void first(const float* A, float* scratch) {
  scratch[blockIdx.x * 32 + threadIdx.x] = A[blockIdx.x * 32 + threadIdx.x] + 1.0f;
}
extern "C" __global__ void second(const float* scratch, float* C) {
  C[blockIdx.x * 32 + threadIdx.x] = scratch[63 - blockIdx.x * 32 - threadIdx.x];
}
"""
    a, c, scratch = whole(RNG, 64), np.zeros(64, np.float32), np.full(64, np.nan, np.float32)
    launches = [
        Launch("first", (2,), (32,), 0, ("A", "scratch")),
        Launch("second", (2,), (32,), 0, ("scratch", "C")),
    ]
    run(text, launches, [a, c, scratch], names=("A", "C", "scratch"))
    np.testing.assert_array_equal(c, (a + 1)[::-1])


def test_parameters_are_positions_of_arrays() -> None:
    a, b, c = whole(RNG, 32), whole(RNG, 32), np.zeros(32, np.float32)
    n = np.int32(32)
    run(kernels.VECTOR_ADD, [Launch("add", (1,), (32,), 0, (2, 0, 3, 1))], [b, n, a, c])
    np.testing.assert_array_equal(c, a + b)


def test_strided_arrays_are_taken_as_they_lie() -> None:
    body = "{ C[threadIdx.x] = 2 * A[3 * threadIdx.x]; }"
    text = f'extern "C" __global__ void twice(const float* A, float* C) {body}'
    a, c = whole(RNG, 8, 3)[:, 1], np.zeros(8, np.float32)
    run(text, [Launch("twice", (1,), (8,), 0, ("A", "C"))], [a, c])
    np.testing.assert_array_equal(c, 2 * a)


def test_the_report_is_a_table_of_lines() -> None:
    arrays = sgemm_arrays()
    table = str(run(kernels.SGEMM, [SGEMM_LAUNCH], arrays))
    barrier = next(line for line in table.splitlines() if line.endswith("__syncthreads();"))
    assert barrier.split()[1] == "10"
    assert table.splitlines()[0].split() == ["line", "global", "ideal", "shared", "ideal", "barriers"]
