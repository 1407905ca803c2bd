"""Names of loops and buffers: what they look like, which a program has, and new ones beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .nodes import Program
from .walk import buffers, loops

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.*@]{0,199}", re.ASCII)
"""What names look like; backends turn the marks among these into underscores."""

SYMBOL_LETTERS = 60
"""Of a program's name, the most that its code is called by."""


def loop_names(program: Program) -> list[str]:
    """The names of all loops, outer first."""
    return [loop.var for loop in loops(program.body)]


def buffer_names(program: Program) -> list[str]:
    """The names of all buffers: parameters, then temporaries."""
    return list(buffers(program))


def apart(name: str, taken: Iterable[str]) -> str:
    """`fresh`, and no name that a schedule could give to what it makes of another buffer, nor the stem of one
    that is taken: of sum and sum_acc, which a tile of sum would be called, the second becomes sum_acc_."""
    used = list(taken)
    stems = {other[:n] for other in used for n, letter in enumerate(other) if letter == "_"}
    found = fresh(name, {*used, *stems})
    return f"{found}_" if any(found.startswith(f"{other}_") for other in used) else found


def fresh(name: str, taken: Iterable[str]) -> str:
    """`name`, or `name` with the first number after it, from 2 on, that makes it new."""
    used = set(taken)
    candidate, count = name, 2
    while candidate in used:
        candidate, count = f"{name}{count}", count + 1
    return candidate
