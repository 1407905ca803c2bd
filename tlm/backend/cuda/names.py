"""Names of programs as identifiers of the text: no name reaches it as it was written."""

from __future__ import annotations

import re

from .device import RESERVED

_MATH = frozenset((
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos",
    "cosh", "cospi", "cyl_bessel_i0", "cyl_bessel_i1", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp",
    "exp10", "exp2", "expm1", "fabs", "fdim", "fdivide", "floor", "fma", "fmax", "fmin", "fmod", "frexp",
    "hypot", "ilogb", "ldexp", "lgamma", "llrint", "llround", "log", "log10", "log1p", "log2", "logb",
    "lrint", "lround", "max", "min", "modf", "nan", "nearbyint", "nextafter", "norm", "norm3d", "norm4d",
    "normcdf", "normcdfinv", "pow", "rcbrt", "remainder", "remquo", "rhypot", "rint", "rnorm", "rnorm3d",
    "rnorm4d", "round", "rsqrt", "scalbln", "scalbn", "sin", "sincos", "sincospi", "sinh", "sinpi", "sqrt",
    "tan", "tanh", "tgamma", "trunc",
))  # fmt: skip
"""Functions of CUDA's math library, which a kernel of the same name would declare again."""
_OTHERS = frozenset((
    "std", "nvcuda", "labs", "llabs", "umin", "umax", "llmin", "llmax", "ullmin", "ullmax", "abort", "exit",
    "free", "malloc", "time", "memmove", "memcmp", "strlen",
))  # fmt: skip


class Names:
    """Identifiers that were given out; each is new."""

    def __init__(self) -> None:
        self.taken: set[str] = {*RESERVED, *_MATH, *[f"{name}f" for name in _MATH], *_OTHERS}

    def name(self, wanted: str) -> str:
        """A new identifier that looks like `wanted`."""
        base = re.sub(r"\W", "_", short(wanted), flags=re.ASCII)
        base = re.sub(r"__+", "_", base).strip("_") or "x"
        base = f"v{base}" if base[0].isdigit() or base.startswith("tlm_") else base
        found, count = base, 2
        while found in self.taken:
            found, count = f"{base}_{count}", count + 1
        self.taken.add(found)
        return found


def short(name: str) -> str:
    """A loop's name; of one that was fused, the first words of the loops in it and where it was split since.

    `k.1@B_s*j.1.0@B_s.0.1` becomes `k*j.0.1`.
    """
    parts = name.split("*")
    if len(parts) == 1:
        return name
    tail = parts[-1].rsplit("@", 1)[-1] if "@" in parts[-1] else parts[-1]
    splits = re.search(r"(\.\d+)*$", tail)
    words = dict.fromkeys([re.split(r"[.@]", p)[0] for p in parts])
    return "*".join(words) + (splits.group(0) if splits else "")
