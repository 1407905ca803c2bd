"""A toolchain without a compiler: candidates say how they misbehave. Workers import it by name."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tlm.errors import ScheduleError
from tlm.ir.nodes import Program
from tlm.target import Target

FOREVER = 1e6


def view(pointer: int, shape: tuple[int, ...]) -> np.ndarray:
    data = (ctypes.c_float * int(np.prod(shape))).from_address(pointer)
    return np.frombuffer(data, np.float32).reshape(shape)


class Faulty:
    """values[0] is the fault, values[1] the microseconds that a run takes beyond the product itself."""

    def versions(self) -> dict[str, str]:
        return {"faulty": "1"}

    def build(self, program: Program, target: Target, values: tuple[Any, ...]) -> tuple[list[dict], bytes]:
        match values[0]:
            case "build-hangs":
                time.sleep(FOREVER)
            case "build-segfaults":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "build-raises":
                raise ScheduleError("split: no loop z")
            case "build-breaks":
                raise ZeroDivisionError("a defect")
            case "build-exits":
                print("last words", file=sys.stderr, flush=True)
                os._exit(3)
            case "build-eats":
                hoard = [np.empty(1 << 24) for _ in range(400)]
                assert hoard
        return [{"step": "split", "factor": 2}], json.dumps(values).encode()

    def load(
        self, program: Program, target: Target, code: bytes, pointers: tuple[int, ...]
    ) -> Callable[[], None]:
        fault, *rest = json.loads(code)
        if fault == "load-raises":
            raise ScheduleError("no such symbol")
        a, b, c = (view(p, q.shape) for p, q in zip(pointers, program.parameters, strict=True))
        runs = 0

        def call() -> None:
            nonlocal runs
            runs += 1
            match fault:
                case "run-hangs":
                    time.sleep(FOREVER)
                case "run-hangs-later" if runs == 3:
                    time.sleep(FOREVER)
                case "first-run-waits" if runs == 1:
                    time.sleep(8e-3)
                case "run-segfaults":
                    ctypes.string_at(8)
                case "run-is-killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "run-writes-outside":
                    ctypes.memset(pointers[2] + c.nbytes, 1, 4)
            np.matmul(a, b, out=c)
            if fault == "writes-an-input":
                a[0, 0] += 1
            if fault == "wrong":
                c[0, 0] += 0.5
            if fault == "races" and runs > 4:
                c[0, 0] += 0.5
            end = time.perf_counter() + 1e-6 * (rest[0] if rest else 0)
            while time.perf_counter() < end:
                pass

        return call
