"""softmax and log_softmax along an axis."""

from __future__ import annotations

from typing import Any

from ..ir.build import Tensor
from ..ir.dtypes import DType, accumulator, f64
from ..ir.exprs import Expr, converted
from .axes import merged
from .expressions import compute
from .functions import FUNCTIONS
from .operator import operator
from .reduce import Axes


class _Rows(Axes):
    """Rows along the axes, less their maximum."""

    def __init__(self, name: str, x: Tensor, axis: Any) -> None:
        super().__init__(name, x, axis, False)
        self.result: DType = x.dtype if x.dtype.is_float else f64
        self.acc = accumulator(self.result)
        self.top: Tensor = self.reduce("max", lambda *at: converted(self.element(at), self.acc), "top")

    def outer_of(self, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The kept part of an index of the whole array."""
        return tuple([at[n] for n in self.outer])

    def shifted(self, at: tuple[Expr, ...]) -> Expr:
        """x - max at an index of the whole array: at most 0, so that exp of it is at most 1."""
        return converted(self.x[at], self.acc) - self.top[self.outer_of(at)]

    def whole(self, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The index of the whole array from the kept and the reduced axes."""
        return merged(self.x.ndim, self.reduced, at[: len(self.outer)], at[len(self.outer) :])


@operator
def softmax(x: Tensor, axis: Any = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along `axis` (the last by default; several are one), as jax.nn.softmax.

    Without overflow: the maximum is taken off first. Halves are computed in f32, integers as f64.
    """
    rows = _Rows("softmax", x, axis)
    e = compute(x.shape, lambda *at: FUNCTIONS["exp"](rows.shifted(at)), name="E")
    total = rows.reduce("sum", lambda *at: e[rows.whole(at)], "total")
    # One division a row: elements are a product, 1 ulp more.
    part = compute(rows.shape, lambda *at: 1 / total[at], name="part", axes=rows.loops)
    return compute(x.shape, lambda *at: converted(e[at] * part[rows.outer_of(at)], rows.result), name="Y")


@operator
def log_softmax(x: Tensor, axis: Any = -1) -> Tensor:
    """log(softmax(x)) along `axis`, exact also where softmax underflows, as jax.nn.log_softmax."""
    rows = _Rows("log_softmax", x, axis)
    total = rows.reduce("sum", lambda *at: FUNCTIONS["exp"](rows.shifted(rows.whole(at))), "total")
    log = compute(rows.shape, lambda *at: FUNCTIONS["log"](total[at]), name="log", axes=rows.loops)
    return compute(
        x.shape, lambda *at: converted(rows.shifted(at) - log[rows.outer_of(at)], rows.result), name="Y"
    )
