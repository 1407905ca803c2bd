"""Pools: maxima and means over windows of images."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from ..ir.build import Tensor
from ..ir.combiners import lowest
from ..ir.dtypes import accumulator, floating
from ..ir.exprs import Expr, const, converted, op
from .expressions import compute, max, sum
from .functions import where
from .operator import operator
from .windows import LETTERS, SPATIAL, TAPS, Window, fits, integers, layout, paddings, reads


def _windows(
    name: str, x: Tensor, window: Any, stride: Any, padding: Any, dilation: Any, order: str
) -> tuple[dict[str, int], list[Window]]:
    """Axis of each letter of the layout, and the windows over H and W."""
    if x.ndim != 4:
        raise ArgumentError(f"{name} takes x of 4 dimensions ({order}), got shape {x.shape}")
    axes = layout(name, order, 2, "NC")
    taps = integers(name, "window", window, 2, 1)
    steps = taps if stride is None else integers(name, "stride", stride, 2, 1)
    apart = integers(name, "dilation", dilation, 2, 1)
    made = [Window(x.shape[axes[s]], taps[n], steps[n], apart[n]) for n, s in enumerate(LETTERS[1:])]
    made = paddings(name, padding, made)
    fits(name, made)
    return axes, made


def _pooled(
    x: Tensor, axes: dict[str, int], windows: list[Window], outside: Any, dtype: Any, reduce: Any, name: str
) -> Tensor:
    """The reduction of every window; `outside` is what the padding holds."""
    sizes = {"N": x.shape[axes["N"]], "C": x.shape[axes["C"]], "H": windows[0].out, "W": windows[1].out}
    loops = {"N": "n", "C": "c", "H": SPATIAL[1], "W": SPATIAL[2]}
    slid = [n for n, w in enumerate(windows) if w.taps > 1] or [1]
    over = {TAPS[1 + n]: windows[n].taps for n in slid}

    def value(*at: Expr) -> Expr:
        named = dict(zip(axes, at, strict=False))
        taps: list[Expr | int] = [0, 0]
        for n, var in zip(slid, at[4:], strict=True):
            taps[n] = var
        (row, column), inside = reads(windows, (named["H"], named["W"]), taps)
        here = named | {"H": row, "W": column}
        element = converted(x[tuple([here[s] for s in axes])], dtype)
        return element if inside is None else where(inside, element, outside)

    shape = tuple([sizes[s] for s in axes])
    found: Tensor = reduce(shape, value, over, name=name, axes=tuple([loops[s] for s in axes]), dtype=dtype)
    return found


@operator
def max_pool2d(
    x: Tensor,
    window: int | tuple[int, int],
    *,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str = "NHWC",
) -> Tensor:
    """The maximum of each window of images: `tlm.ops.max_pool2d(x, 3, stride=2, padding=1)`.

    x is [N, H, W, C], or as `layout` says. `window`, `stride` (the window's size by default) and `dilation`
    are an integer or one an axis, `padding` is as of `conv2d` and never wins. NaN where a window has one; a
    window wholly in the padding gives the lowest value (-inf for floats).
    """
    axes, windows = _windows("max_pool2d", x, window, stride, padding, dilation, layout)
    return _pooled(x, axes, windows, lowest(x.dtype), x.dtype, max, "Y")


@operator
def avg_pool2d(
    x: Tensor,
    window: int | tuple[int, int],
    *,
    stride: Any = None,
    padding: Any = 0,
    count_include_pad: bool = True,
    layout: str = "NHWC",
) -> Tensor:
    """The mean of each window of images; arguments as of `max_pool2d`.

    The padding counts as zeros, or not at all where `count_include_pad` is false: then the mean of a window
    wholly in the padding is NaN, as of no elements. Integers give floats.
    """
    axes, windows = _windows("avg_pool2d", x, window, stride, padding, 1, layout)
    result = floating(x.dtype)
    acc = accumulator(result)
    total = _pooled(x, axes, windows, const(0, acc), acc, sum, "acc")

    def mean(*at: Expr) -> Expr:
        if count_include_pad:
            return converted(total[at] / (windows[0].taps * windows[1].taps), result)
        named = dict(zip(axes, at, strict=True))
        count = _inside(windows[0], named["H"]) * _inside(windows[1], named["W"])
        return converted(total[at] / converted(count, acc), result)

    names = {"N": "n", "C": "c", "H": SPATIAL[1], "W": SPATIAL[2]}
    return compute(total.shape, mean, name="Y", axes=tuple([names[s] for s in axes]))


def _inside(w: Window, place: Expr) -> Expr:
    """How many taps of a window without dilation lie inside of its axis."""
    start = place * w.stride - w.low
    end = op("minimum", start + w.taps, const(w.size))
    count = end - op("maximum", start, const(0))
    first, last = -w.low, (w.out - 1) * w.stride - w.low
    some = first + w.taps >= 0 and last <= w.size
    return count if some else op("maximum", count, const(0))
