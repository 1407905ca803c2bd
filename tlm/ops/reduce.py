"""Reductions over any axes, by numpy's names and rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError
from ..ir.build import Tensor
from ..ir.dtypes import DType, accumulator, boolean, f64, i64
from ..ir.exprs import Expr, const, converted
from . import expressions as e
from .axes import kept, merged, names, several
from .dtypes import element_type
from .functions import FUNCTIONS
from .operator import operator

Term = Callable[[Expr], Expr]


class Axes:
    """The reduced axes of a call, and stages over them."""

    def __init__(self, name: str, x: Tensor, axis: Any, keepdims: Any) -> None:
        self.name, self.x, self.keepdims = name, x, bool(keepdims)
        self.reduced = several(name, axis, x.ndim)
        self.outer = kept(x.ndim, self.reduced)
        self.shape = tuple([x.shape[n] for n in self.outer])
        loops = names(x.ndim)
        self.loops = tuple([loops[n] for n in self.outer])
        self.over = {loops[n]: x.shape[n] for n in self.reduced}

    @property
    def count(self) -> int:
        """Elements that go into one result."""
        return math.prod(self.over.values())

    def element(self, at: tuple[Expr, ...]) -> Expr:
        """The element at the kept, then the reduced axes."""
        outer, inner = at[: len(self.outer)], at[len(self.outer) :]
        return self.x[merged(self.x.ndim, self.reduced, outer, inner)]

    def reduce(self, combiner: str, term: Callable[..., Any], label: Any) -> Any:
        """A reduction of term(*kept, *reduced)."""
        return e.reduce(combiner, self.shape, term, over=self.over, name=label, axes=self.loops)

    def finish(self, source: Tensor, formula: Callable[..., Expr] | None) -> Tensor:
        """formula(element, *kept) of a stage, with ones for the reduced axes where `keepdims` asks."""
        if not self.keepdims and formula is None:
            return source
        shape = tuple([1 if n in self.reduced else s for n, s in enumerate(self.x.shape)])
        where = self.outer if self.keepdims else tuple(range(len(self.shape)))

        def value(*at: Expr) -> Expr:
            outer = tuple([at[n] for n in where])
            found = source[outer]
            return found if formula is None else formula(found, *outer)

        if not self.keepdims:
            return e.compute(self.shape, value, name="Y", axes=self.loops)
        return e.compute(shape, value, name="Y", axes=names(self.x.ndim))


def _result(name: str, x: Tensor, dtype: Any, of_integers: DType) -> DType:
    if dtype is not None:
        return element_type(name, dtype)
    return x.dtype if x.dtype.is_float else of_integers


def _total(combiner: str, title: str) -> Any:
    def function(x: Tensor, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
        axes = Axes(combiner, x, axis, keepdims)
        result = _result(combiner, x, dtype, i64)
        # A count of true elements overflows in less than i64.
        acc = i64 if result == boolean else result if result.is_integer else accumulator(result)
        held = boolean if result == boolean else acc
        plain = not keepdims and acc == result

        def term(*at: Expr) -> Expr:
            return converted(converted(axes.element(at), held), acc)

        total = axes.reduce(combiner, term, "Y" if plain else "total")
        return axes.finish(total, None if acc == result else lambda v, *_: converted(v, result))

    function.__doc__ = f"""{title} over `axis` (an integer, several, or None: all), as numpy.{combiner}.

    Integers and bools are added as int64, halves as f32 (the result has the dtype of x), or all as `dtype`.
    Long sums are cut into parts: the total of 2**20 equal numbers in f32 is within 3e-5 of the exact one, of
    2**24 within 1e-5 (relative; numpy's pairwise sum: 2e-7). `dtype="float64"` adds as f64.
    """
    return operator(name=combiner)(function)


def _extreme(combiner: str, title: str) -> Any:
    def function(x: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        axes = Axes(combiner, x, axis, keepdims)
        _some(axes)
        found = axes.reduce(combiner, lambda *at: axes.element(at), "Y" if not keepdims else "best")
        return axes.finish(found, None)

    function.__doc__ = f"""The {title} over `axis` (an integer, several, or None: all), as numpy.{combiner}.

    NaN where any value is NaN. ArgumentError for an axis of no elements: there is no {title} of nothing.
    """
    return operator(name=combiner)(function)


def _some(axes: Axes) -> None:
    if axes.count == 0 and 0 not in axes.shape:
        raise ArgumentError(f"{axes.name} of shape {axes.x.shape} over an empty axis: it has no identity")


def _position(combiner: str, title: str) -> Any:
    def function(x: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        if isinstance(axis, (tuple, list)):
            raise ArgumentError(f"{combiner}: axis is an integer or None, got {axis!r}")
        axes = Axes(combiner, x, axis, keepdims)
        _some(axes)
        label = ("best", "Y" if not keepdims else "at")
        find = e.argmax if combiner == "argmax" else e.argmin
        found = find(axes.shape, lambda *at: axes.element(at), axes.over, name=label, axes=axes.loops)
        return axes.finish(found, None)

    function.__doc__ = f"""The int64 index of the {title} along `axis` (None: of all, in row-major order).

    The first one where several are equal, the first NaN where there is one, as numpy.{combiner}.
    """
    return operator(name=combiner)(function)


def _logic(combiner: str, title: str) -> Any:
    def function(x: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        axes = Axes(combiner, x, axis, keepdims)
        label = "Y" if not keepdims else "found"
        return axes.finish(
            axes.reduce(combiner, lambda *at: converted(axes.element(at), boolean), label), None
        )

    function.__doc__ = f"Whether {title} over `axis` is true (not 0), as numpy.{combiner}."
    return operator(name=combiner)(function)


def _float_type(name: str, x: Tensor, dtype: Any) -> tuple[DType, DType]:
    """Dtypes of the result and of the sums of a mean or a variance."""
    result = _result(name, x, dtype, f64)
    if not result.is_float:
        raise ArgumentError(f"{name}: a mean is a float, got dtype={result}")
    return result, accumulator(result)


@operator
def mean(x: Tensor, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean over `axis` (an integer, several, or None: all), as numpy.mean.

    Integers give f64; halves are summed in f32. NaN for an axis of no elements. As exact as `sum`.
    """
    axes = Axes("mean", x, axis, keepdims)
    result, acc = _float_type("mean", x, dtype)
    total = axes.reduce("sum", lambda *at: converted(axes.element(at), acc), "total")
    return axes.finish(total, lambda v, *_: converted(_divided(v, axes.count), result))


def _divided(value: Expr, count: int) -> Expr:
    return value / float(count)


def _spread(name: str, root: bool) -> Any:
    def function(
        x: Tensor, axis: Any = None, *, dtype: Any = None, ddof: float = 0, keepdims: bool = False
    ) -> Tensor:
        axes = Axes(name, x, axis, keepdims)
        if ddof != ddof:
            raise ArgumentError(f"{name}: ddof is a number, got {ddof!r}")
        result, acc = _float_type(name, x, dtype)
        square = centred(axes, acc)[1]
        count = float(axes.count - ddof) if axes.count > ddof else 0.0

        def final(v: Expr, *_: Expr) -> Expr:
            value = v / count
            return converted(FUNCTIONS["sqrt"](value) if root else value, result)

        return axes.finish(square, final)

    title = "standard deviation" if root else "variance"
    function.__doc__ = f"""The {title} over `axis`, as numpy.{name}: divided by n - ddof.

    Computed from differences to the mean, which is rounded as of `mean`: the square of its error is added to
    the variance. For rows of thousands of elements a large mean costs no digits; of 2**20 equal numbers near
    1000 in f32 the standard deviation is 0.0024, not 0: there `dtype="float64"` helps. Integers give f64.
    """
    return operator(name=name)(function)


def centred(axes: Axes, acc: DType) -> tuple[Tensor, Tensor]:
    """The mean over the axes, and the sum of squared differences to it."""
    total = axes.reduce("sum", lambda *at: converted(axes.element(at), acc), "total")
    middle = e.compute(axes.shape, lambda *at: _divided(total[at], axes.count), name="mean", axes=axes.loops)

    def square(*at: Expr) -> Expr:
        difference = converted(axes.element(at), acc) - middle[at[: len(axes.outer)]]
        return difference * difference

    return middle, axes.reduce("sum", square, "square")


@operator
def logsumexp(x: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis`, without overflow, as jax.nn.logsumexp. Integers give f64.

    Each row is read once: the sum is rescaled when a larger value comes (Milakov and Gimelshein, 2018).
    -inf for an axis of no elements.
    """
    axes = Axes("logsumexp", x, axis, keepdims)
    result, acc = _float_type("logsumexp", x, None)
    top, total = axes.reduce(
        "logsumexp", lambda *at: (converted(axes.element(at), acc), const(1, acc)), ("top", "total")
    )

    def final(v: Expr, *at: Expr) -> Expr:
        return converted(top[at] + FUNCTIONS["log"](v), result)

    return axes.finish(total, final)


sum_ = _total("sum", "The sum")
prod = _total("prod", "The product")
max_ = _extreme("max", "maximum")
min_ = _extreme("min", "minimum")
argmax = _position("argmax", "largest value")
argmin = _position("argmin", "smallest value")
any_ = _logic("any", "any element")
all_ = _logic("all", "every element")
var = _spread("var", False)
std = _spread("std", True)
