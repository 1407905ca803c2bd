"""How long work reports itself: one call a step, with what is done, of how much, and a remark."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int, str], None]
"""progress(what, done, total, remark), e.g. ("measure", 12, 400, "128x768x768 on avx512, 1 thread: 251
GFLOP/s")."""


def silent(what: str, done: int, total: int, remark: str) -> None:
    """Report nothing."""
