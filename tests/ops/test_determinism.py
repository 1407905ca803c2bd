"""The same call gives the same sentence and the same bytes of object code, in any process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import hashlib, json, numpy as np, tlm
tlm.cache(False)
a, b = np.empty((127, 300), "f4"), np.empty((300, 200), "f4")
found = {}
for schedule in ("generate", tlm.Generate(samples=3, temperature=1.0, seed=5), "heuristic", "random"):
    for target in ("avx2", "sse"):
        k = tlm.ops.matmul.kernel(a, b, schedule=schedule, target=target)
        found[f"{schedule} {target}"] = [k.sentence, hashlib.sha256(k.object).hexdigest(), str(k.program)]
print(json.dumps(found))
"""


def run(seed: str) -> dict[str, list[str]]:
    root = str(Path(__file__).parents[2])
    env = dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=root)
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_two_processes_write_the_same_sentences_and_the_same_code():
    first, second = run("0"), run("1")
    assert len(first) == 8
    assert first == second


@pytest.mark.parametrize("schedule", ["generate", "heuristic", "default", *range(4)])
def test_long_sums_keep_their_digits(schedule):
    """A running f32 total over a million values would lose three digits."""
    import numpy as np

    import tlm

    schedule = tlm.Random(schedule) if isinstance(schedule, int) else schedule
    for value, want, within in ((0.1, 100_000, 1.0), (1 / 255, 3921.57, 0.04)):
        row, column = np.full((1, 10**6), value, np.float32), np.ones((10**6, 1), np.float32)
        assert abs(float(tlm.ops.matmul(row, column, schedule=schedule)[0, 0]) - want) < within
        wide = tlm.ops.matmul(row, np.ones((10**6, 3), np.float32), schedule=schedule)
        np.testing.assert_allclose(wide, np.full((1, 3), want), atol=within)
