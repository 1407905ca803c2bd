"""A worker process that can be killed: started fresh, spoken to over a pipe, gone with its parent.

A message is a JSON header and some bytes. Nothing is pickled, so a worker that a bad kernel has scribbled
over cannot make its parent run anything.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

Message = dict[str, Any]


class Died(Exception):
    """A worker's end of the pipe is closed, or what came through it is no message."""


def send(pipe: Connection, header: Message, blob: bytes = b"") -> None:
    """Write one message."""
    pipe.send_bytes(json.dumps(header).encode())
    pipe.send_bytes(blob)


def receive(pipe: Connection) -> tuple[Message, bytes]:
    """Read one message; Died where the other end is gone or sends something else."""
    try:
        header = json.loads(pipe.recv_bytes())
        blob = pipe.recv_bytes()
    except (EOFError, OSError, ValueError) as e:
        raise Died(str(e)) from e
    if not isinstance(header, dict):
        raise Died("not a message")
    return header, blob


class Child:
    """One worker process, running `tlm.measure.worker`."""

    def __init__(self, toolchain: str, memory: int) -> None:
        ours, theirs = Pipe()
        # The child imports what this process can import; its main module is never run again, as
        # multiprocessing's own spawn would do.
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        command = [sys.executable, "-m", "tlm.measure.worker", str(theirs.fileno()), toolchain, str(memory)]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            pass_fds=(theirs.fileno(),),
            env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        )
        theirs.close()
        self.pipe = ours
        self._used = self._begun = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def idle(self) -> bool:
        """Whether it has worked before, but has not begun the job that it was given last.

        A worker that dies so was ended by something else than that job: who gave it may give it to another.
        """
        return self._used and not self._begun

    def send(self, header: Message, blob: bytes = b"") -> None:
        """Give the worker a job; Died where it is gone."""
        self._begun = False
        try:
            send(self.pipe, header, blob)
        except OSError as e:
            raise Died(str(e)) from e

    def receive(self) -> tuple[Message, bytes]:
        """The next message; blocks until it is there.

        The worker says "ready" when it has started and "begun" when it has read a job, then answers the job.
        """
        header, blob = receive(self.pipe)
        if header.get("status") == "begun":
            self._used = self._begun = True
        return header, blob

    def kill(self) -> str:
        """End the process at once; returns how it had ended, in words, with the last words it wrote."""
        alive = self._process.poll() is None
        if alive:
            # A pipe that closed means that the process is ending by itself: its own status says more than
            # ours.
            try:
                self._process.wait(0.2)
            except subprocess.TimeoutExpired:
                self._process.kill()
        code = self._process.wait()
        self.pipe.close()
        self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - 400))
        last = self._stderr.read().decode(errors="replace").strip()
        self._stderr.close()
        how = f"killed by {_signal_name(-code)}" if code < 0 else f"exit status {code}"
        return f"{how}: {last}" if last else how


def ready(children: Sequence[Child], timeout: float) -> list[Child]:
    """The workers that have something to read, or have ended, within `timeout` seconds."""
    found = wait([c.pipe for c in children], timeout)
    return [c for c in children if c.pipe in found]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
