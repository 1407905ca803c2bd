"""Options as vectors: the choice, the word or number, and every fact. Stored ragged, used dense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..errors import RecordError
from ..space.choice import Choice
from ..space.vocabulary import FACTS, WORDS
from . import numbers
from .vocabulary import CHOICE_INDEX, FACT_INDEX, NUMBER, OPTION_COLUMNS, WORD_INDEX

WIDTH = len(OPTION_COLUMNS)

_WORD = len(CHOICE_INDEX)
_VALUE = _WORD + len(WORDS)
_FACT = _VALUE + NUMBER


@dataclass(frozen=True, slots=True)
class Options:
    """The options of many choices, one row each. Arrays of shape (options,):

    `choice` index in CHOICES, `word` index in WORDS or -1, `value` the number or -1; and of shape (facts,):
    `owner` row of the option that states the fact, `fact` index in FACTS, `quantity` its value.
    """

    choice: NDArray[np.int16]
    word: NDArray[np.int16]
    value: NDArray[np.float32]
    owner: NDArray[np.int64]
    fact: NDArray[np.int16]
    quantity: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.choice)


def pack(choices: Sequence[Choice]) -> Options:
    """The options of `choices`, in order; RecordError where a name is not in the vocabulary."""
    choice: list[int] = []
    word: list[int] = []
    value: list[float] = []
    owner: list[int] = []
    fact: list[int] = []
    quantity: list[float] = []
    try:
        for asked in choices:
            index = CHOICE_INDEX[asked.name]
            for option in asked.options:
                if isinstance(option.value, str):
                    word.append(WORD_INDEX[option.value])
                    value.append(-1.0)
                else:
                    word.append(-1)
                    value.append(option.value)
                row = len(choice)
                choice.append(index)
                for name, amount in option.facts:
                    owner.append(row)
                    fact.append(FACT_INDEX[name])
                    quantity.append(amount)
    except KeyError as error:
        raise RecordError(
            f"{error.args[0]!r} is not in the vocabulary of spaces (tlm/space/vocabulary.py)"
        ) from None
    return Options(
        np.array(choice, np.int16), np.array(word, np.int16), np.array(value, np.float32),
        np.array(owner, np.int64), np.array(fact, np.int16), np.array(quantity, np.float32),
    )  # fmt: skip


def dense(options: Options) -> NDArray[np.float32]:
    """The vectors of options: f32 of shape (options, WIDTH), columns as in OPTION_COLUMNS."""
    n = len(options)
    out = np.zeros((n, WIDTH), np.float32)
    rows = np.arange(n)
    out[rows, options.choice] = 1.0
    words = np.flatnonzero(options.word >= 0)
    out[words, _WORD + options.word[words]] = 1.0
    counts = np.flatnonzero(options.word < 0)
    out[counts, _VALUE:_FACT] = _columns(options.value[counts])
    column = _FACT + 2 * options.fact.astype(np.int64)
    out[options.owner, column] = numbers.log(options.quantity)
    out[options.owner, column + 1] = numbers.share(options.quantity)
    return out


def _columns(values: NDArray[np.float32]) -> NDArray[np.float32]:
    table = _table()
    if len(values) and values.max() >= len(table):
        return numbers.columns(values)
    return np.asarray(table[values.astype(np.int64)])


@cache
def _table() -> NDArray[np.float32]:
    """Columns of small counts: nearly all values are such."""
    return numbers.columns(np.arange(4097))


assert _FACT + 2 * len(FACTS) == WIDTH
