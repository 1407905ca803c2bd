"""Matrix instructions: what they compute, how their factors come, and what is refused."""

from __future__ import annotations

import pytest

from tests.cuda import programs
from tests.cuda.emitted import multiplied
from tlm.backend.cuda.emitter import emit
from tlm.errors import BackendError, ScheduleError
from tlm.ir.build import Builder
from tlm.ir.dtypes import f32
from tlm.ir.exprs import converted
from tlm.schedule import Schedule
from tlm.target import Target


@pytest.mark.parametrize(
    ("dtype", "depth", "turned", "calls"),
    [
        ("bf16", 16, False, ("mma_m16n8k16_bf16(", "load_matrix_x4(", "load_matrix_x2_trans(")),
        ("f16", 16, True, ("mma_m16n8k16_f16(", "load_matrix_x4(", "load_matrix_x2(")),
        ("bf16", 8, False, ("mma_m16n8k8_bf16(", "load_matrix_x2(", "load_matrix_x1_trans(")),
        (
            "f32",
            8,
            False,
            ("mma_m16n8k8_tf32(", "to_tf32(", "load_matrix_x4(A_s", "B_s_right[j_1_1_0][0] = to_tf32(B_s["),
        ),
        ("f32", 4, True, ("mma_m16n8k4_tf32(", "to_tf32(", "load_matrix_x2(", "load_matrix_x1(")),
    ],
)
def test_a_product_by_matrix_instructions(dtype, depth, turned, calls):
    sizes = dict(m=36, n=20, k=40, warps=(2, 1), tiles=(1, 2))
    s = programs.tensor_product(**sizes, depth=depth, dtype=dtype, turned=turned)
    source, _ = multiplied(s.program)
    assert all(c in source.text for c in calls)


def test_factors_whose_rows_are_not_aligned_come_element_by_element():
    s = programs.tensor_product(m=64, n=32, k=32)
    s.storage_align("A_s", 3, 2, 1)
    source, _ = multiplied(s.program)
    assert "load_matrix_x4" not in source.text
    assert "load_matrix_x2_trans(" in source.text


def test_targets_and_blocks_without_such_instructions_are_refused():
    s = programs.tensor_product(m=64, n=32, k=32)
    with pytest.raises(BackendError, match=r"of depth 16 on bf16 start at sm_80, the target is sm_75"):
        emit(s.program, Target("sm_75"))
    wide = programs.tensor_product(m=64, n=32, k=32, bound=False)
    flat = "i.1.1.0@A_s"
    for loop in ("i.1.1.1.0@A_s", "i.1.1.1.1@A_s", "k.1.0@A_s"):
        wide.fuse(flat, loop)
        flat += f"*{loop}"
    wide.bind(flat, "threadIdx.x")
    with pytest.raises(BackendError, match="need blocks of 32 threads along x, got 64"):
        emit(wide.program, Target("sm_80"))


def _tiles() -> Schedule:
    b = Builder("p")
    x, y = b.input("A", (16, 16), "bf16"), b.input("B", (16, 8), "bf16")
    b.reduce(
        "C",
        (16, 8),
        {"k": 16},
        lambda i, j, k: converted(x[i, k], f32) * converted(y[k, j], f32),
        output=True,
    )
    return Schedule(b.build()).split("i", 8).split("j", 2)


def _products(lanes: int = 32) -> Schedule:
    s = _tiles()
    s.reorder("i.1", "j.0", "k", "i.0", "j.1").fuse("i.1", "j.0")
    if lanes != 32:
        s.split("i.1*j.0", lanes)
    return s


def test_what_is_no_instruction_is_refused():
    s = _products().cache_write("C", "i.1*j.0", "register", ("i.0", "j.1"), "acc")
    with pytest.raises(ScheduleError, match="no loop over the 32 lanes of a warp"):
        s.tensorize("k")
    s = _products()
    s.bind("i.1*j.0", "threadIdx.x")
    with pytest.raises(ScheduleError, match="has no dimensions for"):
        s.tensorize("k")
    with pytest.raises(ScheduleError, match="no sum of products with 2 x 2 results"):
        s.tensorize("i.0")
    s = _products(16).bind("i.1*j.0.1", "threadIdx.x")
    with pytest.raises(ScheduleError, match="no loop over the 32 lanes"):
        s.tensorize("k")


def test_other_orders_of_the_lanes_are_refused():
    s = _tiles()
    s.reorder("j.0", "i.1", "k", "i.0", "j.1").fuse("j.0", "i.1")
    s.cache_write("C", "", "register", ("j.0*i.1", "i.0", "j.1"), "acc")
    s.decompose_reduction("acc", "j.0*i.1").bind("j.0*i.1", "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"the left factor, of A, does not depend on j.0\*i.1 by"):
        s.tensorize("k")
