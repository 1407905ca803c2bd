"""Dot-product instructions: which ones a CPU has, for which element types.

Each adds, in every lane of f32 or i32, the products of 2 or 4 narrow elements that lie side by side:

    acc[l] += x[l * terms] * y[l * terms] + ... + x[l * terms + terms - 1] * y[l * terms + terms - 1]

Integer ones are exact modulo 2**32. Those of bf16 (AVX512-BF16, Arm BFDOT) take subnormal inputs and sums as
zero, and round each sum to nearest even: as far from the exact sum as a chain of f32 additions may be, and
2**-126 more for each term.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..ir.dtypes import DType, bf16, exact, f32, i8, i16, i32, u8
from ..target import Target


@dataclass(frozen=True, slots=True)
class Dot:
    """`calls`: LLVM's intrinsic by bytes of a vector; it takes `part` vectors, and adds if `fused`.

    A target has it where all features of one set of `needs` are there. `rate`: multiply-adds for each of an
    FMA of f32 in the same time, on the slowest CPU that has it.
    """

    terms: int
    x: DType
    y: DType
    acc: DType
    needs: tuple[tuple[str, ...], ...]
    calls: tuple[tuple[int, str], ...]
    rate: float
    part: str = "i32"
    fused: bool = True


def _x86(name: str) -> tuple[tuple[int, str], ...]:
    return tuple([(size, f"llvm.x86.avx512.{name}.{8 * size}") for size in (64, 32, 16)])


_NEON = "llvm.aarch64.neon."
_VNNI = (("avx512vnni",), ("avxvnni",))
# Where two do the same, the one that adds as well comes first.
DOTS = (
    Dot(4, u8, i8, i32, _VNNI, _x86("vpdpbusd"), 4),
    Dot(4, i8, i8, i32, (("dotprod",),), ((16, f"{_NEON}sdot.v4i32.v16i8"),), 4, "i8"),
    Dot(4, u8, u8, i32, (("dotprod",),), ((16, f"{_NEON}udot.v4i32.v16i8"),), 4, "i8"),
    Dot(4, u8, i8, i32, (("i8mm",),), ((16, f"{_NEON}usdot.v4i32.v16i8"),), 4, "i8"),
    Dot(2, i16, i16, i32, _VNNI, _x86("vpdpwssd"), 2),
    Dot(2, i16, i16, i32, (("avx512bw",),), ((64, "llvm.x86.avx512.pmaddw.d.512"),), 1, "i16", False),
    Dot(2, i16, i16, i32, (("avx2",),), ((32, "llvm.x86.avx2.pmadd.wd"),), 1, "i16", False),
    Dot(2, i16, i16, i32, (("sse4.2",),), ((16, "llvm.x86.sse2.pmadd.wd"),), 1, "i16", False),
    Dot(2, bf16, bf16, f32, (("avx512bf16",),),
        tuple([(size, f"llvm.x86.avx512bf16.dpbf16ps.{8 * size}") for size in (64, 32, 16)]), 0.5, "bfloat"),
    Dot(2, bf16, bf16, f32, (("bf16", "neon"),), ((16, f"{_NEON}bfdot.v4f32.v8bf16"),), 2, "bfloat"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grouping:
    """How products are formed: so many terms at once, of operands held as `a` and `b`; `rate` as of Dot."""

    terms: int
    a: DType
    b: DType
    rate: float


@cache
def groupings(target: Target, a: DType, b: DType, acc: DType, lanes: int) -> tuple[Grouping, ...]:
    """The groupings of a product of `a` and `b` summed in `acc`: the narrowest for each number of terms.

    Operands are converted to what an instruction takes only where that is exact. Empty where `target` has
    none for vectors of `lanes`.
    """
    best: dict[int, Grouping] = {}
    for d in available(target):
        if d.acc != acc or find(target, d.terms, d.x, d.y, acc, lanes) is None:
            continue
        for x, y in {(d.x, d.y), (d.y, d.x)}:
            known = best.get(d.terms)
            if exact(a, x) and exact(b, y) and (known is None or known.rate < d.rate):
                best[d.terms] = Grouping(d.terms, x, y, d.rate)
    return tuple([best[terms] for terms in sorted(best)])


def available(target: Target) -> tuple[Dot, ...]:
    """The dot products of `target`."""
    have = set(target.features)
    return tuple([d for d in DOTS if any(have.issuperset(need) for need in d.needs)])


def find(target: Target, terms: int, x: DType, y: DType, acc: DType, lanes: int) -> tuple[Dot, str] | None:
    """The instruction for x times y, its operands perhaps exchanged, and the name of its intrinsic."""
    size = lanes * acc.bytes
    for d in available(target):
        name = dict(d.calls).get(size)
        # AVX-VNNI is the 256-bit form only.
        short = size == 64 and "avx512f" not in target.features
        if (d.terms, d.acc) == (terms, acc) and {d.x, d.y} == {x, y} and name is not None and not short:
            return d, name
    return None
