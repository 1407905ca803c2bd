"""Sentences kept on disk, so that a known product asks no model; what is kept in all, and how to stop it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..backend import cache as disk
from ..errors import ArgumentError

FORMAT = 1
_LIMIT = 1 << 20


def cache(enabled: bool | None = None) -> bool:
    """Turn caching on disk on or off for this process (`tlm.cache(False)`); returns whether it is on now.

    Covers sentences and machine code of CPUs and GPUs. While it is off, nothing is read from the cache and
    nothing is written. Kernels that this process has already compiled stay in use.
    """
    if enabled is not None:
        if not isinstance(enabled, bool):
            raise ArgumentError(f"tlm.cache takes True, False or None, got {enabled!r}")
        disk.use_cache(enabled)
    return disk.enabled()


Value = int | str
Chances = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Remembered:
    """A decided sentence: the picked values, and a model's probabilities of the options of each choice."""

    values: tuple[Value, ...]
    probabilities: Chances = ()


def sentence_key(*parts: str) -> str:
    """The file name of a sentence: a digest of everything that it depends on."""
    return hashlib.sha256("\0".join((str(FORMAT), *parts)).encode()).hexdigest()[:40]


def _file(key: str) -> Path:
    return disk.root() / "sentences" / f"{key}.json"


def recall(key: str) -> Remembered | None:
    """The sentence kept under `key`; None where there is none, it is damaged, or caching is off."""
    if not disk.enabled():
        return None
    try:
        path = _file(key)
        if path.stat().st_size > _LIMIT:
            return None
        data = json.loads(path.read_text())
        values, chances = data["values"], data["probabilities"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    good = isinstance(values, list) and isinstance(chances, list)
    if not good or not all(type(v) in (int, str) for v in values) or not all(map(_is_row, chances)):
        return None
    return Remembered(tuple(values), tuple([tuple(row) for row in chances]))


def _is_row(chances: object) -> bool:
    return isinstance(chances, list) and all(type(p) is float for p in chances)


def remember(key: str, values: Sequence[Value], probabilities: Chances = ()) -> None:
    """Keep a sentence. A folder that cannot be written is no error: the next process decides again."""
    if not disk.enabled():
        return
    text = json.dumps({"values": list(values), "probabilities": probabilities})
    disk.write_whole(_file(key), text.encode())


def usage() -> dict[str, str | int]:
    """Where the cache is, and how many files and bytes of it are sentences and everything else."""
    root = disk.root()
    files = [p for p in root.rglob("*") if p.is_file()]
    found: dict[str, str | int] = {"folder": str(root), "files": len(files), "bytes": sum(map(_size, files))}
    for part in sorted({p.relative_to(root).parts[0] for p in files if p.parent != root}):
        mine = [p for p in files if p.relative_to(root).parts[0] == part]
        found[part] = f"{len(mine)} files, {sum(map(_size, mine))} bytes"
    return found


def clear() -> int:
    """Remove everything that is cached; returns the number of files."""
    removed = 0
    for path in [p for p in disk.root().rglob("*") if p.is_file()]:
        path.unlink(missing_ok=True)
        removed += 1
    return removed


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
