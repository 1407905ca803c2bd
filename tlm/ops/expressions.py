"""New operators as formulas: stages of a tensor program, written inside a function that `operator` decorates.

    @tlm.operator
    def row_norms(x):
        m, n = x.shape
        square = tlm.sum((m,), lambda i, k: x[i, k] * x[i, k], over={"k": n})
        return tlm.compute((m,), lambda i: tlm.sqrt(square[i]))

The parameters of a formula are the loops of its stage, in the order of the shape, then of `over`.
"""

from __future__ import annotations

import inspect
import operator as _operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..errors import ArgumentError
from ..ir.build import Builder, Place, Tensor
from ..ir.dtypes import DType, accumulator, boolean
from ..ir.exprs import Cast, Expr, Node, Op, const, converted
from ..ir.optable import OPS
from .dtypes import formula_type

Formula = Callable[..., Expr | float]
Shape = int | Sequence[int]
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_builder: ContextVar[Builder] = ContextVar("builder")


@contextmanager
def building(builder: Builder) -> Iterator[None]:
    """Stages that are made inside go to `builder`."""
    token = _builder.set(builder)
    try:
        yield
    finally:
        _builder.reset(token)


def current(what: str) -> Builder:
    """The program that is being written; ArgumentError outside of an operator's function."""
    found = _builder.get(None)
    if found is None:
        raise ArgumentError(
            f"tlm.{what} makes a stage of an operator: call it in a function decorated with @tlm.operator "
            f"(for arrays there is tlm.ops)"
        )
    return found


def compute(
    shape: Shape,
    fn: Formula,
    *,
    name: str = "map",
    axes: Sequence[str] | None = None,
    dtype: Any = None,
    place: Place | None = None,
) -> Tensor:
    """A tensor of `shape` whose element at [i, j, ...] is fn(i, j, ...), as `dtype` where that is given.

    `name` is the buffer's (a number is added where it is taken), `axes` the loops' (those of fn's parameters
    by default). ArgumentError where shape and formula do not fit, and for ==, !=, if, and, or, not on
    elements: see `tlm.equal`, `tlm.where`, and & | ~.

    Indices may be elements, as in x[idx[i]]. Where such an index is outside of its axis it is cut to it, as
    jax.numpy does: below 0 (also -1) the first element is read, beyond the end the last.
    """
    builder = current("compute")
    sizes = _sizes(name, shape)
    found = _parameters(name, fn, len(sizes if place is None else place.loops), ())
    axes = axes or found
    _plain([name, *(axes or ())])
    return builder.compute(builder.fresh(name), sizes, fn, axes, _dtype(dtype), place=place)


def reduce(
    combiner: str,
    shape: Shape,
    fn: Callable[..., Any],
    *,
    over: Mapping[str, int],
    name: str | Sequence[str] | None = None,
    axes: Sequence[str] | None = None,
    dtype: Any = None,
    place: Place | None = None,
) -> Any:
    """The reduction of fn(i, j, ..., k, ...) over the loops `over` (name: extent), held in `dtype`.

    `combiner` is a name of `tlm.ir.combiners.COMBINERS`. For one over tuples (argmax, welford, logsumexp) fn
    returns a tuple, and so does this.
    """
    builder = current(combiner)
    label = combiner if name is None else name if isinstance(name, str) else name[0]
    sizes, extents = _sizes(label, shape), _extents(label, over)
    loops = len(sizes if place is None else place.loops)
    found = _parameters(label, fn, loops + len(extents), tuple(extents))
    axes = axes or found
    names = tuple(name) if isinstance(name, (tuple, list)) else (label,)
    _plain([*names, *(axes or ())])
    fresh = tuple(map(builder.fresh, names))
    named = fresh if isinstance(name, (tuple, list)) else fresh[0]
    return builder.reduce(named, sizes, extents, fn, combiner, axes, _dtype(dtype), place=place)


def _reduction(combiner: str, wide: bool, says: str) -> Callable[..., Tensor]:
    def reduction(
        shape: Shape,
        fn: Formula,
        over: Mapping[str, int],
        *,
        name: str = combiner,
        axes: Sequence[str] | None = None,
        dtype: Any = None,
        place: Place | None = None,
    ) -> Tensor:
        def value(*at: Expr) -> Expr | float:
            found = fn(*at)
            if not isinstance(found, Node):
                return found
            goal = _dtype(dtype) or (accumulator(found.dtype) if wide else found.dtype)
            return widened(found, goal) if wide else converted(found, goal)

        current(combiner)
        loops = len(_sizes(name, shape) if place is None else place.loops)
        known = _parameters(name, fn, loops + len(_extents(name, over)), tuple(over))
        axes = axes or known or _default(loops)
        found: Tensor = reduce(combiner, shape, value, over=over, name=name, axes=axes, place=place)
        return found

    reduction.__name__ = reduction.__qualname__ = combiner
    reduction.__doc__ = f"""{says} of fn(i, j, ..., k, ...) over the loops `over` (name: extent).

    A tensor of `shape` (without the reduced axes). `dtype` is the type in which it is computed and held
    {"(f32 for f16 and bf16, i32 for narrower integers by default)" if wide else "(that of fn by default)"};
    the other arguments are as of `compute`. Over no elements it is {_EMPTY[combiner]}.
    """
    return reduction


_EMPTY = {
    "sum": "0", "prod": "1", "max": "the lowest value", "min": "the highest value", "any": "false",
    "all": "true",
}  # fmt: skip
sum = _reduction("sum", True, "The sum")
prod = _reduction("prod", True, "The product")
max = _reduction("max", False, "The maximum (NaN where any value is NaN)")
min = _reduction("min", False, "The minimum (NaN where any value is NaN)")
any = _reduction("any", False, "Whether any is true")
all = _reduction("all", False, "Whether all are true")


def widened(value: Expr, dtype: DType) -> Expr:
    """`value` computed in the wider `dtype`: what a sum does to half types and small integers.

    Arithmetic on narrower values is done on widened operands, so that products neither round nor wrap.
    """
    if value.dtype == dtype:
        return value
    narrow = value.dtype != boolean and value.dtype.is_float == dtype.is_float
    narrow = narrow and value.dtype.bytes < dtype.bytes
    if isinstance(value, Op) and narrow and OPS[value.op].rule in ("same", "float", "where"):
        head = value.args[:1] if value.op == "where" else ()
        return Op(value.op, (*head, *[widened(a, dtype) for a in value.args[len(head) :]]), dtype)
    if not isinstance(value, Node):
        return const(value, dtype)
    return converted(value, dtype) if dtype == boolean else Cast(value, dtype)


def _default(count: int) -> tuple[str, ...]:
    from ..ir.build import default_axes

    return default_axes(count)


def _dtype(dtype: Any) -> DType | None:
    return None if dtype is None else formula_type("a formula", dtype)


def _sizes(name: str, shape: Shape) -> tuple[int, ...]:
    listed = (shape,) if isinstance(shape, int) else shape
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise ArgumentError(f"the shape of {name} is a tuple of sizes, got {shape!r}")
    return tuple([size_of(f"axis {n} of {name}", s) for n, s in enumerate(listed)])


def size_of(what: str, size: Any) -> int:
    """`size` as an int; ArgumentError where it is not a whole number of at least 0."""
    try:
        found = _operator.index(size)
    except TypeError:
        raise ArgumentError(
            f"{what} has size {size!r}; a size is an integer known when the operator is called"
        ) from None
    if found < 0:
        raise ArgumentError(f"{what} has size {found}; a size is at least 0")
    return found


def _extents(name: str, over: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(over, Mapping):
        raise ArgumentError(f"over= of {name} names the reduced loops and their extents, as {{'k': 8}}")
    _plain([str(k) for k in over])
    return {str(k): size_of(f"loop {k} of {name}", n) for k, n in over.items()}


def _plain(names: Sequence[str] | None) -> None:
    """ArgumentError for names of loops or buffers that could be mistaken for those which schedules make."""
    for name in names or ():
        if not isinstance(name, str) or not _PLAIN.fullmatch(name):
            raise ArgumentError(
                f"{name!r} is no name of a loop or a buffer: these have the letters A to Z, digits and _"
            )


def _parameters(
    name: str, fn: Callable[..., Any], count: int, reduced: tuple[str, ...]
) -> tuple[str, ...] | None:
    """The names of fn's parameters for the loops of the shape; None where it takes any number of them."""
    if not callable(fn):
        raise ArgumentError(f"the formula of {name} is a function of its indices, got {fn!r}")
    try:
        kinds = inspect.signature(fn).parameters.values()
    except ValueError:  # some functions written in C
        return None
    plain = [p for p in kinds if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    # `lambda i, x=x: ...` keeps the x of a loop: what has a default is no index where others suffice.
    names = [p.name for p in plain if len(plain) == count or p.default is p.empty]
    if [p for p in kinds if p.kind == p.VAR_POSITIONAL]:
        return None
    if len(names) != count:
        raise ArgumentError(
            f"the formula of {name} takes {len(names)} indices ({', '.join(names)}); its shape has "
            f"{count - len(reduced)} axes" + (f" and it reduces over {', '.join(reduced)}" if reduced else "")
        )
    return tuple(names[: count - len(reduced)])


def _position(combiner: str, title: str) -> Callable[..., Tensor]:
    def position(shape: Shape, fn: Formula, over: Mapping[str, int], **how: Any) -> Tensor:
        current(combiner)
        extents, place = _extents(combiner, over), how.get("place")
        outer = len(_sizes(combiner, shape) if place is None else place.loops)
        _parameters(combiner, fn, outer + len(extents), tuple(extents))

        def pair(*at: Expr) -> tuple[Expr | float, Expr]:
            flat: Expr = const(0)
            for n, (var, extent) in enumerate(zip(at[outer:], extents.values(), strict=True)):
                flat = var if n == 0 else flat * extent + var
            return fn(*at), flat

        how["axes"] = how.get("axes") or _default(outer)
        found = reduce(combiner, shape, pair, over=over, **how)
        index: Tensor = found[1]
        return index

    position.__name__ = position.__qualname__ = combiner
    position.__doc__ = f"""The index of the {title} value of fn(i, ..., k, ...) over the loops `over`: int64.

    In row-major order where there are several loops; the first of equal ones, the first NaN where there is
    one. Arguments as of `reduce`.
    """
    return position


argmax = _position("argmax", "largest")
argmin = _position("argmin", "smallest")
