"""Short turns for threads that share a CPU.

Since Linux 6.12 a thread can ask for the length of its turns (its slice): its share of the CPU stays the
same, but it gets the first of them sooner. See "EEVDF scheduler" in the documentation of Linux, and
sched_setattr(2).
"""

from __future__ import annotations

import ctypes
import platform

NANOSECONDS = 200_000
"""Of a turn: several go into a kernel of a millisecond, and each is long beside a switch of threads."""

_NUMBERS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Of the system calls that set and get: libraries of C do not wrap them."""

_OTHER = 0  # the policy of all ordinary threads


class _Attributes(ctypes.Structure):
    """struct sched_attr."""

    _fields_ = (
        ("size", ctypes.c_uint32), ("policy", ctypes.c_uint32), ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32), ("priority", ctypes.c_uint32), ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64), ("period", ctypes.c_uint64),
        ("least", ctypes.c_uint32), ("most", ctypes.c_uint32),
    )  # fmt: skip


def short_turns() -> bool:
    """Ask for short turns for the calling thread; False where it is no ordinary thread or the system cannot.

    Systems before Linux 6.12 say yes and change nothing.
    """
    numbers = _NUMBERS.get(platform.machine())
    if platform.system() != "Linux" or numbers is None:
        return False
    setting, getting = numbers
    call = ctypes.CDLL(None).syscall
    now = _Attributes()
    at, size = ctypes.byref(now), ctypes.sizeof(now)
    if call(getting, 0, at, size, 0) != 0 or now.policy != _OTHER:
        return False
    now.size, now.runtime = size, NANOSECONDS
    return bool(call(setting, 0, at, 0) == 0)
