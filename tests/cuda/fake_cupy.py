"""The part of CuPy that calls use, on memory of the CPU: kernels run in the shim, and every rule is checked.

`install(monkeypatch)` makes it the module that tlm finds, and gives the `Machine`: its devices, allocations,
streams, launches and events. It fails on what a call must not do: wait, launch on a device that is not the
current one, read freed memory, allocate or wait where a graph is captured (unless a test says otherwise).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.cuda import shim

PAGE = 512


@dataclass(eq=False)
class Block:
    """Memory of a device: `bytes` of the CPU that stand for it, from `start` on."""

    device: int
    size: int
    room: np.ndarray = field(repr=False)
    start: int = 0
    stream: int = 0

    @staticmethod
    def of(device: int, size: int, stream: int) -> Block:
        room = np.full(size + PAGE, 0xFF, np.uint8)
        shift = -room.ctypes.data % PAGE
        return Block(device, size, room[shift : shift + size], room.ctypes.data + shift, stream)


class Stream:
    null: Any

    def __init__(self, machine: Machine, ptr: int) -> None:
        self.machine, self.ptr = machine, ptr

    def wait_event(self, event: Any) -> None:
        self.machine.log.append(("wait", self.ptr, event.stream))

    def synchronize(self) -> None:
        raise AssertionError("a call waits for a stream")

    def __enter__(self) -> Stream:
        self.machine.streams.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        self.machine.streams.pop()


class Event:
    """Done where `machine.running` does not say that kernels still run."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.stream = machine, -1

    def record(self, stream: Any = None) -> None:
        self.stream = (self.machine.stream if stream is None else stream).ptr

    def synchronize(self) -> None:
        if not self.machine.may_wait:
            raise AssertionError("a call waits for an event")

    @property
    def done(self) -> bool:
        return not self.machine.running


class Device:
    def __init__(self, machine: Machine, number: int | None = None) -> None:
        self.machine = machine
        self.id = machine.current if number is None else number

    @property
    def compute_capability(self) -> str:
        return self.machine.capabilities[self.id]

    @property
    def attributes(self) -> dict[str, int]:
        return self.machine.attributes

    def __enter__(self) -> Device:
        self.machine.devices.append(self.machine.current)
        self.machine.current = self.id
        return self

    def __exit__(self, *_: Any) -> None:
        self.machine.current = self.machine.devices.pop()


class Machine:
    """What tests set and read. `launches`: (name, device, stream); `log`: (what, stream, for which)."""

    def __init__(self) -> None:
        self.capabilities = ["80", "80"]
        self.attributes = {"MultiProcessorCount": 108, "L2CacheSize": 40 << 20}
        self.current, self.devices = 0, []
        self.blocks: list[Block] = []
        self.allocated = 0
        self.launches: list[tuple[str, int, int]] = []
        self.log: list[tuple[Any, ...]] = []
        self.capturing: set[int] = set()
        self.may_allocate, self.may_wait, self.running = True, False, False
        self.texts: list[str] = []
        self.clock = itertools.count(1)
        self.streams = [Stream(self, 0)]
        self.cupy = _module(self)

    @property
    def stream(self) -> Stream:
        return self.streams[-1]

    def allocate(self, size: int, device: int | None = None, stream: int | None = None) -> Block:
        if not self.may_allocate:
            raise AssertionError("a call allocates")
        self.allocated += 1
        number = self.current if device is None else device
        made = Block.of(number, max(size, 1), self.stream.ptr if stream is None else stream)
        self.blocks.append(made)
        return made

    def array(self, x: Any, device: int = 0, offset: int = 0) -> ndarray:
        """A device array with the values and the strides of `x`, `offset` bytes into its allocation."""
        x = np.asarray(x)
        low = sum([(n - 1) * s for n, s in zip(x.shape, x.strides, strict=True) if s < 0]) if x.size else 0
        high = sum([(n - 1) * s for n, s in zip(x.shape, x.strides, strict=True) if s > 0]) if x.size else 0
        size = high - low + x.itemsize if x.size else 0
        block = self.allocate(size + offset, device)
        made = self.cupy.ndarray(x.shape, x.dtype, MemoryPointer(Memory(block), offset - low), x.strides)
        if x.size:
            made.host[...] = x
        return made

    def block_at(self, pointer: int) -> Block:
        for block in self.blocks:
            if block.start <= pointer < block.start + block.size:
                return block
        raise AssertionError(f"{pointer:#x} is in no allocation")

    def launch(self, text: str, launch: Any, pointers: list[int], stream: Any) -> None:
        """Run a kernel of a text on device pointers, all of the memory around them in reach."""
        at = (self.stream if stream is None else stream).ptr
        if self.capturing and at not in self.capturing:
            raise AssertionError("a launch outside of the captured stream")
        self.launches.append((launch.name, self.current, at))
        blocks = list({id(b): b for b in map(self.block_at, pointers)}.values())
        assert {b.device for b in blocks} <= {self.current}, "memory of another device"
        memories = [shim._Memory(f"block {n}", b.room, b.start, b.size) for n, b in enumerate(blocks)]
        run = shim._Run(shim.build(text), memories)
        try:
            arguments = []
            for p in pointers:
                n = blocks.index(self.block_at(p))
                arguments.append(np.uint64((run.starts[n] or 0) + p - blocks[n].start))
            shim._check_launch(launch, run.library)
            run.launch(launch, arguments, shim.PASSES[0])
            shim._store(memories, run.results())
        finally:
            run.runtime.tlm_shim_close()


class Memory:
    def __init__(self, block: Block) -> None:
        self.block, self.ptr, self.device_id = block, block.start, block.device


class UnownedMemory:
    def __init__(self, ptr: int, size: int, owner: Any, device_id: int) -> None:
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id


class Function:
    """`shared` bytes above 48 KiB must be asked for before a launch, as drivers want it."""

    def __init__(self, machine: Machine, text: str, name: str, device: int) -> None:
        self.machine, self.text, self.name, self.device = machine, text, name, device
        self.max_dynamic_shared_size_bytes = 48 << 10

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0, stream: Any = None) -> None:
        assert self.device == self.machine.current, "a function of another device's module"
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        own = self.text.partition(f"\n{self.name}(")[2].partition("__global__")[0]
        assert (shared_mem > 0) == ("extern __shared__" in own), "dynamic shared memory that is not used"
        launch = shim.Launch(self.name, grid, block, shared_mem, tuple(range(len(args))))
        self.machine.launch(self.text, launch, [int(a) for a in args], stream)


class Module:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def load(self, cubin: bytes) -> None:
        self.text, self.device = cubin.decode(), self.machine.current
        self.machine.texts.append(self.text)

    def get_function(self, name: str) -> Function:
        return Function(self.machine, self.text, name, self.device)


class ndarray:
    """An array of the device. Tests read `host`; for anything else it is opaque."""

    __module__ = "cupy"
    __hash__ = None  # type: ignore[assignment]
    machine: Machine

    def __init__(self, shape: Any, dtype: Any, memptr: MemoryPointer, strides: Any = None) -> None:
        self.shape, self.dtype, self.data = tuple(shape), np.dtype(dtype), memptr
        plain = np.empty(self.shape, np.dtype((np.void, self.dtype.itemsize))).strides
        self.strides = plain if strides is None else tuple(strides)

    ndim = property(lambda self: len(self.shape))

    @property
    def host(self) -> np.ndarray:
        """The memory, as the CPU sees it."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        block = self.machine.block_at(self.data.ptr)
        start = self.data.ptr - block.start
        flat = block.room[: block.size]
        return np.ndarray(self.shape, self.dtype, flat, start, self.strides)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self.data.ptr, False),
            "strides": self.strides, "version": 3,
        }  # fmt: skip

    def __getitem__(self, at: Any) -> ndarray:
        view = self.host[at]
        if not view.size:
            return type(self)(view.shape, view.dtype, self.data)
        start = view.__array_interface__["data"][0]
        block = self.machine.block_at(start)
        where = MemoryPointer(Memory(block), start - block.start)
        return type(self)(view.shape, view.dtype, where, view.strides)

    def __setitem__(self, at: Any, value: ndarray) -> None:
        assert isinstance(value, ndarray)
        self.machine.log.append(("copy", self.machine.stream.ptr))
        self.host[at] = value.host

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def fill(self, value: Any) -> None:
        self.machine.log.append(("fill", self.machine.stream.ptr))
        self.host[...] = value

    @property
    def T(self) -> ndarray:
        return type(self)(self.shape[::-1], self.dtype, self.data, self.strides[::-1])

    def __dlpack__(self, **settings: Any) -> Any:
        self.machine.log.append(("export", self.machine.stream.ptr))
        return SimpleNamespace(array=self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.data.device_id


def _module(machine: Machine) -> Any:
    own = type("ndarray", (ndarray,), {"machine": machine, "__module__": "cupy"})

    def empty(shape: Any, dtype: Any = float) -> Any:
        dtype = np.dtype(dtype)
        count = int(np.prod(shape))
        return own(shape, dtype, MemoryPointer(Memory(machine.allocate(count * dtype.itemsize)), 0))

    def full(shape: Any, value: Any, dtype: Any) -> Any:
        made = empty(shape, dtype)
        made.fill(value)
        return made

    def array(x: Any, order: str = "K") -> Any:
        made = empty(x.shape, x.dtype)
        made[...] = x
        return made

    def from_dlpack(x: Any) -> Any:
        found = x.__dlpack__(stream=machine.stream.ptr or 1, max_version=(1, 0)).array
        return own(found.shape, found.dtype, found.data, found.strides)

    def attributes(pointer: int) -> Any:
        return SimpleNamespace(device=machine.block_at(pointer).device)

    def set_device(number: int) -> None:
        machine.current = number

    stream_class = SimpleNamespace(
        null=Stream(machine, 0), from_external=lambda x: Stream(machine, x.__cuda_stream__()[1])
    )
    cuda = SimpleNamespace(
        runtime=SimpleNamespace(
            getDevice=lambda: machine.current, setDevice=set_device, pointerGetAttributes=attributes,
            streamIsCapturing=lambda ptr: ptr in machine.capturing,
        ),
        Device=lambda number=None: Device(machine, number), Stream=stream_class,
        Event=lambda **_: Event(machine),
        get_current_stream=lambda device=-1: machine.stream,
        get_elapsed_time=lambda a, b: float(next(machine.clock)),
        function=SimpleNamespace(Module=lambda: Module(machine)),
        alloc=lambda size: MemoryPointer(Memory(machine.allocate(size)), 0),
        MemoryPointer=MemoryPointer, UnownedMemory=UnownedMemory, is_available=lambda: True,
    )  # fmt: skip
    return SimpleNamespace(
        cuda=cuda, ndarray=own, empty=empty, full=full, array=array, from_dlpack=from_dlpack,
        asarray=lambda x: machine.array(x), lib=np.lib,
    )  # fmt: skip


def binary(source: Any, target: Any, *, cached: bool = True) -> tuple[bytes, str]:
    """In place of NVRTC: the text itself, and a log that has what is read from one."""
    lines = [
        f"Compiling entry function '{k.name}' for '{target.isa}'\n"
        "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nUsed 32 registers"
        for k in source.kernels
    ]
    return source.text.encode(), "\n".join(lines)


def install(monkeypatch: Any) -> Machine:
    """Make it the CuPy of tlm until the test ends."""
    from tlm.backend.cuda import compiler, runtime
    from tlm.ops import dispatch

    machine = Machine()
    monkeypatch.setattr(runtime, "cupy", lambda: machine.cupy)
    monkeypatch.setattr(compiler, "binary", binary)
    monkeypatch.setattr(dispatch, "_kernels", {})
    runtime._present.cache_clear()
    runtime.stream.cache_clear()
    return machine
