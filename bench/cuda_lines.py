"""What `bench/cuda.py` measures: workloads by family, with what each peer computes for the same operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from bench.cuda_cases import dtype_of
from bench.cuda_line import Bar, Device, Line, Peer, wide
from bench.cuda_timing import Call


def cublas(device: Device, x: dict[str, Any]) -> Call:
    """CuPy's product, which is cuBLAS's; TF32 is off unless CUPY_TF32 is set."""
    return lambda: device.cupy.matmul(x["a"], x["b"], out=x["out"])


def torch_matmul(device: Device, x: dict[str, Any]) -> Call:
    """cuBLAS by way of torch, which knows bf16."""
    a, b, out = (device.tensor(x[n]) for n in ("a", "b", "out"))
    return lambda: device.torch.matmul(a, b, out=out)


_GELU = """
const float v = (float)y + (float)c;
y = v / (1.0f + expf(-1.5957691216057308f * (v + 0.044715f * v * v * v)));
"""


def cublas_gelu(device: Device, x: dict[str, Any]) -> Call:
    """cuBLAS, then one kernel for the bias and the activation, in place."""
    kernel = device.cupy.ElementwiseKernel("T c", "T y", _GELU, "bias_gelu")
    out = x["out"]

    def call() -> None:
        device.cupy.matmul(x["a"], x["b"], out=out)
        kernel(x["c"], out)

    return call


def torch_gelu(device: Device, x: dict[str, Any]) -> Call:
    functional = device.torch.nn.functional if device.torch else None
    a, b, c = (device.tensor(x[n]) for n in ("a", "b", "c"))
    return lambda: functional.gelu(device.torch.addmm(c, a, b), approximate="tanh")


def _product(
    m: int, k: int, n: int, dtype: str = "float32", family: str = "f32 products", **more: Any
) -> Line:
    peers = {"cuBLAS": torch_matmul} if dtype == "bfloat16" else {"cuBLAS": cublas, "torch": torch_matmul}
    size = dtype_of(dtype).itemsize
    return Line(
        family, f"{m}x{k}x{n}", {"a": (m, k), "b": (k, n)}, dtype,
        lambda ops, x, how: ops.matmul(x["a"], x["b"], out=x["out"], **how),
        lambda xp, x: xp.matmul(wide(xp, x["a"]), wide(xp, x["b"])),
        peers, (m, n), 2.0 * m * k * n, size * (m * k + k * n + m * n),
        3e-5 if dtype == "float32" else 2e-2, **more,
    )  # fmt: skip


_SMALL = (
    (64, 64, 64), (128, 128, 128), (256, 256, 256), (16, 4096, 4096), (1, 4096, 4096), (4096, 4096, 1),
    (8192, 64, 64), (64, 8192, 64), (127, 255, 513), (128, 768, 3072),
)  # fmt: skip


def products() -> Iterator[Line]:
    for n in (1024, 2048, 4096, 8192):
        yield _product(n, n, n, bar=Bar("cuBLAS", 0.9), quick=n in (1024, 4096))
    for dtype in ("bfloat16", "float16"):
        for n in (1024, 2048, 4096, 8192):
            yield _product(n, n, n, dtype, f"{dtype} products", bar=Bar("cuBLAS", 0.7), quick=n == 4096)
        yield _product(128, 768, 3072, dtype, f"{dtype} products")
    for shape in _SMALL:
        quick = shape in ((128, 128, 128), (16, 4096, 4096), (1, 4096, 4096))
        yield _product(*shape, family="small and skinny products", bar=Bar("cuBLAS", 1.0), quick=quick)
    batched = {"a": (96, 128, 64), "b": (96, 64, 128)}
    yield Line(
        "small and skinny products", "96 of 128x64x128", batched, "float32",
        lambda ops, x, how: ops.matmul(x["a"], x["b"], out=x["out"], **how),
        lambda xp, x: xp.matmul(wide(xp, x["a"]), wide(xp, x["b"])),
        {"cuBLAS": cublas, "torch": torch_matmul}, (96, 128, 128), 2.0 * 96 * 128 * 64 * 128,
        4.0 * 96 * (2 * 128 * 64 + 128 * 128), 3e-5, Bar("cuBLAS", 1.0),
    )  # fmt: skip


def fused() -> Iterator[Line]:
    for m, k, n in ((128, 768, 3072), (2048, 1024, 4096), (4096, 4096, 4096)):
        for dtype in ("float32", "float16"):
            size = dtype_of(dtype).itemsize
            yield Line(
                "linear and GELU", f"{m}x{k}x{n} {dtype}", {"a": (m, k), "b": (k, n), "c": (n,)}, dtype,
                _linear_call,
                lambda xp, x: _gelu(xp, xp.matmul(wide(xp, x["a"]), wide(xp, x["b"])) + wide(xp, x["c"])),
                {"cuBLAS + kernel": cublas_gelu, "torch": torch_gelu}, (m, n), 2.0 * m * k * n,
                size * (m * k + k * n + m * n + n), 3e-5 if dtype == "float32" else 2e-2,
                Bar("cuBLAS + kernel", 1.0), quick=(m, dtype) == (2048, "float32"),
            )  # fmt: skip


def _linear_call(ops: Any, x: dict[str, Any], how: dict[str, Any]) -> Any:
    return ops.linear(x["a"], x["b"], x["c"], activation="gelu", out=x["out"], **how)


def _gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _functional(name: str, *names: str, **settings: Any) -> Peer:
    """A function of torch.nn.functional on the operands of these names."""

    def peer(device: Device, x: dict[str, Any]) -> Call:
        tensors = [device.tensor(x[n]) for n in names]
        found = getattr(device.torch.nn.functional, name)
        return lambda: found(*tensors, **settings)

    return peer


def _normed(name: str, width: int, *names: str) -> Peer:
    def peer(device: Device, x: dict[str, Any]) -> Call:
        tensors = [device.tensor(x[n]) for n in ("x", *names)]
        found = getattr(device.torch.nn.functional, name)
        return lambda: found(tensors[0], (width,), *tensors[1:], eps=1e-5)

    return peer


def rows() -> Iterator[Line]:
    for m, n in ((8192, 8192), (32768, 1024), (512, 50257), (1536, 128)):
        large = m * n >= 1 << 24
        bar = Bar("copy", 0.85) if large else None
        for op, weights, peer, truth in (
            ("softmax", (), _functional("softmax", "x", dim=-1), _softmax),
            ("layer_norm", ("s", "b"), _normed("layer_norm", n, "s", "b"), _layer_norm),
            ("rms_norm", ("s",), _normed("rms_norm", n, "s"), _rms_norm),
        ):
            yield Line(
                "softmax and norms", f"{op} {m}x{n}", {"x": (m, n)} | dict.fromkeys(weights, (n,)), "float32",
                _row_call(op, weights), truth, {"torch": peer}, (m, n), 8.0 * m * n, 8.0 * m * n, 3e-5, bar,
                quick=(m, n) == (8192, 8192),
            )  # fmt: skip


def _row_call(op: str, weights: tuple[str, ...]) -> Callable[[Any, dict[str, Any], dict[str, Any]], Any]:
    return lambda ops, x, how: getattr(ops, op)(x["x"], *[x[w] for w in weights], out=x["out"], **how)


def _softmax(xp: Any, x: dict[str, Any]) -> Any:
    e = xp.exp(wide(xp, x["x"]) - wide(xp, x["x"]).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(xp: Any, x: dict[str, Any]) -> Any:
    v = wide(xp, x["x"])
    normal = (v - v.mean(-1, keepdims=True)) / xp.sqrt(v.var(-1, keepdims=True) + 1e-5)
    return normal * wide(xp, x["s"]) + wide(xp, x["b"])


def _rms_norm(xp: Any, x: dict[str, Any]) -> Any:
    v = wide(xp, x["x"])
    return v / xp.sqrt((v * v).mean(-1, keepdims=True) + 1e-5) * wide(xp, x["s"])


def moves() -> Iterator[Line]:
    n = 8192
    family, x, square = "elementwise and layouts", {"x": (n, n)}, (n, n)
    gelu, turned = {"torch": _functional("gelu", "x", approximate="tanh")}, {"CuPy": _cupy_transpose}
    yield Line(
        family, f"gelu {n}x{n}", x, "float32",
        lambda ops, x, how: ops.gelu(x["x"], out=x["out"], **how),
        lambda xp, x: _gelu(xp, wide(xp, x["x"])),
        gelu, square, 10.0 * n * n, 8.0 * n * n, 3e-5, quick=True,
    )  # fmt: skip
    yield Line(
        family, f"transpose {n}x{n}", x, "float32",
        lambda ops, x, how: ops.transpose(x["x"], out=x["out"], **how),
        lambda xp, x: wide(xp, x["x"]).T,
        turned, square, 0.0, 8.0 * n * n, 0.0,
    )  # fmt: skip
    yield Line(
        family, f"sum {n}x{n} by rows", x, "float32",
        lambda ops, x, how: ops.sum(x["x"], axis=1, out=x["out"], **how),
        lambda xp, x: wide(xp, x["x"]).sum(1),
        {"CuPy": lambda device, x: lambda: x["x"].sum(1, out=x["out"])}, (n,), 1.0 * n * n, 4.0 * n * n, 3e-5,
    )  # fmt: skip


def _cupy_transpose(device: Device, x: dict[str, Any]) -> Call:
    return lambda: device.cupy.copyto(x["out"], x["x"].T)


def _conv_peer(stride: int, pad: int, groups: int) -> Peer:
    def peer(device: Device, x: dict[str, Any]) -> Call:
        image = device.tensor(x["x"]).permute(0, 3, 1, 2)
        kernel = device.tensor(x["w"]).permute(3, 2, 0, 1)
        kernel = kernel.contiguous(memory_format=device.torch.channels_last)
        return lambda: device.torch.nn.functional.conv2d(image, kernel, None, stride, pad, 1, groups)

    return peer


_CONVOLUTIONS = (
    (32, 56, 64, 64, 3, 1), (32, 14, 256, 256, 3, 1), (32, 28, 512, 128, 1, 1), (32, 56, 96, 96, 3, 96),
)  # fmt: skip
"""(batch, side, channels, of the result, taps, groups)"""


def windows() -> Iterator[Line]:
    for batch, side, deep, out, taps, groups in _CONVOLUTIONS:
        shapes = {"x": (batch, side, side, deep), "w": (taps, taps, deep // groups, out)}
        work = 2.0 * batch * side * side * taps * taps * (deep // groups) * out
        moved = 4.0 * (batch * side * side * (deep + out) + taps * taps * (deep // groups) * out)
        yield Line(
            "convolutions", f"{batch}x{side}x{side}x{deep} {taps}x{taps} to {out} groups {groups}", shapes,
            "float32", _conv_call(groups), _conv_truth(taps, groups),
            {"cuDNN": _conv_peer(1, taps // 2, groups)}, (batch, side, side, out), work, moved, 3e-5,
            quick=side == 14,
        )  # fmt: skip


def _conv_call(groups: int) -> Callable[[Any, dict[str, Any], dict[str, Any]], Any]:
    return lambda ops, x, how: ops.conv2d(x["x"], x["w"], padding="SAME", groups=groups, out=x["out"], **how)


def _conv_truth(taps: int, groups: int) -> Callable[[Any, dict[str, Any]], Any]:
    def truth(xp: Any, arrays: dict[str, Any]) -> Any:
        x, w = wide(xp, arrays["x"]), wide(xp, arrays["w"])
        edge, (_, height, width, _) = taps // 2, x.shape
        padded = xp.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
        total = 0.0
        for i in range(taps):
            for j in range(taps):
                part = padded[:, i : i + height, j : j + width]
                total = total + (part * w[i, j, 0] if groups > 1 else part @ w[i, j])
        return total

    return truth


def attention() -> Iterator[Line]:
    for batch, time, heads, width, causal in (
        (8, 1024, 12, 64, False),
        (8, 1024, 12, 64, True),
        (1, 128, 12, 64, False),
    ):
        shape = (batch, time, heads, width)
        for dtype in ("float32", "float16"):
            yield Line(
                "attention", f"{batch}x{time}x{heads}x{width}{' causal' if causal else ''} {dtype}",
                {"q": shape, "k": shape, "v": shape}, dtype, _attention_call(causal),
                _attention_truth(causal), {"torch": _attention_peer(causal)}, shape,
                4.0 * batch * heads * time * time * width, 4.0 * dtype_of(dtype).itemsize * math.prod(shape),
                3e-5 if dtype == "float32" else 1e-2,
                quick=time == 1024 and causal and dtype == "float32",
            )  # fmt: skip


def _attention_call(causal: bool) -> Callable[[Any, dict[str, Any], dict[str, Any]], Any]:
    return lambda ops, x, how: ops.dot_product_attention(
        x["q"], x["k"], x["v"], is_causal=causal, out=x["out"], **how
    )


def _attention_truth(causal: bool) -> Callable[[Any, dict[str, Any]], Any]:
    def truth(xp: Any, x: dict[str, Any]) -> Any:
        q, k, v = (wide(xp, x[n]).transpose(0, 2, 1, 3) for n in "qkv")
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1])
        if causal:
            scores = xp.where(xp.tri(scores.shape[-1], dtype=bool), scores, -xp.inf)
        e = xp.exp(scores - scores.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)

    return truth


def _attention_peer(causal: bool) -> Peer:
    def peer(device: Device, x: dict[str, Any]) -> Call:
        q, k, v = (device.tensor(x[n]).transpose(1, 2) for n in "qkv")
        found = device.torch.nn.functional.scaled_dot_product_attention
        return lambda: found(q, k, v, is_causal=causal)

    return peer


def lines() -> list[Line]:
    """All lines, the most telling families first."""
    return [x for make in (products, fused, rows, moves, windows, attention) for x in make()]
