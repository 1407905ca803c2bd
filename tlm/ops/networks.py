"""The layers of well-known networks: always among those that are measured.

Convolutions, batch 1, channels last: ResNet-50 (He et al. 2016), ResNeXt-50 32x4d (Xie et al. 2017),
MobileNetV2 (Sandler et al. 2018), EfficientNet-B0 (Tan and Le 2019). Linear layers: BERT (Devlin et al.
2018), GPT-2 (Radford et al. 2019), LLaMA (Touvron et al. 2023).
"""

from __future__ import annotations

from ..model.shapes import Shape, Work
from .workloads import Sample, Settings
from .workloads import Shape as Extents

Layer = tuple[int, int, int, int, int, int, str | None]
"""Side of the image, input channels, side of the window, output channels, stride, groups, activation."""

RESNET: tuple[Layer, ...] = (
    (224, 3, 7, 64, 2, 1, "relu"), (56, 64, 3, 64, 1, 1, "relu"), (56, 128, 3, 128, 2, 1, "relu"),
    (28, 128, 3, 128, 1, 1, "relu"), (28, 256, 3, 256, 2, 1, "relu"), (14, 256, 3, 256, 1, 1, "relu"),
    (14, 512, 3, 512, 2, 1, "relu"), (7, 512, 3, 512, 1, 1, "relu"), (56, 64, 1, 256, 1, 1, None),
    (56, 256, 1, 512, 2, 1, None), (28, 512, 1, 1024, 2, 1, None), (14, 1024, 1, 2048, 2, 1, None),
    (56, 256, 1, 64, 1, 1, "relu"), (28, 512, 1, 128, 1, 1, "relu"), (28, 128, 1, 512, 1, 1, None),
    (14, 1024, 1, 256, 1, 1, "relu"), (14, 256, 1, 1024, 1, 1, None), (7, 2048, 1, 512, 1, 1, "relu"),
    (7, 512, 1, 2048, 1, 1, None),
)  # fmt: skip

RESNEXT: tuple[Layer, ...] = (
    (56, 128, 3, 128, 1, 32, "relu"), (56, 256, 3, 256, 2, 32, "relu"), (28, 256, 3, 256, 1, 32, "relu"),
    (14, 512, 3, 512, 1, 32, "relu"),
)  # fmt: skip

MOBILENET: tuple[Layer, ...] = (
    (224, 3, 3, 32, 2, 1, "relu"), (112, 32, 3, 32, 1, 32, "relu"), (112, 32, 1, 16, 1, 1, None),
    (112, 16, 1, 96, 1, 1, "relu"), (112, 96, 3, 96, 2, 96, "relu"), (56, 24, 1, 144, 1, 1, "relu"),
    (56, 144, 3, 144, 1, 144, "relu"), (56, 144, 3, 144, 2, 144, "relu"), (56, 144, 1, 24, 1, 1, None),
    (28, 32, 1, 192, 1, 1, "relu"), (28, 192, 3, 192, 1, 192, "relu"), (14, 64, 1, 384, 1, 1, "relu"),
    (14, 384, 3, 384, 1, 384, "relu"), (14, 384, 1, 96, 1, 1, None), (14, 576, 3, 576, 1, 576, "relu"),
    (7, 160, 1, 960, 1, 1, "relu"), (7, 960, 3, 960, 1, 960, "relu"), (7, 320, 1, 1280, 1, 1, "relu"),
)  # fmt: skip

EFFICIENTNET: tuple[Layer, ...] = (
    (28, 240, 5, 240, 1, 240, "silu"), (28, 240, 3, 240, 2, 240, "silu"), (14, 480, 5, 480, 1, 480, "silu"),
    (14, 672, 5, 672, 2, 672, "silu"), (7, 1152, 5, 1152, 1, 1152, "silu"),
)  # fmt: skip


def _sample(layer: Layer) -> Sample:
    side, deep, taps, out, stride, groups, activation = layer
    settings: Settings = (("stride", stride), ("padding", "SAME"))
    if groups > 1:
        settings += (("groups", groups),)
    if activation is not None:
        settings += (("activation", activation),)
    pixels, each = side * side, deep // groups
    family = "depthwise" if groups == deep else "conv"
    outside = pixels // (stride * stride)
    extents = (pixels, deep) if family == "depthwise" else (outside, taps * taps * each, out)
    shapes = ((1, side, side, deep), (taps, taps, each, out), (out,))
    return Sample(family, "conv2d", shapes, extents, settings, outside * taps * taps * each * out)


def _linear(tokens: int, width: int, inner: int, epilogues: tuple[str, str]) -> tuple[Shape, ...]:
    """The projections of a block of a transformer: of the attention, into its wide layer, and out of it."""
    plain, wide = epilogues
    return tuple(
        Shape("common", tokens, k, n, epilogue=epilogue)
        for k, n, epilogue in ((width, width, plain), (width, inner, wide), (inner, width, plain))
    )


LINEAR: tuple[Shape, ...] = (
    *_linear(128, 768, 3072, ("bias", "gelu")), *_linear(384, 1024, 4096, ("bias", "gelu")),
    *_linear(512, 768, 3072, ("bias", "gelu")), *_linear(1, 768, 3072, ("bias", "gelu")),
    *_linear(1, 4096, 11008, ("none", "none")), *_linear(16, 4096, 11008, ("none", "none")),
    Shape("common", 128, 768, 2304, epilogue="bias"), Shape("common", 1, 768, 2304, epilogue="bias"),
    Shape("common", 1, 768, 50257),
)  # fmt: skip
"""BERT base (128 tokens) and large (384), GPT-2 (512 and 1), LLaMA (1 and 16)."""


def _rows(op: str, rows: int, width: int) -> Sample:
    shapes: tuple[Extents, ...] = ((rows, width), *[(width,)] * _PARAMETERS[op])
    return Sample("rows", op, shapes, (rows, width), (), 30 * rows * width)


_PARAMETERS = {"softmax": 0, "log_softmax": 0, "rms_norm": 1, "layer_norm": 2}

ROWS: tuple[Sample, ...] = (
    _rows("layer_norm", 128, 768), _rows("layer_norm", 384, 1024), _rows("layer_norm", 512, 768),
    _rows("layer_norm", 1, 768), _rows("rms_norm", 1, 4096), _rows("rms_norm", 16, 4096),
    _rows("softmax", 1536, 128), _rows("softmax", 6144, 384), _rows("softmax", 6144, 512),
    _rows("softmax", 1, 50257), _rows("softmax", 1, 32000), _rows("log_softmax", 128, 30522),
)  # fmt: skip
"""Norms, attention scores (12 or 16 heads) and next words of the same."""

NETWORKS: tuple[Work, ...] = (
    *[_sample(layer) for layer in (*RESNET, *RESNEXT, *MOBILENET, *EFFICIENTNET)], *LINEAR, *ROWS
)  # fmt: skip
