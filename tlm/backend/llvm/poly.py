"""Own f32 polynomials for vectors where no vector math library is at hand: at most 4 ulp wrong.

Coefficients are least-squares fits on Chebyshev nodes, reweighted towards the minimax error. exp and log
reduce their argument as in Cody and Waite (1980); erf uses a polynomial near 0 and exp elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...ir.dtypes import f32, i32
from .types import literal, suffix, vector

if TYPE_CHECKING:
    from .arith import Arithmetic

_EXP = (1.0, 1.0, 0.5, 0.166665181517601, 0.04166620224714279, 0.008368970826268196, 0.0013950623106211424)
# The same on an interval twice as wide.
_EXP_WIDE = (1.0, 1.0, 0.5000003576278687, 0.1666661500930786, 0.041661277413368225, 0.008336097933351994,
             0.0014104264555498958, 0.00019611854804679751)  # fmt: skip
_LOG = (0.3333331346511841, -0.25000008940696716, 0.2000211924314499, -0.16667994856834412, 0.142195463180542,
        -0.12405598163604736, 0.11888211965560913, -0.11675615608692169, 0.0674649029970169)  # fmt: skip
_ERF = (1.1283791065216064, -0.3761262595653534, 0.11283600330352783, -0.026854444295167923,
        0.005189535208046436,
        -0.0008020838140510023, 7.889109110692516e-05)  # fmt: skip
# log(erfc(x)) for 1 <= x <= 4.
_ERFC = (0.0001880479685496539, -1.1295784711837769, -0.633219838142395, -0.10841864347457886,
         0.02520829811692238,
         -0.004204576835036278, 0.0004413392744027078, -2.1687084881705232e-05)  # fmt: skip
# ln 2 in two parts, the first with few enough bits that its product with an exponent is exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_SHIFT = 1.5 * 2.0**23


class _Lanes:
    """Arithmetic on f32 vectors of one width, as text."""

    def __init__(self, a: Arithmetic, lanes: int) -> None:
        self.a, self.n = a, lanes
        self.t, self.word, self.bit = vector("float", lanes), vector("i32", lanes), vector("i1", lanes)

    def c(self, value: float) -> str:
        return literal(value, f32, self.n)

    def w(self, value: int) -> str:
        return literal(value, i32, self.n)

    def f(self, opcode: str, x: str, y: str) -> str:
        return self.a.pure(f"f{opcode} {self.t} {x}, {y}")

    def i(self, opcode: str, x: str, y: str) -> str:
        return self.a.pure(f"{opcode} {self.word} {x}, {y}")

    def fma(self, x: str, y: str, z: str) -> str:
        return self.a.fused(f32, self.n, x, y, z)

    def test(self, how: str, x: str, y: str) -> str:
        return self.a.pure(f"fcmp {how} {self.t} {x}, {y}")

    def pick(self, cond: str, x: str, y: str) -> str:
        return self.a.select(cond, self.n, x, y, self.t)

    def call(self, name: str, *args: str) -> str:
        listed = ", ".join([f"{self.t} {x}" for x in args])
        return self.a.pure(f"call {self.t} @llvm.{name}.{suffix('float', self.n)}({listed})")

    def bits(self, x: str) -> str:
        return self.a.pure(f"bitcast {self.t} {x} to {self.word}")

    def floats(self, x: str) -> str:
        return self.a.pure(f"bitcast {self.word} {x} to {self.t}")

    def horner(self, coefficients: tuple[float, ...], x: str) -> str:
        out = self.c(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            out = self.fma(out, x, self.c(c))
        return out

    def estrin(self, coefficients: tuple[float, ...], x: str) -> str:
        """The same by halves (Estrin 1960): a few operations more, but half as many that wait in a row.

        It pays where the processor has room for few vectors at once, as cores without AVX-512 have.
        """
        terms = [self.c(c) for c in coefficients]
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            terms = [self.fma(high, x, low) for low, high in pairs] + terms[len(terms) & ~1 :]
            x = self.f("mul", x, x) if len(terms) > 1 else x
        return terms[0]

    @property
    def scales(self) -> bool:
        """Whether the target multiplies whole vectors by powers of two in one instruction."""
        return self.a.library.isa == "avx512" and self.n in (4, 8, 16)

    def scale(self, x: str, power: str) -> str:
        """x * 2**power for an integer `power`, rounded once; it overflows to inf and underflows by steps."""
        kind = f"ps.{32 * self.n}"
        full = "i16 -1, i32 4" if self.n == 16 else "i8 -1"
        name = f"llvm.x86.avx512.mask.scalef.{kind}"
        return self.a.pure(
            f"call {self.t} @{name}({self.t} {x}, {self.t} {power}, {self.t} zeroinitializer, {full})"
        )

    def clamp(self, x: str, low: float, high: float) -> str:
        """x cut to [low, high]; NaN stays."""
        if low > -math.inf:
            x = self.pick(self.test("olt", x, self.c(low)), self.c(low), x)
        return self.pick(self.test("ogt", x, self.c(high)), self.c(high), x)


def _exp(v: _Lanes, x: str) -> str:
    # Beyond these bounds the result is 0 and inf. Scaling 0 instead of underflowing to it matters: results
    # too small to be normal take a hundred times as long on many processors.
    some = v.test("uge", x, v.c(-104.0))
    x = v.clamp(x, -math.inf if v.scales else -104.0, 89.0)
    if v.scales:
        whole, _, rest = _reduced(v, x, 1)
        return v.scale(v.pick(some, v.horner(_EXP, rest), v.c(0.0)), whole)
    # exp(x) = exp(rest) * 2**whole * 2**whole: 4**whole itself may be out of range.
    _, power, rest = _reduced(v, x, 2)
    scale = v.floats(v.i("add", power, v.w(0x3F800000)))
    value = v.pick(some, v.estrin(_EXP_WIDE, rest), v.c(0.0))
    return v.f("mul", v.f("mul", value, scale), scale)


def _reduced(v: _Lanes, x: str, times: int) -> tuple[str, str, str]:
    """(whole, power, rest): x = whole * times * log(2) + rest for the nearest integer, which comes as a float
    and where the exponent of a float is."""
    # Adding 1.5 * 2**23 leaves the nearest integer in the low bits of the sum; only these survive the shift.
    shifted = v.fma(x, v.c(1 / (times * math.log(2))), v.c(_SHIFT))
    whole = v.f("sub", shifted, v.c(_SHIFT))
    rest = v.fma(whole, v.c(-times * _LN2_HIGH), x)
    rest = v.fma(whole, v.c(-times * _LN2_LOW), rest)
    return whole, v.i("shl", v.bits(shifted), v.w(23)), rest


def _log(v: _Lanes, x: str) -> str:
    tiny = v.test("olt", x, v.c(2.0**-126))
    scaled = v.pick(tiny, v.f("mul", x, v.c(2.0**23)), x)
    # The exponent that leaves a mantissa in [sqrt(1/2), sqrt(2)).
    raw = v.i("sub", v.bits(scaled), v.w(0x3F3504F3))
    power = v.i("ashr", raw, v.w(23))
    mantissa = v.floats(v.i("add", v.i("and", raw, v.w(0x007FFFFF)), v.w(0x3F3504F3)))
    power = v.a.pure(f"sitofp {v.word} {power} to {v.t}")
    power = v.f("add", power, v.pick(tiny, v.c(-23.0), v.c(0.0)))
    f = v.f("sub", mantissa, v.c(1.0))
    square = v.f("mul", f, f)
    out = v.f("mul", v.f("mul", square, f), v.horner(_LOG, f))
    out = v.fma(power, v.c(_LN2_LOW), out)
    out = v.fma(square, v.c(-0.5), out)
    out = v.fma(power, v.c(_LN2_HIGH), v.f("add", f, out))
    out = v.pick(v.test("oeq", x, v.c(math.inf)), x, out)
    out = v.pick(v.test("oeq", x, v.c(0.0)), v.c(-math.inf), out)
    return v.pick(v.test("ult", x, v.c(0.0)), v.c(math.nan), out)


def _logistic(v: _Lanes, x: str) -> str:
    """1 / (1 + exp(-x)), as exact where it is nearly 0, for x far below 0."""
    if v.scales:
        e = _exp(v, v.clamp(x, -math.inf, 40.0))
        return v.f("div", e, v.f("add", v.c(1.0), e))
    # With exp(-x) = exp(-rest) * 4**whole: 2**-whole / (2**-whole + exp(-rest) * 2**whole), where nothing
    # overflows and the last bits of a subnormal result are rounded once. Beyond the bounds it is 0 and 1.
    _, power, rest = _reduced(v, v.clamp(x, -110.0, 87.0), -2)
    scale = v.floats(v.i("add", power, v.w(0x3F800000)))
    inverse = v.floats(v.i("sub", v.w(0x3F800000), power))
    mirrored = tuple([c * (-1) ** n for n, c in enumerate(_EXP_WIDE)])
    return v.f("div", inverse, v.fma(v.estrin(mirrored, rest), scale, inverse))


def _tanh(v: _Lanes, x: str) -> str:
    """m / (m + 2) with m = exp(2x) - 1, which keeps its digits near 0; at most 3 ulp wrong."""
    # Beyond these bounds the result is -1 and 1.
    double = v.clamp(v.f("add", x, x), -18.5, 18.5)
    _, power, rest = _reduced(v, double, 1)
    value = v.fma(v.f("mul", rest, rest), v.horner(_EXP[2:], rest), rest)
    scale = v.floats(v.i("add", power, v.w(0x3F800000)))
    less = v.fma(value, scale, v.f("sub", scale, v.c(1.0)))
    return v.call("copysign", v.f("div", less, v.f("add", less, v.c(2.0))), x)


def _erf(v: _Lanes, x: str) -> str:
    size = v.call("fabs", x)
    near = v.f("mul", x, v.horner(_ERF, v.f("mul", x, x)))
    far = v.f("sub", v.c(1.0), _exp(v, v.horner(_ERFC, v.clamp(size, 0.0, 4.0))))
    return v.pick(v.test("olt", size, v.c(1.0)), near, v.call("copysign", far, x))


def _on(function: Callable[[_Lanes, str], str]) -> Callable[[Arithmetic, int, str], str]:
    return lambda a, lanes, x: function(_Lanes(a, lanes), x)


FUNCTIONS: dict[str, Callable[[Arithmetic, int, str], str]] = {
    "exp": _on(_exp), "log": _on(_log), "tanh": _on(_tanh), "erf": _on(_erf),
    "logistic": _on(_logistic),
}  # fmt: skip
