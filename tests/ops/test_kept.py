"""Finished calls between processes: reused when nothing changed, never when anything did (kind U)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tlm
from tlm.backend.llvm import codegen
from tlm.ops import kept, matmul
from tlm.ops.arrays import Spec, read
from tlm.ops.dispatch import kernel_for
from tlm.ops.kernel import Kernel
from tlm.ops.products import Problem, product
from tlm.ops.settings import Default, Generate, Heuristic, Random
from tlm.target import Target


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def problem(m: int = 6, dtype: str = "f4", strides: Any = None) -> Problem:
    spec = read(np.ones((m, 31), dtype))[0]
    return product("matmul", Spec(spec.shape, spec.dtype, strides), read(np.ones((31, 9), dtype))[0])


def keep(p: Problem, target: Target) -> None:
    kernel_for.__globals__["_kernels"].clear()
    assert isinstance(kernel_for(p, Heuristic(), target), Kernel)


def test_what_was_kept_is_loaded_and_right():
    target = tlm.host()
    keep(problem(), target)
    call = kept.load(problem(), target, Heuristic())
    assert call is not None
    a, b, out = np.ones((6, 31), "f4"), np.ones((31, 9), "f4"), np.zeros((6, 9), "f4")
    call(a.ctypes.data, b.ctypes.data, out.ctypes.data, threads=target.threads)
    assert (out == 31).all()


CHANGES: dict[str, Callable[[], tuple[Problem, Target, Any]]] = {
    "shape": lambda: (problem(7), tlm.host(), Heuristic()),
    "dtype": lambda: (problem(dtype="f8"), tlm.host(), Heuristic()),
    "layout": lambda: (problem(strides=(1, 6)), tlm.host(), Heuristic()),
    "threads": lambda: (problem(), tlm.host().with_threads(tlm.host().threads + 1), Heuristic()),
    "instructions": lambda: (problem(), tlm.host().with_isa("sse"), Heuristic()),
    "caches": lambda: (problem(), Target("cpu", l2=tlm.host().l2 * 2), Heuristic()),
    "decider": lambda: (problem(), tlm.host(), Default()),
    "seed": lambda: (problem(), tlm.host(), Random(1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_question_is_a_miss(change: str):
    keep(problem(), tlm.host())
    assert kept.load(*CHANGES[change]()) is None


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (codegen, "versions", lambda: "llvmlite 9.9"),
        (kept, "source_digest", lambda: "another source"),
        (kept, "caching", lambda: False),
    ],
    ids=["versions", "source", "switch"],
)
def test_a_change_of_the_world_is_a_miss(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, value: Any):
    keep(problem(), tlm.host())
    monkeypatch.setattr(where, name, value)
    assert kept.load(problem(), tlm.host(), Heuristic()) is None


def test_other_weights_are_a_miss(monkeypatch: pytest.MonkeyPatch):
    target = tlm.host()
    monkeypatch.setattr(kept, "weights_digest", lambda: "one")
    made = Generate()
    kept.save(kernel_for(problem(), Heuristic(), target), made)
    assert kept.load(problem(), target, made) is not None
    monkeypatch.setattr(kept, "weights_digest", lambda: "another")
    assert kept.load(problem(), target, made) is None
    monkeypatch.setattr(kept, "weights_digest", lambda: "")
    assert kept.load(problem(), target, made) is None


@pytest.mark.parametrize("damage", [b"", b"tlm1", b"x" * 4000, None])
def test_damaged_files_are_misses(folder: Path, damage: bytes | None):
    keep(problem(), tlm.host())
    for path in folder.rglob("call-*"):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] if damage is None else damage)
    assert kept.load(problem(), tlm.host(), Heuristic()) is None


def test_other_machines_are_not_kept():
    assert kept.load(problem(), Target("neon" if tlm.host().isa != "neon" else "avx2"), Heuristic()) is None


def test_a_known_call_imports_no_compiler(folder: Path):
    code = (
        "import sys, numpy as np, tlm; a, b = np.ones((5, 37), 'f4'), np.ones((37, 8), 'f4');"
        "assert (tlm.ops.matmul(a, b, schedule='heuristic') == 37).all();"
        "heavy = ('tlm.space', 'tlm.lower', 'tlm.schedule', 'tlm.model.infer', 'tlm.backend.llvm.emitter', "
        "'jax');"
        "print([m for m in heavy if m in sys.modules])"
    )
    first, again = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in "ab"
    )
    assert "tlm.lower" in first
    assert again.strip() == "[]"


def test_results_are_the_same_before_and_after():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((45, 50)).astype("f4"), rng.standard_normal((50, 33)).astype("f4")
    first = matmul(a, b, schedule="heuristic")
    matmul._calls.clear()
    kernel_for.__globals__["_kernels"].clear()
    np.testing.assert_array_equal(matmul(a, b, schedule="heuristic"), first)
    assert not kernel_for.__globals__["_kernels"]
