"""Element types: a closed table, with the type in which each one is summed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from ..errors import DTypeError

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type: its short name in programs, its bytes, and its name in numpy (or ml_dtypes).

    There is one object of each type, so that they are compared, and hashed, as objects.
    """

    name: str
    bytes: int
    kind: Kind
    numpy: str

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return from_numpy, (self.name,)

    @property
    def bits(self) -> int:
        return 8 * self.bytes

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")


f16 = DType("f16", 2, "float", "float16")
bf16 = DType("bf16", 2, "float", "bfloat16")
f32 = DType("f32", 4, "float", "float32")
f64 = DType("f64", 8, "float", "float64")
i8 = DType("i8", 1, "int", "int8")
i16 = DType("i16", 2, "int", "int16")
i32 = DType("i32", 4, "int", "int32")
i64 = DType("i64", 8, "int", "int64")
u8 = DType("u8", 1, "uint", "uint8")
boolean = DType("bool", 1, "bool", "bool")

DTYPES: dict[str, DType] = {d.name: d for d in (f16, bf16, f32, f64, i8, i16, i32, i64, u8, boolean)}
_BY_NUMPY = {d.numpy: d for d in DTYPES.values()}

# Half types lose digits and small integers overflow when summed in their own type.
ACCUMULATORS: dict[DType, DType] = {f16: f32, bf16: f32, i8: i32, i16: i32, u8: i32, boolean: i32}


def accumulator(dtype: DType) -> DType:
    """The type in which products and sums of `dtype` are accumulated."""
    return ACCUMULATORS.get(dtype, dtype)


@cache
def promote(a: DType, b: DType) -> DType:
    """The dtype that holds values of both, as numpy promotes arrays; DTypeError where tlm has none."""
    if a == b:
        return a
    import numpy as np

    try:
        return from_numpy(np.result_type(to_numpy(a), to_numpy(b)))
    except TypeError:
        raise DTypeError(f"no common dtype of {a} and {b}; cast one of the operands") from None


def weak(value: float | bool, dtype: DType) -> DType:
    """The dtype of a Python number beside an array of `dtype`: the array's where its kind holds it."""
    if isinstance(value, bool) or dtype.is_float:
        return dtype
    if isinstance(value, int):
        return i64 if dtype == boolean else dtype
    return f64


def floating(dtype: DType) -> DType:
    """The float dtype in which numpy's true functions (exp, division, ...) compute on `dtype`."""
    return dtype if dtype.is_float else f16 if dtype.bytes == 1 else f32 if dtype.bytes == 2 else f64


# Floats that hold every value of another.
_HOLDERS = {"f16": ("f32", "f64"), "bf16": ("f32", "f64"), "f32": ("f64",)}


def exact(narrow: DType, wide: DType) -> bool:
    """Whether `wide` holds every value of `narrow`, of the same kind of number."""
    if narrow.is_float:
        return wide == narrow or wide.name in _HOLDERS.get(narrow.name, ())
    if not (narrow.is_integer and wide.is_integer):
        return wide == narrow
    return wide == narrow or (wide.bytes > narrow.bytes and (wide.kind == "int" or narrow.kind == "uint"))


def from_numpy(dtype: Any) -> DType:
    """The DType of a numpy dtype (or anything with a `.name`, or a name); DTypeError where tlm has none."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or str(dtype)
    found = _BY_NUMPY.get(name) or DTYPES.get(name)
    if found is None:
        raise DTypeError(f"dtype {name} is not supported; supported are {', '.join(_BY_NUMPY)}")
    return found


@cache
def to_numpy(dtype: DType) -> Any:
    """The numpy dtype of `dtype`; bfloat16 comes from ml_dtypes."""
    import numpy as np

    if dtype is bf16 or dtype == bf16:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype.numpy)
