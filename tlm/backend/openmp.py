"""The OpenMP runtime of this process, and which Python thread may use it.

A runtime keeps one team of worker threads for each thread that starts a parallel region. To keep the number
of threads in check, one Python thread at a time owns the right to start regions: the first that asks, until
it ends. All others run their kernels serially. A forked child has no workers and must not wait for them: it
runs serially too.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache

SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
"""What kernels call of a runtime."""

_LIBRARIES = ("libgomp.so.1", "libgomp.so", "libomp.so.5", "libomp.so")


@cache
def openmp() -> ctypes.CDLL | None:
    """The runtime, None where there is none; then kernels run in one thread."""
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        if hasattr(library, "GOMP_parallel"):
            return library
    return None


class _Team:
    """Who may start parallel regions, and whether this process ever has."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: threading.Thread | None = None
        self.forked = False


_team = _Team()


def acquire() -> bool:
    """Whether the calling thread may start a parallel region; then it calls `release` after it."""
    team = _team
    if team.forked or not team.lock.acquire(blocking=False):
        return False
    me = threading.current_thread()
    if team.owner is not me:
        if team.owner is not None and team.owner.is_alive():
            team.lock.release()
            return False
        if openmp() is None:
            team.lock.release()
            return False
        team.owner = me
    return True


def release() -> None:
    """Give the right to start regions back."""
    _team.lock.release()


def _after_fork() -> None:
    # The workers stayed in the parent. A child that was forked before any region starts its own as usual.
    _team.forked = _team.forked or _team.owner is not None
    _team.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
