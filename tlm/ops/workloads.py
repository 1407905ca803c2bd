"""Workloads of every family of operators, drawn as programs really use them: what models learn from.

Beside the products of `tlm.model.shapes`: convolutions (grouped ones too), depthwise convolutions, pooling,
softmax and normalisations, reductions over some or all axes, elementwise functions, layout changes, and
attention. Extents are those of well-known networks and others around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from random import Random
from typing import Any

from ..ir.nodes import Program
from ..model.shapes import LEARNED, Families, Pair

Shape = tuple[int, ...]
Settings = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class _Operand:
    shape: Shape
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Sample:
    """A call of `tlm.ops.<op>` on f32 operands of these shapes.

    `extents` are what its time depends on most, by role; `work` counts multiply-adds, or what takes as long.
    """

    family: str
    op: str
    shapes: tuple[Shape, ...]
    extents: tuple[int, ...]
    settings: Settings
    work: int

    @property
    def pairs(self) -> frozenset[Pair]:
        """Every two of the extents, by operator and roles; the only one, where there are no two."""
        found = {
            (f"{self.family} {self.op} {i} {j}", self.extents[i], self.extents[j])
            for i, j in combinations(range(len(self.extents)), 2)
        }
        return frozenset(found) or frozenset({(f"{self.family} {self.op}", self.extents[0], 0)})

    def __str__(self) -> str:
        sizes = " ".join("x".join(map(str, s)) for s in self.shapes)
        return " ".join([self.op, sizes, *(f"{name}={value}" for name, value in self.settings)])

    def program(self) -> Program:
        """The unscheduled program."""
        return _program(self)


@cache
def _program(s: Sample) -> Program:
    from .. import ops

    operands = [_Operand(shape) for shape in s.shapes]
    made: Program = getattr(ops, s.op).program(*operands, **dict(s.settings))
    return made


def _near(rng: Random, low: int, high: int, unit: int = 1) -> int:
    """Log-uniform between low and high, most often a multiple of `unit`."""
    n = low * math.exp(math.log(high / low) * rng.random())
    return max(unit, round(n / unit) * unit) if rng.random() < 0.8 else max(1, round(n))


_SIDES = (7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 38, 40, 48, 56, 64, 80, 96, 112)


def _image(rng: Random, most: int) -> tuple[int, int, int]:
    """(batch, height, width), with at most about `most` pixels."""
    side = rng.choice([s for s in _SIDES if s * s <= most])
    return rng.choice([1, 1, 1, 1, 2, 4]), side, side if rng.random() < 0.85 else rng.choice(_SIDES)


def _conv(rng: Random) -> Sample:
    batch, h, w = _image(rng, 12544)
    taps, stride = rng.choice([1, 1, 3, 3, 3, 5, 7]), rng.choice([1, 1, 1, 2])
    deep, out = _near(rng, 16, 512, 8), _near(rng, 16, 512, 8)
    if taps == 7 or rng.random() < 0.1:
        deep = rng.choice([1, 3, 4])
    groups = rng.choice([2, 4, 8, 16, 32]) if taps == 3 and rng.random() < 0.15 else 1
    deep, out = (-(-n // groups) * groups for n in (deep, out))
    settings: Settings = (("stride", stride), ("padding", rng.choice(["SAME", "SAME", "VALID"])))
    if groups > 1:
        settings += (("groups", groups),)
    activation = rng.choice([None, None, "relu", "silu"])
    if activation is not None:
        settings += (("activation", activation),)
    h, w = max(h, taps), max(w, taps)
    work = batch * h * w * taps * taps * deep * out // (groups * stride * stride)
    shapes: tuple[Shape, ...] = ((batch, h, w, deep), (taps, taps, deep // groups, out))
    if rng.random() < 0.6:
        shapes = (*shapes, (out,))
    extents = (batch * h * w // (stride * stride), taps * taps * deep // groups, out)
    return Sample("conv", "conv2d", shapes, extents, settings, work)


def _depthwise(rng: Random) -> Sample:
    batch, h, w = _image(rng, 12544)
    taps, stride, channels = rng.choice([3, 3, 3, 5, 5, 7]), rng.choice([1, 1, 2]), _near(rng, 16, 1024, 8)
    h, w = max(h, taps), max(w, taps)
    settings: Settings = (("stride", stride), ("padding", "SAME"), ("groups", channels))
    activation = rng.choice([None, "relu", "silu"])
    if activation is not None:
        settings += (("activation", activation),)
    work = 4 * batch * h * w * taps * taps * channels // (stride * stride)
    shapes = ((batch, h, w, channels), (taps, taps, 1, channels), (channels,))
    return Sample("depthwise", "conv2d", shapes, (batch * h * w, channels), settings, work)


def _pool(rng: Random) -> Sample:
    batch, h, w = _image(rng, 12544)
    op, size = rng.choice(["max_pool2d", "avg_pool2d"]), rng.choice([2, 3, 3])
    channels = _near(rng, 16, 512, 8)
    settings: Settings = (("window", size), ("stride", rng.choice([1, 2])), ("padding", size // 2))
    shape = (batch, max(h, size), max(w, size), channels)
    work = 4 * math.prod(shape) * size * size
    return Sample("pool", op, (shape,), (math.prod(shape[:3]), channels), settings, work)


def _rows(rng: Random) -> Sample:
    rows, width = _near(rng, 1, 4096, 8), _near(rng, 16, 8192, 16)
    if rng.random() < 0.1:
        rows, width = _near(rng, 1, 64), _near(rng, 8192, 60000)
    op = rng.choice(["softmax", "softmax", "log_softmax", "layer_norm", "layer_norm", "rms_norm"])
    shapes: dict[str, tuple[Shape, ...]] = {
        "layer_norm": ((rows, width), (width,), (width,)),
        "rms_norm": ((rows, width), (width,)),
    }
    return Sample("rows", op, shapes.get(op, ((rows, width),)), (rows, width), (), 30 * rows * width)


def _reduction(rng: Random) -> Sample:
    op = rng.choice(["sum", "mean", "max", "min", "var", "argmax", "logsumexp"])
    rank = rng.choice([1, 2, 2, 3, 4])
    shape = tuple([_near(rng, 2, {1: 4_000_000, 2: 3000, 3: 300, 4: 64}[rank]) for _ in range(rank)])
    axes = sorted(rng.sample(range(rank), rng.randint(1, rank)))
    axis: Any = axes[0] if op == "argmax" else tuple(axes)
    return Sample("reduction", op, (shape,), shape, (("axis", axis),), 8 * math.prod(shape))


def _elementwise(rng: Random) -> Sample:
    op = rng.choice(["gelu", "relu", "silu", "exp", "tanh", "sigmoid", "sqrt", "add", "multiply", "maximum"])
    rank = rng.choice([1, 2, 2, 3])
    shape = tuple([_near(rng, 4, {1: 2_000_000, 2: 3000, 3: 200}[rank]) for _ in range(rank)])
    shapes: tuple[Shape, ...] = (shape,)
    if op in ("add", "multiply", "maximum"):
        shapes = (shape, rng.choice([shape, shape[-1:], (*shape[:-1], 1)]))
    return Sample("elementwise", op, shapes, shape, (), 8 * math.prod(shape))


def _layout(rng: Random) -> Sample:
    rank = rng.choice([2, 2, 3, 4])
    shape = tuple([_near(rng, 4, {2: 3000, 3: 250, 4: 60}[rank]) for _ in range(rank)])
    size = math.prod(shape)
    if rng.random() < 0.7:
        axes = list(range(rank))
        while axes == sorted(axes):
            rng.shuffle(axes)
        return Sample("layout", "transpose", (shape,), shape, (("axes", tuple(axes)),), 8 * size)
    widths = tuple([(rng.randint(0, 3), rng.randint(0, 3)) for _ in shape])
    return Sample("layout", "pad", (shape,), shape, (("pad_width", widths),), 8 * size)


def _attention(rng: Random) -> Sample:
    batch, heads = rng.choice([1, 1, 2]), rng.choice([1, 2, 4, 8, 12, 16])
    time, width = _near(rng, 16, 512, 16), rng.choice([16, 32, 64, 64, 80, 128])
    operand = (batch, time, heads, width)
    settings = (("is_causal", rng.random() < 0.5),)
    extents, work = (time, batch * heads, width), 3 * time * math.prod(operand)
    return Sample("attention", "dot_product_attention", (operand,) * 3, extents, settings, work)


OTHERS: Mapping[str, Callable[[Random], Sample]] = {
    "conv": _conv, "depthwise": _depthwise, "pool": _pool, "rows": _rows, "reduction": _reduction,
    "elementwise": _elementwise, "layout": _layout, "attention": _attention,
}  # fmt: skip
"""Families beside products."""

FAMILIES: Families = {**LEARNED, **OTHERS}

TAUGHT: Families = {**FAMILIES, "conv 2": _conv, "conv 3": _conv}
"""What models are taught: convolutions have the most choices, and their workloads differ the most."""
