"""Cubins without a GPU: what NVRTC takes, what it says of a kernel, and what a call says without a device."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tlm
from tests.cuda import programs
from tlm.errors import BackendError
from tlm.ir.build import Builder
from tlm.ir.exprs import op
from tlm.schedule import Schedule
from tlm.target import Target

pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="NVRTC comes with CuPy")

from tlm.backend.cuda import compile
from tlm.backend.cuda.compiler import binary
from tlm.backend.cuda.emitter import Source
from tlm.backend.cuda.stats import resident_blocks, statistics

SM_80, SM_90 = Target("sm_80"), Target("sm_90")


@pytest.fixture(scope="module")
def product():
    return compile(programs.bound_product(m=256, n=256, k=64, stages=3).program, SM_80)


def test_the_tiled_product_compiles_without_spills(product):
    stats = product.stats
    assert stats.spills == stats.stack == 0
    assert 64 < stats.registers <= 255
    assert stats.shared == product.shared_bytes == 3 * 8192
    assert product.grid == (2, 2, 1)
    assert product.block == (16, 16, 1)
    assert stats.occupancy == stats.blocks * 256 / 2048
    assert "__syncthreads" in product.source


def test_a_cubin_is_a_whole_elf_file_and_the_same_each_time(product):
    assert product.cubin[:4] == b"\x7fELF"
    assert product.cubin[-1] == 0
    assert binary(product.emitted, SM_80)[0] == product.cubin


@pytest.mark.parametrize("target", [Target("sm_75"), SM_90, Target("sm_100")])
def test_halves_and_functions_compile_without_headers(target):
    """Kind W: CUDA headers are not found."""
    b = Builder("halves")
    x, y = b.input("x", (64,), "f16"), b.input("y", (64,), "bf16")
    b.compute("a", (64,), lambda i: op("tanh", x[i]) + op("erf", x[i]), output=True)
    b.compute("b", (64,), lambda i: op("exp", y[i]) * op("logistic", y[i]), output=True)
    b.compute("c", (64,), lambda i: op("mod", y[i], op("floor", y[i])), output=True)
    s = Schedule(b.build())
    for loop in [f.var for f in s.program.body.stmts]:
        s.bind(loop, "threadIdx.x")
    kernel = compile(s.program, target)
    assert len(kernel.launches) == len(kernel.launch_stats) == 3


def test_merging_threads_compiles():
    for threads, combiner in (((2, 64), "argmax"), ((1, 128), "logsumexp")):
        kernel = compile(programs.reduced_rows(5, 100, threads, combiner).program, SM_90)
        assert kernel.stats.spills == 0


def test_a_refused_text_shows_the_log():
    with pytest.raises(BackendError, match=r"(?s)NVRTC refuses the text for sm_80.*undefined"):
        binary(Source('extern "C" __global__ void f() { g(); }', (), (), False), SM_80)


def test_a_log_without_figures_is_an_error(product):
    with pytest.raises(BackendError, match="no figures of matmul"):
        statistics(product.emitted, "", SM_80)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "target", "blocks"),
    [
        (256, 32, 0, SM_80, 8),
        (256, 128, 8192, SM_80, 2),
        (256, 64, 48 << 10, SM_80, 3),
        (32, 16, 0, SM_80, 32),
        (1024, 64, 0, SM_90, 1),
        (1024, 65, 0, SM_90, 0),
        (128, 32, 64 << 10, Target("sm_75"), 1),
        (96, 40, 0, SM_80, 16),
    ],
)
def test_resident_blocks_follow_the_occupancy_calculator(threads, registers, shared, target, blocks):
    assert resident_blocks(threads, registers, shared, target) == blocks


def test_running_without_a_gpu_is_one_clear_error(product):
    import cupy

    if cupy.cuda.is_available():
        pytest.skip("there is a GPU here")
    a = np.zeros((256, 256), np.float32)
    with pytest.raises(BackendError, match="there is no CUDA GPU here"):
        product(a, a, a)


def test_importing_tlm_imports_no_cupy():
    code = "import tlm, sys; assert not [m for m in sys.modules if m.startswith('cupy')]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_gpus_are_compiled_for():
    with pytest.raises(BackendError, match="compiles for GPUs such as sm_90, not for avx2"):
        compile(tlm.ops.exp.program(np.zeros(4, "f4")), Target("avx2"))
