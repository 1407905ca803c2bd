"""The worked example runs, and every step of it is right."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import tlm

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "kernels" / "matmul.py"))


@pytest.mark.parametrize("name", ["avx512", "avx2", "sse", "neon"])
def test_every_step_is_right(name: str):
    a, b = EXAMPLE["operands"](11, 6, 35)
    steps = 0
    for why, s in EXAMPLE["schedule"](11, 6, 35, tlm.Target(name)):
        np.testing.assert_array_equal(s.run(a, b)[0], a @ b, err_msg=why)
        steps += 1
    assert steps == 12


def test_it_prints_its_steps(capsys: pytest.CaptureFixture[str]):
    EXAMPLE["check"](17, 9, 33)
    shown = capsys.readouterr().out
    assert shown.count("\n-- ") == 12
    assert "every step is right" in shown
