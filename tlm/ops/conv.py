"""Convolutions over one, two and three axes, and their transposes, as sums over windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ..ir.activations import ACTIVATIONS
from ..ir.build import Place, Tensor
from ..ir.dtypes import DType, accumulator, i8, i32, promote, u8
from ..ir.exprs import Expr, converted
from .dtypes import product_type
from .expressions import compute, sum
from .functions import where
from .operator import operator
from .settings import activation as activation_of
from .windows import LETTERS, SPATIAL, TAPS, Window, fits, integers, layout, paddings, reads


@dataclass(frozen=True, slots=True)
class Convolution:
    """What a convolution computes, with its axes in the order of the layouts (letter -> axis)."""

    name: str
    windows: tuple[Window, ...]
    groups: int
    images: dict[str, int]
    kernels: dict[str, int]
    dtype: DType
    activation: str | None


def convolve(c: Convolution, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """activation(conv(x, w) + b): a sum over the window and the channels of a group, then one more stage."""
    rank, acc = len(c.windows), accumulator(c.dtype)
    letters = LETTERS[len(LETTERS) - rank :]
    deep, out = w.shape[c.kernels["I"]], w.shape[c.kernels["O"]]
    each = out // c.groups
    batch = x.shape[c.images["N"]]
    sizes = {"N": batch, **{s: v.out for s, v in zip(letters, c.windows, strict=True)}, "C": out}
    loops: dict[str, int] = {}
    for letter in c.images:
        if letter == "C" and c.groups > 1:
            # One output channel a group (as in a depthwise convolution) makes the group the channel.
            loops |= {"c": out} if each == 1 else {"g": c.groups, "o": each}
        else:
            loops[_LOOPS.get(letter) or SPATIAL[LETTERS.index(letter)]] = sizes[letter]
    shape = tuple([sizes[letter] for letter in c.images])
    slid = [n for n, v in enumerate(c.windows) if v.taps > 1]
    over = {TAPS[n - rank]: c.windows[n].taps for n in slid}
    if deep != 1 or not over:
        over["k" if "c" in loops else "c"] = deep

    def places(at: Sequence[Expr]) -> dict[str, Expr]:
        named = dict(zip(loops, at, strict=False))
        group = named.get("c", named.get("g"))
        channel = group if "c" in loops else named["g"] * each + named["o"] if "g" in loops else named["o"]
        assert channel is not None
        return named | {"channel": channel}

    def element(*at: Expr) -> tuple[Expr, ...]:
        named = places(at)
        return tuple([named[_written(letter)] for letter in c.images])

    def term(*at: Expr) -> Expr:
        named, inner = places(at), at[len(loops) :]
        taps: list[Expr | int] = [0] * rank
        for n, var in zip(slid, inner, strict=False):
            taps[n] = var
        depth: Expr | int = inner[-1] if len(inner) > len(slid) else 0
        spatial = [named[SPATIAL[n - rank]] for n in range(rank)]
        indices, inside = reads(c.windows, spatial, taps)
        channel = depth
        if c.groups > 1:
            group = named["c"] if "c" in loops else named["g"]
            channel = group if deep == 1 else group * deep + depth
        image = dict(zip(letters, indices, strict=True)) | {"N": named["n"], "C": channel}
        kernel = dict(zip(letters, taps, strict=True)) | {"I": depth, "O": named["channel"]}
        value = converted(x[tuple([image[s] for s in c.images])], acc)
        weight = converted(w[tuple([kernel[s] for s in c.kernels])], acc)
        return (value if inside is None else where(inside, value, 0)) * weight

    place = Place(loops, element)
    plain = b is None and c.activation is None and acc == c.dtype
    total = sum(shape, term, over, name="Y" if plain else "acc", axes=tuple(loops), place=place)
    if plain:
        return total
    return compute(shape, _finish(c, total, b, element, places), name="Y", axes=tuple(loops), place=place)


_LOOPS = {"N": "n", "C": "o"}


def _written(letter: str) -> str:
    return "n" if letter == "N" else "channel" if letter == "C" else SPATIAL[LETTERS.index(letter)]


def _finish(
    c: Convolution,
    total: Tensor,
    b: Tensor | None,
    element: Callable[..., tuple[Expr, ...]],
    places: Callable[[Sequence[Expr]], dict[str, Expr]],
) -> Callable[..., Expr]:
    def finished(*at: Expr) -> Expr:
        value: Expr = total[element(*at)]
        if b is not None:
            value = value + converted(b[places(at)["channel"]], value.dtype)
        if c.activation is not None:
            value = ACTIVATIONS[c.activation](value)
        return converted(value, c.dtype)

    return finished


def _describe(
    name: str,
    rank: int,
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    layouts: tuple[str, str],
    groups: Any,
    dtype: Any,
    activation: str | None,
) -> Convolution:
    """Everything but the windows, checked."""
    if x.ndim != rank + 2 or w.ndim != rank + 2:
        raise ArgumentError(
            f"{name} takes x and w of {rank + 2} dimensions ({layouts[0]}, {layouts[1]}), got shapes "
            f"{x.shape} and {w.shape}"
        )
    images, kernels = layout(name, layouts[0], rank, "NC"), layout(name, layouts[1], rank, "IO")
    if any(w.shape[axis] == 0 for letter, axis in kernels.items() if letter in LETTERS):
        raise ArgumentError(
            f"{name}: the window of w {w.shape} ({layouts[1]}) has no elements; its axes have at least 1 each"
        )
    (count,) = integers(name, "groups", groups, 1, 1)
    channels, deep, out = x.shape[images["C"]], w.shape[kernels["I"]], w.shape[kernels["O"]]
    if channels != deep * count or out % count:
        raise ArgumentError(
            f"{name} of x {x.shape} ({layouts[0]}) and w {w.shape} ({layouts[1]}) in {count} groups: w has "
            f"{deep} input channels a group where x has {channels} in all, and {out} output channels"
        )
    if b is not None and b.shape != (out,):
        raise ArgumentError(f"{name} with w {w.shape} takes a bias of shape ({out},), got {b.shape}")
    if dtype is None:
        # A product of 8-bit integers has 16 bits, and their sum more.
        result = i32 if {x.dtype, w.dtype} <= {i8, u8} else promote(x.dtype, w.dtype)
        result = result if b is None else promote(result, b.dtype)
    else:
        result = product_type(name, dtype, (x.dtype, w.dtype))
    if activation is not None and not result.is_float and activation != "relu":
        raise ArgumentError(f"{name}: activation {activation!r} is for floats, the result is {result}")
    return Convolution(name, (), count, images, kernels, result, activation_of(activation))


def _conv(
    name: str, rank: int, x: Tensor, w: Tensor, b: Tensor | None, stride: Any, padding: Any, dilation: Any,
    holes: Any, groups: Any, layouts: tuple[str | None, str | None], activation: str | None, dtype: Any,
) -> Tensor:  # fmt: skip
    named = _layouts(rank, layouts)
    c = _describe(name, rank, x, w, b, named, groups, dtype, activation)
    steps = integers(name, "stride", stride, rank, 1)
    apart = integers(name, "dilation", dilation, rank, 1)
    spread = integers(name, "input_dilation", holes, rank, 1)
    letters = LETTERS[len(LETTERS) - rank :]
    windows = [
        Window(x.shape[c.images[s]], w.shape[c.kernels[s]], steps[n], apart[n], holes=spread[n])
        for n, s in enumerate(letters)
    ]
    windows = paddings(name, padding, windows)
    fits(name, windows)
    return convolve(_with(c, windows), x, w, b)


def _with(c: Convolution, windows: Sequence[Window]) -> Convolution:
    return Convolution(c.name, tuple(windows), c.groups, c.images, c.kernels, c.dtype, c.activation)


def _layouts(rank: int, given: tuple[str | None, str | None]) -> tuple[str, str]:
    """The layouts of x and w, where None stands for the usual one."""
    letters = LETTERS[len(LETTERS) - rank :]
    image = f"N{letters}C" if given[0] is None else given[0]
    first = isinstance(image, str) and image.find("C") == 1
    usual = f"OI{letters}" if first else f"{letters}IO"
    return image, usual if given[1] is None else given[1]


_DOC = """{title}: `tlm.ops.{name}(x, w, b, stride=2, padding="SAME", activation="relu")`.

    Shapes x {image}, w {kernel} (with C / groups input channels), b [O] or None; the result is laid out as x.
    `layout` and `kernel_layout` name other orders of axes ("NC..." goes with "OI..." by default). `stride`,
    `dilation` (of the window) and `input_dilation` (zeros between the elements of x) are an integer or one an
    axis; `padding` is "VALID", "SAME", "SAME_LOWER", an integer, or for each axis an integer or a pair.
    Each of `groups` sees its own channels: as many as channels make it depthwise. Activations are those of
    `linear`, computed with the bias in the type of the sum: f32 for f16 and bf16, i32 for int8, whose result
    is int32. The dtype is numpy's promotion of the operands', or `dtype`.
    """


def _operator(name: str, rank: int, title: str) -> Any:
    def function(
        x: Tensor,
        w: Tensor,
        b: Tensor | None = None,
        *,
        stride: Any = 1,
        padding: Any = "VALID",
        dilation: Any = 1,
        input_dilation: Any = 1,
        groups: int = 1,
        layout: str | None = None,
        kernel_layout: str | None = None,
        activation: str | None = None,
        dtype: Any = None,
    ) -> Tensor:
        return _conv(
            name, rank, x, w, b, stride, padding, dilation, input_dilation, groups, (layout, kernel_layout),
            activation, dtype,
        )  # fmt: skip

    image, kernel = _layouts(rank, (None, None))
    function.__doc__ = _DOC.format(title=title, name=name, image=image, kernel=kernel)
    return operator(name=name)(function)


conv1d = _operator("conv1d", 1, "A convolution over one axis")
conv2d = _operator("conv2d", 2, "A convolution over images")
conv3d = _operator("conv3d", 3, "A convolution over volumes")


@operator
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    layout: str | None = None,
    kernel_layout: str | None = None,
    activation: str | None = None,
    dtype: Any = None,
) -> Tensor:
    """The transpose of a convolution over one to three axes, as jax.lax.conv_transpose (kernel not flipped).

    Shapes as of `conv2d`: x [N, ..., C], w [..., C, O], b [O] or None. "SAME" gives size * stride elements an
    axis, "VALID" all that a window touches; integers or pairs pad x with its zeros between elements.
    """
    rank = x.ndim - 2
    if not 1 <= rank <= len(LETTERS):
        raise ArgumentError(f"conv_transpose takes x of 3 to 5 dimensions, got shape {x.shape}")
    named = _layouts(rank, (layout, kernel_layout))
    c = _describe("conv_transpose", rank, x, w, b, named, 1, dtype, activation)
    steps = integers("conv_transpose", "stride", stride, rank, 1)
    apart = integers("conv_transpose", "dilation", dilation, rank, 1)
    windows = [
        Window(x.shape[c.images[s]], w.shape[c.kernels[s]], 1, apart[n], holes=steps[n])
        for n, s in enumerate(LETTERS[len(LETTERS) - rank :])
    ]
    if isinstance(padding, str) and padding.upper() in ("SAME", "VALID"):
        padding = tuple([_transposed(v, padding.upper()) for v in windows])
    windows = paddings("conv_transpose", padding, windows)
    fits("conv_transpose", windows)
    return convolve(_with(c, windows), x, w, b)


def _transposed(w: Window, named: str) -> tuple[int, int]:
    """Padding of a transposed convolution, as JAX defines it."""
    if named == "SAME":
        total = w.width + w.holes - 2
        low = w.width - 1 if w.holes > w.width - 1 else -(-total // 2)
    else:
        total = w.width + w.holes - 2 + max(w.width - w.holes, 0)
        low = w.width - 1
    return low, total - low
