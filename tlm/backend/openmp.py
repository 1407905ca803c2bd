"""The OpenMP runtime of this process, and which Python thread may use it.

A runtime keeps one team of worker threads for each thread that starts a parallel region. To keep the number
of threads in check, one Python thread at a time owns the right to start regions: the first that asks, until
it ends. All others run their kernels serially. A forked child has no workers and must not wait for them: it
runs serially too.

A team as large as the machine is placed: for the length of a region its master stays on one CPU, and the
workers keep off it. Without that, a waiting thread of another library (those of OpenBLAS spin for tens of
milliseconds after each call) makes the scheduler stack master and worker on one CPU, and the region takes
twice as long. Workers that share their CPU with such a thread take short turns, so that a region waits less
for their first one.
"""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from functools import cache

from .turns import short_turns

SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
"""What kernels call of a runtime."""

_LIBRARIES = ("libgomp.so.1", "libgomp.so", "libomp.so.5", "libomp.so")

# Rounds that an idle worker of libgomp spins before it sleeps: some tens of milliseconds, as OpenBLAS and MKL
# do. Its own default is shorter than the gap between two calls, and waking up costs more than a small kernel.
_SPIN = ("GOMP_SPINCOUNT", "1000000")
_WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")

MOST_THREADS = 4096
"""Threads of the largest team."""

_CAN_PLACE = hasattr(os, "sched_setaffinity")


@cache
def openmp() -> ctypes.CDLL | None:
    """The runtime, None where there is none; then kernels run in one thread."""
    ours = not any(name in os.environ for name in _WAITING)
    if ours:
        os.environ[_SPIN[0]] = _SPIN[1]
    try:
        for name in _LIBRARIES:
            try:
                library = ctypes.CDLL(name)
            except OSError:
                continue
            if hasattr(library, "GOMP_parallel"):
                return library
        return None
    finally:
        # The runtime reads it once, when it is loaded; children of this process are not our business.
        if ours:
            del os.environ[_SPIN[0]]


def startable(threads: int) -> bool:
    """Whether this process can have so many threads at once, which is found out by starting them, once.

    A runtime that the system refuses a thread (for lack of memory, or by a limit) ends the process.
    """
    with _proving:
        if _team.proven < threads < _team.refused:
            if _start(threads - 1):
                _team.proven = threads
            else:
                _team.refused = threads
        return threads <= _team.proven


def _start(count: int) -> bool:
    """Whether `count` threads could be started beside the calling one; they have ended by then."""
    go = threading.Event()
    made: list[threading.Thread] = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=go.wait, daemon=True)
            thread.start()
            made.append(thread)
        return True
    except (RuntimeError, MemoryError):
        return False
    finally:
        go.set()
        for thread in made:
            thread.join()


class _Team:
    """Who may start parallel regions, where its threads are, and whether this process was forked since."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: threading.Thread | None = None
        self.forked = False
        self.proven, self.refused = 1, MOST_THREADS + 1
        self.cpu, self.placed = -1, 0
        self.allowed: set[int] | None = None


_team = _Team()
_proving = threading.Lock()


def acquire(threads: int) -> bool:
    """Whether the calling thread may start a region of `threads`; then it calls `release` after it.

    Not where the system has no such number of threads: to try would end the process.
    """
    team = _team
    if team.forked or not team.lock.acquire(blocking=False):
        return False
    if threads > team.proven and not startable(threads):
        team.lock.release()
        return False
    me = threading.current_thread()
    if team.owner is not me:
        if (team.owner is not None and team.owner.is_alive()) or openmp() is None:
            team.lock.release()
            return False
        team.owner, team.placed = me, 0
    if _CAN_PLACE:
        with suppress(OSError):  # some containers forbid it: the system places the threads then
            _place(team, threads)
    return True


def release() -> None:
    """Give the right to start regions back."""
    allowed, _team.allowed = _team.allowed, None
    if allowed is not None:
        with suppress(OSError):  # the CPUs of this process are others by now
            os.sched_setaffinity(0, allowed)
    _team.lock.release()


def _place(team: _Team, threads: int) -> None:
    """Keep the master on its CPU until `release`, with the workers elsewhere, if they fill the machine."""
    allowed = os.sched_getaffinity(0)
    if threads < len(allowed) or len(allowed) < 2:
        # The runtime ends the workers that a smaller team does not need.
        team.placed = min(team.placed, threads)
        return
    if team.placed < threads or team.cpu not in allowed:
        team.cpu, team.placed = _move_workers(threads, allowed), threads
    os.sched_setaffinity(0, {team.cpu})
    team.allowed = allowed


def _move_workers(threads: int, allowed: set[int]) -> int:
    """Bind the workers of the calling thread's team to all CPUs but one; returns that one."""
    library = openmp()
    assert library is not None
    spare = min(allowed)

    def move(_: object) -> None:
        if library.omp_get_thread_num() > 0:
            os.sched_setaffinity(0, allowed - {spare})
            short_turns()

    library.GOMP_parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(move), None, threads, 0)
    return spare


def _after_fork() -> None:
    global _proving
    _proving = threading.Lock()
    # The workers stayed in the parent. A child that was forked before any region starts its own as usual.
    _team.forked = _team.forked or _team.owner is not None
    _team.lock = threading.Lock()
    _team.allowed = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
