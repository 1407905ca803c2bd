"""The files of a model: KIND.safetensors is the language model; card and value model are beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path


def value_path(path: Path) -> Path:
    """Where the value model of the language model at `path` is."""
    return path.with_suffix(".value.safetensors")


def digest(path: Path) -> str:
    """A hash of the language model at `path` and of its value model; empty where there is none."""
    if not path.exists():
        return ""
    parts = [
        hashlib.sha256(file.read_bytes()).digest() for file in (path, value_path(path)) if file.is_file()
    ]
    return hashlib.sha256(b"".join(parts)).hexdigest()
