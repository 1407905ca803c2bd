"""While a formula runs, it is being written down: == and the truth of its expressions mean nothing there.

Nodes compare as structures, which programs need as keys, and all of them are true. In a formula `i == j`
would then be False for every element, and `if i < j` always be taken, so that both are refused there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import ArgumentError


class _Running(threading.local):
    formula = False


running = _Running()
"""`running.formula`: whether this thread is inside of a formula."""


@contextmanager
def writing(formula: bool = True) -> Iterator[None]:
    """A formula runs inside; where `formula` is false, code on nodes that a stage inside of one needs."""
    before, running.formula = running.formula, formula
    try:
        yield
    finally:
        running.formula = before


def equality(a: Any, b: Any) -> ArgumentError:
    """The error of `a == b` and `a != b` in a formula."""
    return ArgumentError(
        f"== and != compare the expressions of a formula themselves, not their values: {_shown(a)} and "
        f"{_shown(b)}; for each element there are tlm.equal(a, b) and tlm.not_equal(a, b), and tlm.where "
        "to pick by them"
    )


def truth(expr: Any) -> ArgumentError:
    """The error of `if expr`, `expr and ...`, `not expr`, `a < expr < b` and of Python's max and min."""
    return ArgumentError(
        f"{_shown(expr)} has a value at each element, and no truth while the formula is written: instead of "
        "if, and, or, not use tlm.where(condition, a, b), &, |, ~; instead of a < x < b write "
        "(a < x) & (x < b); instead of max and min use tlm.maximum and tlm.minimum"
    )


def _shown(value: Any) -> str:
    from .exprs import Node
    from .printer import text

    shown = text(value) if isinstance(value, Node) else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
