"""What every kernel of an operator tells of itself, whatever machine it is for."""

from __future__ import annotations

from functools import cached_property
from math import prod

from ..ir.exprs import Op
from ..ir.nodes import Program, Store, Update
from ..ir.walk import walk
from ..schedule.steps import Step
from ..schedule.steps import apply as apply_steps
from ..space.problem import nests
from ..target import Target
from .deciders import Plan
from .products import Problem

Picked = tuple[str, tuple[int | str, ...], int | str, float | None]
"""(name, values of the options, picked value, the model's probability of it or None)"""


class Scheduled:
    """A problem with a decided schedule for a target."""

    def __init__(self, problem: Problem, plan: Plan, target: Target) -> None:
        self.problem = problem
        self.plan = plan
        self.target = target
        self.original: Program = problem.program
        """The loop nest before scheduling."""
        self.program: Program = apply_steps(self.original, plan.steps)
        """The loop nest after scheduling."""

    @cached_property
    def history(self) -> tuple[tuple[Step, Program], ...]:
        """Every step with the program after it."""
        program, out = self.original, []
        for step in self.plan.steps:
            program = apply_steps(program, (step,))
            out.append((step, program))
        return tuple(out)

    @property
    def choices(self) -> tuple[Picked, ...]:
        """Every decision: (name, options, picked, the model's probability or None)."""
        out: list[Picked] = []
        for n, (choice, index) in enumerate(self.plan.picked):
            chance = self.plan.probabilities[n][index] if self.plan.probabilities else None
            out.append((choice.name, choice.values, choice.values[index], chance))
        return tuple(out)

    @property
    def sentence(self) -> str:
        """The prompt and the decisions as text, one phrase a line."""
        from ..lang.encode import prompt
        from ..lang.text import sentence

        return sentence(prompt(self.problem.program, self.target), self.plan.picked)

    @cached_property
    def flops(self) -> int:
        """Arithmetic operations of one call; a multiply-add counts two."""
        return sum(
            _operations(stmt) * prod([x.extent for x in loops])
            for loops, stmt in nests(self.problem.program.body)
        )

    @cached_property
    def bytes(self) -> int:
        """Bytes of the operands and the result."""
        return sum(b.size * b.dtype.bytes for b in self.problem.program.parameters)


def _operations(stmt: Store | Update) -> int:
    """Arithmetic operations of one run of a statement; index arithmetic and comparisons are free."""
    values, merges = ((stmt.value,), 0) if isinstance(stmt, Store) else (stmt.values, len(stmt.values))
    skip = {"lt", "le", "gt", "ge", "eq", "ne", "where", "and", "or", "not"}
    ops = [
        n for v in values for n in walk(v) if isinstance(n, Op) and n.op not in skip and n.dtype.name != "i64"
    ]
    return merges + len(ops)
