"""The prompt: what is to be computed and where, derived from the program's structure, never from names.

One phrase says the target, then each stage (a statement that writes a buffer) has a phrase and one more for
every loop around it: its extent, whether it reduces, and the stride with which it walks each operand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..ir.affine import affine
from ..ir.exprs import Expr, Load, Op
from ..ir.nodes import Buffer, For, Program, Store, Update
from ..ir.walk import buffers, loads, walk
from ..space.problem import nests, strides_of
from ..target import Target
from . import numbers
from .vocabulary import GPU_QUANTITIES, NUMBER, OPERANDS, PROMPT_COLUMNS, READS, TARGET_QUANTITIES

PROMPT_TOKENS = 24
"""Longest prompt. Of a program with more stages than fit, those with the most work are kept."""

Phrase = tuple[tuple[str, float | None], ...]

_COLUMN = {name: n for n, name in enumerate(PROMPT_COLUMNS)}


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop around a stage. `window`: it shares an index with another axis. `strides`: for each operand
    (out, in0, ...) the elements between neighbours along this axis, 0 where it does not move, None where
    the index is not affine."""

    extent: int
    reduces: bool
    window: bool
    strides: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A statement with its loops. `reads` are the distinct (buffer, indices) read, in order."""

    statement: Store | Update
    axes: tuple[Axis, ...]
    reads: tuple[Load, ...]
    work: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """Phrases of (word, quantity or None); `stages` is the structure that they were written from."""

    phrases: tuple[Phrase, ...]
    target: Target
    stages: tuple[Stage, ...]


@lru_cache(maxsize=4096)
def prompt(program: Program, target: Target) -> Prompt:
    """The prompt of an unscheduled program for a target."""
    known = buffers(program)
    stages = [_stage(stmt, around, known) for around, stmt in nests(program.body)]
    outputs = {b.name for b in program.outputs}
    room = PROMPT_TOKENS - 1
    kept: set[int] = set()
    for n in sorted(range(len(stages)), key=lambda n: -stages[n].work):
        if not kept and 1 + len(stages[n].axes) > room:
            # The stage that takes the most time is always told of, of its loops the inner ones.
            stages[n] = replace(stages[n], axes=stages[n].axes[1 - room :])
        if 1 + len(stages[n].axes) <= room:
            kept.add(n)
            room -= 1 + len(stages[n].axes)
    phrases = [_target_phrase(target)]
    for n in sorted(kept):
        phrases.append(_stage_phrase(stages[n], known, outputs))
        phrases.extend(_axis_phrase(axis) for axis in stages[n].axes)
    return Prompt(tuple(phrases), target, tuple([stages[n] for n in sorted(kept)]))


def vectors(words: Prompt) -> NDArray[np.float32]:
    """The phrases as vectors, f32 of shape (phrases, len(PROMPT_COLUMNS))."""
    out = np.zeros((len(words.phrases), len(PROMPT_COLUMNS)), np.float32)
    rows: list[int] = []
    starts: list[int] = []
    quantities: list[float] = []
    for row, phrase in enumerate(words.phrases):
        for word, quantity in phrase:
            if quantity is None:
                out[row, _COLUMN[word]] = 1.0
            elif word in _COLUMN:
                out[row, _COLUMN[word]] = numbers.log([quantity])[0] * 8
            else:
                rows.append(row)
                starts.append(_COLUMN[f"{word}/0"])
                quantities.append(quantity)
    columns = np.array(starts, np.int64)[:, None] + np.arange(NUMBER)
    out[np.array(rows, np.int64)[:, None], columns] = numbers.columns(quantities)
    return out


def _stage(stmt: Store | Update, around: tuple[For, ...], known: dict[str, Buffer]) -> Stage:
    target = stmt.buffer if isinstance(stmt, Store) else stmt.targets[0]
    values = (stmt.value,) if isinstance(stmt, Store) else stmt.values
    reads = tuple(dict.fromkeys(load for value in values for load in loads(value)))
    accesses = [(known[target], stmt.indices), *((known[r.buffer], r.indices) for r in reads[:READS])]
    steps = [strides_of(buffer, indices) for buffer, indices in accesses]
    reduced = stmt.axes if isinstance(stmt, Update) else ()
    axes, work = [], 1
    for loop in around:
        work *= max(loop.extent, 1)
        strides = tuple([None if s is None else dict(s).get(loop.var, 0) for s in steps])
        window = any(_shares(index, loop.var) for _, indices in accesses for index in indices)
        axes.append(Axis(loop.extent, loop.var in reduced, window, strides))
    return Stage(stmt, tuple(axes), reads, work)


def _shares(index: Expr, var: str) -> bool:
    form = affine(index)
    return form is not None and len(form.terms) > 1 and var in dict(form.terms)


def _target_phrase(target: Target) -> Phrase:
    words: list[tuple[str, float | None]] = [("target", None), (target.kind, None)]
    if target.fma:
        words.append(("fma", None))
    named = (*TARGET_QUANTITIES, *(GPU_QUANTITIES if target.kind == "cuda" else ()))
    return (*words, *((name, float(getattr(target, name))) for name in named))


def _stage_phrase(stage: Stage, known: dict[str, Buffer], outputs: set[str]) -> Phrase:
    stmt = stage.statement
    target = known[stmt.buffer if isinstance(stmt, Store) else stmt.targets[0]]
    values = (stmt.value,) if isinstance(stmt, Store) else stmt.values
    operands = [target, *(known[r.buffer] for r in stage.reads)]
    words: list[tuple[str, float | None]] = [
        ("stage", None),
        (f"combiner.{stmt.combiner}" if isinstance(stmt, Update) else "map", None),
        (f"dtype.{target.dtype}", None),
        *((f"reads.{name}", None) for name in sorted({r.dtype.name for r in stage.reads})),
    ]
    if target.name in outputs:
        words.append(("final", None))
    operations = Counter(node.op for value in values for node in walk(value) if isinstance(node, Op))
    counted = [(f"op.{name}", float(count)) for name, count in sorted(operations.items())]
    total = float(sum(b.size * b.dtype.bytes for b in {b.name: b for b in operands}.values()))
    return (
        *words,
        ("work", float(stage.work)),
        ("bytes", total),
        ("operands", float(len(stage.reads))),
        *counted,
    )


def _axis_phrase(axis: Axis) -> Phrase:
    words: list[tuple[str, float | None]] = [("axis", None)]
    words += [(name, None) for name, true in (("reduce", axis.reduces), ("window", axis.window)) if true]
    words.append(("extent", float(axis.extent)))
    for name, stride in zip(OPERANDS, axis.strides, strict=False):
        if stride is None:
            words.append(("irregular", None))
        elif abs(stride) == 1:
            words += [(name, None), (f"{name}.unit", None)]
        elif stride:
            words += [(name, None), (f"{name}.stride", float(abs(stride)))]
    return tuple(words)
