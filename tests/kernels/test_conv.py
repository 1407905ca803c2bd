"""The worked examples of convolutions run, and every step of them is right."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tlm

SMALL: dict[str, tuple[int, ...]] = {"conv2d": (4, 15, 3, 35), "depthwise": (4, 9, 35)}
STEPS = {"conv2d": 10, "depthwise": 10}


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[2] / "kernels" / f"{name}.py"))


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse", "neon"])
@pytest.mark.parametrize("name", SMALL)
def test_every_step_is_right(name: str, isa: str):
    found = example(name)
    x, k = found["operands"](*SMALL[name])
    want, steps = found["reference"](x, k), 0
    for why, s in found["schedule"](*SMALL[name], tlm.Target(isa)):
        np.testing.assert_array_equal(found["run"](s, x, k), want, err_msg=why)
        steps += 1
    assert steps == STEPS[name]


@pytest.mark.parametrize("name", SMALL)
def test_it_prints_its_steps(name: str, capsys: pytest.CaptureFixture[str]):
    example(name)["check"](*SMALL[name])
    shown = capsys.readouterr().out
    assert shown.count("\n-- ") == STEPS[name]
    assert "every step is right" in shown
