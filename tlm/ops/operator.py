"""Operators from formulas: `@operator` turns a function of symbolic tensors into one of arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ..errors import ArgumentError, TlmError
from ..ir.build import Builder, Tensor
from ..ir.collapse import collapse
from ..ir.dtypes import boolean, promote, to_numpy, weak
from ..ir.names import NAME
from ..ir.nodes import Program
from ..ir.verify import verify
from .arrays import Spec, from_numbers, read
from .binding import Binding, Settings, Slot, arrays_in, quick
from .dispatch import Operator, bounded
from .expressions import building, compute
from .gpu_places import layout, on_gpu
from .products import Problem
from .settings import check_threads

if TYPE_CHECKING:
    from .kernel import Kernel

_CHOICES = ("schedule", "target", "threads", "out")

_Known = tuple[Any, "tuple[Any, ...] | None", bool]
"""A runner; its operands, None for each array of the call, where some are numbers of the call or defaults;
and whether the positional arguments of the call are its operands."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A program made by an operator's function."""

    program: Program = field(hash=False)
    identity: str
    """What tells it from every other program, in any process."""


Beyond = Literal["refuse", "widen", "cut"]
"""What becomes of a number that the dtype of the arrays beside it cannot hold."""
Check = Callable[..., None]
"""Called with the arrays and settings of a call before it runs: what only the data can tell. Not where they
lie on a GPU: to look at them would be to wait."""


class FormulaOperator(Operator):
    """An operator that a function of symbolic tensors defines; see `operator`."""

    def __init__(
        self,
        function: Callable[..., Tensor],
        name: str,
        scalars: bool | Sequence[str],
        check: Check | None,
        beyond: Beyond = "refuse",
    ) -> None:
        super().__init__(name, self._traced)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self._function = function
        self._scalars = scalars
        self._check = check
        self._beyond = beyond
        self._quick: dict[Any, _Known] = {}
        self._trace = lru_cache(maxsize=4096)(self._write)

    def __call__(
        self,
        *args: Any,
        schedule: Any = "generate",
        target: Any = None,
        threads: int | None = None,
        out: np.ndarray | None = None,
        **settings: Any,
    ) -> Any:
        """The result as a new array of the operands' kind, or in `out` (which may overlap an operand).

        target: None (where the operands lie: this CPU, or their GPU), "cpu", "cuda", or a tlm.Target.
        """
        key: Any = None
        try:
            named = tuple([(k, quick(v)) for k, v in settings.items()]) if settings else ()
            # True and 1.0 equal 1, and are no numbers of threads.
            count = threads if threads is None else (threads.__class__, threads)
            key = (*map(quick, args), named, schedule, target, count)
            found = self._quick.get(key)
        except TypeError:
            key = found = None
        if found is not None:
            runner, fixed, plain = found
            if plain:
                return runner(args, out)
            arrays = arrays_in((*args, *settings.values()))
            if fixed is not None:
                given = iter(arrays)
                arrays = [next(given) if x is None else x for x in fixed]
            return runner(arrays, out)
        return self._slow(key, args, settings, (schedule, target, threads), out)

    def kernel(
        self,
        *args: Any,
        schedule: Any = "generate",
        target: Any = None,
        threads: int | None = None,
        **settings: Any,
    ) -> Kernel:
        """Decide and compile, do not run. Operands are arrays, or have .shape and .dtype (then C order)."""
        operands, bound = self._bind(args, settings)
        return self._kernel(operands, bound, schedule, target, threads)

    def program(self, *args: Any, **settings: Any) -> Program:
        """The unscheduled program, to schedule by hand."""
        return self._program(*self._bind(args, settings))

    @cached_property
    def _binding(self) -> Binding:
        return Binding(self._function)

    @property
    def __signature__(self) -> inspect.Signature:
        known = self._binding.signature
        added = [p for n, p in _OPTIONS.items() if n not in known.parameters]
        return known.replace(parameters=[*known.parameters.values(), *added], return_annotation=Any)

    def __repr__(self) -> str:
        return f"<operator {self.__name__}{self._binding.signature}>"

    def _bind(self, args: Sequence[Any], settings: dict[str, Any]) -> tuple[tuple[Any, ...], Settings]:
        operands, bound = self._binding.bind(self.__name__, args, settings)
        _check(self.__name__, self._binding, args, settings)
        given = tuple(
            [from_numbers(self.__name__, x) if isinstance(x, (list, tuple)) else x for x in operands]
        )
        if self._scalars and not all(hasattr(x, "dtype") for x in given):
            given = _with_scalars(given, self._sharing(bound), self._beyond)
        return tuple([np.asarray(x) if isinstance(x, _NUMBERS) else x for x in given]), bound

    def _sharing(self, bound: Settings) -> list[bool]:
        """Of each operand, whether it has a say in the dtype of numbers, and takes it as a number."""
        names = [name for name, value in bound if isinstance(value, Slot)]
        return [self._scalars is True or name in (self._scalars or ()) for name in names]

    def _slow(
        self, key: Any, args: Sequence[Any], settings: dict[str, Any], how: tuple[Any, ...], out: Any
    ) -> Any:
        """A call that is not in `_quick`; it is remembered there where its key says all."""
        check_threads(how[-1])
        operands, bound = self._bind(args, settings)
        if self._check is not None and not on_gpu(operands):
            key = None
            arguments, named = self._binding.arguments(bound, operands)
            self._check(*arguments, **named)
        full: Any = None
        try:
            full = (*map(layout, operands), bound, *how)
            runner = self._calls.get(full)
        except (AttributeError, TypeError):
            full = runner = None
        if runner is None:
            schedule, target, threads = how
            result = self._call(full, operands, bound, schedule, target, threads, out)
            runner = self._calls.get(full)
        else:
            result = runner(operands, out)
        if key is not None and runner is not None:
            self._remember(key, runner, args, settings, operands)
        return result

    def _remember(
        self,
        key: Any,
        runner: Any,
        args: Sequence[Any],
        settings: dict[str, Any],
        operands: tuple[Any, ...],
    ) -> None:
        """Let later calls of this form run at once: their arrays in order, the same numbers between them."""
        given = arrays_in((*args, *settings.values()))
        left = list(given)
        fixed: list[Any] = []
        for x in operands:
            own = bool(left) and x is left[0]
            if not own and x.ndim:
                return
            fixed.append(None if own else x)
            left = left[1:] if own else left
        if not left:
            plain = [id(x) for x in args] == [id(x) for x in operands]
            fewer = tuple(fixed) if len(given) < len(operands) else None
            bounded(self._quick, key, (runner, fewer, plain))

    def _traced(self, specs: tuple[Spec, ...], params: Any) -> Problem:
        return self._trace(specs, params)

    def _write(self, specs: tuple[Spec, ...], params: Settings) -> Problem:
        """The problem of one call: the function run on symbolic tensors."""
        builder = Builder(self.__name__)
        names = self._binding.names(params)
        tensors = [builder.input(n, s.shape, s.dtype, s.strides) for n, s in zip(names, specs, strict=True)]
        args, kwargs = self._binding.arguments(params, tensors)
        with building(builder):
            try:
                result = self._function(*args, **kwargs)
            except (ValueError, IndexError) as error:
                if isinstance(error, TlmError):
                    raise
                listed = ", ".join([f"{n} {s.shape}" for n, s in zip(names, specs, strict=True)])
                raise ArgumentError(f"{self.__name__} of {listed}: {error}") from error
            if not isinstance(result, Tensor):
                raise ArgumentError(
                    f"{self.__name__} returns the tensor that tlm.compute or a reduction made, got "
                    f"{type(result).__name__}"
                )
            if builder.is_input(result):
                source = result
                result = compute(source.shape, lambda *at: source[at], name="Y")
        program = builder.build((result,))
        verify(program)
        program = collapse(program)
        return Problem(_formula(program), specs, result.shape, result.dtype)


def _formula(program: Program) -> Formula:
    from ..ir.canonical import key

    return Formula(program, key(program))


_WANTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bool": ("True or False", lambda v: isinstance(v, int) and v in (0, 1)),
    "float": ("a number", lambda v: isinstance(v, (int, float))),
    "float | bool": ("a number", lambda v: isinstance(v, (int, float))),
    "float | None": ("a number or None", lambda v: v is None or isinstance(v, (int, float))),
}
"""Annotation of a setting -> what it takes."""


def _check(name: str, binding: Binding, args: Sequence[Any], settings: dict[str, Any]) -> None:
    """ArgumentError for a missing operand, and for settings that are not what their annotations say."""
    for label, given in binding.signature.bind(*args, **settings).arguments.items():
        parameter = binding.signature.parameters[label]
        if label in binding.operands:
            if given is None and parameter.default is not None:
                raise ArgumentError(f"{name}: {label} is an array, got None")
            continue
        says = parameter.annotation
        wanted, fits = _WANTED.get(
            says if isinstance(says, str) else getattr(says, "__name__", ""), ("", None)
        )
        scalar = isinstance(given, (np.generic, np.ndarray)) and given.ndim == 0
        if fits is not None and not fits(given.item() if scalar else given):
            raise ArgumentError(f"{name}: {label} is {wanted}, got {given!r}")


_NUMBERS = (bool, int, float, np.generic)
"""What becomes an array of its own."""


def _with_scalars(operands: tuple[Any, ...], sharing: Sequence[bool], beyond: Beyond) -> tuple[Any, ...]:
    """Python numbers as arrays of the dtype that numpy would give them beside the other operands.

    beyond: what becomes of integers that it cannot hold. They are refused, or are i64 ("widen"), or the
    nearest number of the dtype ("cut").
    """
    beside = zip(operands, sharing, strict=True)
    dtypes = [read(x)[0].dtype for x, shares in beside if shares and hasattr(x, "dtype")]
    common = dtypes[0] if dtypes else boolean
    for other in dtypes[1:]:
        common = promote(common, other)

    def made(x: Any, shares: bool) -> Any:
        if not shares or not isinstance(x, (bool, int, float)) or hasattr(x, "dtype"):
            return x
        dtype = to_numpy(weak(x, common))
        try:
            # Beyond the largest number is infinity, as numpy has it.
            with np.errstate(over="ignore"):
                return np.asarray(x, dtype)
        except OverflowError:
            if beyond != "refuse" and dtype.kind in "iu":
                limits = np.iinfo(np.int64 if beyond == "widen" else dtype)
                near = max(int(limits.min), min(int(x), int(limits.max)))
                if beyond == "cut" or near == x:
                    return np.asarray(near, limits.dtype)
            raise ArgumentError(f"{x} is out of range for {dtype}") from None

    return tuple([made(x, shares) for x, shares in zip(operands, sharing, strict=True)])


def _options() -> dict[str, inspect.Parameter]:
    signature = inspect.signature(FormulaOperator.__call__)
    return {n: signature.parameters[n] for n in _CHOICES}


_OPTIONS = _options()


@overload
def operator(function: Callable[..., Tensor]) -> FormulaOperator: ...
@overload
def operator(
    *,
    name: str | None = None,
    scalars: bool | Sequence[str] = False,
    check: Check | None = None,
    beyond: Beyond = "refuse",
) -> Callable[[Callable[..., Tensor]], FormulaOperator]: ...
def operator(
    function: Callable[..., Tensor] | None = None,
    *,
    name: str | None = None,
    scalars: bool | Sequence[str] = False,
    check: Check | None = None,
    beyond: Beyond = "refuse",
) -> Any:
    """An operator on arrays from a function of symbolic tensors, which returns the result's tensor.

        @tlm.operator
        def scaled_sum(x, y, *, scale=1.0):
            m, n = x.shape
            return tlm.sum((m,), lambda i, k: scale * x[i, k] * y[i, k], over={"k": n})

        scaled_sum(a, b, scale=0.5, schedule="generate", target=None, threads=None, out=None)
        scaled_sum.kernel(a, b), scaled_sum.program(a, b)

    Operands are the positional parameters without a default, or those annotated tlm.Tensor where any is; a
    Tensor has .shape, .ndim and .dtype, and indexing it gives an element. Parameters with a default are
    settings: plain values that the program may depend on. The function runs once for each combination of
    shapes, layouts, dtypes and settings. `scalars`: Python numbers take the dtype of the arrays beside them;
    names say of which operands this is so. `beyond`: whether a number that this dtype cannot hold is refused,
    makes all compute in 64 bits where these hold it ("widen"), or becomes the nearest that it holds ("cut").
    `check` sees the arrays and settings of each call before it runs, unless they lie on a GPU.
    """

    if name is not None and not isinstance(name, str):
        raise ArgumentError(f"tlm.operator: name= is a string, got {name!r}")
    if check is not None and not callable(check):
        raise ArgumentError(f"tlm.operator: check= is a function, got {check!r}")

    def made(fn: Callable[..., Tensor]) -> FormulaOperator:
        if not callable(fn):
            raise ArgumentError(f"tlm.operator takes a function of symbolic tensors, got {fn!r}")
        found = name or str(getattr(fn, "__name__", type(fn).__name__))
        parameters: Iterable[str] = ()
        with suppress(ValueError):  # the first call says that they cannot be told
            parameters = inspect.signature(fn).parameters
        taken = sorted({*_OPTIONS, "self"}.intersection(parameters))
        if taken:
            raise ArgumentError(
                f"tlm.operator: {found} has a parameter {taken[0]}, an option of every call; rename it"
            )
        return FormulaOperator(fn, found if NAME.fullmatch(found) else "operator", scalars, check, beyond)

    return made if function is None else made(function)
