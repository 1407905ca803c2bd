"""Own f32 polynomials for vectors where no vector math library is at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .arith import Arithmetic

FUNCTIONS: dict[str, Callable[[Arithmetic, int, str], str]] = {}
