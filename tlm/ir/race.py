"""The access log of loops whose iterations may run at the same time, kept by the interpreter.

Each run of a marked loop numbers its iterations with fresh stamps, base <= stamp < base + extent, so a log
needs no clearing: an entry below `base` is from an earlier run. Iterations run in order in the interpreter,
so an entry between `base` and the present stamp is a clash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from ..errors import TlmError
from .nodes import Buffer


class RaceError(TlmError):
    """Two iterations of a loop marked to run in parallel touch one element, and one of them writes it."""


class BoundsError(TlmError, IndexError):
    """A program read or wrote outside a buffer."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where an access is, for the message."""

    buffer: Buffer
    loop: str
    kind: str


def element(buffer: Buffer, flat: int) -> str:
    """The text of the element at row-major position `flat`."""
    indices = []
    for extent in reversed(buffer.shape):
        flat, index = divmod(flat, extent)
        indices.append(str(index))
    return f"{buffer.name}[{', '.join(reversed(indices))}]"


def outside(buffer: Buffer, indices: tuple[int, ...]) -> NoReturn:
    """Refuse an access outside the shape."""
    listed = ", ".join(map(str, indices))
    raise BoundsError(f"{buffer.name}[{listed}] is outside its shape {buffer.shape}")


def _clash(site: Site, at: int, first: int, second: int) -> NoReturn:
    raise RaceError(
        f"{site.kind} loop {site.loop}: iterations {first} and {second} both touch "
        f"{element(site.buffer, at)}, and one of them writes it"
    )


def wrote(writes: list[int], reads: list[int], base: int, stamp: int, at: int, site: Site) -> None:
    """Log a write of element `at` by iteration `stamp`; RaceError if another iteration touched it."""
    for log in (writes, reads):
        if base <= log[at] < stamp:
            _clash(site, at, log[at] - base, stamp - base)
    writes[at] = stamp


def read(writes: list[int], reads: list[int], base: int, stamp: int, at: int, site: Site) -> int:
    """Log a read of element `at` and return `at`; RaceError if another iteration wrote it."""
    if base <= writes[at] < stamp:
        _clash(site, at, writes[at] - base, stamp - base)
    # The first reader is kept: any later writer but it clashes.
    if reads[at] < base:
        reads[at] = stamp
    return at
