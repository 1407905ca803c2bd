"""Operations on f32 and f64 that are not one call of libm. Results follow numpy; NaN propagates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.dtypes import DType
from .emitters import COMPARISONS, Emitter, infix, intrinsic, sign
from .types import literal, value_type, vector

if TYPE_CHECKING:
    from .arith import Arithmetic


def _reciprocal_root(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    root = intrinsic("sqrt")(a, d, n, x)
    return a.pure(f"fdiv {value_type(d, n)} {literal(1.0, d, n)}, {root}")


def _is_nan(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    return a.pure(f"fcmp uno {value_type(d, n)} {x[0]}, {x[0]}")


def _is_finite(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    size = intrinsic("fabs")(a, d, n, x)
    return a.pure(f"fcmp olt {value_type(d, n)} {size}, {literal(float('inf'), d, n)}")


def _float_remainder(a: Arithmetic, d: DType, n: int, x: list[str]) -> tuple[str, str]:
    """(C's remainder, whether it is not 0 and has another sign than the divisor)."""
    t, zero = value_type(d, n), literal(0.0, d, n)
    left = a.library.call(a, "rem", d, n, x)
    some = a.pure(f"fcmp une {t} {left}, {zero}")
    negative = a.pure(f"fcmp olt {t} {left}, {zero}")
    other = a.pure(f"fcmp olt {t} {x[1]}, {zero}")
    mixed = a.pure(f"xor {vector('i1', n)} {negative}, {other}")
    return left, a.pure(f"and {vector('i1', n)} {some}, {mixed}")


def _float_mod(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    """numpy's %: the remainder with the sign of the divisor."""
    t, zero = value_type(d, n), literal(0.0, d, n)
    left, mixed = _float_remainder(a, d, n, x)
    moved = a.select(mixed, n, a.pure(f"fadd {t} {left}, {x[1]}"), left, t)
    signed = intrinsic("copysign")(a, d, n, [zero, x[1]])
    return a.select(a.pure(f"fcmp oeq {t} {left}, {zero}"), n, signed, moved, t)


def _float_floordiv(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    """numpy's //: the exact quotient of x less its remainder; x / y itself where y is 0."""
    t, zero = value_type(d, n), literal(0.0, d, n)
    left, mixed = _float_remainder(a, d, n, x)
    quotient = a.pure(f"fdiv {t} {a.pure(f'fsub {t} {x[0]}, {left}')}, {x[1]}")
    quotient = a.select(mixed, n, a.pure(f"fsub {t} {quotient}, {literal(1.0, d, n)}"), quotient, t)
    floor = intrinsic("floor")(a, d, n, [quotient])
    gap = a.pure(f"fsub {t} {quotient}, {floor}")
    up = a.pure(f"fcmp ogt {t} {gap}, {literal(0.5, d, n)}")
    near = a.select(up, n, a.pure(f"fadd {t} {floor}, {literal(1.0, d, n)}"), floor, t)
    plain = a.pure(f"fdiv {t} {x[0]}, {x[1]}")
    signed = intrinsic("copysign")(a, d, n, [zero, plain])
    is_zero = a.pure(f"fcmp oeq {t} {quotient}, {zero}")
    by_zero = a.pure(f"fcmp oeq {t} {x[1]}, {zero}")
    return a.select(by_zero, n, plain, a.select(is_zero, n, signed, near, t), t)


def _extreme(beats: str, name: str) -> Emitter:
    """The maximum ("ogt") or minimum ("olt"), NaN where either operand is.

    x86 has instructions that give the second operand where the operands do not compare. A NaN among the old
    values stays by that; one among the new values, which are known early, is put back by a mask: in a
    reduction only one instruction is on the path from one step to the next.
    """

    def emit(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
        if a.library.isa == "neon":
            return intrinsic(name, "nsz ")(a, d, n, x)
        t = value_type(d, n)
        old, new = x if x[0][0] == "%" else reversed(x)
        picked = a.select(a.pure(f"fcmp {beats} {t} {new}, {old}"), n, new, old, t)
        if new[0] != "%" and "FF8" not in new:
            return picked
        return a.select(a.pure(f"fcmp ord {t} {new}, {new}"), n, picked, new, t)

    return emit


def _logistic(a: Arithmetic, d: DType, n: int, x: list[str]) -> str:
    """A polynomial where there is one, else exp(x) / (1 + exp(x)), which is 1 before exp(x) overflows."""
    if a.library.inlines(a, "logistic", d, n):
        return a.library.call(a, "logistic", d, n, x)
    t, one, most = value_type(d, n), literal(1.0, d, n), literal(40.0, d, n)
    less = a.select(a.pure(f"fcmp ogt {t} {x[0]}, {most}"), n, most, x[0], t)
    e = a.library.call(a, "exp", d, n, [less])
    return a.pure(f"fdiv {t} {e}, {a.pure(f'fadd {t} {one}, {e}')}")


FLOAT: dict[str, Emitter] = {
    **COMPARISONS,
    "add": infix("fadd"), "sub": infix("fsub"), "mul": infix("fmul"), "div": infix("fdiv"),
    "mod": _float_mod, "floordiv": _float_floordiv,
    "minimum": _extreme("olt", "minimum"), "maximum": _extreme("ogt", "maximum"),
    "neg": lambda a, d, n, x: a.pure(f"fneg {value_type(d, n)} {x[0]}"),
    "abs": intrinsic("fabs"), "sign": sign,
    "fma": lambda a, d, n, x: a.fused(d, n, *x), "isnan": _is_nan, "isfinite": _is_finite,
    "sqrt": intrinsic("sqrt"), "rsqrt": _reciprocal_root, "logistic": _logistic,
    "floor": intrinsic("floor"), "ceil": intrinsic("ceil"), "round": intrinsic("roundeven"),
    "trunc": intrinsic("trunc"),
}  # fmt: skip
