"""Records as JSON lines, for exchange: processes may append together, and reading survives torn lines."""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..errors import RecordError, TlmWarning
from .record import Record, check_program, from_json, to_json

LONGEST_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """What reading gave: the good records, and how many were skipped for each reason."""

    records: list[Record]
    skipped: Counter[str]

    def warn(self, source: str) -> None:
        """One TlmWarning with the counts, where anything was skipped."""
        if self.skipped:
            reasons = "; ".join(f"{n} x {reason}" for reason, n in self.skipped.most_common(8))
            total = self.skipped.total()
            warnings.warn(
                f"{source}: {len(self.records)} records read, {total} skipped ({reasons})",
                TlmWarning,
                stacklevel=3,
            )


def append(path: str | Path, records: Iterable[Record]) -> None:
    """Add one line for each record. Lines of processes that append to one file stay whole."""
    append_lines(path, [json.dumps(to_json(r), separators=(",", ":")) for r in records])


def append_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Add lines to a file that several processes may append to; a half line of a killed one stays apart."""
    data = b"".join(line.encode() + b"\n" for line in lines)
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        end = os.lseek(fd, 0, os.SEEK_END)
        # A writer that was killed leaves half a line; the next record must not become a part of it.
        if end and os.pread(fd, 1, end - 1) != b"\n":
            data = b"\n" + data
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def read(path: str | Path, warn: bool = True) -> Loaded:
    """Every good record of a file, in order; one warning counts those skipped. The file is not changed."""
    records: list[Record] = []
    skipped: Counter[str] = Counter()
    checked: dict[str, Record] = {}
    with open(path, "rb", buffering=LONGEST_LINE) as file:
        for line in _lines(file):
            try:
                record = _parse(line)
                known = checked.get(record.workload)
                if known is None or (known.program, known.target) != (record.program, record.target):
                    check_program(record)
                    checked[record.workload] = record
                records.append(record)
            except RecordError as e:
                skipped[str(e)] += 1
    loaded = Loaded(records, skipped)
    if warn:
        loaded.warn(str(path))
    return loaded


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines of a file; of one that is too long only the first part, so that memory stays bounded."""
    while line := file.readline(LONGEST_LINE + 1):
        whole = line
        while len(line) > LONGEST_LINE and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE + 1)
        if whole.strip():
            yield whole


def _parse(line: bytes) -> Record:
    if len(line) > LONGEST_LINE:
        raise RecordError(f"line longer than {LONGEST_LINE} bytes")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise RecordError("not JSON (cut off or corrupt)") from e
    return from_json(data)
