"""Each defect planted in a kernel is found, and named by its line and threads."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda import shim_faults as kernels
from tests.cuda.shim import ALL_PASSES, Launch, Report, ShimError, run


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, np.float32)


def go(name: str, *arrays: object, block: int = 32, grid: int = 1, shared: int = 0) -> Report:
    launch = Launch(name, (grid,), (block,), shared, tuple(range(len(arrays))))
    return run(kernels.FAULTS, [launch], arrays)


def fault(
    name: str, *arrays: object, block: int = 32, grid: int = 1, shared: int = 0
) -> tuple[str, str, list[str]]:
    """Kind, message and text of the lines."""
    with pytest.raises(ShimError) as caught:
        go(name, *arrays, block=block, grid=grid, shared=shared)
    text = kernels.FAULTS.splitlines()
    return caught.value.kind, str(caught.value), [text[n - 1].strip() for n in caught.value.lines]


def test_a_missing_guard() -> None:
    kind, message, lines = fault("unguarded", zeros(100), zeros(100), grid=4)
    assert kind == "bounds"
    assert lines == ["C[i] = 2.0f * A[i];"]
    assert "block (3, 0, 0)" in message
    assert "thread (4, 0, 0) reads 0, element 100 of 100" in message


def test_a_write_before_the_array() -> None:
    kind, message, _ = fault("wild_write", zeros(32))
    assert kind == "bounds"
    assert "writes 0, element -1 of 32" in message


def test_an_index_wrapped_at_32_bits() -> None:
    assert fault("wrapped_index", zeros(32))[0] == "bounds"


def test_a_misaligned_vector() -> None:
    kind, message, lines = fault("misaligned", zeros(132), zeros(128))
    assert kind == "alignment"
    assert "element 2 of 132 (16 bytes)" in message
    assert "float4" in lines[0]


def test_beyond_dynamic_shared_memory() -> None:
    go("beyond_dynamic", zeros(32), shared=128)
    kind, message, lines = fault("beyond_dynamic", zeros(32), shared=124)
    assert kind == "bounds"
    assert "bytes 124 to 128 of shared memory (124 bytes)" in message
    assert lines == ["buffer[threadIdx.x] = 1.0f;"]


@pytest.mark.parametrize("name", ["beyond_static", "beyond_registers"])
def test_beyond_an_array_of_the_text(name: str) -> None:
    block = 4 if name == "beyond_registers" else 32
    go(name, zeros(32), np.int32(0), block=block)
    kind, message, _ = fault(name, zeros(32), np.int32(1), block=block)
    assert kind == "index"
    assert f"index {block} of 'float [{block}]'" in message


def test_a_barrier_after_some_threads_left() -> None:
    kind, message, lines = fault("early_exit", zeros(64), block=64)
    assert kind == "barrier"
    assert "threads 0-39 at the barrier" in message
    assert "threads 40-63 exited" in message
    assert lines == ["__syncthreads();"]


def test_two_barriers_in_the_branches_of_a_condition() -> None:
    kind, message, lines = fault("two_barriers", zeros(64), block=64)
    assert kind == "barrier"
    assert lines == ["__syncthreads();  // one", "__syncthreads();  // other"]
    assert "threads 32-63 at the barrier" in message


def test_a_shuffle_that_half_of_the_warp_does_not_reach() -> None:
    kind, message, lines = fault("half_a_shuffle", zeros(64), block=64)
    assert kind == "warp"
    assert "threads 0-15 at the warp operation" in message
    assert "threads 16-31 at the barrier" in message
    assert "__shfl_xor_sync" in lines[0]


def test_a_shuffle_from_a_lane_that_left() -> None:
    kind, message, _ = fault("shuffle_from_exited", zeros(32))
    assert kind == "lane"
    assert "lane 0 reads the value of lane 16" in message


def test_a_shuffle_by_a_lane_that_the_mask_does_not_name() -> None:
    kind, message, _ = fault("wrong_mask", zeros(32))
    assert kind == "lane"
    assert "mask 0x0000ffff does not name the calling lane 16" in message


@pytest.mark.parametrize("name", ["blocks_overwrite", "blocks_read", "blocks_overwrite_read"])
def test_blocks_that_depend_on_each_other(name: str) -> None:
    kind, message, _ = fault(name, zeros(32), grid=2, block=1)
    assert kind == "blocks"
    assert "of block (0, 0, 0)" in message
    go(name, zeros(32), grid=1, block=1)


def test_lanes_are_ordered_by_syncwarp_alone() -> None:
    c = zeros(64)
    go("warp_exchange", c, np.int32(1), block=64)
    np.testing.assert_array_equal(c, np.arange(64) ^ 1)
    kind, message, _ = fault("warp_exchange", zeros(64), np.int32(0), block=64)
    assert kind == "race"
    assert "thread (1, 0, 0)" in message


def test_syncwarp_does_not_order_warps() -> None:
    assert fault("across_warps", zeros(64), block=64)[0] == "race"


def test_neighbours_of_two_bytes_are_no_race() -> None:
    c = np.zeros(64, np.uint16)
    go("half_cells", c, np.int32(0), block=64)
    assert c.all()
    assert fault("half_cells", np.zeros(64, np.uint16), np.int32(1), block=64)[0] == "race"


def test_atomics_race_with_plain_reads_only() -> None:
    c = zeros(2)
    go("atomic_sum", c, np.int32(0), block=64, grid=3)
    assert c[0] == 192
    kind, message, _ = fault("atomic_sum", zeros(2), np.int32(1), block=64)
    assert kind == "race"
    assert "updates atomically" in message


@pytest.mark.parametrize("name", ["unwaited", "waited_for_the_wrong_group"])
def test_data_of_a_copy_that_was_not_waited_for(name: str) -> None:
    kind, message, lines = fault(name, zeros(128), zeros(128))
    assert kind == "pending"
    assert "cp_async_16" in lines[1]
    assert "has not waited" in message


def test_a_copy_whose_source_changes() -> None:
    launch = Launch("source_changes", (1,), (32,), 0, ("A", "C"))
    with pytest.raises(ShimError, match="C depends on the order") as caught:
        run(kernels.CHANGING_SOURCE, [launch], {"A": zeros(32), "C": zeros(32)})
    assert caught.value.kind == "order"


def test_shared_memory_starts_as_nan_in_every_block() -> None:
    c = zeros(32)
    go("never_written", c)
    assert np.isnan(c[0])
    assert (c[1:] == 1).all()


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        (Launch("bounded", (1,), (65,), 0, (0,)), "more threads than 64"),
        (Launch("unguarded", (1,), (1025,), 0, (0, 0)), "more threads than 1024"),
        (Launch("bounded", (1, 65536), (32,), 0, (0,)), "65535"),
        (Launch("bounded", (1,), (32,), 300000, (0,)), "300000 bytes of shared memory"),
        (Launch("bounded", (1,), (32,), 0, ()), "takes 1 parameters and is given 0"),
        (Launch("missing", (1,), (32,), 0, (0,)), "no such kernel"),
    ],
)
def test_launches_over_the_limits(launch: Launch, reason: str) -> None:
    with pytest.raises(ShimError, match=reason) as caught:
        run(kernels.FAULTS, [launch], [zeros(32)])
    assert caught.value.kind == "launch"


def test_a_write_to_an_input_that_is_read_only() -> None:
    c = zeros(32)
    c.flags.writeable = False
    with pytest.raises(ShimError, match="read-only"):
        go("bounded", c, block=1)


def test_text_that_is_no_program() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        run('extern "C" __global__ void k() { nonsense }', [Launch("k", (1,), (1,))], [])


def test_a_fault_in_any_pass_leaves_the_arrays_alone() -> None:
    c = zeros(64)
    with pytest.raises(ShimError):
        run(kernels.FAULTS, [Launch("across_warps", (1,), (64,), 0, (0,))], [c], passes=ALL_PASSES)
    assert not c.any()
