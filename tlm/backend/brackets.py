"""Brackets in C: around what is more than one piece, and gone where nothing needs them."""

from __future__ import annotations

import re


def operand(code: str) -> str:
    """`code` as one operand of any operator."""
    return code if re.fullmatch(r"\w+", code) else f"({code})"


def closing(code: str, at: int) -> int:
    """The position of the bracket that closes the one at `at`."""
    depth = 0
    for n in range(at, len(code)):
        depth += (code[n] == "(") - (code[n] == ")")
        if depth == 0:
            return n
    return len(code)


def bare(code: str) -> str:
    """`code` without brackets around all of it."""
    return code[1:-1] if code.startswith("(") and closing(code, 0) == len(code) - 1 else code
