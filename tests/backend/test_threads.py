"""Threads: any number gives the same result, pools do not multiply, forks and compilations do not hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.backend.programs import outputs, plain_matmul, run, target, tiled_matmul, whole_numbers
from tlm.backend import compile, openmp
from tlm.schedule import Schedule


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads(threads: int) -> None:
    program = tiled_matmul(45, 70, 9, 8, 32, 16, threads=True)
    kernel = compile(program, target("avx2"), cache=False)
    assert kernel.module.parallel
    arrays = whole_numbers(program)
    (got,) = run(kernel, arrays, threads)
    np.testing.assert_array_equal(got, arrays[0] @ arrays[1])


@pytest.mark.parametrize("rows", [1, 2, 5, 31, 32, 33, 100, 513])
def test_every_piece_of_every_share_runs_once(rows: int) -> None:
    s = Schedule(plain_matmul(rows, 3, 5))
    s.parallel("i")
    kernel = compile(s.program, target("avx2"), cache=False)
    arrays = whole_numbers(s.program)
    for threads in (1, 2, 3, 7, 300):
        (got,) = run(kernel, arrays, threads)
        np.testing.assert_array_equal(got, arrays[0] @ arrays[1])


def test_private_scratch_of_each_thread() -> None:
    """A packed panel inside the parallel loop: each thread has its own."""
    s = Schedule(plain_matmul(32, 24, 16))
    s.split("i", 4)
    s.parallel("i.0")
    s.cache_read("B", "i.0", memory="heap", layout=("k", "j"), name="P")
    kernel = compile(s.program, target("avx2"), cache=False)
    assert kernel.workspace_bytes(4) == 4 * kernel.workspace_bytes(1) > 0
    arrays = whole_numbers(s.program)
    for threads in (1, 2, 4):
        (got,) = run(kernel, arrays, threads)
        np.testing.assert_array_equal(got, arrays[0] @ arrays[1])


def test_nested_parallel_loops_and_serial_loops_around_them() -> None:
    s = Schedule(plain_matmul(6, 10, 7))
    s.parallel("i")
    s.parallel("j")
    t = Schedule(plain_matmul(6, 10, 7))
    t.parallel("j")
    for program in (s.program, t.program):
        kernel = compile(program, target("avx2"), cache=False)
        arrays = whole_numbers(program)
        (got,) = run(kernel, arrays, 3)
        np.testing.assert_array_equal(got, arrays[0] @ arrays[1])


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads through /proc")
def test_outer_threads_do_not_multiply_the_team() -> None:
    """Eight Python threads, one team: at most cores + outer threads, and every result is right."""
    code = Path(__file__).with_name("outer_threads.py")
    done = subprocess.run(
        [sys.executable, str(code)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    most, outer, team = map(int, done.stdout.split())
    assert most <= 1 + outer + team - 1


def test_the_right_to_a_team_passes_on_when_its_owner_ends() -> None:
    code = (
        "import threading; from tlm.backend import openmp\n"
        "got = []\n"
        "def take():\n"
        "  got.append(openmp.acquire(2)); openmp.release()\n"
        "t = threading.Thread(target=take); t.start(); t.join()\n"
        "assert openmp.acquire(2); assert not openmp.acquire(2); openmp.release()\n"
        "got2 = []\n"
        "t = threading.Thread(target=lambda: got2.append(openmp.acquire(2))); t.start(); t.join()\n"
        "assert got == [True] and got2 == [False]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork_after_a_parallel_run() -> None:
    """The child has no worker threads, and must not wait for them."""
    code = Path(__file__).with_name("forked.py")
    done = subprocess.run(
        [sys.executable, str(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "child 0"


def test_compiling_from_eight_threads() -> None:
    errors: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for round in range(4):
                program = tiled_matmul(5 + n, 17 + round, 4, 4, 16, 16)
                arrays = whole_numbers(program, n)
                (got,) = run(compile(program, target("avx2"), cache=n % 2 == 0), arrays)
                np.testing.assert_array_equal(got, arrays[0] @ arrays[1])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_without_an_openmp_runtime_kernels_run_serially(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmp, "_team", openmp._Team())
    monkeypatch.setattr(openmp, "openmp", lambda: None)
    program = tiled_matmul(45, 70, 9, 8, 32, 16, threads=True)
    kernel = compile(program, target("avx2"), cache=False)
    arrays = whole_numbers(program)
    out = outputs(program)
    kernel(*arrays, *out, threads=4)
    np.testing.assert_array_equal(out[0], arrays[0] @ arrays[1])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: no team is placed")
def test_a_team_that_fills_the_machine_keeps_off_its_master() -> None:
    """Affinity and environment of the caller stay; each worker keeps to the CPUs besides the master's."""
    code = (
        "import os; from tlm.backend import openmp\n"
        "before, env = os.sched_getaffinity(0), dict(os.environ)\n"
        "count = len(before)\n"
        "assert openmp.acquire(count); inside = os.sched_getaffinity(0); openmp.release()\n"
        "assert len(inside) == 1 and os.sched_getaffinity(0) == before and dict(os.environ) == env\n"
        "others = [int(t) for t in os.listdir('/proc/self/task') if int(t) != os.getpid()]\n"
        "bound = [os.sched_getaffinity(t) for t in others]\n"
        "assert sum(b == before - inside for b in bound) == count - 1, bound\n"
        "os.sched_setaffinity(0, inside)\n"
        "assert openmp.acquire(count); assert os.sched_getaffinity(0) == inside; openmp.release()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 3, reason="fewer than 3 CPUs: no team is smaller")
def test_a_team_is_placed_again_after_a_smaller_one() -> None:
    code = (
        "import os; from tlm.backend import openmp\n"
        "count = len(os.sched_getaffinity(0))\n"
        "for threads in (count, count - 1, count):\n"
        "    assert openmp.acquire(threads); inside = os.sched_getaffinity(0)\n"
        "    openmp.openmp().GOMP_parallel(nothing, None, threads, 0); openmp.release()\n"
        "others = [int(t) for t in os.listdir('/proc/self/task') if int(t) != os.getpid()]\n"
        "assert sum(not os.sched_getaffinity(t) & inside for t in others) == count - 1\n"
    )
    start = "import ctypes; nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)\n"
    subprocess.run([sys.executable, "-c", start + code], check=True, timeout=60)


def test_short_turns_change_nothing_else() -> None:
    """Policy and niceness of the thread stay, and its turns are short where the system tells (Linux 6.12)."""
    code = (
        "import os; from tlm.backend import turns; os.nice(3)\n"
        "assert turns.short_turns() or turns.platform.system() != 'Linux'\n"
        "assert os.sched_getscheduler(0) == os.SCHED_OTHER and os.nice(0) == 3\n"
        "now = turns._Attributes(); get = turns._NUMBERS[turns.platform.machine()][1]\n"
        "turns.ctypes.CDLL(None).syscall(get, 0, turns.ctypes.byref(now), turns.ctypes.sizeof(now), 0)\n"
        "new = tuple(map(int, os.uname().release.split('-')[0].split('.')[:2])) >= (6, 12)\n"
        "assert now.runtime == turns.NANOSECONDS or not new, now.runtime\n"
        "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); assert not turns.short_turns()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_team_is_larger_than_what_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads that could be started end; smaller teams stay as they are."""
    monkeypatch.setattr(openmp, "_team", openmp._Team())
    start, before = threading.Thread.start, threading.active_count()

    def limited(thread: threading.Thread) -> None:
        if threading.active_count() >= before + 5:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    assert [openmp.startable(n) for n in (6, 7, 6, openmp.MOST_THREADS, 1)] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert threading.active_count() == before
    assert not openmp.startable(openmp.MOST_THREADS + 1)
    assert not openmp.acquire(7)
    assert openmp.acquire(2)
    openmp.release()
