"""Operators compiled for GPUs, without one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import tlm
from tlm.errors import ArgumentError, BackendError

pytest.importorskip("cupy_backends", reason="compiling for CUDA needs CuPy and NVRTC")
SM_90 = tlm.Target("sm_90")
A, B = np.ones((96, 64), np.float32), np.ones((64, 80), np.float32)


def test_a_product_is_compiled_and_tells_of_itself():
    k = tlm.ops.matmul.kernel(A, B, schedule="heuristic", target=SM_90)
    assert "__global__" in k.source
    assert k.cubin[:4] == b"\x7fELF"
    assert k.grid != (0, 0, 0)
    assert np.prod(k.block) <= 1024
    assert k.stats.spills == 0
    assert k.flops == 2 * 96 * 64 * 80
    assert k.choices
    assert k.history[-1][1] == k.program
    assert "threadIdx" in str(k.program)


def test_an_operator_by_formula_too():
    k = tlm.ops.softmax.kernel(A, schedule="random", target=SM_90)
    assert k.launches


def test_running_without_a_gpu_is_one_clear_error():
    face = {"shape": (96, 64), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3}
    k = tlm.ops.relu.kernel(A, schedule="heuristic", target=SM_90)
    x = SimpleNamespace(__cuda_array_interface__=face)
    with pytest.raises(BackendError, match="no CUDA GPU here"):
        k(x, out=x)
    with pytest.raises(ArgumentError, match="is an array on the GPU, got ndarray"):
        k(A, out=A)
    with pytest.raises(BackendError, match=r"do not run on sm_90; give arrays of the GPU"):
        tlm.ops.matmul(A, B, target=SM_90)
    with pytest.raises(BackendError, match="no CUDA GPU here"):
        tlm.ops.matmul.kernel(A, B, target="cuda")


def test_what_a_gpu_cannot_be_asked():
    with pytest.raises(ArgumentError, match="threads= is of CPUs"):
        tlm.ops.matmul.kernel(A, B, schedule="heuristic", target=SM_90, threads=2)
