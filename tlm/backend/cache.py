"""What is kept on disk between processes: the folder, the switch, whole files, and machine code.

A file that cannot be read or is not whole is a miss, and what cannot be written is not kept: neither is an
error.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..target import Target

# Bytes kept; the files used longest ago go first. Checked once in so many writes.
LIMIT, _CHECK_EVERY = 256 << 20, 64
_MAGIC = b"tlm1"
OBJECTS, CUBINS = "objects", "cubins"
"""The folders of machine code: of CPUs and of GPUs."""
_state = {"on": True, "writes": 0}


def use_cache(on: bool) -> None:
    """Turn everything that is kept on disk on or off for this process; it is on at the start."""
    _state["on"] = on


def enabled() -> bool:
    """Whether anything is read from the disk or kept there."""
    return bool(_state["on"])


def root() -> Path:
    """The folder of everything that tlm caches for this user."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("tlm", appauthor=False))


def directory(part: str = OBJECTS) -> Path:
    """Where machine code of a kind is kept."""
    return root() / part


def write_whole(path: Path, data: bytes) -> bool:
    """Write a file that other processes see as a whole or not at all; False where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        return False
    return True


@cache
def generator(*more: str) -> str:
    """A hash of the source of all that turns programs into code, and of `more` parts of the package."""
    digest = hashlib.sha256()
    root = Path(__file__).parent.parent
    for part in ("ir", "lower", "backend", *more):
        for path in sorted((root / part).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def key(text: str, target: Target, versions: str) -> str:
    """The name of the machine code of a text: a hash of all that it depends on. `versions`: of what compiles
    it, with what that is told."""
    parts = (generator(), versions, target.key, text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def load(key: str, part: str = OBJECTS) -> bytes | None:
    """The machine code of `key`, None where there is none that is whole."""
    path = directory(part) / key
    try:
        data = path.read_bytes()
    except OSError:
        return None
    with suppress(OSError):  # of a folder that may only be read
        os.utime(path)
    body = data[len(_MAGIC) + 32 :]
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != data[len(_MAGIC) : len(_MAGIC) + 32]:
        return None
    return body


def save(key: str, code: bytes, part: str = OBJECTS) -> None:
    """Keep machine code under `key`."""
    if not write_whole(directory(part) / key, _MAGIC + hashlib.sha256(code).digest() + code):
        return
    _state["writes"] += 1
    if _state["writes"] % _CHECK_EVERY == 1:
        trim(LIMIT)


def trim(limit: int) -> None:
    """Remove machine code that was used longest ago until at most `limit` bytes are left."""
    found = []
    for path in [p for part in (OBJECTS, CUBINS) for p in directory(part).glob("*")]:
        try:
            info = path.stat()
        except OSError:
            continue
        found.append((info.st_mtime, info.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            return
        with suppress(OSError):
            path.unlink()
        total -= size
