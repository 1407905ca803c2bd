"""The closed vocabulary of the language, computed from its definition (IR, targets, spaces), never from data.

A sentence is a prompt (phrases about the machine, the stages and their axes) and decisions (options of
choices). Every phrase and every option is a set of words, some with a quantity. A word has one column, a
quantity `NUMBER` columns (numbers as numbers), so that sizes nobody trained on have a meaning too.
"""

from __future__ import annotations

from ..ir.combiners import COMBINERS
from ..ir.dtypes import DTYPES
from ..ir.optable import OPS
from ..space.vocabulary import CHOICES, FACTS, WORDS

NUMBER = 14
"""Columns of one quantity, see `numbers.columns`."""

READS = 4
"""Operands of a stage that have words of their own; further ones are only counted."""

OPERANDS = ("out", *(f"in{n}" for n in range(READS)))

TARGET_QUANTITIES = ("vector_bytes", "registers", "l1", "l2", "l3", "threads")
"""Figures of a target, by the names of its fields."""

GPU_QUANTITIES = (
    "warp", "block_threads", "thread_registers", "block_shared", "sm_threads", "sm_blocks", "fma_rate",
    "tensor_rate", "clock", "bandwidth",
)  # fmt: skip
"""Figures that only a GPU has: prompts for CPUs do not name them."""

KINDS = ("cpu", "cuda")

PROMPT_WORDS = (
    "target", "stage", "axis", *KINDS, "fma", "final", "map", "reduce", "window", "irregular",
    *(f"combiner.{name}" for name in COMBINERS),
    *(f"dtype.{name}" for name in DTYPES), *(f"reads.{name}" for name in DTYPES),
    *OPERANDS, *(f"{name}.unit" for name in OPERANDS),
)  # fmt: skip
"""Words of prompts that carry no quantity."""

PROMPT_COUNTS = ("operands", *(f"op.{name}" for name in OPS))
"""Words of prompts with a small number, one column each: how often an operation occurs in a stage."""

PROMPT_QUANTITIES = (
    *TARGET_QUANTITIES, "work", "bytes", "extent", *(f"{name}.stride" for name in OPERANDS),
    *GPU_QUANTITIES,
)  # fmt: skip
"""Words of prompts with a quantity, `NUMBER` columns each."""

PROMPT_COLUMNS = (
    *PROMPT_WORDS, *PROMPT_COUNTS, *(f"{name}/{n}" for name in PROMPT_QUANTITIES for n in range(NUMBER)),
)  # fmt: skip
"""Names of the columns of a phrase's vector."""

OPTION_COLUMNS = (
    *(f"choice.{name}" for name in CHOICES), *(f"word.{name}" for name in WORDS),
    *(f"value/{n}" for n in range(NUMBER)),
    *(f"fact.{name}/{part}" for name in FACTS for part in ("log", "share")),
)  # fmt: skip
"""Names of the columns of an option's vector."""

CHOICE_INDEX = {name: n for n, name in enumerate(CHOICES)}
WORD_INDEX = {name: n for n, name in enumerate(WORDS)}
FACT_INDEX = {name: n for n, name in enumerate(FACTS)}
