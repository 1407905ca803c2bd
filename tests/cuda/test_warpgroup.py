"""Matrix instructions of warpgroups: what they compute, how their factors lie, what must be around them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cuda import programs, shim
from tests.cuda.emitted import check, multiplied, run, values
from tlm.backend.cuda.emitter import Source, emit
from tlm.errors import BackendError
from tlm.ir.nodes import For, Stmt
from tlm.ir.walk import map_stmt
from tlm.target import Target

SM_90A = Target("sm_90a")
needs_shim = pytest.mark.skipif(bool(shim.missing()), reason=f"the shim needs {shim.missing()}")


# What they compute


@needs_shim
@pytest.mark.parametrize("sizes", [dict(columns=8, n=8), dict(columns=24, n=24, dtype="f16")])
def test_the_text_is_what_the_interpreter_says(sizes):
    source, _ = check(programs.group_product(**{"turned": True, **sizes}), SM_90A)
    assert f"wgmma_m64n{sizes['columns']}k16_{sizes.get('dtype', 'bf16')}<0, 0>(" in source.text


@needs_shim
@pytest.mark.parametrize("columns", [16, 40, 72, 136, 200, 256])
def test_columns_of_an_instruction(columns):
    source, _ = multiplied(programs.group_product(columns=columns, n=columns, turned=True), SM_90A)
    assert source.kernels[0].block == (32, 4, 1)


@needs_shim
@pytest.mark.parametrize("columns", [64, 128, 256])
def test_a_factor_in_panels_is_turned(columns):
    source, _ = multiplied(programs.group_product(columns=columns, n=columns, dtype="f16"), SM_90A)
    leading = 1024 if columns == 64 else 64 * 64 * 2
    assert "k16_f16<0, 1>(&acc_acc[0][0][0][0], matrix_descriptor<1024, 1024>(" in source.text
    assert f"matrix_descriptor<{leading}, 1024>(&acc_b" in source.text


@needs_shim
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_several_groups_turns_and_stages(turned, stages):
    program = programs.group_product(
        m=256, n=64, k=256, rows=256, columns=64, turns=2, stages=stages, turned=turned
    )
    source, _ = multiplied(program, SM_90A)
    assert source.kernels[0].block == (32, 8, 1)
    assert ("copy_async_16(" in source.text) == (stages > 1)


@needs_shim
def test_arrays_that_start_anywhere_are_copied_by_threads():
    program = programs.group_product(k=200, stages=3)
    source, _ = multiplied(program, SM_90A, vectors=False)
    assert "copy_async" not in source.text
    assert not source.aligned


@needs_shim
@pytest.mark.parametrize("turned", [False, True])
def test_tails_are_padded_with_zeros(turned):
    multiplied(programs.group_product(m=72, n=72, k=104, columns=64, stages=2, turned=turned), SM_90A)


# What must be around them


def without(source: Source, line: str, number: int = 0) -> Source:
    """The text without one of the lines that have a statement."""
    lines = source.text.splitlines()
    start = next(n for n, x in enumerate(lines) if 'extern "C" __global__' in x)
    found = [n for n, x in enumerate(lines) if n > start and x.strip() == line]
    assert len(found) > number, (line, len(found))
    del lines[found[number]]
    return Source("\n".join(lines) + "\n", source.kernels, source.buffers, source.aligned)


@pytest.fixture(scope="module")
def sources() -> dict[int, tuple[Source, list[np.ndarray]]]:
    """Products by stages: copied by threads, and asynchronously; 0: of one iteration."""
    made = {n: programs.group_product(k=256, stages=n, dtype="f16") for n in (1, 3)}
    made[0] = programs.group_product(dtype="f16")
    return {n: (emit(p, SM_90A), values(p)) for n, p in made.items()}


@needs_shim
@pytest.mark.parametrize(
    ("stages", "line", "number", "kinds"),
    [
        (0, "fence_async();", 0, {"proxy"}),
        (0, "__syncthreads();", 0, {"race"}),
        (0, "wgmma_fence();", 0, {"sums"}),
        (0, "wgmma_wait<0>();", 0, {"sums"}),
        (0, "wgmma_commit();", 0, {"sums"}),
        (1, "fence_async();", 0, {"proxy"}),
        (1, "__syncthreads();", 0, {"race", "product"}),
        (1, "__syncthreads();", 1, {"race"}),
        (1, "wgmma_fence();", 0, {"sums"}),
        (1, "wgmma_wait<0>();", 0, {"sums", "product"}),
        (1, "wgmma_commit();", 0, {"sums", "product"}),
        (3, "fence_async();", 0, {"proxy"}),
        (3, "__syncthreads();", 0, {"race", "product"}),
        (3, "copy_async_wait<1>();", 0, {"pending"}),
        (3, "wgmma_fence();", 0, {"sums"}),
        (3, "wgmma_wait<0>();", 0, {"sums", "product"}),
        (3, "wgmma_commit();", 0, {"sums", "product"}),
    ],
)
def test_everything_around_them_is_needed(sources, stages, line, number, kinds):
    source, given = sources[stages]
    for how in shim.PASSES:
        with pytest.raises(shim.ShimError) as caught:
            run(without(source, line, number), given, passes=(how,))
        assert caught.value.kind in kinds, caught.value


@needs_shim
def test_nothing_else_is_there(sources):
    """As many fences and barriers as were taken away above."""
    for stages, (source, given) in sources.items():
        body = source.text[source.text.index('extern "C"') :]
        assert body.count("__syncthreads();") == (2 if stages == 1 else 1)
        assert body.count("fence_async();") == 1
        assert body.count("wgmma_wait<0>();") == body.count("wgmma_fence();") == 1
        run(source, given, passes=shim.ALL_PASSES)


def test_other_targets_and_blocks_are_refused():
    program = programs.group_product()
    with pytest.raises(BackendError, match="warpgroups multiply matrices on sm_90a, the target is sm_90"):
        emit(program, Target("sm_90"))
    with pytest.raises(BackendError, match="on sm_90a, the target is sm_100"):
        emit(program, Target("sm_100"))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            lambda x: replace(x, extent=8) if x.var == "k.1.1" else x,
            "have 8 and 8 iterations; instructions are",
        ),
        (lambda x: replace(x, kind="serial") if x.extent == 8 else x, "is marked, and no product of a"),
    ],
)
def test_marks_of_programs_from_files_are_not_believed(changed, reason):
    program = programs.group_product(dtype="f16")

    def edited(s: Stmt) -> Stmt:
        return changed(s) if isinstance(s, For) and s.kind == "warpgroup" else s

    body = map_stmt(program.body, edited)
    assert body != program.body
    with pytest.raises(BackendError, match=reason):
        emit(replace(program, body=body), SM_90A)
