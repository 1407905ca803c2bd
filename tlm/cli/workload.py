"""What a command works on: an operator and its extents, with operands to run it on and numpy's answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..ir.dtypes import from_numpy, to_numpy
from ..target import control_groups

_LIMIT = 1 << 34


@dataclass(frozen=True, slots=True)
class Operand:
    """What an array of this shape and dtype looks like to an operator that only compiles."""

    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True, slots=True)
class Workload:
    """An operator on shapes: matmul of [B...] M K N, linear of M K N with bias and activation."""

    op: str
    extents: tuple[int, ...]
    dtype: str = "f32"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        extras = "".join(f" {v}" for v in self.options.values() if v)
        return f"{self.op} {' '.join(map(str, self.extents))} {self.dtype}{extras}"

    def operands(self, seed: int = 0) -> list[Any]:
        """Normal variates (small integers for integer types)."""
        rng, dtype = np.random.default_rng(seed), from_numpy(self.dtype)
        shapes = _SHAPES[self.op](self.extents)
        if dtype.is_float:
            return [rng.standard_normal(s, dtype=np.float32).astype(to_numpy(dtype)) for s in shapes]
        return [rng.integers(0, 3, s).astype(to_numpy(dtype)) for s in shapes]

    def specs(self) -> list[Operand]:
        """Shapes and dtypes alone, for what does not run."""
        dtype = to_numpy(from_numpy(self.dtype))
        return [Operand(s, dtype) for s in _SHAPES[self.op](self.extents)]

    def ours(self) -> Any:
        """The operator of tlm.ops."""
        from .. import ops

        return getattr(ops, self.op)

    def numpy(self, operands: Sequence[Any]) -> Callable[[], Any]:
        """The same computation in numpy, writing one array again and again where numpy can."""
        a, b, *bias = operands
        if not bias and not self.options.get("activation"):
            out: Any = np.matmul(a, b)
            return lambda: np.matmul(a, b, out=out)
        function = _NUMPY_ACTIVATIONS[self.options.get("activation")]
        return lambda: function(a @ b + bias[0])

    def reference(self, operands: Sequence[Any]) -> Any:
        """The result in float64; that of integers is exact and wraps, that of bool is whether any term is."""
        dtype = from_numpy(self.dtype)
        wide = np.float64 if dtype.is_float else np.int64
        found = self.numpy([x.astype(wide) for x in operands])()
        return found if dtype.is_float else found.astype(to_numpy(dtype))

    @property
    def depth(self) -> int:
        """Terms of each sum."""
        return self.extents[-2]

    @property
    def bytes(self) -> int:
        """Memory of a run that is checked and timed: the operands and in 64 bits, the result three times (two
        outputs, numpy's) and four times in 64 bits (the reference and its difference)."""
        each = from_numpy(self.dtype).bytes
        read = sum(prod(s) for s in _SHAPES[self.op](self.extents))
        written = prod(self.extents) // self.depth
        return read * (each + 8) + written * (3 * each + 4 * 8)


def workload(op: str, extents: Sequence[int], dtype: str = "f32", activation: str | None = None) -> Workload:
    """A checked workload; ArgumentError says what an operator takes."""
    if op not in _SHAPES:
        raise ArgumentError(f"unknown operator {op!r}; known are {', '.join(_SHAPES)}")
    if len(extents) < 3 or (op == "linear" and len(extents) != 3) or min(extents) < 1:
        raise ArgumentError(
            f"{op} takes extents {_USAGE[op]}, each at least 1; got {' '.join(map(str, extents)) or 'none'}"
        )
    if activation is not None and op != "linear":
        raise ArgumentError(f"only linear takes an activation, not {op}")
    if activation not in (None, *_NUMPY_ACTIVATIONS):
        known = ", ".join(str(a) for a in _NUMPY_ACTIVATIONS if a)
        raise ArgumentError(f"unknown activation {activation!r}; known are {known}")
    from_numpy(dtype)
    largest = max(prod(s) for s in _SHAPES[op](extents))
    if largest > _LIMIT:
        raise ArgumentError(f"{op} {' '.join(map(str, extents))} has an operand of {largest} elements")
    return Workload(op, tuple(extents), dtype, {"activation": activation} if op == "linear" else {})


def check_memory(work: Workload) -> None:
    """ArgumentError where a run of `work` needs more memory than there is."""
    free = free_memory()
    if free is not None and work.bytes > free:
        raise ArgumentError(
            f"{work.title} takes {work.bytes / 2**30:.1f} GiB to run and check, {free / 2**30:.1f} are free"
        )


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process can have: what the machine has free, cut by a container's limit; None where
    the system does not tell."""
    found: list[int] = []
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        return None
    found += [left for left in map(_left, control_groups("memory", root)) if left is not None]
    return min(found, default=None)


def _left(group: Path) -> int | None:
    """Bytes that a control group may still use; None where it has no limit."""
    for limit, used, idle in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        # There is no such file without a container, and no number in it without a limit.
        with suppress(OSError, ValueError):
            left = int((group / limit).read_text()) - int((group / used).read_text())
            return max(0, left + _idle(group, idle))
    return None


def _idle(group: Path, name: str) -> int:
    """Bytes of files in memory that are given up when others need them."""
    with suppress(OSError, ValueError):
        lines = (group / "memory.stat").read_text().splitlines()
        return sum([int(line.split()[1]) for line in lines if line.split()[0] == name])
    return 0


def _matmul_shapes(extents: Sequence[int]) -> list[tuple[int, ...]]:
    *batch, m, k, n = extents
    return [(*batch, m, k), (*batch, k, n)]


def _linear_shapes(extents: Sequence[int]) -> list[tuple[int, ...]]:
    m, k, n = extents
    return [(m, k), (k, n), (n,)]


_SHAPES: dict[str, Callable[[Sequence[int]], list[tuple[int, ...]]]] = {
    "matmul": _matmul_shapes,
    "linear": _linear_shapes,
}
_USAGE = {"matmul": "[B ...] M K N", "linear": "M K N"}


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + x.dtype.type(0.044715) * x**3)))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


_NUMPY_ACTIVATIONS: dict[str | None, Callable[[Any], Any]] = {
    None: lambda x: x,
    "relu": lambda x: x * (x > 0),
    "gelu": _gelu,
    "silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
}
