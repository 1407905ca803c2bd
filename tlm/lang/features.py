"""A program as one vector of fixed length: the workload, the machine, what was picked and its facts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import RecordError
from ..space.choice import Choice
from ..space.vocabulary import CHOICES, FACTS, WORDS
from . import numbers
from .encode import Axis, Prompt
from .vocabulary import GPU_QUANTITIES, TARGET_QUANTITIES

Picked = Sequence[tuple[Choice, int]]

ROLES = ("reduce", "shared", "first", "rest")
"""Of an axis: reduced; in every operand; in the result and the first operand; in the result, not the
first."""

_RANKS = 2  # innermost axes of a role with columns of their own; the product of the others has one more
_AXIS = ("log", "zeros", "rest16", "rest64", "unit")

_PROMPT = (
    *TARGET_QUANTITIES, "fma", "stages", "work", "bytes", "element", "operations",
    *(f"{role}{rank}.{part}" for role in ROLES for rank in range(_RANKS + 1) for part in _AXIS),
)  # fmt: skip
_PICKED = ("asked", "value", "value.zeros", "value.rest16")

COLUMNS = (
    *_PROMPT,
    *(f"{choice}.{part}" for choice in CHOICES for part in _PICKED),
    *(f"{choice}.fact.{fact}" for choice in CHOICES for fact in FACTS),
    *(f"{choice}.word.{word}" for choice in CHOICES for word in WORDS),
    *GPU_QUANTITIES,
)
"""Name of each column. Most are zero in any one family of operators: a model drops those that never vary."""

LENGTH = len(COLUMNS)
ALL = np.arange(LENGTH)

_GPU = LENGTH - len(GPU_QUANTITIES)  # from here on, columns say what only a GPU has

_PLACE = {name: n for n, name in enumerate(COLUMNS)}
_PICK = {c: _PLACE[f"{c}.asked"] for c in CHOICES}
_FACT = {(c, f): _PLACE[f"{c}.fact.{f}"] for c in CHOICES for f in FACTS}
_WORD = {(c, w): _PLACE[f"{c}.word.{w}"] for c in CHOICES for w in WORDS}
_ONE = 255.0  # a quantity whose logarithm is 1, see numbers.log


def features(prompt: Prompt, choices: Picked) -> NDArray[np.float32]:
    """The vector of one program, f32 of shape (LENGTH,)."""
    return matrix(prompt, [choices]).reshape(-1)


def matrix(prompt: Prompt, many: Sequence[Picked], columns: NDArray[np.int64] = ALL) -> NDArray[np.float32]:
    """The vectors of many programs of one workload: f32 of shape (programs, len(columns))."""
    rows: list[int] = []
    where: list[int] = []
    amounts: list[float] = []
    values: list[tuple[int, int, int]] = []
    try:
        for row, picked in enumerate(many):
            before = len(where)
            for choice, index in picked:
                option = choice.options[index]
                name, value = choice.name, option.value
                where.append(_PICK[name])
                amounts.append(_ONE)
                if isinstance(value, str):
                    where.append(_WORD[name, value])
                    amounts.append(_ONE)
                else:
                    values.append((row, _PICK[name], value))
                for fact, amount in option.facts:
                    where.append(_FACT[name, fact])
                    amounts.append(amount)
            rows += [row] * (len(where) - before)
    except KeyError as error:
        raise RecordError(f"{error.args[0]!r} is not in the vocabulary of spaces") from None
    place = np.full(LENGTH, -1, np.int64)
    place[columns] = np.arange(len(columns))
    out = np.zeros((len(many), len(columns)), np.float32)
    head = columns < len(_PROMPT)
    out[:, head] = workload(prompt)[columns[head]]
    tail = columns >= _GPU
    figures = [math.log2(1 + getattr(prompt.target, name)) / 8 for name in GPU_QUANTITIES]
    out[:, tail] = np.array(figures, np.float32)[columns[tail] - _GPU]
    _scatter(out, place, np.array(rows, np.int64), np.array(where, np.int64), numbers.log(amounts))
    if values:
        row, at, value = np.array(values, np.int64).T
        zeros = sum((value % (1 << bit) == 0).astype(np.float32) for bit in range(1, 7)) / np.float32(6)
        _scatter(out, place, row, at + 1, numbers.log(value))
        _scatter(out, place, row, at + 2, np.asarray(zeros, np.float32))
        _scatter(out, place, row, at + 3, (value % 16 / 16).astype(np.float32))
    return out


def workload(prompt: Prompt) -> NDArray[np.float32]:
    """The columns that depend only on the workload and the target, f32 of shape (len(_PROMPT),)."""
    target, stages = prompt.target, prompt.stages
    main = max(stages, key=lambda s: s.work)
    words = dict(prompt.phrases[1 + sum(1 + len(s.axes) for s in stages[: stages.index(main)])])
    operations = sum(
        math.log2(1 + (q or 0)) for phrase in prompt.phrases for w, q in phrase if w.startswith("op.")
    )
    head = [
        *(math.log2(1 + getattr(target, name)) / 8 for name in TARGET_QUANTITIES),
        float(target.fma), len(stages) / 4,
        math.log2(1 + main.work) / 16, math.log2(1 + (words["bytes"] or 0)) / 16,
        (words["bytes"] or 0) / max(1, main.work) / 4, operations / 4,
    ]  # fmt: skip
    for role in ROLES:
        axes = [a for a in reversed(main.axes) if _role(a) == role]
        outer = math.prod(a.extent for a in axes[_RANKS:])
        extents = [(a.extent, any(s is not None and abs(s) == 1 for s in a.strides)) for a in axes[:_RANKS]]
        extents += [(0, False)] * (_RANKS - len(extents)) + [(outer if len(axes) > _RANKS else 0, False)]
        for extent, unit in extents:
            head += [math.log2(1 + extent) / 8, *_divides(extent), extent % 64 / 64, float(unit)]
    return np.array(head, np.float32)


def _divides(extent: int) -> tuple[float, float]:
    zeros = min(6, (extent & -extent).bit_length() - 1) if extent else 6
    return zeros / 6, extent % 16 / 16


def _role(axis: Axis) -> str:
    out, *operands = (s != 0 for s in axis.strides)
    if axis.reduces or not out:
        return "reduce"
    if all(operands):
        return "shared"
    return "first" if operands and operands[0] else "rest"


def _scatter(
    out: NDArray[np.float32],
    place: NDArray[np.int64],
    rows: NDArray[np.int64],
    where: NDArray[np.int64],
    amounts: NDArray[np.float32],
) -> None:
    at = place[where]
    kept = at >= 0
    out[rows[kept], at[kept]] = amounts[kept]
