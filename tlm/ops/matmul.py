"""matmul and linear: the products, by numpy's and JAX's names and rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from .arrays import Spec
from .dispatch import Operator
from .dtypes import product_type
from .products import Problem, product, without_empty_sum
from .settings import activation as activation_of

if TYPE_CHECKING:
    from ..ir.nodes import Program
    from .kernel import Kernel


def _describe_matmul(operands: tuple[Spec, ...], params: tuple[Any, ...]) -> Problem:
    (a, b), (dtype,) = operands, params
    wanted = None if dtype is None else product_type("matmul", dtype, (a.dtype, b.dtype))
    return product("matmul", a, b, wanted)


class Matmul(Operator):
    """The matrix product, as numpy.matmul: `tlm.ops.matmul(a, b)`.

    Shapes [..., M, K] @ [..., K, N] -> [..., M, N]; leading axes broadcast, a 1-D operand gains an axis that
    the result loses. The dtype is numpy's promotion (integers of one type keep it, and wrap), or `dtype`.
    Sums are held in f32 for f16 and bf16, in i32 for narrower integers. Layouts other than dense rows or
    columns are copied first. A schedule with `terms` above 1 sums products by dot-product instructions: exact
    for integers; those of bf16 take numbers and sums below 2**-126 as zero, and round as a chain of f32
    additions does, in another order.
    """

    def __init__(self) -> None:
        super().__init__("matmul", _describe_matmul, without_empty_sum)

    def __call__(
        self,
        a: Any,
        b: Any,
        *,
        schedule: Any = "generate",
        target: Any = None,
        threads: int | None = None,
        out: np.ndarray | None = None,
        dtype: Any = None,
    ) -> Any:
        """a @ b as a new array of the operands' kind, or in `out` (which may overlap an operand).

        schedule: "generate" (the default), "default", "heuristic", "random", "search", "generate+measure",
        tlm.Search(...), tlm.Generate(...), or a tlm.Schedule. target: None (where the operands lie: this CPU,
        or their GPU), "cpu", "cuda", the name of a level, or a tlm.Target. Raises ArgumentError, DTypeError,
        BackendError.
        """
        key: Any = None
        try:
            key = (
                a.__class__, b.__class__, a.shape, b.shape, a.strides, b.strides, a.dtype, b.dtype,
                schedule, target, threads if threads is None else (threads.__class__, threads), dtype,
            )  # fmt: skip
            runner = self._calls.get(key)
        except (AttributeError, TypeError):
            key = runner = None
        if runner is not None:
            return runner((a, b), out)
        return self._call(key, (a, b), (dtype,), schedule, target, threads, out)

    def kernel(
        self,
        a: Any,
        b: Any,
        *,
        schedule: Any = "generate",
        target: Any = None,
        threads: int | None = None,
        dtype: Any = None,
    ) -> Kernel:
        """Decide and compile, do not run. Operands are arrays, or have .shape and .dtype (then C order)."""
        return self._kernel((a, b), (dtype,), schedule, target, threads)

    def program(self, a: Any, b: Any, *, dtype: Any = None) -> Program:
        """The unscheduled program of a @ b, to schedule by hand."""
        return self._program((a, b), (dtype,))


def _describe_linear(operands: tuple[Spec, ...], params: tuple[Any, ...]) -> Problem:
    x, w, *rest = operands
    (name,) = params
    bias = rest[0] if rest else None
    if len(w.shape) != 2 or not x.shape:
        raise ArgumentError(f"linear takes x [..., K] and w [K, N], got shapes {x.shape} and {w.shape}")
    if bias is not None and bias.shape != w.shape[1:]:
        raise ArgumentError(f"linear with w {w.shape} takes a bias of shape {w.shape[1:]}, got {bias.shape}")
    problem = product("linear", x, w, bias=bias, activation=activation_of(name))
    if name not in (None, "relu") and not problem.dtype.is_float:
        raise ArgumentError(f"linear: activation {name!r} is for floats, the result is {problem.dtype}")
    return problem


class Linear(Operator):
    """A dense layer: `tlm.ops.linear(x, w, b, activation="gelu")` is activation(x @ w + b).

    Shapes x [..., K], w [K, N], b [N] or None -> [..., N]. Activations: "relu", "gelu" (the tanh form),
    "silu", "sigmoid", "tanh", None; they and the bias are computed in the type of the sum.
    """

    def __init__(self) -> None:
        super().__init__("linear", _describe_linear, without_empty_sum)

    def __call__(
        self,
        x: Any,
        w: Any,
        b: Any = None,
        *,
        activation: str | None = None,
        schedule: Any = "generate",
        target: Any = None,
        threads: int | None = None,
        out: np.ndarray | None = None,
    ) -> Any:
        """activation(x @ w + b); arguments as of `matmul`."""
        operands = (x, w) if b is None else (x, w, b)
        key: Any = None
        try:
            key = (
                *[(o.__class__, o.shape, o.strides, o.dtype) for o in operands], activation,
                schedule, target, threads if threads is None else (threads.__class__, threads),
            )  # fmt: skip
            runner = self._calls.get(key)
        except (AttributeError, TypeError):
            key = runner = None
        if runner is not None:
            return runner(operands, out)
        return self._call(key, operands, (activation,), schedule, target, threads, out)

    def kernel(
        self,
        x: Any,
        w: Any,
        b: Any = None,
        *,
        activation: str | None = None,
        schedule: Any = "generate",
        target: Any = None,
        threads: int | None = None,
    ) -> Kernel:
        """Decide and compile, do not run. Operands are arrays, or have .shape and .dtype (then C order)."""
        return self._kernel((x, w) if b is None else (x, w, b), (activation,), schedule, target, threads)

    def program(self, x: Any, w: Any, b: Any = None, *, activation: str | None = None) -> Program:
        """The unscheduled program, to schedule by hand."""
        return self._program((x, w) if b is None else (x, w, b), (activation,))


matmul = Matmul()
linear = Linear()
