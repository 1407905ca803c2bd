"""Shapes to learn from and to be judged by: families of matrix products that programs really run.

Any number of shapes can be drawn from a seed. The held-out ones are fixed; a shape that shares two extents
in the same roles with one of them (M and K, K and N, or M and N) is never trained on, whether measured or
imagined. Families of other operators are given by whoever calls: anything that draws a `Work`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random
from typing import Protocol

from ..ir.activations import ACTIVATIONS
from ..ir.build import Builder, Tensor
from ..ir.exprs import Expr
from ..ir.nodes import Program
from ..target import Target

Pair = tuple[str, int, int]


class Work(Protocol):
    """A workload to learn from. It is hashable, str() names it, and it can be sent to another process."""

    @property
    def family(self) -> str:
        """Its kind: results are told by family."""

    @property
    def work(self) -> int:
        """Multiply-adds, or what takes as long."""

    @property
    def pairs(self) -> frozenset[Pair]:
        """Pairs of extents by their roles: what is trained on shares none with what is held out."""

    def program(self) -> Program:
        """The unscheduled program."""


Families = Mapping[str, Callable[[Random], Work]]
"""By name of a family, what draws a workload of it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """[batch of] M x K times K x N. `layout`: "n" for a row-major operand, "t" for a transposed one, A then
    B; `epilogue`: "none", or one of EPILOGUES, a second stage that adds a bias and more."""

    family: str
    m: int
    k: int
    n: int
    batch: int = 1
    layout: str = "nn"
    epilogue: str = "none"

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.batch * self.m * self.k * self.n

    @property
    def pairs(self) -> frozenset[Pair]:
        return frozenset({("mk", self.m, self.k), ("kn", self.k, self.n), ("mn", self.m, self.n)})

    def __str__(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        marks = ("" if self.layout == "nn" else f" {self.layout}") + (
            "" if self.epilogue == "none" else f" {self.epilogue}"
        )
        return f"{batch}{self.m}x{self.k}x{self.n}{marks}"

    def program(self) -> Program:
        """The unscheduled program, f32."""
        return _program(self)


@cache
def _program(s: Shape) -> Program:
    b = Builder("matmul" if s.epilogue == "none" else "linear")
    outer = (s.batch,) if s.batch > 1 else ()
    names = (*(("b",) if outer else ()), "i", "j")

    def operand(name: str, rows: int, columns: int, layout: str) -> Tensor:
        strides = None if layout == "n" else (*(() if not outer else (rows * columns,)), 1, rows)
        return b.input(name, (*outer, rows, columns), "f32", strides)

    left, right = operand("A", s.m, s.k, s.layout[0]), operand("B", s.k, s.n, s.layout[1])
    bias = None if s.epilogue == "none" else b.input("bias", (s.n,), "f32")

    def term(*at: Expr) -> Expr:
        *batch, i, j, k = at
        return left[(*batch, i, k)] * right[(*batch, k, j)]

    shape = (*outer, s.m, s.n)
    name = "C" if bias is None else "acc"
    summed = b.reduce(name, shape, over={"k": s.k}, fn=term, axes=names, output=bias is None)
    if bias is not None:
        assert isinstance(summed, Tensor)
        _finish(b, s, summed, bias)
    return b.build()


EPILOGUES: Mapping[str, Callable[[Expr], Expr]] = {
    "bias": lambda x: x,
    "relu": ACTIVATIONS["relu"],
    "gelu": ACTIVATIONS["gelu"],
}
"""What a second stage does to the sum and bias of an element."""


def _finish(b: Builder, s: Shape, summed: Tensor, bias: Tensor) -> None:
    b.compute("C", summed.shape, lambda *at: EPILOGUES[s.epilogue](summed[at] + bias[at[-1]]), output=True)


def _log_uniform(rng: Random, low: int, high: int) -> int:
    return int(low * (high / low) ** rng.random() + 0.5)


def _transformer(rng: Random) -> Shape:
    width = 64 * _log_uniform(rng, 2, 32)
    tokens = rng.choice([_log_uniform(rng, 1, 512), 32 * _log_uniform(rng, 1, 16)])
    k, n = rng.choice([(1, 1), (1, 3), (1, 4), (4, 1)])
    return _dressed(rng, "transformer", tokens, k * width, n * width)


def _pointwise(rng: Random) -> Shape:
    side, channels = (
        rng.choice([7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 56, 64, 80, 112]),
        8 * _log_uniform(rng, 2, 256),
    )
    other = rng.choice([channels, channels * 2, channels * 4, channels // 2, 8 * _log_uniform(rng, 2, 256)])
    return _dressed(rng, "pointwise", side * side, channels, max(8, other))


def _square(rng: Random) -> Shape:
    unit = rng.choice([1, 4, 16, 50, 64])
    side = unit * max(1, _log_uniform(rng, 16, 1400) // unit)
    m, k, n = (max(1, round(side * 2 ** rng.uniform(-1, 1))) // unit * unit or unit for _ in range(3))
    return Shape("square", side if rng.random() < 0.4 else m, k, n)


def _skinny(rng: Random) -> Shape:
    extents = [
        _log_uniform(rng, 128, 4096),
        _log_uniform(rng, 64, 4096),
        rng.choice([1, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16]),
    ]
    if rng.random() < 0.3:
        extents[1] = rng.choice([1, 2, 3, 4, 5, 7, 8, 16])
    rng.shuffle(extents)
    return _dressed(rng, "skinny", *extents)


def _awkward(rng: Random) -> Shape:
    m, k, n = (_log_uniform(rng, 17, 1100) | 1 for _ in range(3))
    return _dressed(rng, "awkward", m, k, n)


def _small(rng: Random) -> Shape:
    m, k, n = (rng.choice([_log_uniform(rng, 1, 64), 8 * rng.randint(1, 10)]) for _ in range(3))
    return _dressed(rng, "small", m, k, n)


def _batched(rng: Random) -> Shape:
    heads, tokens, depth = _log_uniform(rng, 2, 96), _log_uniform(rng, 8, 256), 16 * rng.randint(1, 8)
    if rng.random() < 0.5:
        return Shape("batched", tokens, depth, tokens, heads, rng.choice(["nt", "nn"]))
    return Shape("batched", tokens, tokens, depth, heads)


def _thin(rng: Random) -> Shape:
    """One short extent and two of any size: rare in programs, but where schedules differ most."""
    short = rng.choice([1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16, 16, 24, 32, 32, 48])
    extents = [short, _log_uniform(rng, 24, 4096), _log_uniform(rng, 24, 4096)]
    rng.shuffle(extents)
    return _dressed(rng, "thin", *extents)


def _dressed(rng: Random, family: str, m: int, k: int, n: int) -> Shape:
    """Most products are plain; some have a transposed operand or an epilogue."""
    layout = rng.choice(["nt", "nt", "tn"]) if rng.random() < 0.2 else "nn"
    return Shape(
        family,
        m,
        k,
        n,
        layout=layout,
        epilogue=rng.choice(list(EPILOGUES)) if rng.random() < 0.15 else "none",
    )


PRODUCTS: Mapping[str, Callable[[Random], Shape]] = {
    "transformer": _transformer, "pointwise": _pointwise, "square": _square, "skinny": _skinny,
    "awkward": _awkward, "batched": _batched, "small": _small,
}  # fmt: skip

RARE: Mapping[str, Callable[[Random], Shape]] = {"thin": _thin}
"""Families that training adds to those that models are judged by."""

LEARNED: Families = {**PRODUCTS, **RARE}

MOST_WORK = 1_200_000_000
"""Multiply-adds of a shape: about ten milliseconds on one core with AVX-512."""

HELD_OUT_COUNT, HELD_OUT_EACH = 60, 8

COMMON = tuple(
    Shape("common", *mkn)
    for mkn in (
        (128, 768, 768), (128, 768, 2304), (128, 768, 3072), (128, 3072, 768), (512, 512, 512),
        (768, 768, 768), (3136, 64, 256), (784, 512, 128), (196, 1024, 256), (49, 2048, 512), (256, 256, 256),
        (64, 64, 64),
    )
)  # fmt: skip
"""Products at the heart of well-known networks, always among those measured."""


def draw(
    seed: int, families: Families = PRODUCTS, most_work: int = MOST_WORK, least_work: int = 1
) -> Iterator[Work]:
    """Different workloads without end, the families in turn."""
    rng, seen = Random(f"shapes {seed}"), set[Work]()
    while True:
        for family in families.values():
            shape = family(rng)
            while shape in seen or not least_work <= shape.work <= most_work:
                shape = family(rng)
            seen.add(shape)
            yield shape


@cache
def held_out() -> tuple[Shape, ...]:
    """The products that models are judged by; never trained on."""
    common = frozenset().union(*(s.pairs for s in COMMON))
    found = []
    for shape in draw(-1):
        assert isinstance(shape, Shape)
        if not shape.pairs & common and shape.work >= 20_000:
            found.append(shape)
        if len(found) == HELD_OUT_COUNT:
            return tuple(found)
    raise AssertionError("draw has no end")


def all_held_out(families: Families) -> tuple[Work, ...]:
    """`held_out`, and HELD_OUT_EACH of every family that is no product."""
    return (*held_out(), *others_held_out(families))


def others_held_out(families: Families, each: int = HELD_OUT_EACH) -> tuple[Work, ...]:
    """The first `each` of the held-out workloads of every family that is no product."""
    found: list[Work] = []
    for name, family in families.items():
        if name not in PRODUCTS and name not in RARE:
            found += islice(draw(-1, {name: family}, least_work=20_000), min(each, HELD_OUT_EACH))
    return tuple(found)


def hidden_pairs(families: Families) -> frozenset[Pair]:
    """Pairs of extents of everything that is held out."""
    return frozenset().union(*(shape.pairs for shape in all_held_out(families)))


def training(
    count: int,
    seed: int,
    families: Families = PRODUCTS,
    common: Sequence[Work] = COMMON,
    *,
    hidden: frozenset[Pair] | None = None,
    most_work: int = MOST_WORK,
) -> list[Work]:
    """`count` workloads to train on, none of which shares a pair of extents with a held-out one: the common
    ones, then drawn ones. hidden: the pairs, by default those of `all_held_out`."""
    if hidden is None:
        hidden = hidden_pairs(families)
    found = [work for work in common if not work.pairs & hidden][:count]
    for shape in draw(seed, families, most_work):
        if len(found) >= count:
            break
        if not shape.pairs & hidden:
            found.append(shape)
    return found


def machines(host: Target) -> list[tuple[Target, float]]:
    """Targets that this machine can time, with the share of the effort that each one gets."""
    levels = [isa for isa in ("avx512", "avx2", "sse", "neon") if host.with_isa(isa).runs_here()]
    widest = host.with_isa(levels[0]) if host.isa not in levels else host
    found = [(widest.with_threads(1), 0.45)]
    if host.threads > 1:
        found.append((widest, 0.3))
    for isa in levels:
        if isa != host.isa:
            found.append((host.with_isa(isa).with_threads(1), 0.15 / max(1, len(levels) - 1)))
            if host.threads > 1:
                found.append((host.with_isa(isa), 0.1 / max(1, len(levels) - 1)))
    total = sum(share for _, share in found)
    return [(target, share / total) for target, share in found]
