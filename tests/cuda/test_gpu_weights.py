"""The weights for GPUs that are shipped: trained on estimates, which they say, and legal on every target."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tlm
from tests.cuda import gpu_programs, shim
from tests.cuda.emitted import check
from tlm.cli.showing import MODELLED, as_text
from tlm.ir.nodes import Program
from tlm.model import weights
from tlm.model.config import SAMPLES
from tlm.model.files import value_path
from tlm.model.generate import Sentence, generate
from tlm.ops.gpu_workloads import GPUS
from tlm.schedule import apply
from tlm.search.gpu_modelled import NAME
from tlm.space.decide import replay
from tlm.space.spaces import space_for
from tlm.target import Target

DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i8": np.int8}


def square(size: int, dtype: str) -> Program:
    operand: Any = SimpleNamespace(shape=(size, size), dtype=np.dtype(DTYPES[dtype]))
    return tlm.ops.matmul.program(operand, operand)


def written(program: Program, target: Target) -> Sentence:
    """What a call would take."""
    return generate([program], target, samples=SAMPLES)[0][0]


def test_the_card_says_that_nothing_was_measured():
    card = weights.card(weights.shipped("cuda"))
    assert card["note"].startswith("No measurement of a GPU went into these weights")
    assert NAME in card["note"]
    assert card["measured"] == {"programs": 0, "workloads": 0}
    assert card["estimated"]["programs"] > 1000
    assert value_path(weights.shipped("cuda")).exists()
    assert {key.split()[1] for key in card["targets"]} == {f"isa={name}" for name in GPUS}


def test_a_generated_kernel_says_so():
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="NVRTC comes with CuPy")
    kernel = tlm.ops.matmul.kernel(np.empty((96, 64), "f4"), np.empty((64, 80), "f4"), target=Target("sm_90"))
    assert kernel.plan.evidence == "modelled"
    assert f"== evidence: {MODELLED}" in as_text(kernel, steps=False, source=False, assembly=False)


@pytest.mark.parametrize("name", [*GPUS])
def test_sentences_are_the_same_again_and_legal(name: str):
    target = Target(name)
    for dtype in DTYPES:
        program = square(1000, dtype)
        first = written(program, target)
        if dtype == "f32":
            assert written(program, target).decided.values == first.decided.values
        assert replay(space_for(program, target), first.decided.values).steps == first.decided.steps
        gpu_programs.within(apply(program, first.decided.steps), target)


@pytest.mark.parametrize("name", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", [*DTYPES])
@pytest.mark.parametrize("schedule", ["generate", "heuristic"])
def test_no_product_spills(name: str, dtype: str, schedule: str):
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="NVRTC comes with CuPy")
    operand: Any = SimpleNamespace(shape=(1000, 1000), dtype=np.dtype(DTYPES[dtype]))
    kernel = tlm.ops.matmul.kernel(operand, operand, schedule=schedule, target=Target(name))
    assert kernel.stats.spills == 0


@pytest.mark.skipif(bool(shim.missing()), reason=f"the shim needs {shim.missing()}")
@pytest.mark.parametrize("family", ["products", "halves", "convolutions", "stencils", *gpu_programs.TABLES])
def test_what_is_written_for_small_programs_is_right(family: str):
    exact = {"rows": gpu_programs.EXACT_ROWS, "maps": gpu_programs.EXACT_MAPS, "attention": ("scores",)}
    if family in exact:
        made = [(name, gpu_programs.TABLES[family][name]()) for name in [*gpu_programs.TABLES[family]][:3]]
    else:
        made = [("", p) for p in getattr(gpu_programs, family)(2, 77)]
    for number, (name, program) in enumerate(made):
        target = Target(("sm_80", "sm_90")[number % 2])
        scheduled = apply(program, written(program, target).decided.steps)
        check(scheduled, target, number, name in exact.get(family, (name,)))
