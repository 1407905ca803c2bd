"""Every operator of `tlm.ops` on small arrays, with what it should give in float64: checks for GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Reference = Callable[..., Any]
Shape = tuple[int, ...]

TOLERANCE = {"float64": 1e-12, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Largest error as a share of the largest magnitude (at least 1); integers and bools are exact."""

FLOATS = ("float32", "float64", "float16", "bfloat16")
SOME = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class Case:
    """One call: `tlm.ops.<op>(*operands, **settings)`. `reference(*operands)` takes float64 (integers and
    bools as they are). `draw` names how values are drawn. `lead`: arguments before the operands. `listed`:
    the operands are one argument."""

    op: str
    shapes: tuple[Shape, ...]
    reference: Reference
    settings: tuple[tuple[str, Any], ...] = ()
    dtype: str = "float32"
    draw: str = "normal"
    lead: tuple[Any, ...] = ()
    listed: bool = False

    @property
    def name(self) -> str:
        """op, shapes, dtype and settings."""
        sizes = " ".join("x".join(map(str, s)) or "number" for s in self.shapes)
        told = [*self.lead, *(f"{k}={v}" for k, v in self.settings)]
        return " ".join([self.op, sizes, self.dtype, *map(str, told)])

    def operands(self, seed: int = 0) -> list[np.ndarray]:
        """The operands, as numpy arrays of the dtype."""
        rng = np.random.default_rng(seed)
        return [_DRAWS[self.draw](rng, shape).astype(dtype_of(self.dtype)) for shape in self.shapes]

    def expected(self, operands: list[np.ndarray]) -> np.ndarray:
        """What the call should give."""
        wide = [x.astype(np.float64) if self.is_float else x for x in operands]
        with np.errstate(all="ignore"):
            return np.asarray(self.reference(*wide))

    @property
    def is_float(self) -> bool:
        return self.dtype in TOLERANCE

    def call(self, ops: Any, arrays: list[Any], **how: Any) -> Any:
        """The result of the call on arrays of any library."""
        operands = [arrays] if self.listed else arrays
        return getattr(ops, self.op)(*self.lead, *operands, **dict(self.settings), **how)


def dtype_of(name: str) -> np.dtype:
    """The numpy dtype of a name."""
    return np.dtype(getattr(ml_dtypes, name, name))


def error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference as a share of the largest magnitude (at least 1); inf where shapes or special
    values differ."""
    got, want = np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64)
    if got.shape != want.shape:
        return math.inf
    special = ~np.isfinite(want)
    if (
        not np.array_equal(got[special], want[special], equal_nan=True)
        or not np.isfinite(got[~special]).all()
    ):
        return math.inf
    scale = max(1.0, float(np.abs(want[~special]).max(initial=0)))
    return float(np.abs(got[~special] - want[~special]).max(initial=0)) / scale


def allowed(case: Case) -> float:
    """The largest error that a case may have."""
    return TOLERANCE.get(case.dtype, 0.0)


_DRAWS: dict[str, Callable[[np.random.Generator, Shape], np.ndarray]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "positive": lambda rng, shape: rng.uniform(0.1, 4, shape),
    "unit": lambda rng, shape: rng.uniform(-0.95, 0.95, shape),
    "near one": lambda rng, shape: rng.uniform(0.6, 1.4, shape),
    "whole": lambda rng, shape: rng.integers(-4, 5, shape),
    "counts": lambda rng, shape: rng.integers(0, 5, shape),
    "bools": lambda rng, shape: rng.integers(0, 2, shape),
}


def _each(f: Callable[[float], float]) -> Reference:
    return np.vectorize(f, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


_UNARY: dict[str, tuple[Reference, str]] = {
    "abs": (np.abs, "normal"), "acos": (np.arccos, "unit"), "asin": (np.arcsin, "unit"),
    "atan": (np.arctan, "normal"), "cbrt": (np.cbrt, "normal"), "ceil": (np.ceil, "normal"),
    "cos": (np.cos, "normal"), "cosh": (np.cosh, "unit"), "erf": (_each(math.erf), "normal"),
    "erfc": (_each(math.erfc), "normal"), "exp": (np.exp, "unit"), "exp2": (np.exp2, "unit"),
    "expm1": (np.expm1, "unit"), "floor": (np.floor, "normal"), "gelu": (_gelu, "normal"),
    "log": (np.log, "positive"), "log1p": (np.log1p, "positive"), "log2": (np.log2, "positive"),
    "negative": (np.negative, "normal"), "reciprocal": (np.reciprocal, "positive"),
    "relu": (lambda x: np.maximum(x, 0), "normal"), "round": (np.round, "normal"),
    "rsqrt": (lambda x: 1 / np.sqrt(x), "positive"), "sigmoid": (_sigmoid, "normal"),
    "sign": (np.sign, "normal"), "silu": (lambda x: x * _sigmoid(x), "normal"), "sin": (np.sin, "normal"),
    "sinh": (np.sinh, "unit"), "sqrt": (np.sqrt, "positive"), "square": (np.square, "normal"),
    "tan": (np.tan, "unit"), "tanh": (np.tanh, "normal"), "trunc": (np.trunc, "normal"),
    "isfinite": (np.isfinite, "normal"), "isinf": (np.isinf, "normal"), "isnan": (np.isnan, "normal"),
    "logical_not": (np.logical_not, "whole"),
}  # fmt: skip
_BINARY: dict[str, tuple[Reference, str]] = {
    "add": (np.add, "normal"), "subtract": (np.subtract, "normal"), "multiply": (np.multiply, "normal"),
    "divide": (np.divide, "positive"), "floor_divide": (np.floor_divide, "near one"),
    "mod": (np.mod, "near one"), "fmod": (np.fmod, "near one"), "atan2": (np.arctan2, "normal"),
    "maximum": (np.maximum, "normal"), "minimum": (np.minimum, "normal"), "pow": (np.power, "near one"),
    "equal": (np.equal, "whole"), "not_equal": (np.not_equal, "whole"), "less": (np.less, "normal"),
    "less_equal": (np.less_equal, "whole"), "greater": (np.greater, "normal"),
    "greater_equal": (np.greater_equal, "whole"), "logical_and": (np.logical_and, "counts"),
    "logical_or": (np.logical_or, "counts"), "logical_xor": (np.logical_xor, "counts"),
}  # fmt: skip
_WHOLE: dict[str, Reference] = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift, "right_shift": np.right_shift,
}  # fmt: skip


def _elementwise() -> Iterator[Case]:
    # Near a whole quotient a rounded operand may fall on the other side, in halves more than anywhere.
    exact = ("floor_divide", "mod", "fmod", "floor", "ceil", "trunc", "round")
    for name, (reference, draw) in _UNARY.items():
        for dtype in FLOATS:
            yield Case(name, ((37, 53),), reference, dtype=dtype, draw=draw)
        yield Case(name, ((1,),), reference, draw=draw)
        yield Case(name, ((4096, 33),), reference, draw=draw)
    for name, (reference, draw) in _BINARY.items():
        for dtype in ("float32", "float64") if name in exact else FLOATS:
            yield Case(name, ((37, 53), (53,)), reference, dtype=dtype, draw=draw)
        yield Case(name, ((64, 1, 5), (7, 1)), reference, draw=draw)
    for name, reference in _WHOLE.items():
        for dtype in ("int32", "int64", "int8"):
            yield Case(name, ((37, 53), (37, 53)), reference, dtype=dtype, draw="counts")
    yield Case("bitwise_not", ((37, 53),), np.invert, dtype="int32", draw="whole")
    yield Case("gelu", ((128, 300),), lambda x: x * 0.5 * _each(math.erfc)(-x / math.sqrt(2)),
               (("approximate", False),))  # fmt: skip
    yield Case("clip", ((37, 53),), lambda x: np.clip(x, -0.5, 0.5), (("min", -0.5), ("max", 0.5)))
    yield Case("where", ((37, 53), (37, 53), (53,)), np.where, dtype="int32", draw="bools")
    yield Case("astype", ((37, 53),), lambda x: x, (("dtype", "float64"),), dtype="float32")


def _products() -> Iterator[Case]:
    shapes = (
        ((64, 48), (48, 80)),
        ((127, 63), (63, 129)),
        ((3, 40, 24), (24, 16)),
        ((5, 33, 17), (5, 17, 65)),
        ((1, 512), (512, 300)),
        ((300, 512), (512, 1)),
        ((64,), (64,)),
        ((16, 16), (16, 16)),
    )
    for pair in shapes:
        for dtype in SOME:
            yield Case("matmul", pair, np.matmul, dtype=dtype)
    for dtype in ("float64", "float16"):
        yield Case("matmul", ((256, 256), (256, 256)), np.matmul, dtype=dtype)
    yield Case("matmul", ((64, 100), (100, 72)), np.matmul, dtype="int32", draw="whole")
    yield Case("matmul", ((512, 512), (512, 512)), np.matmul)
    yield Case(
        "linear", ((65, 96), (96, 130), (130,)), lambda x, w, b: _gelu(x @ w + b), (("activation", "gelu"),)
    )
    yield Case("linear", ((8, 96), (96, 64)), np.matmul, dtype="bfloat16")
    yield Case("einsum", ((6, 20, 30), (6, 30, 10)), lambda a, b: a @ b, lead=("bik,bkj->bij",))
    yield Case("einsum", ((20, 30), (30, 10), (10,)), lambda a, b, c: a @ b @ c, lead=("ij,jk,k->i",))


def _softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _normal(x: Any, eps: float = 1e-5) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def _rows() -> Iterator[Case]:
    for shape in ((64, 128), (7, 1000), (3, 5, 33), (2, 20000)):
        for dtype in SOME:
            yield Case("softmax", (shape,), _softmax, dtype=dtype)
        yield Case("log_softmax", (shape,), lambda x: np.log(_softmax(x)))
        width = shape[-1:]
        yield Case("layer_norm", (shape, width, width), lambda x, s, b: _normal(x) * s + b)
        yield Case(
            "rms_norm", (shape, width), lambda x, s: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * s
        )
    yield Case("softmax", ((40, 30),), lambda x: _softmax(x, 0), (("axis", 0),))
    yield Case("layer_norm", ((64, 768),), _normal, dtype="float16")
    yield Case("batch_norm", ((30, 40),) + ((40,),) * 4, draw="positive",
               reference=lambda x, m, v, s, b: (x - m) / np.sqrt(v + 1e-5) * s + b)  # fmt: skip


def _reductions() -> Iterator[Case]:
    plain: dict[str, tuple[Reference, str]] = {
        "sum": (np.sum, "normal"), "mean": (np.mean, "normal"), "max": (np.max, "normal"),
        "min": (np.min, "normal"), "prod": (np.prod, "near one"), "var": (np.var, "normal"),
        "std": (np.std, "normal"), "argmax": (np.argmax, "normal"), "argmin": (np.argmin, "normal"),
        "any": (np.any, "bools"), "all": (np.all, "bools"),
    }  # fmt: skip
    plain["logsumexp"] = (lambda x, axis=None: np.log(np.exp(x).sum(axis)), "normal")
    for name, (reference, draw) in plain.items():
        for shape, axis in (((64, 100), 1), ((64, 100), 0), ((5, 6, 7), 1), ((30000,), None)):
            if name == "prod" and axis is None:
                continue
            yield Case(name, (shape,), _along(reference, axis), (("axis", axis),), draw=draw)
        if name not in ("argmax", "argmin"):
            yield Case(name, ((6, 9, 50),), _along(reference, (0, 2)), (("axis", (0, 2)),), draw=draw)
    yield Case("sum", ((64, 100),), _along(np.sum, 1), (("axis", 1),), dtype="bfloat16")
    yield Case("sum", ((64, 100),), _along(np.sum, 1), (("axis", 1),), dtype="int32", draw="whole")
    yield Case("cumsum", ((20, 300),), _along(np.cumsum, 1), (("axis", 1),))
    yield Case("cumsum", ((300, 20),), _along(np.cumsum, 0), (("axis", 0),))


def _along(reference: Reference, axis: Any) -> Reference:
    return lambda x: reference(x, axis=axis)


def _layouts() -> Iterator[Case]:
    yield Case("transpose", ((130, 70),), np.transpose)
    turned = (1, 2, 0)
    yield Case(
        "transpose",
        ((4, 33, 65),),
        lambda x: x.transpose(turned),
        (("axes", turned),),
        dtype="int8",
        draw="whole",
    )
    yield Case(
        "concatenate", ((20, 30), (20, 5)), lambda *x: np.concatenate(x, 1), (("axis", 1),), listed=True
    )
    yield Case("pad", ((20, 30),), lambda x: np.pad(x, ((1, 2), (3, 0))), (("pad_width", ((1, 2), (3, 0))),))
    yield Case("pad", ((20, 30),), lambda x: np.pad(x, 2, "reflect"), (("pad_width", 2), ("mode", "reflect")))
    yield Case("flip", ((20, 30),), lambda x: np.flip(x, 1), (("axis", 1),))
    yield Case(
        "broadcast_to", ((20, 1),), lambda x: np.broadcast_to(x, (3, 20, 30)), (("shape", (3, 20, 30)),)
    )
    yield Case(
        "take", ((30, 7), (11,)), lambda x, i: np.take(x, i, 0), (("axis", 0),), dtype="int32", draw="counts"
    )


def _windows(x: Any, taps: Shape, stride: int, low: float = 0.0, pad: int = 0) -> Any:
    """x [n, h, w, c] as [n, h', w', c, kh, kw]."""
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=low)
    view = np.lib.stride_tricks.sliding_window_view(x, taps, (1, 2))
    return view[:, ::stride, ::stride]


def _conv(stride: int, pad: int) -> Reference:
    return lambda x, w: np.einsum("nhwckl,klco->nhwo", _windows(x, w.shape[:2], stride, 0.0, pad), w)


def _depthwise(x: Any, w: Any) -> Any:
    return np.einsum("nhwckl,klc->nhwc", _windows(x, w.shape[:2], 1, 0.0, 1), w[:, :, 0])


def _line(x: Any, w: Any) -> Any:
    return np.einsum("nwck,kco->nwo", np.lib.stride_tricks.sliding_window_view(x, len(w), 1), w)


def _volume(x: Any, w: Any) -> Any:
    view = np.lib.stride_tricks.sliding_window_view(x, w.shape[:3], (1, 2, 3))
    return np.einsum("ndhwcijk,ijkco->ndhwo", view, w)


def _upward(x: Any, w: Any) -> Any:
    """A transposed convolution of stride 2 without padding, of kernels that do not overlap."""
    n, h, width, _ = x.shape
    spread = np.einsum("nhwc,klco->nhkwlo", x, w[::-1, ::-1])
    return spread.reshape(n, 2 * h, 2 * width, -1)


def _stencils() -> Iterator[Case]:
    same, two = ("padding", "SAME"), ("stride", 2)
    for dtype in SOME:
        yield Case("conv2d", ((2, 14, 14, 16), (3, 3, 16, 24)), _conv(1, 1), (same,), dtype)
    yield Case("conv2d", ((1, 15, 15, 8), (3, 3, 8, 12)), _conv(2, 0), (("padding", "VALID"), two))
    yield Case("conv2d", ((2, 9, 9, 32), (1, 1, 32, 20)), _conv(1, 0))
    yield Case("conv2d", ((2, 12, 12, 24), (3, 3, 1, 24)), _depthwise, (same, ("groups", 24)))
    yield Case("conv1d", ((2, 30, 8), (3, 8, 10)), _line, (("padding", "VALID"),))
    yield Case("conv3d", ((1, 6, 7, 8, 4), (3, 3, 3, 4, 6)), _volume, (("padding", "VALID"),))
    yield Case("conv_transpose", ((1, 5, 6, 4), (2, 2, 4, 3)), _upward, (two, ("padding", "VALID")))
    most = {"stride": 2, "low": -np.inf, "pad": 1}
    yield Case("max_pool2d", ((2, 14, 14, 16),), lambda x: _windows(x, (3, 3), **most).max((-2, -1)),
               (("window", 3), two, ("padding", 1)))  # fmt: skip
    yield Case(
        "avg_pool2d",
        ((2, 14, 14, 16),),
        lambda x: _windows(x, (2, 2), 2).mean((-2, -1)),
        (("window", 2), two),
    )


def _attend(causal: bool) -> Reference:
    def attention(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1])
        if causal:
            scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
        return (_softmax(scores) @ v).transpose(0, 2, 1, 3)

    return attention


def _attentions() -> Iterator[Case]:
    for shape in ((1, 128, 4, 64), (2, 50, 3, 32)):
        for causal in (False, True):
            yield Case("dot_product_attention", (shape,) * 3, _attend(causal), (("is_causal", causal),))
    yield Case("dot_product_attention", ((1, 64, 4, 64),) * 3, _attend(False), dtype="bfloat16")


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "elementwise": _elementwise, "products": _products, "rows": _rows, "reductions": _reductions,
    "layouts": _layouts, "windows": _stencils, "attention": _attentions,
}  # fmt: skip


def cases(families: Any = None) -> list[Case]:
    """All cases, or those of some families."""
    return [case for name in (FAMILIES if families is None else families) for case in FAMILIES[name]()]
