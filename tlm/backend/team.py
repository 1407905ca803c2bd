"""Who may use the team of threads that parallel loops are shared with, how large it is, and where it runs.

There is one team in a process, whoever calls: the kernels of one Python thread at a time run on it, those of
others run serially meanwhile. Its workers are started when a kernel first asks for them, and stay. A forked
child has none, and starts its own.

The workers keep off the CPU on which the master runs. Without that, a waiting thread of another library
(those of OpenBLAS spin for tens of milliseconds after each call) makes the scheduler put a worker and its
master on one CPU. It is the workers that move: a master that is moved may have to wait for its new CPU.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .llvm.workers import Runtime

SUPPORTED = sys.platform == "linux"
"""Whether there are workers on this system; where there are none, all kernels run serially."""


class _Team:
    """The right to the team, its size, and the CPU that its workers keep off."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.asked = self.members = 1
        self.cpu = -1


_team = _Team()


def acquire(threads: int) -> bool:
    """Whether the calling thread may run a kernel of `threads`; then it calls `release` after it."""
    team = _team
    if not SUPPORTED or not team.lock.acquire(blocking=False):
        return False
    try:
        cpu = _libc().sched_getcpu()
        if threads > team.asked or cpu != team.cpu:
            _prepare(team, threads, cpu)
    except BaseException:
        team.lock.release()
        raise
    return True


def release() -> None:
    """Give the right to the team back."""
    _team.lock.release()


def _prepare(team: _Team, threads: int, cpu: int) -> None:
    """Start the workers that are missing of `threads`, and keep all off the CPU of the master."""
    from .llvm.workers import runtime

    found, allowed = runtime(), os.sched_getaffinity(0)
    # As many members as there are CPUs spin between two kernels.
    found.spinners.value = len(allowed)
    if threads > team.asked:
        # A system that has no more threads to give is not asked again: fewer members do all the work.
        team.asked = threads
        team.members = found.start(team.members, min(threads, len(found.handles)))
    team.cpu = cpu
    if len(allowed) > 1:
        _move_workers(team, found, allowed - {cpu})


def _move_workers(team: _Team, runtime: Runtime, cpus: set[int]) -> None:
    """Let the workers run on `cpus` only."""
    mask = sum(1 << cpu for cpu in cpus).to_bytes(max(cpus) // 64 * 8 + 8, "little")
    for handle in runtime.handles[1 : team.members]:
        _libc().pthread_setaffinity_np(ctypes.c_ulong(handle), ctypes.c_size_t(len(mask)), mask)


@cache
def _libc() -> Any:
    # Both calls are short: they keep the lock of the interpreter.
    return ctypes.PyDLL(None)


def _after_fork() -> None:
    # The workers stayed in the parent; whatever they or a master were about there does not matter here.
    global _team
    _team = _Team()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
