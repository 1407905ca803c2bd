"""One LLVM function as text: names, basic blocks, and reuse of what has been computed already.

Every pure instruction is remembered by its text, so that the emitter may ask for the same address or
broadcast again and again. What depends on a loop variable alone goes to the head of that loop's block,
wherever it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Lines = list[Any]  # strings, and nested lists that fill up later


class Scope:
    """A loop body (or the whole function): `head` is the text at its start, open for insertion."""

    __slots__ = ("depth", "head")

    def __init__(self, head: Lines, depth: int) -> None:
        self.head = head
        self.depth = depth


class Function:
    """Text of a function under construction. `memos` has a head and a body for each open scope in turn."""

    __slots__ = (
        "_count",
        "attributes",
        "block",
        "entry",
        "lines",
        "loads",
        "memos",
        "root",
        "scopes",
        "signature",
    )

    def __init__(self, signature: str) -> None:
        self.signature = signature
        self._count = 0
        self.root: Lines = []
        self.entry: Lines = []
        head: Lines = []
        self.root += ["entry:", self.entry, head]
        self.lines = self.root
        self.block = "entry"
        self.scopes = [Scope(head, 0)]
        self.memos: list[dict[str, str]] = [{}, {}]
        self.loads: dict[str, dict[str, str]] = {}

    def name(self, prefix: str = "v") -> str:
        """A new name of a value."""
        self._count += 1
        return f"%{prefix}{self._count}"

    def label(self, prefix: str) -> str:
        """A new label of a basic block."""
        self._count += 1
        return f"{prefix}{self._count}"

    def pure(self, text: str) -> str:
        """The value of a pure instruction, computed once where an earlier one dominates."""
        for memo in self.memos:
            found = memo.get(text)
            if found is not None:
                return found
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        self.memos[-1][text] = name
        return name

    def value(self, text: str) -> str:
        """The value of an instruction that must run here."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def line(self, text: str) -> None:
        """An instruction without a value."""
        self.lines.append("  " + text)

    def start(self, label: str) -> None:
        """Begin the basic block `label`."""
        self.lines.append(f"{label}:")
        self.block = label

    @contextmanager
    def at(self, depth: int) -> Iterator[None]:
        """Emit at the head of the open scope number `depth`."""
        lines, memos = self.lines, self.memos
        self.lines, self.memos = self.scopes[depth].head, memos[: 2 * depth + 1]
        yield
        self.lines, self.memos = lines, memos

    def open(self, head: Lines) -> Scope:
        """Enter a loop body whose text so far ends with `head`."""
        scope = Scope(head, len(self.scopes))
        # A branch inside the body may have pushed memos of its own: heads must stay at even places.
        self.memos = [*self.memos, {}, {}]
        self.scopes.append(scope)
        return scope

    def close(self) -> None:
        """Leave the innermost loop body."""
        self.scopes.pop()
        self.memos = self.memos[:-2]

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Text that only runs on one side of a branch: nothing computed in it is reused after it."""
        memos, loads = self.memos, self.loads
        self.memos = [*memos[:-1], dict(memos[-1])]
        self.loads = {}
        yield
        self.memos, self.loads = memos, loads

    def text(self) -> str:
        """The definition of the function."""
        out = [self.signature + " {"]
        _flatten(self.root, out)
        out.append("}")
        return "\n".join(out)


def _flatten(lines: Lines, out: list[str]) -> None:
    for line in lines:
        if isinstance(line, str):
            out.append(line)
        else:
            _flatten(line, out)
