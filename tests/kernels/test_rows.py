"""The worked examples of rows and layouts run, and every step of them is right."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tlm
from tlm.backend.compiler import assembly, cross_compile

SMALL: dict[str, tuple[int, ...]] = {
    "softmax": (5, 70), "layer_norm": (5, 70), "reduction": (301,), "transpose": (37, 21),
    "attention": (19, 2, 24),
}  # fmt: skip
STEPS = {"softmax": 7, "layer_norm": 6, "reduction": 5, "transpose": 7, "attention": 9}


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[2] / "kernels" / f"{name}.py"))


def reference(found: dict[str, Any], name: str, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    plain = {"reduction": lambda x: x.sum(), "transpose": lambda x: x.T}
    return found.get("reference", plain.get(name))(*arrays)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse", "neon"])
@pytest.mark.parametrize("name", SMALL)
def test_every_step_is_right(name: str, isa: str):
    found = example(name)
    arrays = found["operands"](*SMALL[name])
    arrays = arrays if isinstance(arrays, tuple) else (arrays,)
    want, steps = reference(found, name, arrays), 0
    for why, s in found["schedule"](*SMALL[name], tlm.Target(isa)):
        tolerance = {} if name in ("reduction", "transpose") else {"rtol": 1e-5, "atol": 1e-5}
        np.testing.assert_allclose(s.run(*arrays)[0], want, **({"rtol": 0} | tolerance), err_msg=why)
        steps += 1
    assert steps == STEPS[name]


@pytest.mark.parametrize("name", SMALL)
def test_it_prints_its_steps(name: str, capsys: pytest.CaptureFixture[str]):
    example(name)["check"](*SMALL[name])
    shown = capsys.readouterr().out
    assert shown.count("\n-- ") == STEPS[name]
    assert "every step is right" in shown


def test_a_tile_is_turned_by_shuffles():
    """Whole vectors in, whole vectors out, on every level."""
    *_, (_, s) = example("transpose")["schedule"](64, 64, tlm.Target("neon"))
    target = tlm.Target("neon")
    assert "zip1" in assembly(cross_compile(s.program, target)[0], target)
