"""Workloads of the size that GPUs run: those of `workloads`, with more images, tokens, rows or wider
products, and the fleet of GPUs that a model learns from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from random import Random
from types import SimpleNamespace
from typing import Any

from ..ir.nodes import Program
from ..model.fleet import Fleet, Judge
from ..model.shapes import (
    HELD_OUT_COUNT,
    HELD_OUT_EACH,
    LEARNED,
    PRODUCTS,
    Families,
    Pair,
    Shape,
    Work,
    draw,
    others_held_out,
)  # fmt: skip
from ..target import Target
from .workloads import FAMILIES, TAUGHT, Sample

GPUS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100")
"""Targets that a model for GPUs learns from."""

MOST_MEASURED, MOST_WORK, MOST_IMAGINED = 20_000_000_000, 60_000_000_000, 150_000_000_000
"""Multiply-adds of a workload that is measured (the CPU must check it), of one that is judged by, and of one
that is estimated or imagined: a product of 5300 cubed."""

_NAMED_SHARE = 0.4  # of the effort, for the GPU that was asked for

_LARGEST_BYTES = 2 << 30
"""Of all operands together."""


def _times(rng: Random, most: int) -> int:
    """A factor, sometimes 1, often a power of two, more often a large one than log-uniform numbers are."""
    if rng.random() < 0.1:
        return 1
    n = most ** (rng.random() ** 0.5)
    return 1 << int(n).bit_length() - 1 if rng.random() < 0.6 else max(1, round(n))


def larger_product(shape: Shape, rng: Random) -> Shape:
    """More tokens or pixels or heads where those are an extent, else every long extent longer."""
    if shape.batch > 1:
        return replace(shape, batch=shape.batch * _times(rng, 16))
    if shape.family in ("transformer", "pointwise"):
        return replace(shape, m=shape.m * _times(rng, 32))
    factor = _times(rng, 6)
    m, k, n = (extent * factor if extent >= 48 else extent for extent in (shape.m, shape.k, shape.n))
    return replace(shape, m=m, k=k, n=n)


# Operator family -> the operands with the axis that grows, and the most by which it does.
_GROWING: Mapping[str, tuple[tuple[int, ...], int]] = {
    "conv": ((0,), 64), "depthwise": ((0,), 64), "pool": ((0,), 64), "rows": ((0,), 32),
    "reduction": ((0,), 16), "elementwise": ((0, 1), 16), "layout": ((0,), 16), "attention": ((0, 1, 2), 16),
}  # fmt: skip


def larger_sample(sample: Sample, rng: Random) -> Sample:
    """The leading axis longer: more images, rows or heads; attention over more positions too."""
    growing, most = _GROWING[sample.family]
    factor, shapes = _times(rng, most), list(sample.shapes)
    first = shapes[0]
    for n in growing:
        # What is broadcast along the leading axis stays.
        if n < len(shapes) and len(shapes[n]) == len(first) and shapes[n][0] == first[0]:
            shapes[n] = (shapes[n][0] * factor, *shapes[n][1:])
    extents, work = list(sample.extents), sample.work * factor
    extents[1 if sample.family == "attention" else 0] *= factor
    if sample.family == "attention":
        longer = _times(rng, 8)
        shapes = [(b, time * longer, heads, width) for b, time, heads, width in shapes]
        extents[0], work = extents[0] * longer, work * longer * longer
    return replace(sample, shapes=tuple(shapes), extents=tuple(extents), work=work)


def _drawn(family: Callable[[Random], Any], rng: Random) -> Work:
    """A workload of a family, larger, that fits into the memory of any GPU."""
    while True:
        work = family(rng)
        grown: Work = larger_product(work, rng) if isinstance(work, Shape) else larger_sample(work, rng)
        if sum(b.size * b.dtype.bytes for b in grown.program().parameters) <= _LARGEST_BYTES:
            return grown


GPU_FAMILIES: Families = {name: partial(_drawn, family) for name, family in FAMILIES.items()}
"""As `FAMILIES`, larger."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A product, convolution or attention with operands of another type than f32."""

    work: int
    family: str
    pairs: frozenset[Pair]
    op: str
    shapes: tuple[tuple[int, ...], ...]
    settings: tuple[tuple[str, Any], ...]
    dtype: str

    def __str__(self) -> str:
        sizes = " ".join("x".join(map(str, s)) for s in self.shapes)
        return " ".join([self.op, sizes, *(f"{name}={value}" for name, value in self.settings), self.dtype])

    def program(self) -> Program:
        """The unscheduled program."""
        return _typed_program(self)


@cache
def _typed_program(t: Typed) -> Program:
    from .. import ops

    settings = dict(t.settings)
    first = [settings.pop("equation")] if "equation" in settings else []
    operands = [SimpleNamespace(shape=shape, dtype=t.dtype) for shape in t.shapes]
    made: Program = getattr(ops, t.op).program(*first, *operands, **settings)
    return made


def typed(work: Work, dtype: str) -> Typed:
    """A workload with operands of `dtype`.

    A product of one with a transposed operand has no epilogue; integers have none that is for floats.
    """
    if isinstance(work, Sample):
        return Typed(work.work, work.family, work.pairs, work.op, work.shapes, work.settings, dtype)
    assert isinstance(work, Shape)
    extents = {"b": work.batch, "i": work.m, "j": work.n, "k": work.k}
    batch = "b" if work.batch > 1 else ""
    left, right = (
        batch + (axes[::-1] if mark == "t" else axes)
        for axes, mark in zip(("ik", "kj"), work.layout, strict=True)
    )
    shapes = [tuple([extents[axis] for axis in axes]) for axes in (left, right)]
    operator, settings = "matmul", dict[str, Any]()
    if work.layout != "nn":
        operator, settings = "einsum", {"equation": f"{left},{right}->{batch}ij"}
    elif work.epilogue != "none":
        plain = work.epilogue == "bias" or (dtype == "int8" and work.epilogue != "relu")
        operator, settings = "linear", {"activation": None if plain else work.epilogue}
        shapes.append((work.n,))
    return Typed(work.work, work.family, work.pairs, operator, tuple(shapes), tuple(settings.items()), dtype)


def _of_type(family: Callable[[Random], Work], dtypes: tuple[str, ...], rng: Random) -> Work:
    return typed(family(rng), rng.choice(dtypes))


def _large(rng: Random) -> Work:
    """A product whose extents are all long: what fills a GPU."""
    side = 128 * rng.randint(8, 40)
    m, k, n = (side if rng.random() < 0.6 else 128 * rng.randint(8, 40) for _ in range(3))
    shape = Shape("square", m, k, n)
    dtype = rng.choice(["float32", "float32", "bfloat16", "float16"])
    return shape if dtype == "float32" else typed(shape, dtype)


def _any_product(rng: Random) -> Work:
    return _drawn(rng.choice(list(LEARNED.values())), rng)


_HALVES = ("bfloat16", "float16")

GPU_TAUGHT: Families = {
    **{name: partial(_drawn, family) for name, family in TAUGHT.items()},
    "large": _large, "large 2": _large,
    **{f"half {n}": partial(_of_type, _any_product, _HALVES) for n in range(3)},
    "half conv": partial(_of_type, GPU_FAMILIES["conv"], _HALVES),
    "half attention": partial(_of_type, GPU_FAMILIES["attention"], _HALVES),
    "bytes": partial(_of_type, _any_product, ("int8",)),
}  # fmt: skip
"""As `TAUGHT`, larger, and in the types that GPUs multiply faster."""


@cache
def gpu_products_held_out() -> tuple[Work, ...]:
    """The products that models for GPUs are judged by; never trained on."""
    products = {name: GPU_FAMILIES[name] for name in PRODUCTS}
    return tuple(islice(draw(-1, products, MOST_WORK, 1_000_000), HELD_OUT_COUNT))


def gpu_others_held_out(each: int = HELD_OUT_EACH) -> tuple[Work, ...]:
    """The first `each` held-out workloads of every family that is no product."""
    return others_held_out(GPU_FAMILIES, each)


def gpu_fleet(
    wanted: Target,
    measurer: Callable[[Target], Any],
    *,
    estimates: str = "",
    judge: Judge | None = None,
    alone: bool = False,
) -> Fleet:
    """GPUs of every kind, most of the effort for the one that is wanted; or it `alone`, as where programs
    are measured."""
    others = [] if alone else [Target(name) for name in GPUS if name != wanted.isa]
    shares = [(wanted, 1.0 if alone else _NAMED_SHARE)]
    shares += [(t, (1 - _NAMED_SHARE) / len(others)) for t in others]
    held_out = (*gpu_products_held_out(), *gpu_others_held_out())
    most = MOST_IMAGINED if estimates else MOST_MEASURED
    return Fleet("cuda", tuple(shares), GPU_TAUGHT, held_out, measurer, estimates, judge, most, MOST_IMAGINED)
