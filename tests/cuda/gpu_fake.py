"""A device without a GPU: memory of the host, and kernels that are interpreted. Workers import it by name."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tlm.ir.dtypes import to_numpy
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.ir.serialize import from_json, to_json
from tlm.measure.gpu_runner import GpuRunner
from tlm.target import Target


class Memory:
    """Bytes of the host."""

    def __init__(self, size: int) -> None:
        self.raw = np.zeros(size, np.uint8)
        self.pointer = int(self.raw.ctypes.data)

    def fill(self, start: int, size: int, byte: int) -> None:
        self.raw[start : start + size] = byte

    def write(self, start: int, data: np.ndarray) -> None:
        self.raw[start : start + len(data)] = data

    def read(self, start: int, size: int) -> np.ndarray:
        return self.raw[start : start + size].copy()


class Device:
    """`code` is JSON: a program, a fault, and the seconds that its clock shows."""

    def __init__(self) -> None:
        self.memories: list[Memory] = []
        self.shown = 0.0
        self.runs = 0

    def allocate(self, size: int) -> Memory:
        self.memories.append(Memory(size))
        return self.memories[-1]

    def array(self, pointer: int, size: int) -> np.ndarray:
        for m in self.memories:
            at = pointer - m.pointer
            if 0 <= at < len(m.raw):
                return m.raw[at : at + size]
        raise AssertionError("no memory there")

    def load(self, code: bytes) -> Callable[[Sequence[int]], None]:
        found = json.loads(code)
        if found["fault"] == "load-raises":
            raise RuntimeError("CUDA_ERROR_INVALID_IMAGE")
        program = from_json(found["program"])

        def call(pointers: Sequence[int]) -> None:
            self.runs += 1
            self.shown = found["seconds"]
            views = []
            for buffer, pointer in zip(program.parameters, pointers, strict=True):
                dtype = to_numpy(buffer.dtype)
                raw = self.array(pointer, buffer.size * dtype.itemsize)
                views.append(raw.view(dtype).reshape(buffer.shape))
            inputs = len(program.inputs)
            match found["fault"]:
                case "crash":
                    os.kill(os.getpid(), signal.SIGSEGV)
                case "hang":
                    time.sleep(1e6)
                case "illegal":
                    raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")
                case "outside":
                    self.array(pointers[-1] - 4, 4)[:] = 0
                case "nothing":
                    return
            for view, value in zip(views[inputs:], interpret(program, views[:inputs]), strict=True):
                view[...] = value
            if found["fault"] == "wrong" or (found["fault"] == "wrong-later" and self.runs > 1):
                views[-1].flat[0] += 1

        return call

    def seconds(self, call: Callable[[], None], times: int) -> float:
        call()
        return self.shown


class Fake:
    """A toolchain whose candidates say their fault (values[0]) and their microseconds (values[1])."""

    def versions(self) -> dict[str, str]:
        return {"fake": "1"}

    def build(self, program: Program, target: Target, values: tuple[Any, ...]) -> tuple[list[dict], bytes]:
        made = {"program": to_json(program), "fault": values[0], "seconds": values[1] * 1e-6}
        return [], json.dumps(made).encode()

    def runner(self) -> GpuRunner:
        return GpuRunner(Device)
