"""What a block of threads takes of a multiprocessor: limits that no candidate may pass, and occupancy.

Occupancy is the number of resident threads, as the CUDA C++ Programming Guide computes it: registers are
given to warps in units of 256, shared memory to blocks in units of 128 bytes, 1 KiB of it to the system.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...target import Target
from ..contraction_choices import Facts, ceil, percent

SYSTEM_SHARED = 1024
"""Bytes of shared memory that each resident block costs beyond its own (from sm_80 on)."""

BASE_REGISTERS = 24
"""Registers of a thread for addresses, loop counters and what else the compiler keeps."""

SPARE_REGISTERS = 16
"""Registers by which the compiler may need more than was counted."""

GRID_X, GRID_YZ = 2**31 - 1, 65535
"""The most blocks along each axis of a grid."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one block takes: threads, bytes of shared memory, 32-bit registers of each thread."""

    threads: int
    shared: int = 0
    registers: int = BASE_REGISTERS


def fits(cost: Cost, target: Target) -> bool:
    """Whether a block can be launched at all."""
    return (
        1 <= cost.threads <= target.block_threads
        and cost.shared <= target.block_shared
        and cost.registers <= target.thread_registers
        and resident(cost, target) >= 1
    )


def roomy(cost: Cost, target: Target) -> bool:
    """Whether a block fits even where the compiler needs more registers than were counted: it spills none."""
    return fits(replace(cost, registers=cost.registers + SPARE_REGISTERS), target)


def resident(cost: Cost, target: Target) -> int:
    """Blocks that are on one multiprocessor at a time."""
    warps = ceil(cost.threads, target.warp)
    by_threads = target.sm_threads // (warps * target.warp)
    held = ceil(max(cost.registers, 16) * target.warp, 256) * 256 * warps
    by_registers = target.registers // held
    by_shared = target.sm_blocks
    if cost.shared:
        by_shared = target.l1 // (ceil(cost.shared + SYSTEM_SHARED, 128) * 128)
    return max(0, min(by_threads, by_registers, by_shared, target.sm_blocks))


def occupancy(cost: Cost, target: Target) -> float:
    """Resident threads, percent of the most that a multiprocessor holds."""
    warps = ceil(cost.threads, target.warp) * target.warp
    return percent(resident(cost, target) * warps, target.sm_threads)


def block_facts(cost: Cost, target: Target) -> Facts:
    """Facts about a block."""
    return (
        ("threads", cost.threads),
        ("shared", percent(cost.shared, target.block_shared)),
        ("registers", percent(cost.registers, target.thread_registers)),
        ("occupancy", occupancy(cost, target)),
    )


def grid_facts(blocks: int, cost: Cost, target: Target) -> Facts:
    """Facts about `blocks` equal blocks dealt to the multiprocessors: how many rounds they take, and how much
    of the last round is empty."""
    slots = max(1, resident(cost, target)) * target.threads
    rounds = ceil(blocks, slots)
    return (
        ("tasks", percent(blocks, target.threads)),
        ("waves", percent(blocks, slots)),
        ("imbalance", percent(rounds * slots, blocks) - 100 if blocks > slots else 0.0),
    )
