"""Programs from formulas: name the buffers, give each stage its formula, and get the plain loop nest.

    b = Builder("matmul")
    A, B = b.input("A", (4, 6), "f32"), b.input("B", (6, 5), "f32")
    b.reduce("C", (4, 5), over={"k": 6}, fn=lambda i, j, k: A[i, k] * B[k, j], output=True)
    program = b.build()

Intermediates live on the heap until a schedule moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import ArgumentError
from .combiners import COMBINERS
from .dtypes import DType, from_numpy
from .nodes import (
    Alloc,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Load,
    Op,
    Program,
    Stmt,
    Store,
    Update,
    Var,
    block,
    const,
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A buffer of the program being built; indexing it reads an element."""

    buffer: Buffer

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.buffer.shape

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def __getitem__(self, index: Expr | int | tuple[Expr | int, ...]) -> Load:
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) != len(self.shape):
            raise ArgumentError(f"{self.name} has {len(self.shape)} dimensions, got {len(indices)} indices")
        return Load(self.name, tuple([const(i) if isinstance(i, int) else i for i in indices]), self.dtype)


class Builder:
    """Collects inputs and stages; `build` makes the Program. Stages run in the order of their adding."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inputs: list[Buffer] = []
        self._outputs: list[Buffer] = []
        self._temporaries: list[Buffer] = []
        self._stages: list[Stmt] = []

    def input(
        self, name: str, shape: Sequence[int], dtype: DType | str, strides: Sequence[int] | None = None
    ) -> Tensor:
        """An input array; `strides` in elements, row-major where none are given."""
        kept = None if strides is None else tuple(strides)
        buffer = Buffer(self._new(name), tuple(shape), _dtype(dtype), "array", kept)
        self._inputs.append(buffer)
        return Tensor(buffer)

    def compute(
        self,
        name: str,
        shape: Sequence[int],
        fn: Callable[..., Expr | float],
        axes: Sequence[str] | None = None,
        dtype: DType | str | None = None,
        output: bool = False,
    ) -> Tensor:
        """An elementwise stage: name[axes] = fn(*axes), cast to `dtype` where that is given."""
        names = self._loop_names(name, _axes(name, shape, axes))
        indices = tuple([Var(n) for n in names])
        value = _typed(fn(*indices), dtype)
        tensor = self._declare(name, shape, value.dtype, output)
        self._stages.append(_nest(names, shape, Store(name, indices, value)))
        return tensor

    def reduce(
        self,
        name: str | Sequence[str],
        shape: Sequence[int],
        over: Mapping[str, int],
        fn: Callable[..., Expr | tuple[Expr, ...]],
        combiner: str = "sum",
        axes: Sequence[str] | None = None,
        dtype: DType | str | None = None,
        output: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """A reduction of fn(*axes, *over) over the loops `over` (name: extent), accumulated in fn's dtype.

        For a combiner over n-tuples `fn` returns n values, `name` is n names (or one, to which .0, .1, ...
        are added), and the result is a tuple of Tensors. `dtype` casts every value first.
        """
        parts = COMBINERS[combiner].parts if combiner in COMBINERS else 0
        if not parts:
            raise ArgumentError(f"unknown combiner {combiner!r}; known are {', '.join(COMBINERS)}")
        targets = _target_names(name, parts)
        names = self._loop_names(targets[0], _axes(targets[0], shape, axes))
        inner = self._loop_names(targets[0], tuple(over))
        indices = tuple([Var(n) for n in names])
        made = fn(*indices, *[Var(n) for n in inner])
        values = tuple([_typed(v, dtype) for v in (made if isinstance(made, tuple) else (made,))])
        if len(values) != parts:
            raise ArgumentError(f"{targets[0]}: {combiner} needs {parts} values, fn gave {len(values)}")
        tensors = [self._declare(t, shape, v.dtype, output) for t, v in zip(targets, values, strict=True)]
        update = Update(targets, indices, values, combiner, inner)
        self._stages.append(_nest((*names, *inner), (*shape, *over.values()), update))
        return tensors[0] if parts == 1 else tuple(tensors)

    def build(self) -> Program:
        """The program: stages in order, inside the Allocs of their intermediates (on the heap)."""
        if not self._outputs:
            raise ArgumentError(f"program {self._name} has no output; pass output=True to a stage")
        body = block(*self._stages)
        for buffer in reversed(self._temporaries):
            body = Alloc(replace(buffer, memory="heap"), body)
        return Program(self._name, tuple(self._inputs), tuple(self._outputs), body)

    def _new(self, name: str) -> str:
        if any(b.name == name for b in (*self._inputs, *self._outputs, *self._temporaries)):
            raise ArgumentError(f"program {self._name} already has a buffer {name}")
        return name

    def _declare(self, name: str, shape: Sequence[int], dtype: DType, output: bool) -> Tensor:
        buffer = Buffer(self._new(name), tuple(shape), dtype)
        (self._outputs if output else self._temporaries).append(buffer)
        return Tensor(buffer)

    def _loop_names(self, stage: str, axes: tuple[str, ...]) -> tuple[str, ...]:
        # The first stage keeps short names, because it is most often the only one.
        return axes if not self._stages else tuple([f"{stage}_{a}" for a in axes])


def default_axes(rank: int) -> tuple[str, ...]:
    """Loop names of an array: i, j for the last two dimensions, b or b0, b1, ... before them."""
    if rank <= 2:
        return ("i", "j")[:rank]
    batch = ("b",) if rank == 3 else tuple([f"b{n}" for n in range(rank - 2)])
    return (*batch, "i", "j")


def _axes(name: str, shape: Sequence[int], axes: Sequence[str] | None) -> tuple[str, ...]:
    found = default_axes(len(shape)) if axes is None else tuple(axes)
    if len(found) != len(shape):
        raise ArgumentError(f"{name} has shape {tuple(shape)} but axes {found}; give one a dimension")
    return found


def _target_names(name: str | Sequence[str], parts: int) -> tuple[str, ...]:
    if isinstance(name, str):
        return (name,) if parts == 1 else tuple([f"{name}.{n}" for n in range(parts)])
    if len(name) != parts:
        raise ArgumentError(f"{parts} names are needed for the parts of the combiner, got {tuple(name)}")
    return tuple(name)


def _dtype(dtype: DType | str) -> DType:
    return dtype if isinstance(dtype, DType) else from_numpy(dtype)


def _typed(value: Expr | float, dtype: DType | str | None) -> Expr:
    if not isinstance(value, (Const, Var, Load, Op, Cast)):
        if dtype is None:
            raise ArgumentError(f"a formula gave the number {value!r}; pass dtype= to say what type it has")
        return const(value, _dtype(dtype))
    if dtype is None or value.dtype == _dtype(dtype):
        return value
    return Cast(value, _dtype(dtype))


def _nest(names: Sequence[str], extents: Sequence[int], body: Stmt) -> Stmt:
    for name, extent in zip(reversed(names), reversed(extents), strict=True):
        body = For(name, extent, body)
    return body
