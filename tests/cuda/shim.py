"""Runs CUDA C text on the CPU, one fiber a thread, and checks every access.

    report = run(text, [Launch("add", (4,), (32,), 0, ("A", "B", "C"))], {"A": a, "B": b, "C": c})

The launches run in order on host arrays, in place. Each pass takes another order of threads and another
moment for asynchronous copies; all must give the same bytes. Faults are `ShimError`s. What the text may use:
`shim/tlm_shim.h`. What this cannot show: inline assembly, rounding of fast-math functions, the limits of a
device, blocks that wait for each other, speed.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Protocol

import numpy as np
import pytest

from tests.cuda.shim_build import Library, build, missing, runtime
from tests.cuda.shim_report import Line, Report, Scene, ShimError, Traffic, explain, report

__all__ = [
    "ALL_PASSES",
    "PASSES",
    "Launch",
    "Line",
    "Pass",
    "Report",
    "ShimError",
    "Traffic",
    "missing",
    "run",
]

MAX_THREADS, MAX_Z, MAX_GRID_X, MAX_GRID_YZ = 1024, 64, 2**31 - 1, 65535
MAX_SHARED = 227 * 1024
ORDERS = ("forward", "warp", "reversed")


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch. `parameters`: names or positions of the arrays that the kernel takes."""

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int = 0
    parameters: tuple[str | int, ...] = ()


class LaunchLike(Protocol):
    name: Any
    grid: Any
    block: Any
    shared_bytes: Any
    parameters: Any


@dataclass(frozen=True, slots=True)
class Pass:
    """`order`: "forward" (threads in turn), "warp" (each warp as far as it can), "reversed" (blocks too).

    `late`: asynchronous copies land when they are waited for, else when they are issued.
    """

    order: str
    late: bool


PASSES = (Pass("forward", False), Pass("warp", True))
ALL_PASSES = (*PASSES, Pass("reversed", True), Pass("reversed", False))


class _Fault(ctypes.Structure):
    _fields_ = [
        *((n, ctypes.c_uint32) for n in ("kind", "space", "region", "mode", "other_mode")),
        *((n, ctypes.c_uint32) for n in ("pc", "other_pc", "thread", "other_thread", "unused")),
        *((n, ctypes.c_uint64) for n in ("block", "other_block", "address", "bytes", "extent")),
        ("text", ctypes.c_char * 96),
    ]


class _Count(ctypes.Structure):
    _fields_ = [
        *((n, ctypes.c_uint32) for n in ("place", "kind")),
        *((n, ctypes.c_uint64) for n in ("requests", "transactions", "ideal")),
    ]


_SAME_PLACE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32)


class _Launch(ctypes.Structure):
    _fields_ = [
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        *((n, ctypes.c_uint32) for n in ("shared_bytes", "order", "late", "unused")),
        *((n, ctypes.c_void_p) for n in ("static_shared", "static_shared_end", "image")),
        ("same_place", _SAME_PLACE),
    ]


@cache
def _runtime() -> ctypes.CDLL:
    library = ctypes.CDLL(str(runtime()))
    library.tlm_shim_open.restype = ctypes.c_bool
    library.tlm_shim_open.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
    library.tlm_shim_counts.restype = ctypes.c_bool
    library.tlm_shim_count_size.restype = ctypes.c_uint64
    return library


def _extents(of: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*of, 1, 1, 1)[:3] if len(of) <= 3 else of
    return int(x), int(y), int(z)


def _check_launch(launch: LaunchLike, library: Library) -> None:
    def refuse(reason: str) -> None:
        raise ShimError("launch", f"kernel {launch.name}: {reason}")

    if launch.name not in library.kernels:
        refuse(f"the text has no such kernel, it has {', '.join(library.kernels)}")
    grid, block = _extents(launch.grid), _extents(launch.block)
    bound = library.kernels[launch.name]
    if min(*grid, *block) < 1 or grid[0] > MAX_GRID_X or max(grid[1:]) > MAX_GRID_YZ:
        refuse(f"grid {grid} is not within 1 and ({MAX_GRID_X}, {MAX_GRID_YZ}, {MAX_GRID_YZ})")
    if prod(block) > (bound or MAX_THREADS) or block[2] > MAX_Z:
        refuse(f"block {block} has more threads than {bound or MAX_THREADS} (z: {MAX_Z})")
    if launch.shared_bytes > MAX_SHARED:
        refuse(f"{launch.shared_bytes} bytes of shared memory are more than {MAX_SHARED}")
    arity = getattr(library.handle, f"tlm_shim_arity_{launch.name}")()
    if arity != len(launch.parameters):
        refuse(f"takes {arity} parameters and is given {len(launch.parameters)}")


def _named(
    arrays: Mapping[str, Any] | Sequence[Any], launches: Sequence[LaunchLike], names: Sequence[str] | None
) -> dict[str | int, Any]:
    given: dict[str | int, Any] = {}
    if isinstance(arrays, Mapping):
        given.update(arrays.items())
        return given
    given.update(enumerate(arrays))
    if names is None and len(launches) == 1:
        own = [_key(p) for p in launches[0].parameters]
        names = own if own and all(isinstance(name, str) for name in own) else None
    if names is not None:
        given.update(zip(names, arrays, strict=True))
    return given


def _key(parameter: Any) -> Any:
    return getattr(parameter, "name", parameter)


@dataclass(frozen=True, slots=True)
class _Memory:
    """The bytes of an array: from its lowest to its highest element, gaps of its strides included."""

    name: str
    array: np.ndarray
    low: int
    size: int

    @classmethod
    def of(cls, name: str | int, array: np.ndarray) -> _Memory:
        low, high = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data,) * 2
        return cls(str(name), array, low, high - low)


def _layout(arrays: Mapping[str | int, np.ndarray]) -> tuple[dict[str | int, int], list[_Memory]]:
    """Where each name's array is among the memories; an array of two names is there once."""
    places: dict[int, int] = {}
    memories: list[_Memory] = []
    for name, array in arrays.items():
        if places.setdefault(id(array), len(memories)) == len(memories):
            memories.append(_Memory.of(name, array))
    return {name: places[id(array)] for name, array in arrays.items()}, memories


class _Run:
    """One pass: arrays copied far apart from each other, launches, results copied out."""

    def __init__(self, library: Library, memories: Sequence[_Memory]) -> None:
        self.library, self.memories, self.runtime = library, memories, _runtime()
        sizes = (ctypes.c_uint64 * len(memories))(*(m.size for m in memories))
        self.starts = (ctypes.c_void_p * len(memories))()
        if not self.runtime.tlm_shim_open(len(memories), sizes, self.starts):
            raise MemoryError(f"no memory for the arrays of a kernel: {sum(m.size for m in memories)} bytes")
        for memory, start in zip(memories, self.starts, strict=True):
            ctypes.memmove(start, memory.low, memory.size)
        self.same_place = _SAME_PLACE(lambda a, b: library.lines(a) == library.lines(b))
        self.bounds = (ctypes.c_void_p * 3)()
        library.handle.tlm_shim_bounds(self.bounds)

    def results(self) -> list[bytes]:
        return [ctypes.string_at(s, m.size) for m, s in zip(self.memories, self.starts, strict=True)]

    def launch(self, launch: LaunchLike, arguments: Sequence[int | np.generic], how: Pass) -> None:
        """`arguments`: positions of arrays, or numpy scalars."""
        values: list[Any] = [
            np.uint64((self.starts[a] or 0) + self.memories[a].array.ctypes.data - self.memories[a].low)
            if isinstance(a, int)
            else a
            for a in arguments
        ]
        stored = [np.array(v) for v in values]
        pointers = (ctypes.c_void_p * max(1, len(stored)))(*(v.ctypes.data for v in stored))
        entry = ctypes.cast(getattr(self.library.handle, f"tlm_shim_run_{launch.name}"), ctypes.c_void_p)
        grid, block = _extents(launch.grid), _extents(launch.block)
        described = _Launch(
            entry,
            ctypes.cast(pointers, ctypes.c_void_p),
            (ctypes.c_uint32 * 3)(*grid),
            (ctypes.c_uint32 * 3)(*block),
            launch.shared_bytes,
            ORDERS.index(how.order),
            how.late,
            0,
            *self.bounds,
            self.same_place,
        )
        if self.runtime.tlm_shim_launch(ctypes.byref(described)):
            arrays = tuple((m.name, m.array.itemsize) for m in self.memories)
            raise self.fault(Scene(self.library, launch.name, grid, block, (*arrays, ("no array", 1))))

    def fault(self, scene: Scene) -> ShimError:
        fault = _Fault()
        self.runtime.tlm_shim_fault(ctypes.byref(fault))
        states, places = (ctypes.c_uint32 * MAX_THREADS)(), (ctypes.c_uint32 * MAX_THREADS)()
        count = self.runtime.tlm_shim_threads(states, places)
        fields = {field[0]: getattr(fault, field[0]) for field in _Fault._fields_}
        return explain(scene, fields, list(zip(states[:count], places[:count], strict=True)))

    def report(self) -> Report:
        counts = (_Count * self.runtime.tlm_shim_count_size())()
        truncated = self.runtime.tlm_shim_counts(counts)
        rows = [(c.place, c.kind, c.requests, c.transactions, c.ideal) for c in counts]
        return report(self.library, rows, truncated)


def _store(memories: Sequence[_Memory], results: Sequence[bytes]) -> None:
    for memory, result in zip(memories, results, strict=True):
        if ctypes.string_at(memory.low, memory.size) == result:
            continue
        if not memory.array.flags.writeable:
            raise ShimError("launch", f"a kernel wrote to {memory.name}, which is a read-only array")
        ctypes.memmove(memory.low, result, memory.size)


def _require_same(
    memories: Sequence[_Memory], first: Sequence[bytes], other: Sequence[bytes], how: Pass
) -> None:
    for memory, a, b in zip(memories, first, other, strict=True):
        if a == b:
            continue
        at = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
        element = at // memory.array.itemsize
        raise ShimError(
            "order",
            f"{memory.name} depends on the order of threads: {how} gives another element {element}",
        )


def run(
    text: str,
    launches: Sequence[LaunchLike],
    arrays: Mapping[str, Any] | Sequence[Any],
    *,
    names: Sequence[str] | None = None,
    passes: Sequence[Pass] = PASSES,
) -> Report:
    """Run the launches in order on the arrays, in place, once a pass; the counts are those of the first pass.

    `arrays`: numpy arrays (any strides) by name, or by position, where names are those of `names` or of the
    parameters of a sole launch; numpy scalars are passed by value. Arrays start at multiples of 256 bytes, as
    a GPU's allocations do. Results of passes are not compared where the text has atomics: their order is
    free.
    Skips the test where kernels cannot be built. ShimError for faults, ValueError where g++ refuses the text.
    """
    if reason := missing():
        pytest.skip(reason)
    library = build(text)
    given = _named(arrays, launches, names)
    used = {_key(p): None for launch in launches for p in launch.parameters}
    positions, memories = _layout({k: given[k] for k in used if isinstance(given[k], np.ndarray)})
    first: list[bytes] = []
    counted = Report(())
    for how in passes:
        this = _Run(library, memories)
        try:
            for launch in launches:
                _check_launch(launch, library)
                this.launch(launch, [positions.get(_key(p), given[_key(p)]) for p in launch.parameters], how)
            if not first:
                first, counted = this.results(), this.report()
            elif not re.search(r"\batomic", text):
                _require_same(memories, first, this.results(), how)
        finally:
            this.runtime.tlm_shim_close()
    _store(memories, first)
    return counted
