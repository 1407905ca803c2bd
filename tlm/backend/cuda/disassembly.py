"""The instructions of a cubin, from NVIDIA's disassembler, and the loop in which a kernel spends its time."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ...errors import BackendError

_SECTION = re.compile(r"^\.text\.(\S+):")
_LABEL = re.compile(r"^(\.L_\w+):")
# What runs under @!PT never does.
_LINE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@(?!!PT\b)!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")
_JUMP = re.compile(r"`\((\.L_\w+)\)")

BARRIER = "BAR"
MULTIPLY = ("FFMA", "FFMA2", "DFMA", "HMMA", "IMMA", "HGMMA")
"""What a loop over k is for."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """`name` with its modifiers, as in LDG.E.128; `jump`: the position that it may go to."""

    name: str
    jump: int | None = None

    @property
    def base(self) -> str:
        """The name without modifiers."""
        return self.name.split(".")[0]

    @property
    def bits(self) -> int:
        """Bits that a thread moves, of loads and stores."""
        widths = [int(x) for x in self.name.split(".")[1:] if x in ("64", "128")]
        narrow = {"U8": 8, "S8": 8, "U16": 16, "S16": 16}
        return widths[0] if widths else next((narrow[x] for x in self.name.split(".") if x in narrow), 32)


@cache
def tool() -> str | None:
    """The path of nvdisasm: on the PATH, or in the package nvidia-cuda-nvdisasm. None where it is missing."""
    found = shutil.which("nvdisasm")
    spec = find_spec("nvidia")
    folders = spec.submodule_search_locations if spec is not None else None
    inside = [p for folder in folders or () for p in sorted(Path(folder).glob("*/bin/nvdisasm"))]
    return found or (str(inside[0]) if inside else None)


def disassemble(cubin: bytes) -> dict[str, tuple[Instruction, ...]]:
    """The instructions of each kernel of a cubin; BackendError without nvdisasm, or where it refuses."""
    path = tool()
    if path is None:
        raise BackendError("reading machine code needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([path, "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"nvdisasm refuses the cubin: {done.stderr.strip()[:300]}")
    return instructions(done.stdout)


def instructions(listing: str) -> dict[str, tuple[Instruction, ...]]:
    """The instructions of each kernel of a listing, in order."""
    found: dict[str, list[tuple[str, str | None]]] = {}
    labels: dict[str, int] = {}
    code: list[tuple[str, str | None]] = []
    for line in listing.splitlines():
        if section := _SECTION.match(line):
            code = found.setdefault(section.group(1), [])
        elif label := _LABEL.match(line):
            labels[label.group(1)] = len(code)
        elif shown := _LINE.match(line):
            jump = _JUMP.search(shown.group(2)) if shown.group(1).startswith("BRA") else None
            code.append((shown.group(1), jump.group(1) if jump else None))
    return {
        name: tuple([Instruction(op, labels.get(to) if to else None) for op, to in listed])
        for name, listed in found.items()
    }


@dataclass(frozen=True, slots=True)
class Body:
    """The instructions of a loop, in which there may be others: `inner` is the one of them that multiplies,
    `nested` says whether there is any."""

    code: tuple[Instruction, ...]
    nested: bool
    inner: Body | None = None

    def count(self, *bases: str) -> int:
        """Instructions with these base names."""
        return sum(i.base in bases for i in self.code)

    def widths(self, base: str) -> dict[int, int]:
        """How many instructions `base` move so many bits."""
        return dict(sorted(Counter([i.bits for i in self.code if i.base == base]).items()))

    def repeated(self, trips: int) -> Body:
        """What runs in one iteration where `inner` has `trips` of them."""
        if self.inner is None or trips == 1:
            return self
        return Body((*self.code, *self.inner.code * (trips - 1)), self.nested)


def main_loop(code: tuple[Instruction, ...]) -> Body | None:
    """The loop with the most products among those that wait for other threads, or among all where none does;
    the innermost of such. None where no loop multiplies."""
    loops = {(i.jump, n + 1) for n, i in enumerate(code) if i.jump is not None and i.jump <= n}
    made = {span: _body(code, span, loops) for span in loops if _has(code[slice(*span)], MULTIPLY)}
    waiting = [b for b in made.values() if b.count(BARRIER)]
    return max(waiting or made.values(), key=_depth, default=None)


def _body(code: tuple[Instruction, ...], span: tuple[int, int], loops: Iterable[tuple[int, int]]) -> Body:
    inside = [(a, b) for a, b in loops if span[0] <= a and b <= span[1] and (a, b) != span]
    multiply = [_body(code, x, inside) for x in inside if _has(code[slice(*x)], MULTIPLY)]
    return Body(code[slice(*span)], bool(inside), max(multiply, key=_depth, default=None))


def _depth(body: Body) -> tuple[int, int]:
    return body.count(*MULTIPLY), -len(body.code)


def _has(code: Iterable[Instruction], bases: Iterable[str]) -> bool:
    wanted = set(bases)
    return any(i.base in wanted for i in code)
