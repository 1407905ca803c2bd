"""The key of a workload is the same in every process, and scheduling does not change it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tlm

CODE = """
import sys
sys.path[:0] = sys.argv[1:3]
from helpers import matmul
from tlm.ir import canonical, serialize
from tlm.schedule.steps import Split, apply
for n in range(20):
    program = matmul(4 + n, 8, 3 * n + 1)
    before = canonical.key(program)
    apply(program, [Split("i", 2)])
    assert canonical.key(program) == before
    assert canonical.key(serialize.from_json(serialize.to_json(program))) == before
    print(before)
"""


def test_keys_do_not_depend_on_the_process():
    roots = [str(Path(tlm.__file__).parents[1]), str(Path(__file__).parent)]
    said = []
    for seed in ("0", "1", "random"):
        done = subprocess.run(
            [sys.executable, "-c", CODE, *roots],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        )
        said.append(done.stdout.split())
    assert said[0] == said[1] == said[2]
    assert len(set(said[0])) == 20
