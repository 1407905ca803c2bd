"""Run by test_threads: a parallel kernel, then the same in a forked child."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.backend.programs import run, target, tiled_matmul, whole_numbers
from tlm.backend import compile


def main() -> None:
    program = tiled_matmul(64, 64, 16, 8, 32, 16, threads=True)
    kernel = compile(program, target("avx2"), cache=False)
    arrays = whole_numbers(program)
    want = arrays[0] @ arrays[1]
    assert (run(kernel, arrays, 4)[0] == want).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        again = compile(program, target("avx2"), cache=False)
        good = all((run(k, arrays, 4)[0] == want).all() for k in (kernel, again))
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert (run(kernel, arrays, 4)[0] == want).all()
    print("child", os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
