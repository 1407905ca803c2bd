"""A space, a measurer and a clock without machines: what a search does is then only its own doing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from tlm.ir import canonical, serialize
from tlm.ir.build import Builder
from tlm.ir.nodes import Program
from tlm.measure.record import Record, Values
from tlm.space.choice import Choice, Option, Space
from tlm.target import Target

TARGET = Target("avx2")
SIZES = (1, 2, 3, 4, 6, 8, 12, 16)


def matmul(m: int = 8, n: int = 12, k: int = 16) -> Program:
    b = Builder("matmul")
    a, c = b.input("A", (m, k), "f32"), b.input("B", (k, n), "f32")
    b.reduce("C", (m, n), over={"k": k}, fn=lambda i, j, p: a[i, p] * c[p, j], output=True)
    return b.build()


def option(value: int | str) -> Option:
    return Option(value, (("size", float(value)),) if isinstance(value, int) else ())


def space() -> Space:
    """4096 or so sentences: later options depend on earlier answers."""
    picked: list[int | str] = []
    for name, values in (
        ("rows", SIZES), ("columns", SIZES), ("block_k", SIZES), ("order", ("mnk", "nmk", "kmn")),
        ("unroll", (1, 2, 4, 8)),
    ):  # fmt: skip
        legal = [v for v in values if not isinstance(v, int) or name != "columns" or v * int(picked[0]) <= 64]
        choice = Choice(name, tuple(option(v) for v in legal))
        picked.append(choice.values[(yield choice)])
    return ()


def tiny() -> Space:
    yield Choice("rows", tuple(option(v) for v in (1, 2, 3)))
    yield Choice("columns", tuple(option(v) for v in (1, 2)))
    return ()


def smooth(values: Values) -> float:
    """A cost with a valley at rows 6, columns 8, block_k 12."""
    rows, columns, depth, order, unroll = values
    far = sum(abs(math.log2(int(v) / best)) for v, best in ((rows, 6), (columns, 8), (depth, 12)))
    return 1e-4 * (1.0 + far) * (1.0 if order == "nmk" else 1.3) * (1.0 + 0.02 * int(unroll))


def hashed(values: Values) -> float:
    return 1e-4 * (1 + int(hashlib.sha256(repr(values).encode()).hexdigest()[:6], 16) / 2**24)


class Fake:
    """Measures by formula. `fails` says which values end as which status; every call is kept."""

    environment: dict[str, str] | None = None

    def __init__(self, cost: Any, fails: Any = lambda v: "ok", clock: Any = None) -> None:
        self.cost, self.fails, self.clock = cost, fails, clock
        self.calls: list[tuple[str, list[Values]]] = []

    def measure(
        self, program: Program, candidates: Sequence[Values], *, kind: str = "search", best: float = math.inf,
        thorough: bool = False, watch: Any = None,
    ) -> list[Record]:  # fmt: skip
        self.calls.append((kind, list(candidates)))
        made = []
        for n, values in enumerate(candidates):
            if watch is not None and not watch(n):
                break
            status = self.fails(values)
            seconds = (self.cost(values, kind) if self.cost.__code__.co_argcount == 2 else self.cost(values),)
            made.append(
                Record(
                    canonical.key(program),
                    serialize.to_json(program),
                    TARGET.to_json(),
                    values,
                    status,
                    seconds if status == "ok" else (),
                    "" if status == "ok" else "it broke",
                    kind=kind,
                    versions=self.environment or {},
                )
            )
            if self.clock is not None:
                self.clock.tick(1.0)
        return made

    @property
    def asked(self) -> list[Values]:
        return [v for kind, values in self.calls for v in values if kind != "final"]


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time

    def tick(self, seconds: float) -> None:
        self.time += seconds
