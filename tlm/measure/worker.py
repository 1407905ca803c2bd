"""The other end of the pipe: builds candidates, or checks and times them, one job at a time."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from ..errors import TlmError
from ..ir.serialize import from_json
from ..target import Target
from .build import Toolchain
from .child import Died, Message, receive, send
from .runner import Runner

Answer = tuple[Message, bytes]
_PARENT_POLL_SECONDS = 1.0
_LONGEST_MESSAGE = 1000


class Worker:
    """Answers jobs. A job that raises is answered with status "error"; one that crashes ends the process."""

    def __init__(self, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        # What checks and times the code of a toolchain may be its own, as on a device.
        self._runner: Any = getattr(toolchain, "runner", partial(Runner, toolchain))()
        self._jobs: dict[str, Callable[[Message, bytes], Answer]] = {
            "build": self._build,
            "prepare": self._prepare,
            "load": self._load,
            "time": self._time,
            "finish": self._finish,
        }

    def answer(self, message: Message, blob: bytes) -> Answer:
        try:
            if "program" in message:
                self._change_workload(message)
            return self._jobs[message["job"]](message, blob)
        except MemoryError:
            return {"status": "error", "message": "more memory than the limit"}, b""
        except TlmError as e:
            return {"status": "error", "message": f"{type(e).__name__}: {e}"[:_LONGEST_MESSAGE]}, b""
        except Exception as e:
            return {"status": "error", "message": f"internal {type(e).__name__}: {e}"[:_LONGEST_MESSAGE]}, b""

    def _change_workload(self, message: Message) -> None:
        self._runner.workload(from_json(message["program"]), Target.from_json(message["target"]))

    def _build(self, message: Message, blob: bytes) -> Answer:
        runner = self._runner
        steps, code = self._toolchain.build(runner.program, runner.target, tuple(message["values"]))
        return {"status": "ok", "steps": steps, "versions": self._toolchain.versions()}, code

    def _prepare(self, message: Message, blob: bytes) -> Answer:
        self._runner.prepare()
        return {"status": "ok"}, b""

    def _load(self, message: Message, blob: bytes) -> Answer:
        return self._runner.load(message["id"], blob), b""

    def _time(self, message: Message, blob: bytes) -> Answer:
        return {"status": "ok", "seconds": self._runner.sample(message["id"], message["cold"])}, b""

    def _finish(self, message: Message, blob: bytes) -> Answer:
        return self._runner.finish(message["id"], message["check"]), b""


def main() -> None:
    """Serve the pipe whose descriptor is the first argument, until the parent closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor, toolchain, memory = sys.argv[1:]
    _leave_with(os.getppid())
    module, _, name = toolchain.partition(":")
    worker = Worker(getattr(import_module(module), name)())
    _limit_memory(int(memory))
    with Connection(int(descriptor)) as pipe:
        send(pipe, {"status": "ready"})
        while True:
            try:
                message, blob = receive(pipe)
            except Died:
                return
            send(pipe, {"status": "begun"})
            send(pipe, *worker.answer(message, blob))


def _leave_with(parent: int) -> None:
    """End this process when its parent has ended, even from within a kernel that never returns."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_SECONDS)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _limit_memory(more: int) -> None:
    """Allow `more` bytes of address space beyond what is in use now."""
    try:
        with open("/proc/self/statm") as f:
            used = int(f.read().split()[0]) * resource.getpagesize()
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + more if hard == resource.RLIM_INFINITY else min(used + more, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


if __name__ == "__main__":
    main()
