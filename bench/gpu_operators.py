"""Every operator of `tlm.ops` as CUDA C, by the closed form and by dice, proven without a GPU.

The cases are those of `cuda_cases` that are small, and small ones beside them; `python -m bench.gpu_families
--operators` runs them. An operator without a case is an error of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

import tlm
from bench import cuda_cases
from bench.cuda_cases import Case
from bench.gpu_proof import Row, compared, proven
from tests.cuda.emitted import laid
from tlm.backend.cuda.emitter import emit
from tlm.errors import TlmError
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.ops.deciders import decide
from tlm.ops.dispatch import Operator
from tlm.ops.settings import config
from tlm.schedule import apply
from tlm.target import Target

HOWS = ("heuristic", "random")
MOST_ELEMENTS = 12_000
"""Of the operands of a case, together."""


def small() -> tuple[Case, ...]:
    """Small cases of kinds that `cuda_cases` has only large ones of."""
    heads, attend = (2, 18, 3, 16), cuda_cases._attend
    found = [Case("matmul", ((33, 40), (40, 27)), np.matmul, dtype=d) for d in ("float64", "float16")]
    found += [Case("matmul", ((48, 64), (64, 40)), np.matmul, dtype=d) for d in ("float16", "bfloat16")]
    for causal in (False, True):
        for dtype in cuda_cases.SOME:
            settings = (("is_causal", causal),)
            found.append(Case("dot_product_attention", (heads,) * 3, attend(causal), settings, dtype))
    return tuple(found)


def operators() -> list[str]:
    """The names of all operators."""
    return [n for n in dir(tlm.ops) if isinstance(getattr(tlm.ops, n), Operator)]


def chosen() -> list[Case]:
    """The cases that are run, those with the fewest elements of each operator first."""
    sizes = {c: sum(int(np.prod(s)) for s in c.shapes) for c in (*cuda_cases.cases(), *small())}
    found = sorted([c for c, n in sizes.items() if n <= MOST_ELEMENTS], key=lambda c: (c.op, sizes[c]))
    missing = sorted(set(operators()) - {c.op for c in found})
    if missing:
        raise SystemExit(f"operators without a case in bench/cuda_cases.py: {', '.join(missing)}")
    return found


def jobs(archs: Sequence[str]) -> Iterator[tuple[dict[str, Any], Any]]:
    """(key, run) of each case by each decider for each architecture."""
    for case in chosen():
        for how in HOWS:
            for arch in archs:
                key = {"family": f"operators, {how}", "arch": arch, "seed": case.name}
                yield key, partial(check, case, arch, how)


@lru_cache(maxsize=2)
def program(case: Case) -> Program:
    """The unscheduled program of a case."""
    operands = [np.empty(s, cuda_cases.dtype_of(case.dtype)) for s in case.shapes]
    given = [operands] if case.listed else operands
    made: Program = getattr(tlm.ops, case.op).program(*case.lead, *given, **dict(case.settings))
    return made


def _laid(case: Case, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Operands as the inputs of the program, which may have joined axes; numbers among the settings are
    inputs by name."""
    inputs, numbers = program(case).inputs, dict(case.settings)
    given = [*operands, *(np.asarray(numbers[b.name]) for b in inputs[len(operands) :])]
    return [laid(b, x.reshape(b.shape)) for b, x in zip(inputs, given, strict=True)]


@lru_cache(maxsize=2)
def _expected(case: Case) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Operands as drawn, the same as inputs of the program, and what the interpreter makes of them."""
    operands = case.operands()
    inputs = _laid(case, operands)
    return operands, inputs, interpret(program(case), inputs)


def check(case: Case, arch: str, how: str) -> Row:
    """One operator on one case by one decider."""
    target = Target(arch)
    row: Row = {"workload": f"{case.name} by {how}"}
    try:
        plan = decide(program(case), target, config(how))
        row["sentence"] = plan.values
        source = emit(apply(program(case), plan.steps), target)
    except TlmError as error:
        return row | {"status": "rejected", "message": str(error)}
    operands, inputs, wanted = _expected(case)
    return row | proven(source, target, inputs, partial(_judge, case, operands, wanted))


def _judge(
    case: Case, operands: list[np.ndarray], wanted: list[np.ndarray], got: Sequence[np.ndarray]
) -> str:
    """What is wrong against float64, or against the interpreter."""
    right = case.expected(operands)
    error = cuda_cases.error(got[0].reshape(right.shape), right)
    if not error <= cuda_cases.allowed(case):
        return f"error {error:.2e} against float64, allowed {cuda_cases.allowed(case):.0e}"
    return compared(got, wanted, bits=not case.is_float)
