"""Threads and processes around calls (kinds P, R, V): right results, few threads, no hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tlm
from tlm.errors import ArgumentError
from tlm.ops import matmul

RNG = np.random.default_rng(0)
A, B = (RNG.integers(-3, 4, (192, 192)).astype("f4") for _ in range(2))


def threads_of_this_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to count threads")
@pytest.mark.parametrize("numpy_between", [False, True])
def test_outer_threads_do_not_multiply_the_workers(numpy_between: bool):
    for threads in (2, 1):
        matmul(A, B, schedule="heuristic", threads=threads)
    want = A @ B
    before, most, wrong = threads_of_this_process(), [0], []

    def work() -> None:
        for _ in range(10):
            if not np.array_equal(matmul(A, B, schedule="heuristic", threads=2), want):
                wrong.append(1)
            if numpy_between and not np.array_equal(A @ B, want):
                wrong.append(1)
            most[0] = max(most[0], threads_of_this_process())

    outer = [threading.Thread(target=work) for _ in range(8)]
    for t in outer:
        t.start()
    for t in outer:
        t.join()
    assert not wrong
    assert most[0] <= before + len(outer) + 1


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to count threads")
def test_small_products_wake_no_worker():
    code = (
        "import os, numpy as np, tlm; a = np.ones((16, 16), 'f4');"
        "before = len(os.listdir('/proc/self/task'));"
        "[tlm.ops.matmul(a, a, schedule='heuristic') for _ in range(100)];"
        "print(len(os.listdir('/proc/self/task')) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


@pytest.mark.timed
def test_a_call_of_a_small_product_is_microseconds():
    for a, b in ((A[:2, :2].copy(), B[:2, 0].copy()), (A[:16, :16].copy(), B[:16, :16].copy())):
        matmul(a, b, schedule="heuristic")
        best = float("inf")
        for _ in range(50):
            start = time.perf_counter()
            for _ in range(100):
                matmul(a, b, schedule="heuristic")
            best = min(best, (time.perf_counter() - start) / 100)
        assert best < 20e-6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_computes_and_ends():
    code = """if True:
        import os, sys, numpy as np, tlm
        a = np.ones((192, 192), 'f4')
        assert (tlm.ops.matmul(a, a, schedule='heuristic', threads=2) == 192).all()
        child = os.fork()
        if child == 0:
            good = (tlm.ops.matmul(a, a, schedule='heuristic', threads=2) == 192).all()
            good = good and (tlm.ops.matmul(a[:100], a, schedule='heuristic', threads=2) == 192).all()
            os._exit(0 if good else 1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=60)
    assert done.returncode == 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_while_another_thread_builds():
    """It has not that thread, and must not wait for what the thread holds."""
    code = (
        "import os, signal, threading, numpy as np, tlm\n"
        "from tlm.ops import dispatch\n"
        "x, build, started, go = np.ones(9, 'f4'), dispatch._build, threading.Event(), threading.Event()\n"
        "def slow(*given):\n"
        "  started.set(); go.wait(20); return build(*given)\n"
        "dispatch._build = slow\n"
        "t = threading.Thread(target=lambda: tlm.ops.exp(x, schedule='default')); t.start(); started.wait()\n"
        "dispatch._build = build\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "  signal.alarm(20); tlm.ops.exp(x, schedule='default'); os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0; go.set(); t.join()\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


def test_one_cpu_means_one_thread():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); import numpy as np, tlm;"
        "a = np.ones((192, 192), 'f4'); k = tlm.ops.matmul.kernel(a, a, schedule='heuristic');"
        "assert (k(a, a) == 192).all(); print(k.target.threads)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"threads": 40000}, "threads= is at most 4096, got 40000"),
        ({"target": tlm.Target("cpu", threads=40000)}, "cannot start 40000 threads: at most 4096"),
        ({"target": "neon", "threads": 40000}, "threads= is at most 4096, got 40000"),
    ],
)
def test_too_many_threads(how: dict[str, Any], words: str):
    for call in (matmul, matmul.kernel, tlm.ops.add, tlm.ops.add.kernel):
        with pytest.raises(ArgumentError, match=words):
            call(A, B, schedule="heuristic", **how)
    with pytest.raises(ArgumentError, match="threads= is at most 4096, got 40000"):
        matmul.kernel(A, B, schedule="heuristic", threads=1).time(threads=40000)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the size of the process in /proc")
def test_threads_beyond_the_limits_of_the_system():
    """An error where they are asked for; a kernel that is given them regardless runs in one."""
    code = (
        "import resource, sys; from pathlib import Path; import numpy as np, tlm\n"
        "a = np.ones((64, 64), 'f4'); out = np.empty_like(a)\n"
        "s = tlm.Schedule(tlm.ops.matmul.program(a, a)); s.parallel('i')\n"
        "kernel = tlm.ops.matmul.kernel(a, a, schedule=s, threads=2)\n"
        "assert kernel.compiled.module.parallel and (kernel(a, a) == 64).all()\n"
        "lines = Path('/proc/self/status').read_text().splitlines()\n"
        "size = next(int(x.split()[1]) for x in lines if x.startswith('VmSize:')) << 10\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + (256 << 20),) * 2)\n"
        "try:\n"
        "    tlm.ops.matmul(a, a, schedule=s, threads=4096)\n"
        "except tlm.errors.ArgumentError as error:\n"
        "    assert 'this process cannot start 4096 threads' in str(error), error\n"
        "    kernel.call(a.ctypes.data, a.ctypes.data, out.ctypes.data, threads=4096)\n"
        "    assert (out == 64).all() and (kernel(a, a) == 64).all()\n"
        "    print('alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
