"""The loop-nest IR: frozen nodes, nothing else. `interpret.py` says what they mean, `printer.py` prints them.

A program is a nest of loops over buffers. Expressions are values; statements write buffers.

    program matmul(A: f32[4, 6], B: f32[6, 5]) -> (C: f32[4, 5])
    for i in 4:
      for j in 5:
        for k in 6:
          C[i, j] (k)+= A[i, k] * B[k, j]        # starts from the identity of the sum where k == 0

Primitives keep every extent a constant; lowering adds run-time bounds (`For.bound`) and two-sided `If`s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ..errors import DTypeError
from .dtypes import DType, boolean, f64, i64, promote, weak
from .formula import equality, running, truth
from .optable import result_dtype

Memory = Literal["array", "heap", "stack", "register", "shared"]
LoopKind = Literal[
    "serial", "parallel", "vectorize", "unroll",
    "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread",
    "tensor", "warpgroup",
]  # fmt: skip


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a C-contiguous array; an empty axis counts as one of extent 1."""
    out, step = [], 1
    for extent in reversed(shape):
        out.append(step)
        step *= max(extent, 1)
    return tuple(reversed(out))


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage with a shape. `strides` are in elements; None means row-major (C-contiguous).

    `memory`: "array" is a parameter of the program; "heap" lives in the kernel's workspace; "stack" and
    "register" are private to one iteration of the loops around their Alloc; "shared" belongs to the threads
    of one GPU block. `stages` above 1 lets a backend keep so many copies, to fill the next ones while one is
    used; it means nothing. Nor does `swizzle`, (period, ways, step): a backend may keep the element at offset
    x at x ^ x // period % ways * step.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    memory: Memory = "array"
    strides: tuple[int, ...] | None = None
    stages: int = 1
    swizzle: tuple[int, int, int] | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Strides in elements, row-major where none are given."""
        return row_major(self.shape) if self.strides is None else self.strides


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


@dataclass(frozen=True, slots=True)
class For:
    """for var in range(extent): body.

    `kind` says how the iterations may run, never which there are: one after the other ("serial"; "unroll" as
    copies of the body; "tensor" and "warpgroup" as part of a matrix instruction of a warp or of four), on
    threads ("parallel"), as the lanes of vectors ("vectorize"), on a GPU's blocks and threads. All but the
    first four promise that no iteration
    touches what another one writes, except that an Update may reduce over its own vectorize or threadIdx
    loop. `unroll` asks the backend to repeat the body that many times in each step of a serial loop (with a
    remainder loop). `bound` (lowering only) is a run-time limit: the loop runs while var < min(extent,
    bound).
    """

    var: str
    extent: int
    body: Stmt
    kind: LoopKind = "serial"
    unroll: int = 1
    bound: Expr | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Statements in order."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If:
    """if cond: then, else other. Primitives make only one-sided guards; lowering makes both sides."""

    cond: Expr
    then: Stmt
    other: Stmt | None = None


@dataclass(frozen=True, slots=True)
class Alloc:
    """A temporary that lives for one run of `body`. Its contents start undefined."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[indices] = value."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Update:
    """targets[indices] = combiner(targets[indices], values): one step of a reduction.

    `targets` are one buffer for each part of the combiner's tuple (one for a plain sum), all under the same
    `indices`. `axes` names the loops around it over which it reduces. Where `init` is true and every one of
    `axes` is 0, the targets are first set to the combiner's identity.
    """

    targets: tuple[str, ...]
    indices: tuple[Expr, ...]
    values: tuple[Expr, ...]
    combiner: str
    axes: tuple[str, ...]
    init: bool = True


@dataclass(frozen=True, slots=True)
class Prefetch:
    """A hint that buffer[indices] is used soon; without meaning. `locality` 0 (use once) to 3 (keep in L1).

    Indices outside the shape are allowed here.
    """

    buffer: str
    indices: tuple[Expr, ...]
    locality: int = 3


Stmt = For | Block | If | Alloc | Store | Update | Prefetch


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel: parameters in calling order (inputs, then outputs) and a body. Outputs start undefined."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: Stmt

    @property
    def parameters(self) -> tuple[Buffer, ...]:
        return self.inputs + self.outputs

    def __str__(self) -> str:
        from .printer import text

        return text(self)


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
    """x to the power of y; whole numbers up to 8 as exponent become products, by squaring."""
    base, exponent = together(x, y)
    if not isinstance(exponent, Const) or exponent.value not in range(9):
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
NOTHING = Block(())


def block(*stmts: Stmt) -> Stmt:
    """Statements in order, flattened; one statement stays itself, none are NOTHING."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Block) else (stmt,))
    return flat[0] if len(flat) == 1 else Block(tuple(flat))
