"""Scratch memory of kernels: a block for each Python thread, reused by its calls, grown when needed."""

from __future__ import annotations

import threading

import numpy as np

# Scratch starts on a cache line; a block beyond this size is not kept after the call.
_ALIGNMENT, _KEPT = 64, 1 << 30


class _Block(threading.local):
    size = 0
    address = 0
    memory: np.ndarray | None = None


_block = _Block()


def borrow(size: int) -> tuple[int, np.ndarray | None]:
    """The address of `size` bytes for one call, and what keeps them alive beyond the thread's own block."""
    block = _block
    if size <= block.size:
        return block.address, block.memory
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    address = -(-memory.ctypes.data // _ALIGNMENT) * _ALIGNMENT
    if size <= _KEPT:
        block.memory, block.address, block.size = memory, address, size
    return address, memory
