"""Sizes of the language model, without anything that imports JAX."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ..errors import RecordError

SAMPLES = 12
"""Sentences that are written and ranked unless a call says another number: the best of more is hardly
better."""


@dataclass(frozen=True, slots=True)
class Config:
    """`decisions`: the longest sentence; `option_width`: hidden units of the embedding of an option."""

    width: int = 128
    layers: int = 2
    heads: int = 4
    option_width: int = 96
    decisions: int = 32
    epsilon: float = 1e-5

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Any) -> Config:
        """RecordError where a field is missing, unknown or out of range."""
        names = {f.name for f in fields(Config)}
        if not isinstance(data, dict) or set(data) != names:
            raise RecordError(f"the sizes of a model are {sorted(names)}, got {str(data)[:200]}")
        sizes = [data[name] for name in names - {"epsilon"}]
        if not all(isinstance(s, int) and 0 < s <= 4096 for s in sizes) or not 0 < data["epsilon"] < 1:
            raise RecordError(f"sizes of a model are integers from 1 to 4096, got {str(data)[:200]}")
        return Config(**data)
