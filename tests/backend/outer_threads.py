"""Run by test_threads: eight threads call parallel kernels; prints the most threads seen, outer threads,
team size."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from tests.backend.programs import outputs, target, tiled_matmul, whole_numbers
from tlm.backend import compile

OUTER, TEAM = 8, 4


def main() -> None:
    program = tiled_matmul(64, 64, 64, 8, 32, 16, threads=True)
    kernel = compile(program, target("avx2"), cache=False)
    arrays = whole_numbers(program)
    want = arrays[0] @ arrays[1]
    most, wrong = [0], []

    def repeat() -> None:
        out = outputs(program)
        for _ in range(20):
            kernel(*arrays, *out, threads=TEAM)
            most[0] = max(most[0], len(os.listdir("/proc/self/task")))
            if not (out[0] == want).all():
                wrong.append(1)

    threads = [threading.Thread(target=repeat) for _ in range(OUTER)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    print(most[0], OUTER, TEAM)


if __name__ == "__main__":
    main()
