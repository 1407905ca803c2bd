"""Small convolutions and pools as programs, in the form in which operators write them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from tlm.ir.affine import conjunction
from tlm.ir.build import Builder, Place
from tlm.ir.dtypes import f32
from tlm.ir.exprs import Expr, Op, const, op
from tlm.ir.nodes import Program

Pads = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Image:
    """An image [n, h, w, c] (c first if `first`) under a window of kh x kw."""

    n: int
    h: int
    w: int
    kh: int
    kw: int
    stride: int = 1
    dilation: int = 1
    pads: Pads | None = None
    first: bool = False

    @property
    def padding(self) -> Pads:
        """The pads; SAME where none are given."""
        if self.pads is not None:
            return self.pads
        out = []
        for size, taps in ((self.h, self.kh), (self.w, self.kw)):
            total = max(
                (-(-size // self.stride) - 1) * self.stride + (taps - 1) * self.dilation + 1 - size, 0
            )
            out.append((total // 2, total - total // 2))
        return out[0], out[1]

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        sizes = []
        for size, taps, (low, high) in zip((self.h, self.w), (self.kh, self.kw), self.padding, strict=True):
            sizes.append((size + low + high - (taps - 1) * self.dilation - 1) // self.stride + 1)
        return sizes[0], sizes[1]

    def read(self, y: Expr, x: Expr, r: Expr, s: Expr) -> tuple[Expr, Expr, list[Expr]]:
        """The place that a tap reads, and under which conditions it is inside of the image."""
        conds: list[Expr] = []
        places = []
        for at, tap, size, taps, out, (low, _) in zip(
            (y, x), (r, s), (self.h, self.w), (self.kh, self.kw), self.out, self.padding, strict=True
        ):
            place = at * self.stride + tap * self.dilation - low
            if low:
                conds.append(place >= 0)
            if (out - 1) * self.stride + (taps - 1) * self.dilation - low >= size:
                conds.append(place < size)
            places.append(place)
        return places[0], places[1], conds

    def shape(self, rows: int, columns: int, channels: int) -> tuple[int, ...]:
        spatial = (rows, columns)
        return (self.n, channels, *spatial) if self.first else (self.n, *spatial, channels)

    def at(self, n: Expr, y: Expr, x: Expr, c: Expr) -> tuple[Expr, ...]:
        return (n, c, y, x) if self.first else (n, y, x, c)


def picked(conds: list[Expr], value: Expr, other: float = 0.0) -> Expr:
    return Op("where", (conjunction(conds), value, const(other, f32)), f32) if conds else value


def conv(i: Image, c: int, o: int, activation: bool = False, whole: bool = False) -> Program:
    """A convolution of c to o channels. `whole`: the condition is on the product, not on the read."""
    b = Builder("conv2d")
    x = b.input("X", i.shape(i.h, i.w, c), "f32")
    w = b.input("W", (o, c, i.kh, i.kw) if i.first else (i.kh, i.kw, c, o), "f32")
    bias = b.input("B", (o,), "f32")
    axes = ("n", "o", "y", "x") if i.first else ("n", "y", "x", "o")

    def term(*v: Expr) -> Expr:
        at = dict(zip((*axes, "r", "s", "c"), v, strict=True))
        y, column, conds = i.read(at["y"], at["x"], at["r"], at["s"])
        read = x[i.at(at["n"], y, column, at["c"])]
        weight = w[(at["o"], at["c"], at["r"], at["s"]) if i.first else (at["r"], at["s"], at["c"], at["o"])]
        return picked(conds, read * weight) if whole else picked(conds, read) * weight

    shape, over = i.shape(*i.out, o), {"r": i.kh, "s": i.kw, "c": c}
    acc = b.reduce("acc" if activation else "Y", shape, over, term, axes=axes, output=not activation)
    if activation:
        place = axes.index("o")
        b.compute(
            "Y", shape, lambda *v: op("maximum", acc[v] + bias[v[place]], const(0.0, f32)), axes, output=True
        )
    return b.build()


def grouped(i: Image, groups: int, c: int, o: int, flat: bool = True) -> Program:
    """c to o channels in each of `groups`, channels last, with a bias; `flat`: one axis of channels."""
    b = Builder("conv2d")
    x = b.input("X", (i.n, i.h, i.w, groups * c), "f32")
    w = b.input("W", (i.kh, i.kw, c, groups * o), "f32")
    bias = b.input("B", (groups * o,), "f32")
    loops = dict(zip(("n", "y", "x", "g", "o"), (i.n, *i.out, groups, o), strict=True))
    shape = (i.n, *i.out, groups * o) if flat else (i.n, *i.out, groups, o)

    def at(*v: Expr) -> tuple[Expr, ...]:
        return (*v[:3], v[3] * o + v[4]) if flat else v

    def term(n: Expr, y: Expr, column: Expr, g: Expr, oc: Expr, r: Expr, s: Expr, cc: Expr) -> Expr:
        row, column, conds = i.read(y, column, r, s)
        return picked(conds, x[n, row, column, g * c + cc]) * w[r, s, cc, g * o + oc]

    place = Place(loops, at)
    acc = b.reduce("acc", shape, {"r": i.kh, "s": i.kw, "c": c}, term, place=place)
    b.compute("Y", shape, lambda *v: acc[at(*v)] + bias[v[3] * o + v[4]], place=place, output=True)
    return b.build()


def depthwise(i: Image, c: int) -> Program:
    """A convolution of each of c channels."""
    b = Builder("conv2d")
    x = b.input("X", i.shape(i.h, i.w, c), "f32")
    w = b.input("W", (c, 1, i.kh, i.kw) if i.first else (i.kh, i.kw, 1, c), "f32")
    axes = ("n", "c", "y", "x") if i.first else ("n", "y", "x", "c")

    def term(*v: Expr) -> Expr:
        at = dict(zip((*axes, "r", "s"), v, strict=True))
        y, column, conds = i.read(at["y"], at["x"], at["r"], at["s"])
        read = picked(conds, x[i.at(at["n"], y, column, at["c"])])
        return (
            read
            * w[(at["c"], const(0), at["r"], at["s"]) if i.first else (at["r"], at["s"], const(0), at["c"])]
        )

    b.reduce("Y", i.shape(*i.out, c), {"r": i.kh, "s": i.kw}, term, axes=axes, output=True)
    return b.build()


def pool(i: Image, c: int, combiner: str) -> Program:
    """The maximum, minimum or sum of each window."""
    b = Builder("pool2d")
    x = b.input("X", i.shape(i.h, i.w, c), "f32")
    axes = ("n", "c", "y", "x") if i.first else ("n", "y", "x", "c")
    outside = {"max": -math.inf, "min": math.inf, "sum": 0.0}[combiner]

    def term(*v: Expr) -> Expr:
        at = dict(zip((*axes, "r", "s"), v, strict=True))
        y, column, conds = i.read(at["y"], at["x"], at["r"], at["s"])
        return picked(conds, x[i.at(at["n"], y, column, at["c"])], outside)

    over = {"r": i.kh, "s": i.kw}
    b.reduce("Y", i.shape(*i.out, c), over, term, combiner=combiner, axes=axes, output=True)
    return b.build()


def image(rng: Random, first: bool | None = None) -> Image:
    """A small image with an awkward window: strides, dilations, uneven pads, ones and primes."""
    pads = rng.choice((None, None, ((1, 2), (0, 1)), ((2, 0), (1, 1)), ((0, 0), (0, 0))))
    found = Image(
        rng.choice((1, 1, 2)), rng.choice((1, 3, 4, 5, 7, 9)), rng.choice((1, 2, 5, 7, 8, 11, 17)),
        rng.choice((1, 2, 3)), rng.choice((1, 3, 3, 5)), rng.choice((1, 1, 2)), rng.choice((1, 1, 2)), pads,
        rng.random() < 0.35 if first is None else first,
    )  # fmt: skip
    return found if min(found.out) > 0 else image(rng, first)


def random_program(rng: Random) -> Program:
    """One of the above with few channels."""
    kind = rng.randrange(6)
    if kind == 0:
        return depthwise(image(rng), rng.choice((1, 3, 8, 16, 20, 33)))
    if kind == 1:
        return pool(image(rng), rng.choice((1, 3, 16, 20)), rng.choice(("max", "min", "sum")))
    if kind == 2:
        groups, c, o = rng.choice((2, 3, 8)), rng.choice((1, 2, 4)), rng.choice((1, 2, 4, 5))
        return grouped(image(rng, False), groups, c, o, rng.random() < 0.7)
    return conv(
        image(rng), rng.choice((1, 2, 3, 5, 8, 17)), rng.choice((1, 3, 8, 16, 19, 33)), rng.random() < 0.4,
        rng.random() < 0.3,
    )  # fmt: skip
