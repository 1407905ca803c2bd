"""Schedule primitives: checked rewrites of loop nests, and the face that applies them."""

from .schedule import Schedule
from .steps import (
    PRIMITIVES,
    Bind,
    CacheRead,
    CacheWrite,
    ComputeAt,
    DecomposeReduction,
    DoubleBuffer,
    Fuse,
    Inline,
    Merge,
    Parallel,
    PrefetchAhead,
    Reorder,
    ReverseComputeAt,
    ReverseInline,
    RFactor,
    SetScope,
    Split,
    SplitDimension,
    Step,
    StorageAlign,
    Swizzle,
    Tensorize,
    TensorizeGroup,
    Tile,
    Unroll,
    Vectorize,
    Widen,
    apply,
    from_json,
    to_json,
)  # fmt: skip

__all__ = [
    "PRIMITIVES", "Bind", "CacheRead", "CacheWrite", "ComputeAt", "DecomposeReduction", "DoubleBuffer",
    "Fuse", "Inline", "Merge", "Parallel", "PrefetchAhead", "RFactor", "Reorder", "ReverseComputeAt",
    "ReverseInline", "Schedule", "SetScope", "Split", "SplitDimension", "Step", "StorageAlign", "Swizzle",
    "Tensorize", "TensorizeGroup", "Tile", "Unroll", "Vectorize", "Widen", "apply", "from_json", "to_json",
]  # fmt: skip
