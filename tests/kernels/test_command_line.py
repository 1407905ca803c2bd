"""The worked examples say what they take where they are called with something else."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "kernels"
EXTENTS = {
    "matmul": "M K N", "conv2d": "H W C O", "depthwise": "H W C", "attention": "TIME HEADS WIDTH",
    "layer_norm": "ROWS N", "reduction": "N", "softmax": "ROWS N", "transpose": "M N",
}  # fmt: skip


def test_every_example_is_here():
    assert {p.stem for p in FOLDER.glob("*.py")} == set(EXTENTS)


@pytest.mark.parametrize("name", EXTENTS)
def test_wrong_extents(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    path, count = str(FOLDER / f"{name}.py"), len(EXTENTS[name].split())
    for words in (
        ["0"] * count,
        ["a"] * count,
        ["-3"] * count,
        ["1.5"] * count,
        ["8"] * (count + 1),
        ["1"] * 9,
    ):
        monkeypatch.setattr(sys, "argv", [path, *words])
        with pytest.raises(SystemExit) as stopped:
            runpy.run_path(path, run_name="__main__")
        assert stopped.value.code == 2
        told = f"takes {EXTENTS[name]}, each an integer of at least 1, or nothing; got {' '.join(words)}"
        assert capsys.readouterr().err == f"{path}: {told}\n"


def test_an_example_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, str(FOLDER / "matmul.py"), "17", "9", "33"],
        capture_output=True, text=True, cwd=FOLDER.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "so is the kernel of the last (17 x 9 x 33)" in done.stdout
