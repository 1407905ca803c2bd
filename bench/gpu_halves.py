"""Small products of f16 and bf16 that matrix instructions can multiply, as workloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np

import tlm
from bench.cuda_cases import dtype_of
from tlm.ir.nodes import Program
from tlm.model.shapes import Pair


@dataclass(frozen=True, slots=True)
class Half:
    """[batch of] M x K times K x N of halves, summed in f32. `layout`: "t" for a transposed operand, A then
    B; `activation`: "none" for a product alone, else what follows the sum and a bias."""

    dtype: str
    m: int
    k: int
    n: int
    batch: int
    layout: str
    activation: str

    @property
    def family(self) -> str:
        return f"{self.dtype} products"

    @property
    def work(self) -> int:
        return self.batch * self.m * self.k * self.n

    @property
    def pairs(self) -> frozenset[Pair]:
        return frozenset({("mk", self.m, self.k), ("kn", self.k, self.n), ("mn", self.m, self.n)})

    def __str__(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return f"{self.dtype} {batch}{self.m}x{self.k}x{self.n} {self.layout} {self.activation}"

    def program(self) -> Program:
        """The unscheduled program."""
        dtype = dtype_of(self.dtype)
        outer = (self.batch,) if self.batch > 1 else ()
        sizes = ((self.m, self.k), (self.k, self.n))
        a, b = [
            np.empty((*outer, *size), dtype) if way == "n" else np.empty((*outer, *size[::-1]), dtype).mT
            for size, way in zip(sizes, self.layout, strict=True)
        ]
        if self.activation == "none":
            return tlm.ops.matmul.program(a, b)
        chosen = None if self.activation == "bias" else self.activation
        return tlm.ops.linear.program(a, b, np.empty(self.n, dtype), activation=chosen)


def halves(dtype: str, seed: int) -> Iterator[Half]:
    """Products without end: extents at, above and between the tiles of instructions."""
    rng = Random(f"{dtype} {seed}")
    while True:
        m, n = (rng.choice((16, 17, 24, 32, 40, 48, 70)) for _ in range(2))
        k = rng.choice((16, 17, 32, 40, 64, 70, 96))
        batch = rng.choice((1, 1, 1, 2, 3))
        layout = rng.choice(("nn", "nn", "nt", "tn", "tt"))
        activation = "none" if batch > 1 else rng.choice(("none", "none", "bias", "relu"))
        yield Half(dtype, m, k, n, batch, layout, activation)
