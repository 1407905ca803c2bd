"""A measurer without machine code: seconds are a sum over the facts of what was picked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tlm.ir import canonical, serialize
from tlm.ir.nodes import Program
from tlm.measure.record import Record, Values
from tlm.model.config import Config
from tlm.model.infer import Network
from tlm.space.decide import Decided, replay
from tlm.space.spaces import space_for
from tlm.target import Target

SMALL = Config(width=32, layers=1, heads=2, option_width=16, decisions=24)


def cost(decided: Decided) -> float:
    """Seconds: prefers wide tiles without waste, middling blocks, packing, and no threads for small work."""
    total = 1.0
    for choice, index in decided.choices:
        facts, value = dict(choice.options[index].facts), choice.options[index].value
        match choice.name:
            case "rows":
                total += 1.0 / (0.5 + facts["intensity"]) + facts["waste"] / 100
            case "lanes":
                total += 2.0 / facts["size"]
            case "block_k":
                total += 0.1 * abs(math.log2((facts["l1"] + 1) / 40))
            case "pack_n" | "pack_m":
                total += 0.2 * (value == "none")
            case "parallel":
                total += 0.5 * (value != "none")
    return total * 1e-6


class FakeMeasurer:
    """The part of `Measurer` that the model uses. `calls` counts the candidates of each call."""

    calls: list[int]

    def __init__(self, target: Target) -> None:
        self.target = target
        self.calls = []

    def measure(
        self,
        program: Program,
        candidates: Sequence[Values],
        *,
        kind: str = "search",
        thorough: bool = False,
        sink: Callable[[list[Record]], None] | None = None,
    ) -> list[Record]:
        self.calls.append(len(candidates))
        body, key = serialize.to_json(program), canonical.key(program)
        records = []
        for values in candidates:
            seconds = cost(replay(space_for(program, self.target), values))
            rounds = (seconds,) * (9 if thorough else 3)
            records.append(Record(key, body, self.target.to_json(), tuple(values), "ok", rounds, kind=kind))
        if sink is not None:
            sink(records)
        return records

    def close(self) -> None:
        pass

    def __enter__(self) -> FakeMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def fake_measurer() -> type[FakeMeasurer]:
    return FakeMeasurer


@pytest.fixture(scope="session")
def cost_of() -> Callable[[Decided], float]:
    return cost


@pytest.fixture(scope="session")
def small() -> Config:
    return SMALL


@pytest.fixture(scope="session")
def small_weights() -> dict[str, Any]:
    """Weights of an untrained model with a gate that matters."""
    import jax
    from flax import nnx

    from tlm.model.gpt import GPT, flatten

    model = GPT(SMALL, nnx.Rngs(5))
    model.gate.kernel[...] = jax.random.normal(jax.random.key(2), model.gate.kernel.shape) * 0.2
    return flatten(model)


@pytest.fixture(scope="session")
def network(small_weights: dict[str, Any]) -> Network:
    return Network(SMALL, small_weights)
