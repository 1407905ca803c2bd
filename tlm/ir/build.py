"""Programs from formulas: name the buffers, give each stage its formula, and get the plain loop nest.

    b = Builder("matmul")
    A, B = b.input("A", (4, 6), "f32"), b.input("B", (6, 5), "f32")
    b.reduce("C", (4, 5), over={"k": 6}, fn=lambda i, j, k: A[i, k] * B[k, j], output=True)
    program = b.build()

Intermediates live on the heap until a schedule moves them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ..errors import ArgumentError
from .combiners import COMBINERS
from .dtypes import DType, from_numpy, i64
from .exprs import Expr, Load, Node, Var, const, converted
from .formula import equality, running, writing
from .inside import clamped
from .names import apart, fresh
from .nodes import Alloc, Buffer, For, Program, Stmt, Store, Update, block
from .walk import deeper, written_out
from .walk import loops as loops_of

MAX_OPERATIONS = 100_000
"""Operations of a formula, written out."""

MAX_NESTED = 300
"""Operations around an operation in a formula: what every pass follows within Python's recursion limit."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A buffer of the program being built; indexing it reads an element.

    An index that depends on data is cut to its axis: below it the first element is read, beyond it the last.
    """

    buffer: Buffer

    def __eq__(self, other: object) -> bool:
        if running.formula:
            raise equality(self, other)
        return isinstance(other, Tensor) and self.buffer == other.buffer

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
        return Load(self.name, tuple([self._index(n, i) for n, i in enumerate(indices)]), self.dtype)

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self.name} is not iterable; index it with one index a dimension")

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.buffer.shape)

    def _index(self, axis: int, given: Expr | int) -> Expr:
        index = _integer(given)
        if isinstance(index, int) and not isinstance(index, bool):
            if not 0 <= index < self.shape[axis]:
                raise ArgumentError(
                    f"index {index} of {self.name} is outside of axis {axis}, which has {self.shape[axis]}"
                )
            return const(index)
        if not isinstance(index, Node) or not (index.dtype.is_integer):
            kind = index.dtype if isinstance(index, Node) else type(index).__name__
            raise ArgumentError(f"{self.name} is indexed with integers, got {kind} for axis {axis}")
        return converted(index, i64)


def _integer(index: Any) -> Any:
    """An integer of any library as an int; anything else, bools too, as it is."""
    try:
        return index if isinstance(index, (*Node, bool)) else operator.index(index)
    except TypeError:
        return index


@dataclass(frozen=True, slots=True)
class Place:
    """Loops (name: extent) that together run over every element of a shape once, and the element of each."""

    loops: Mapping[str, int]
    at: Callable[..., tuple[Expr, ...]]


class Builder:
    """Collects inputs and stages; `build` makes the Program. Stages run in the order of their adding.

    Formulas run once, on loop variables. Indices that depend on data are cut to their axes, see `Tensor`.
    """

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
        place: Place | None = None,
    ) -> Tensor:
        """An elementwise stage: name[axes] = fn(*axes), converted to `dtype` where that is given.

        With `place` the loops are place.loops instead of one a dimension, and the element written is
        place.at(*loops).
        """
        loops, at = _loops(name, shape, axes, place)
        names = self._loop_names(name, tuple(loops))
        indices = tuple([Var(n) for n in names])
        with writing():
            made = fn(*indices)
        value = self._value(name, made, dtype, dict(zip(names, loops.values(), strict=True)))
        tensor = self._declare(name, shape, value.dtype, output)
        self._stages.append(_nest(names, tuple(loops.values()), Store(name, at(*indices), value)))
        return tensor

    def reduce(
        self,
        name: str | Sequence[str],
        shape: Sequence[int],
        over: Mapping[str, int],
        fn: Callable[..., Expr | float | tuple[Expr | float, ...]],
        combiner: str = "sum",
        axes: Sequence[str] | None = None,
        dtype: DType | str | None = None,
        output: bool = False,
        place: Place | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """A reduction of fn(*axes, *over) over the loops `over` (name: extent), accumulated in fn's dtype.

        For a combiner over n-tuples `fn` returns n values, `name` is n names (or one, to which .0, .1, ...
        are added), and the result is a tuple of Tensors. `dtype` converts every value first, `place` is as in
        `compute`. Over no elements the result is the combiner's identity.
        """
        parts = COMBINERS[combiner].parts if combiner in COMBINERS else 0
        if not parts:
            raise ArgumentError(f"unknown combiner {combiner!r}; known are {', '.join(COMBINERS)}")
        targets = _target_names(name, parts)
        loops, at = _loops(targets[0], shape, axes, place)
        if repeated := loops.keys() & over.keys():
            raise ArgumentError(f"{targets[0]} has two loops named {', '.join(sorted(repeated))}")
        names = self._loop_names(targets[0], tuple(loops))
        inner = self._loop_names(targets[0], tuple(over))
        indices = tuple([Var(n) for n in names])
        with writing():
            made = fn(*indices, *[Var(n) for n in inner])
        extents = dict(zip((*names, *inner), (*loops.values(), *over.values()), strict=True))
        listed = made if isinstance(made, tuple) else (made,)
        values = tuple([self._value(targets[0], v, dtype, extents) for v in listed])
        if len(values) != parts:
            raise ArgumentError(f"{targets[0]}: {combiner} needs {parts} values, fn gave {len(values)}")
        tensors = [self._declare(t, shape, v.dtype, output) for t, v in zip(targets, values, strict=True)]
        if 0 in over.values():
            empty = COMBINERS[combiner].identity(tuple([v.dtype for v in values]))
            # Each by itself: what has no loop in common can be scheduled apart.
            for target, identity in zip(targets, empty, strict=True):
                own = self._loop_names(target, tuple(loops))
                stored = Store(target, at(*[Var(n) for n in own]), identity)
                self._stages.append(_nest(own, tuple(loops.values()), stored))
        else:
            update = Update(targets, at(*indices), values, combiner, inner)
            self._stages.append(_nest((*names, *inner), (*loops.values(), *over.values()), update))
        return tensors[0] if parts == 1 else tuple(tensors)

    def fresh(self, name: str) -> str:
        """`name`, or `name` with the first number after it that makes it new among the buffers, and among the
        names of reductions over tuples, whose buffers have .0, .1, ... after them."""
        taken = [b.name for b in (*self._inputs, *self._outputs, *self._temporaries)]
        return apart(name, [*taken, *[t.rpartition(".")[0] for t in taken]])

    def is_input(self, tensor: Tensor) -> bool:
        """Whether a tensor is an input array."""
        return tensor.buffer in self._inputs

    def build(self, outputs: Sequence[Tensor] = ()) -> Program:
        """The program: stages in order, inside the Allocs of their intermediates (on the heap).

        `outputs` are stages that are results, beside those added with output=True.
        """
        chosen = [t.buffer for t in outputs]
        if unknown := [b.name for b in chosen if b not in self._temporaries]:
            raise ArgumentError(f"program {self._name} has no stage {', '.join(unknown)} to output")
        results = (*self._outputs, *chosen)
        if not results:
            raise ArgumentError(f"program {self._name} has no output; pass output=True to a stage")
        body = block(*self._stages)
        for buffer in reversed([b for b in self._temporaries if b not in chosen]):
            body = Alloc(replace(buffer, memory="heap"), body)
        return Program(self._name, tuple(self._inputs), results, body)

    def _new(self, name: str) -> str:
        if any(b.name == name for b in (*self._inputs, *self._outputs, *self._temporaries)):
            raise ArgumentError(f"program {self._name} already has a buffer {name}")
        return name

    def _value(self, name: str, value: Any, dtype: DType | str | None, extents: Mapping[str, int]) -> Expr:
        """What a formula has given, as an element that reads nothing outside of its arrays."""
        made = _typed(value, dtype)
        if deeper(made, MAX_NESTED):
            raise ArgumentError(
                f"the formula of {name} nests more than {MAX_NESTED} operations in each other; join long "
                "chains in pairs, as ((a + b) + (c + d)), or in stages"
            )
        if (size := written_out(made)) > MAX_OPERATIONS:
            raise ArgumentError(
                f"the formula of {name} has {size} operations with those that it uses several times counted "
                f"each time; the limit is {MAX_OPERATIONS}: make stages (tlm.compute) of what is used again"
            )
        known = (*self._inputs, *self._outputs, *self._temporaries)
        with writing(False):
            return clamped(made, {b.name: b.shape for b in known}, extents)

    def _declare(self, name: str, shape: Sequence[int], dtype: DType, output: bool) -> Tensor:
        buffer = Buffer(self._new(name), tuple(shape), dtype)
        (self._outputs if output else self._temporaries).append(buffer)
        return Tensor(buffer)

    def _loop_names(self, stage: str, axes: tuple[str, ...]) -> tuple[str, ...]:
        # The first stage keeps short names, because it is most often the only one.
        if not self._stages:
            return axes
        taken = [loop.var for s in self._stages for loop in loops_of(s)]
        for a in axes:
            taken.append(fresh(f"{stage}_{a}", taken))
        return tuple(taken[len(taken) - len(axes) :])


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


def _loops(
    name: str, shape: Sequence[int], axes: Sequence[str] | None, place: Place | None
) -> tuple[Mapping[str, int], Callable[..., tuple[Expr, ...]]]:
    """The spatial loops of a stage, and the indices that it writes as a function of them."""
    if place is not None:
        return place.loops, place.at
    names = _axes(name, shape, axes)
    if len(set(names)) != len(names):
        raise ArgumentError(f"{name} has axes {names}; give each another name")
    return dict(zip(names, shape, strict=True)), lambda *at: at


def _target_names(name: str | Sequence[str], parts: int) -> tuple[str, ...]:
    if isinstance(name, str):
        return (name,) if parts == 1 else tuple([f"{name}.{n}" for n in range(parts)])
    if len(name) != parts:
        raise ArgumentError(f"{parts} names are needed for the parts of the combiner, got {tuple(name)}")
    return tuple(name)


def _dtype(dtype: DType | str) -> DType:
    return dtype if isinstance(dtype, DType) else from_numpy(dtype)


def _typed(value: Expr | float, dtype: DType | str | None) -> Expr:
    if isinstance(value, Tensor):
        raise ArgumentError(f"a formula gave the whole of {value.name}; index it")
    if not isinstance(value, (*Node, int, float)):
        raise ArgumentError(f"a formula gives an element, got {type(value).__name__}")
    if dtype is not None:
        return converted(value, _dtype(dtype))
    if not isinstance(value, Node):
        raise ArgumentError(f"a formula gave the number {value!r}; pass dtype= to say what type it has")
    return value


def _nest(names: Sequence[str], extents: Sequence[int], body: Stmt) -> Stmt:
    for name, extent in zip(reversed(names), reversed(extents), strict=True):
        body = For(name, extent, body)
    return body
