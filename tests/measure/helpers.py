"""Programs and records for the tests of measuring."""

from __future__ import annotations

from typing import Any

from tlm.ir import canonical, serialize
from tlm.ir.build import Builder
from tlm.ir.nodes import Program
from tlm.measure.record import Record
from tlm.target import Target

TARGET = Target("avx2")


def matmul(m: int = 8, n: int = 12, k: int = 16, dtype: str = "f32", name: str = "matmul") -> Program:
    b = Builder(name)
    a, c = b.input("A", (m, k), dtype), b.input("B", (k, n), dtype)
    b.reduce("C", (m, n), over={"k": k}, fn=lambda i, j, p: a[i, p] * c[p, j], output=True)
    return b.build()


def record(program: Program | None = None, **changes: Any) -> Record:
    program = program or matmul()
    fields: dict[str, Any] = dict(
        workload=canonical.key(program),
        program=serialize.to_json(program),
        target=TARGET.to_json(),
        choices=("outer", 8, 2),
        status="ok",
        seconds=(2e-5, 1.5e-5, 3e-5),
        versions={"tlm": "0"},
    )
    return Record(**(fields | changes))


def failed(program: Program | None = None, status: str = "wrong", **changes: Any) -> Record:
    return record(program, status=status, seconds=(), **changes)
