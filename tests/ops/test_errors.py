"""A wrong call is one clear error, before anything is decided or compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tlm
from tlm.errors import ArgumentError, BackendError, DTypeError
from tlm.ops import linear, matmul

A, B = np.ones((2, 3), "f4"), np.ones((3, 4), "f4")


def read_only(shape: tuple[int, ...]) -> np.ndarray:
    out = np.zeros(shape, "f4")
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("operands", "settings", "words"),
    [
        ((A, A), {}, r"matmul of shapes \(2, 3\) and \(2, 3\).*3.*2"),
        ((np.float32(2), np.ones((2, 2), "f4")), {}, "at least 1 dimension"),
        ((A, B), {"schedule": "genrate"}, "unknown schedule 'genrate'; did you mean 'generate'"),
        ((A, B), {"schedule": 7}, "unknown schedule 7"),
        ((A, B), {"schedule": ["generate"]}, "unknown schedule"),
        ((A, B), {"target": "avx1024"}, "unknown target 'avx1024'"),
        ((A, B), {"target": 3}, "target= is"),
        ((A, B), {"threads": 0}, "threads= is an integer of at least 1, got 0"),
        ((A, B), {"threads": 1.5}, "threads="),
        ((A, B), {"threads": True}, "threads="),
        ((A, B), {"out": np.zeros((4, 2), "f4")}, r"out= has shape \(4, 2\), the result has shape \(2, 4\)"),
        ((A, B), {"out": np.zeros((2, 4), "f8")}, "out= has dtype float64, the result has dtype float32"),
        ((A, B), {"out": read_only((2, 4))}, "out= is read-only"),
        ((A, B), {"out": [[0.0] * 4] * 2}, "out= is a numpy array"),
    ],
)
@pytest.mark.parametrize("again", [False, True], ids=["cold", "warm"])
def test_wrong_arguments(operands: tuple[Any, ...], settings: dict[str, Any], words: str, again: bool):
    if again:
        matmul(A, B, schedule="heuristic")
    with pytest.raises(ArgumentError, match=words):
        matmul(*operands, **({"schedule": "heuristic"} | settings))


def test_errors_are_value_and_type_errors_too():
    with pytest.raises(ValueError, match="differ"):
        matmul(A, A)
    with pytest.raises(TypeError, match="complex64"):
        matmul(A.astype(np.complex64), B)


@pytest.mark.parametrize("dtype", [np.complex64, np.uint16, np.float128, object, "U3", "M8[s]"])
def test_unsupported_dtypes(dtype: Any):
    with pytest.raises(DTypeError, match="is not supported; supported are float16"):
        matmul(np.zeros((2, 2), dtype), np.zeros((2, 2), dtype))


def test_linear_says_what_it_takes():
    with pytest.raises(ArgumentError, match=r"takes a bias of shape \(4,\), got \(3,\)"):
        linear(A, B, np.ones(3, "f4"))
    with pytest.raises(ArgumentError, match="unknown activation 'swish'; known are relu"):
        linear(A, B, activation="swish")
    with pytest.raises(ArgumentError, match=r"w \[K, N\]"):
        linear(A, np.ones(3, "f4"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tlm.Search(trials=0), "Search.trials is an integer of at least 1"),
        (lambda: tlm.Search(seconds=-1), "Search.seconds"),
        (lambda: tlm.Generate(samples=0), "Generate.samples"),
        (lambda: tlm.Generate(temperature=-1), "Generate.temperature"),
    ],
)
def test_impossible_settings(make: Any, words: str):
    with pytest.raises(ArgumentError, match=words):
        make()


def test_other_machines_are_compiled_for_but_not_run():
    with pytest.raises(BackendError, match="GPU"):
        matmul(A, B, schedule="heuristic", target="cuda")
    other = "neon" if tlm.host().isa != "neon" else "avx2"
    kernel = matmul.kernel(A, B, schedule="heuristic", target=other)
    assert kernel.assembly
    with pytest.raises(BackendError, match="cannot run on this machine"):
        kernel(A, B)


def test_a_schedule_of_another_program():
    other = tlm.Schedule(linear.program(A, B, np.ones(4, "f4")))
    other.split("C_i", 2)
    with pytest.raises(ArgumentError, match="made for another program"):
        matmul(A, B, schedule=other)


def test_a_kernel_takes_what_it_was_made_for():
    kernel = matmul.kernel(A, B, schedule="heuristic")
    with pytest.raises(ArgumentError, match="takes 2 operands, got 1"):
        kernel(A)
    with pytest.raises(ArgumentError, match=r"operand 1 has shape \(2, 3\).*made for shape \(3, 4\)"):
        kernel(A, A)
    with pytest.raises(ArgumentError, match="nothing to compute"):
        matmul.kernel(np.zeros((0, 3), "f4"), B)
