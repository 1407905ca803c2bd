"""The machine code of large products, read without a GPU: loads, barriers, matrix instructions, spills."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import tlm
from tests.cuda import programs, shim
from tlm.target import Target

pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="NVRTC comes with CuPy")

from bench import gpu_product
from tlm.backend.cuda import compile, disassembly
from tlm.backend.cuda.compiler import binary
from tlm.errors import BackendError

pytestmark = [
    pytest.mark.skipif(disassembly.tool() is None, reason="nvidia-cuda-nvdisasm is not installed"),
    pytest.mark.skipif(bool(shim.missing()), reason=f"the shim needs {shim.missing()}"),
]

TARGETS = [Target("sm_80"), Target("sm_90")]
SIZE = 4096


@pytest.mark.parametrize("schedule", ["generate", "heuristic"])
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_a_large_product_of_f32(target, schedule):
    row = gpu_product.measure(SIZE, "f32", target, schedule)
    assert row.spills == 0
    assert row.registers <= 255
    assert set(row.global_loads) <= {128}
    assert row.global_loads or row.async_copies
    assert set(row.shared_loads) == {128}
    assert row.multiply == "FFMA"
    assert row.barriers >= 1
    assert row.per_barrier >= 512
    assert (row.read_conflicts, row.write_conflicts) == (0, 0)
    assert row.blocks >= 1
    assert row.occupancy >= 0.125
    assert row.flops_per_global_byte >= (30 if schedule == "heuristic" else 20)
    assert row.flops_per_shared_byte >= 1.75


def test_a_large_product_of_halves_as_the_model_writes_it():
    row = gpu_product.measure(SIZE, "bf16", TARGETS[1], "generate")
    assert (row.schedule, row.spills, row.multiply) == ("generate", 0, "HMMA")
    assert row.picks["stages"] > 1
    assert row.matrix_loads > 0
    assert row.async_copies > 0
    assert row.global_loads == row.shared_loads == row.shared_stores == {}
    assert row.per_barrier >= 512
    assert (row.read_conflicts, row.write_conflicts) == (0, 0)


@pytest.mark.parametrize("turns", [1, 4])
def test_a_loop_over_k_that_is_not_written_out_counts_as_often_as_it_runs(turns):
    row = gpu_product.picked(SIZE, "f32", TARGETS[1], {"turns": turns})
    assert row.trips > 1
    assert (row.multiplies, row.per_barrier) == (1024, 1024)
    assert set(row.shared_loads) == {128}


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_a_large_product_of_halves(target, stages):
    """bf16 and f16 in turn: their texts differ in the names of types."""
    dtype = ("bf16", "f16")[(stages + TARGETS.index(target)) % 2]
    row = gpu_product.picked(SIZE, dtype, target, {"stages": stages})
    assert row.picks["stages"] == stages
    assert row.spills == 0
    assert row.multiply == "HMMA"
    assert row.barriers >= 1
    assert row.per_barrier >= 512
    assert row.matrix_loads > 0
    assert row.async_copies > 0
    assert row.global_loads == row.shared_loads == row.shared_stores == {}
    assert (row.read_conflicts, row.write_conflicts) == (0, 0)
    assert row.occupancy >= 0.125
    assert row.flops_per_global_byte >= 60


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_halves_are_multiplied_by_the_deepest_instruction_and_copied_in_whole_pieces(dtype):
    kernel = gpu_product.decided(SIZE, dtype, TARGETS[1], "heuristic")[0]
    body = disassembly.main_loop(next(iter(disassembly.disassemble(kernel.cubin).values())))
    names = {i.name for i in body.code}
    assert f"HMMA.16816.F32{'.BF16' if dtype == 'bf16' else ''}" in names
    assert body.widths("LDGSTS") == {128: body.count("LDGSTS")}
    assert body.count("LDGDEPBAR") == body.count("DEPBAR") == body.count("BAR")


def test_f32_is_rounded_to_tf32_where_the_user_asks_for_matrix_instructions():
    sizes = dict(m=256, n=256, k=256, warps=(2, 2), tiles=(2, 4), depth=8)
    s = programs.tensor_product(**sizes, dtype="f32", turned=True)
    s.swizzle("A_s", 3).swizzle("B_s", 3).double_buffer("A_s", 3).double_buffer("B_s", 3)
    for target in TARGETS:
        kernel = compile(s.program, target)
        body = disassembly.main_loop(disassembly.disassemble(kernel.cubin)["product"])
        assert kernel.stats.spills == 0
        assert "HMMA.1688.F32.TF32" in {i.name for i in body.code}
        assert body.count("LDGSTS") > 0
        assert body.count("LDSM") > 0
        assert body.count("LDS") == 0


@pytest.mark.parametrize(("dtype", "turned"), [("bf16", False), ("f16", True)])
def test_a_large_product_by_warpgroups(dtype, turned):
    """HGMMA of all columns of the tile, fed by copies of 16 bytes three stages ahead: nothing else is read,
    and nothing makes the compiler wait after each."""
    kind, target = gpu_product.DTYPES[dtype], Target("sm_90a")
    a, b = np.empty((SIZE, SIZE), kind), np.empty((SIZE, SIZE), kind)
    kernel = tlm.ops.matmul.kernel(a, b.T if turned else b, schedule="heuristic", target=target)
    body = disassembly.main_loop(max(disassembly.disassemble(kernel.cubin).values(), key=len))
    assert kernel.stats.spills == kernel.stats.stack == 0
    assert "serialized" not in binary(kernel.compiled.emitted, target)[1]
    assert body.count("HGMMA") == 4
    assert f"HGMMA.64x256x16.F32{'.BF16' if dtype == 'bf16' else ''}" in {i.name for i in body.code}
    assert body.widths("LDGSTS") == {128: 12}
    # One fence before them, one wait behind.
    assert body.count("WARPGROUP") == 2
    assert all(body.count(x) == 0 for x in ("LDG", "LDS", "STS", "LDSM", "LDL", "STL"))


def test_the_figures_of_a_product_by_warpgroups():
    row = gpu_product.measure(SIZE, "bf16", Target("sm_90a"), "heuristic")
    assert (row.multiply, row.multiplies, row.barriers, row.spills) == ("HGMMA", 4, 1, 0)
    assert row.per_barrier == 128 * 256 * 64 / 256
    assert (row.read_conflicts, row.write_conflicts) == (0, 0)
    assert row.flops_per_global_byte >= 80


def test_listings_are_read_by_line():
    listing = """
\t.section\t.text.f,"ax",@progbits
.text.f:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/                   FFMA R0, R1, R2, R3 ;
.L_x_1:
        /*0030*/                   FFMA R0, R1, R2, R3 ;
        /*0040*/              @!P1 BRA `(.L_x_1) ;
        /*0050*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0060*/               @P1 BRA `(.L_x_0) ;
        /*0068*/              @!PT LDS RZ, [RZ] ;
        /*0070*/                   LDS.U.64 R8, [R4] ;
        /*0080*/                   EXIT ;
"""
    (code,) = disassembly.instructions(listing).values()
    assert [i.base for i in code] == ["LDC", "LDG", "FFMA", "FFMA", "BRA", "BAR", "BRA", "LDS", "EXIT"]
    assert [i.jump for i in code if i.base == "BRA"] == [3, 1]
    assert (code[1].bits, code[7].bits, code[0].bits) == (128, 64, 32)
    body = disassembly.main_loop(code)
    assert (body.count("FFMA"), body.nested) == (2, True)
    assert (body.inner.count("FFMA"), body.inner.inner) == (1, None)
    assert body.repeated(5).count("FFMA") == 6
    assert body.repeated(1) == body
    assert disassembly.main_loop(code[:2]) is None


def test_what_is_no_cubin_is_refused():
    with pytest.raises(BackendError, match="nvdisasm refuses the cubin"):
        disassembly.disassemble(b"nothing")


def test_the_table_is_printed_and_written(tmp_path, monkeypatch, capsys):
    """A small product has parts of k that run beside each other, and a second kernel that adds them up."""
    path = tmp_path / "product.json"
    asked = ["gpu_product", "--arch", "sm_90", "--dtype", "f32", "--size", "512", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", asked)
    gpu_product.main()
    (row,) = json.loads(path.read_text())
    assert (row["arch"], row["spills"], row["picks"]["slices"] > 1) == ("sm_90", 0, True)
    shown = capsys.readouterr().out
    assert "sm_90" in shown
    assert "FMA/thread/barrier" in shown
