"""Which arguments of a call are operands (arrays), and which are settings that its program depends on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..ir.names import apart
from .gpu_places import FORMS

Settings = tuple[tuple[str, Any], ...]
"""(parameter, value), where operands are Slots."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of an operand among the operands of a call."""

    position: int


@dataclass(frozen=True, slots=True)
class Group:
    """The places of a sequence of operands."""

    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A number among the settings, equal to one that is written the same.

    For Python 1, 1.0 and True are equal, 0.0 and -0.0 too, and nan is not equal to itself.
    """

    kind: type
    text: str
    value: float = field(compare=False)

    @staticmethod
    def of(value: float) -> Number:
        return Number(type(value), repr(value), value)


class Binding:
    """The signature of an operator's function, read once.

    Operands are the parameters annotated as Tensor (or as sequences of them); where none is annotated, those
    without a default that are not keyword-only. For "Tensor | float" a number is a setting.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            self.signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"the parameters of {function!r} cannot be told: {error}") from None
        kinds = self.signature.parameters.values()
        for p in kinds:
            if p.kind == p.VAR_KEYWORD:
                raise ArgumentError(
                    f"an operator has no **{p.name}: name each setting, as a parameter with a default"
                )
        said = {p.name for p in kinds if "Tensor" in str(p.annotation)}
        bare = {p.name for p in kinds if p.default is p.empty and p.kind != p.KEYWORD_ONLY}
        self.operands = said or bare
        self.numbers = {p.name for p in kinds if "| float" in str(p.annotation)} & said
        self.groups = {
            p.name for p in kinds if p.kind == p.VAR_POSITIONAL or "Sequence[Tensor" in str(p.annotation)
        } & self.operands

    def bind(
        self, name: str, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], Settings]:
        """The operands of a call in order, and everything else; TypeError as Python's for a wrong call."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}{self.signature}: {error}") from None
        bound.apply_defaults()
        operands: list[Any] = []
        settings: list[tuple[str, Any]] = []
        for parameter, value in bound.arguments.items():
            if parameter in self.groups:
                if not isinstance(value, (list, tuple)):
                    raise ArgumentError(f"{name}: {parameter} is a sequence of arrays")
                slots = tuple([Slot(len(operands) + n) for n in range(len(value))])
                operands += value
                settings.append((parameter, Group(slots)))
            elif (
                parameter in self.numbers and isinstance(value, (int, float)) and not hasattr(value, "dtype")
            ):
                settings.append((parameter, Number.of(value)))
            elif parameter in self.operands and value is not None:
                settings.append((parameter, Slot(len(operands))))
                operands.append(value)
            else:
                settings.append((parameter, plain(name, parameter, value)))
        return tuple(operands), tuple(settings)

    def arguments(self, settings: Settings, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments that `settings` stand for, with tensors in the places of operands."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, value in settings:
            if isinstance(value, Slot):
                given = tensors[value.position]
            elif isinstance(value, Group):
                given = [tensors[s.position] for s in value.slots]
            else:
                given = _given(value)
            kind = self.signature.parameters[name].kind
            if kind == inspect.Parameter.VAR_POSITIONAL:
                args += given
            elif kind == inspect.Parameter.KEYWORD_ONLY:
                kwargs[name] = given
            else:
                args.append(given)
        return args, kwargs

    def names(self, settings: Settings) -> list[str]:
        """A name for each operand: of its parameter (capital where it is one letter), numbered in a group.

        Capital letters tell buffers from loops. A name that is taken gets a number, as X2 of f(x, X); see
        `apart`.
        """
        out: list[str] = []
        for parameter, value in settings:
            name = parameter.upper() if len(parameter) == 1 else parameter
            if isinstance(value, Slot):
                out.append(apart(name, out))
            elif isinstance(value, Group):
                for n in range(len(value.slots)):
                    out.append(apart(f"{name}{n}", out))
        return out


def _given(value: Any) -> Any:
    """A setting as the operator's function takes it."""
    if isinstance(value, Number):
        return value.value
    return tuple(map(_given, value)) if isinstance(value, tuple) else value


def plain(name: str, parameter: str, value: Any) -> Any:
    """A setting as a value that can be a key: tuples for lists, a Number for numbers, numpy's too."""
    if isinstance(value, np.ndarray) and value.ndim:
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple([plain(name, parameter, v) for v in value])
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    if isinstance(value, (bool, int, float)):
        return Number.of(value)
    if not isinstance(value, Hashable):
        raise ArgumentError(f"{name}: {parameter} cannot be {value!r}")
    return value


def quick(x: Any) -> Any:
    """What a call depends on of one argument: not the data of an array. TypeError where it has no hash."""
    kind = x.__class__
    if kind is np.ndarray:
        return x.shape, x.strides, x.dtype
    if kind is list or kind is tuple:
        return kind, *map(quick, x)
    form = FORMS.get(kind)
    if form is not None:
        return form(x)
    # 0.0 and -0.0 are equal, and not the same number.
    if isinstance(x, float):
        return kind, x.hex()
    return kind, x.tobytes() if isinstance(x, np.generic) else x


def arrays_in(args: Sequence[Any]) -> list[Any]:
    """The arrays among arguments that `quick` tells apart, in order."""
    out: list[Any] = []
    for x in args:
        kind = x.__class__
        if kind is np.ndarray or kind in FORMS:
            out.append(x)
        elif kind is list or kind is tuple:
            out += arrays_in(x)
    return out
