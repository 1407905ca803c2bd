"""Progress on standard error: a status line on a terminal, plain lines (not too many) in a pipe."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_SECONDS = 5.0


class Lines:
    """Prints a line when the last one is `EVERY_SECONDS` old, or when it is the last of all."""

    def __init__(self) -> None:
        self._last = -float("inf")

    def __call__(self, line: str, last: bool = False) -> None:
        now = time.monotonic()
        if last or now - self._last >= EVERY_SECONDS:
            self._last = now
            print(line, file=sys.stderr, flush=True)


class Log(logging.Handler):
    """What the package logs, as lines: a command that comes to search says how far it is."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines = Lines()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines(record.getMessage(), record.levelno > logging.INFO)


class Status:
    """One line that is rewritten."""

    def __init__(self) -> None:
        from rich.console import Console

        self._status = Console(stderr=True).status("starting")
        self._status.start()

    def __call__(self, line: str, last: bool = False) -> None:
        self._status.update(line.replace("[", "\\["))

    def stop(self) -> None:
        self._status.stop()


@contextmanager
def progress() -> Iterator[Lines | Status]:
    """Something to call with each line of progress."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    status = Status()
    try:
        yield status
    finally:
        status.stop()
