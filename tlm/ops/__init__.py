"""Operators on arrays: numpy's names and rules, compiled by schedules that a model writes."""

from __future__ import annotations

from .kernel import Kernel
from .matmul import linear, matmul

__all__ = ["Kernel", "linear", "matmul"]
