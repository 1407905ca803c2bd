"""Random sentences of every family, emitted as CUDA C and run on the CPU with all checks of the shim."""

from __future__ import annotations

import pytest

from tests.cuda import gpu_programs as programs
from tests.cuda import shim
from tests.cuda.emitted import check
from tlm.schedule import apply

pytestmark = pytest.mark.skipif(bool(shim.missing()), reason=f"the shim needs {shim.missing()}")

ROWS = ("softmax", "softmax of columns", "layer_norm", "sum of a long row", "argmax", "sum", "var")
MAPS = ("exp", "transpose", "concatenate", "add of three channels", "transpose of int8")
ATTENTION = ("plain", "causal", "scores")


def run(program, seed, exact=True):
    target, found = programs.decided(program, seed)
    check(apply(program, found.steps), target, seed, exact)


@pytest.mark.parametrize(
    "make", [programs.products, programs.halves, programs.convolutions, programs.stencils]
)
def test_products_and_windows(make):
    for seed, program in enumerate(make(5, 21)):
        run(program, seed)


@pytest.mark.parametrize(
    ("family", "names"), [("rows", ROWS), ("maps", MAPS), ("attention", ATTENTION)], ids=lambda x: str(x)[:9]
)
def test_other_families(family, names):
    exact = {"rows": programs.EXACT_ROWS, "maps": programs.EXACT_MAPS, "attention": ("scores",)}[family]
    for seed, name in enumerate(names):
        run(programs.TABLES[family][name](), seed, name in exact)
