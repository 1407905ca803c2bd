"""Expressions of the loop-nest IR, frozen, and Python's operators on them; `nodes.py` has the statements.

A literal, a loop variable, an element of a buffer, an operation of the table in `optable.py`, a conversion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import DTypeError
from .dtypes import DType, boolean, f64, i64, promote, weak
from .formula import equality, running, truth
from .optable import result_dtype


class _Arithmetic:
    """Python operators on expressions, so that formulas and index arithmetic read as such.

    == and != are those of structures; they and the truth of an expression are refused inside of formulas
    (`formula.py`).
    """

    __slots__ = ()
    __array_ufunc__ = None  # a numpy scalar on the left leaves the operation to the expression

    def __bool__(self) -> bool:
        if running.formula:
            raise truth(self)
        return True

    def __add__(self, other: Expr | float) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: float) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Expr | float) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: float) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Expr | float) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: float) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Expr | float) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: float) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: int) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: Expr | int) -> Expr:
        return binary("mod", self, other)

    def __rmod__(self, other: int) -> Expr:
        return binary("mod", other, self)

    def __pow__(self, other: Expr | float) -> Expr:
        return power(self, other)

    def __rpow__(self, other: float) -> Expr:
        return binary("pow", other, self)

    def __and__(self, other: Expr | bool) -> Expr:
        return binary("and", self, other)

    def __rand__(self, other: int) -> Expr:
        return binary("and", other, self)

    def __or__(self, other: Expr | bool) -> Expr:
        return binary("or", self, other)

    def __ror__(self, other: int) -> Expr:
        return binary("or", other, self)

    def __xor__(self, other: Expr | int) -> Expr:
        return binary("xor", self, other)

    def __rxor__(self, other: int) -> Expr:
        return binary("xor", other, self)

    def __lshift__(self, other: Expr | int) -> Expr:
        return binary("shl", self, other)

    def __rlshift__(self, other: int) -> Expr:
        return binary("shl", other, self)

    def __rshift__(self, other: Expr | int) -> Expr:
        return binary("shr", self, other)

    def __rrshift__(self, other: int) -> Expr:
        return binary("shr", other, self)

    def __invert__(self) -> Expr:
        return op("not", self)  # type: ignore[arg-type]

    def __pos__(self) -> Expr:
        return self  # type: ignore[return-value]

    def __neg__(self) -> Expr:
        return op("neg", self)  # type: ignore[arg-type]

    def __abs__(self) -> Expr:
        return op("abs", self)  # type: ignore[arg-type]

    def __lt__(self, other: Expr | float) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Expr | float) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Expr | float) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: Expr | float) -> Expr:
        return binary("ge", self, other)


@dataclass(frozen=True, slots=True)
class Const(_Arithmetic):
    """A literal. `value` is a Python int, float or bool that `dtype` can hold."""

    value: int | float | bool
    dtype: DType = i64

    def __eq__(self, other: object) -> bool:
        """Whether both are the same bits: 0.0 is not -0.0, and nan is nan."""
        if running.formula:
            raise equality(self, other)
        if other.__class__ is not Const or self.dtype != other.dtype:
            return False
        a, b = self.value, other.value
        if a == b:
            return a != 0 or math.copysign(1.0, a) == math.copysign(1.0, b)
        return a != a and b != b

    def __hash__(self) -> int:
        return hash((self.value if self.value == self.value else "nan", self.dtype))


@dataclass(frozen=True, slots=True)
class Var(_Arithmetic):
    """The value of a loop variable; always i64."""

    name: str

    def __eq__(self, other: object) -> bool:
        if running.formula:
            raise equality(self, other)
        return isinstance(other, Var) and self.name == other.name

    @property
    def dtype(self) -> DType:
        return i64


@dataclass(frozen=True, slots=True)
class Load(_Arithmetic):
    """buffer[indices]; reading outside the shape is an error of the program."""

    buffer: str
    indices: tuple[Expr, ...]
    dtype: DType

    def __eq__(self, other: object) -> bool:
        if running.formula:
            raise equality(self, other)
        if not isinstance(other, Load):
            return False
        return (self.buffer, self.indices, self.dtype) == (other.buffer, other.indices, other.dtype)


@dataclass(frozen=True, slots=True)
class Op(_Arithmetic):
    """An operation of `optable.OPS` on expressions, elementwise. "where" evaluates only the side it picks."""

    op: str
    args: tuple[Expr, ...]
    dtype: DType

    def __eq__(self, other: object) -> bool:
        if running.formula:
            raise equality(self, other)
        if not isinstance(other, Op):
            return False
        return (self.op, self.args, self.dtype) == (other.op, other.args, other.dtype)


@dataclass(frozen=True, slots=True)
class Cast(_Arithmetic):
    """A conversion. Float to integer truncates toward zero and saturates (NaN gives 0), as JAX does."""

    value: Expr
    dtype: DType

    def __eq__(self, other: object) -> bool:
        if running.formula:
            raise equality(self, other)
        if not isinstance(other, Cast):
            return False
        return (self.value, self.dtype) == (other.value, other.dtype)


Expr = Const | Var | Load | Op | Cast


Node = (Const, Var, Load, Op, Cast)
"""The classes of Expr, for isinstance."""


def const(value: float | bool, dtype: DType = i64) -> Const:
    """A literal of `dtype`, with the value normalised to Python's int, float or bool."""
    if dtype.is_float:
        return Const(float(value), dtype)
    return Const(bool(value) if dtype == boolean else int(value), dtype)


def op(name: str, *args: Expr) -> Op:
    """An operation, with its dtype from the table."""
    return Op(name, args, result_dtype(name, tuple(a.dtype for a in args)))


def binary(name: str, a: object, b: object) -> Op:
    """`op` on two operands, brought to one dtype by `together`; integers divide as f64."""
    if isinstance(a, Node) and isinstance(b, Node) and a.dtype == b.dtype and name != "div":
        return op(name, a, b)
    left, right = together(a, b)
    if name == "div" and not left.dtype.is_float:
        left, right = converted(left, f64), converted(right, f64)
    return op(name, left, right)


def power(x: object, y: object) -> Expr:
    """x to the power of y; small whole numbers as exponent become products, by squaring.

    Of floats those up to 4, as more products round too often; of integers those up to 8.
    """
    base, exponent = together(x, y)
    if not isinstance(exponent, Const) or exponent.value not in range(5 if base.dtype.is_float else 9):
        return op("pow", base, exponent)
    out: Expr | None = None
    left, square = int(exponent.value), base
    while left:
        if left % 2:
            out = square if out is None else op("mul", out, square)
        left //= 2
        square = op("mul", square, square) if left else square
    return const(1, base.dtype) if out is None else out


def together(*operands: object) -> tuple[Expr, ...]:
    """Operands in one dtype, by numpy's promotion.

    Python numbers and index arithmetic (loop variables) take the dtype of the others where its kind can hold
    them. DTypeError for operands that are neither, for numbers out of range and where there is no such dtype.
    """
    items = [_operand(x) for x in operands]
    typed = [x for x in items if isinstance(x, Node)]
    strong = [x.dtype for x in typed if not _is_index(x)] or [x.dtype for x in typed]
    numbers = [x for x in items if not isinstance(x, Node)]
    numbers += [0] if len(strong) < len(typed) else []
    dtype = strong[0] if strong else boolean
    for other in strong[1:]:
        dtype = promote(dtype, other)
    for number in numbers:
        dtype = weak(number, dtype)
    return tuple([converted(x, dtype) for x in items])


def converted(value: Expr | float, dtype: DType) -> Expr:
    """`value` as `dtype`: a literal of a Python number, a Cast of another type; numbers are true if not 0."""
    if not isinstance(value, Node):
        if dtype.is_integer:
            bits = dtype.bits - (dtype.kind == "int")
            low, high = (-(2**bits) if dtype.kind == "int" else 0), 2**bits - 1
            if not low <= value <= high:
                raise DTypeError(f"{value} is out of range for {dtype}")
        return const(value, dtype)
    if value.dtype == dtype:
        return value
    if dtype == boolean:
        return op("ne", value, const(0, value.dtype))
    return Cast(value, dtype)


def _operand(x: object) -> Expr | float:
    if isinstance(x, (Node, int, float)):
        return x
    if getattr(x, "shape", None) == () and hasattr(x, "item"):
        return x.item()  # type: ignore[no-any-return]
    raise DTypeError(f"a formula computes with elements and numbers, got {type(x).__name__}; index tensors")


def _is_index(expr: Expr) -> bool:
    """Whether an expression is made of loop variables and integers alone."""
    match expr:
        case Var():
            return True
        case Const(_, dtype):
            return dtype == i64
        case Op(_, args, dtype):
            return dtype == i64 and all(_is_index(a) for a in args)
    return False


TRUE, FALSE = Const(True, boolean), Const(False, boolean)
