"""Small products of f16 and bf16 that matrix instructions can multiply, as workloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np

import tlm
from bench.cuda_cases import dtype_of
from tlm.ir.nodes import Program
from tlm.model.shapes import Pair, Shape


@dataclass(frozen=True, slots=True)
class Half:
    """A product of halves, summed in f32: `shape`, whose epilogue says what follows the sum."""

    dtype: str
    shape: Shape

    @property
    def family(self) -> str:
        return self.shape.family

    @property
    def work(self) -> int:
        return self.shape.work

    @property
    def pairs(self) -> frozenset[Pair]:
        return self.shape.pairs

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"

    def program(self) -> Program:
        """The unscheduled program."""
        s, dtype = self.shape, dtype_of(self.dtype)
        outer = (s.batch,) if s.batch > 1 else ()
        a, b = [
            np.empty((*outer, *size), dtype) if way == "n" else np.empty((*outer, *size[::-1]), dtype).mT
            for size, way in zip(((s.m, s.k), (s.k, s.n)), s.layout, strict=True)
        ]
        if s.epilogue == "none":
            return tlm.ops.matmul.program(a, b)
        chosen = None if s.epilogue == "bias" else s.epilogue
        return tlm.ops.linear.program(a, b, np.empty(s.n, dtype), activation=chosen)


def halves(dtype: str, seed: int) -> Iterator[Half]:
    """Products without end: extents at, above and between the tiles of instructions."""
    rng = Random(f"{dtype} {seed}")
    while True:
        m, n = (rng.choice((16, 17, 24, 32, 40, 48, 70)) for _ in range(2))
        k = rng.choice((16, 17, 32, 40, 64, 70, 96))
        batch = rng.choice((1, 1, 1, 2, 3))
        layout = rng.choice(("nn", "nn", "nt", "tn", "tt"))
        epilogue = "none" if batch > 1 else rng.choice(("none", "none", "bias", "relu"))
        yield Half(dtype, Shape(f"{dtype} products", m, k, n, batch, layout, epilogue))
