"""What the compiler says of each kernel, and how many blocks of it fit on a multiprocessor."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import BackendError
from ...target import Target
from .emitter import Launch, Source

# Allocation units of CUDA's occupancy calculator: registers of a warp, warps, bytes of shared memory.
_REGISTER_UNIT, _WARP_UNIT, _SHARED_UNIT = 256, 4, 128
# Bytes of shared memory that the system keeps for itself in each block, from sm_80 on.
_RESERVED_SHARED = 1024
_FIRST_RESERVING = 80

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True, slots=True)
class Stats:
    """Of one thread: `registers`, bytes of `spills` (stores and loads) and of `stack`. `shared`: bytes of a
    block. `blocks` fit on a multiprocessor, and fill `occupancy` of its threads."""

    registers: int
    spills: int
    stack: int
    shared: int
    blocks: int
    occupancy: float


def statistics(source: Source, log: str, target: Target) -> tuple[Stats, ...]:
    """The figures of each launch of `source`, from the log of its compilation; BackendError without."""
    figures: dict[str, tuple[int, int, int]] = {}
    name, stack, spills = "", 0, 0
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            name, stack, spills = found.group(1), 0, 0
        elif found := _STACK.search(line):
            stack, spills = int(found.group(1)), int(found.group(2)) + int(found.group(3))
        elif (found := _USED.search(line)) and name:
            figures[name] = (int(found.group(1)), spills, stack)
    missing = [x.name for x in source.kernels if x.name not in figures]
    if missing:
        raise BackendError(f"the log of NVRTC has no figures of {', '.join(missing)}: {log[:500]!r}")
    return tuple([_stats(x, *figures[x.name], target) for x in source.kernels])


def _stats(launch: Launch, registers: int, spills: int, stack: int, target: Target) -> Stats:
    x, y, z = launch.block
    shared = launch.shared_bytes + launch.static_shared
    blocks = resident_blocks(x * y * z, registers, shared, target)
    warps = -(-x * y * z // target.warp)
    occupancy = blocks * warps * target.warp / target.sm_threads
    return Stats(registers, spills, stack, shared, blocks, occupancy)


def resident_blocks(threads: int, registers: int, shared: int, target: Target) -> int:
    """Blocks of `threads` threads that a multiprocessor holds at once; 0 where one is too large.

    `registers` a thread and `shared` bytes a block, by the rules of CUDA's occupancy calculator.
    """
    warps = -(-threads // target.warp)
    each = -(-registers * target.warp // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = target.registers // max(each, 1) // _WARP_UNIT * _WARP_UNIT // warps
    reserved = _RESERVED_SHARED if int(re.sub(r"\D", "", target.isa)) >= _FIRST_RESERVING else 0
    unit = -(-(shared + reserved) // _SHARED_UNIT) * _SHARED_UNIT
    by_shared = target.l1 // unit if unit else target.sm_blocks
    by_threads = target.sm_threads // target.warp // warps
    return min(by_registers, by_shared, by_threads, target.sm_blocks)
