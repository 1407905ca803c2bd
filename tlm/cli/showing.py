"""`tlm show`: how a schedule came about, choice by choice and step by step."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from ..ops.kernel import Kernel
from ..schedule.steps import to_json as steps_to_json

_SHOWN = 12
"""Options of one choice that are printed; the rest are counted."""

MODELLED = "estimates of an analytic model; no GPU has run or timed any of it"


def as_text(kernel: Kernel, *, steps: bool, source: bool, assembly: bool) -> str:
    """Sentence, choices, nests, and code as text."""
    parts = ["== sentence", kernel.sentence, "== choices", *choices(kernel)]
    if kernel.plan.evidence == "modelled":
        parts.append(f"== evidence: {MODELLED}")
    parts += ["== program", str(kernel.problem.program)]
    for n, (step, program) in enumerate(kernel.history, 1):
        parts.append(f"== step {n}: {step}")
        if steps:
            parts.append(str(program))
    if not steps:
        parts += ["== scheduled program", str(kernel.program)]
    if source:
        parts += ["== LLVM IR" if kernel.target.kind == "cpu" else "== CUDA C", kernel.source]
    if assembly:
        parts += ["== assembly", _assembly(kernel)]
    return "\n".join(parts)


def _assembly(kernel: Kernel) -> str:
    if kernel.target.kind != "cpu":
        raise ArgumentError(
            f"--asm shows machine code of CPUs, the target is {kernel.target.isa}: --source shows its CUDA C"
        )
    return kernel.assembly


def choices(kernel: Kernel) -> list[str]:
    """One line a choice: its options, the picked one marked, with the model's probabilities."""
    lines = []
    for n, (choice, index) in enumerate(kernel.plan.picked):
        chances = kernel.plan.probabilities[n] if kernel.plan.probabilities else ()
        order = sorted(range(len(choice.options)), key=lambda i: (i != index, -chances[i] if chances else i))
        shown = []
        for i in order[:_SHOWN]:
            chance = f" {chances[i]:.2f}" if chances else ""
            mark = "*" if i == index else ""
            shown.append(f"{mark}{choice.options[i].value}{chance}")
        more = len(order) - len(shown)
        lines.append(f"{choice.name}: {', '.join(shown)}" + (f", and {more} more" if more > 0 else ""))
    return lines


def as_values(kernel: Kernel, *, source: bool, assembly: bool) -> dict[str, Any]:
    """The same as JSON values."""
    out: dict[str, Any] = {
        "sentence": kernel.sentence,
        "choices": [
            {"name": name, "options": list(options), "picked": picked, "probability": chance}
            for name, options, picked, chance in kernel.choices
        ],
        "steps": steps_to_json(kernel.plan.steps),
        "program": str(kernel.program),
        "target": kernel.target.to_json(),
        "evidence": kernel.plan.evidence,
    }
    if source:
        out["source"] = kernel.source
    if assembly:
        out["assembly"] = _assembly(kernel)
    return out
