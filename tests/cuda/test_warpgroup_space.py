"""Matrix instructions of warpgroups as a primitive, and as a part of the space of products."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

import tlm
from tests.cuda import shim
from tests.cuda.emitted import multiplied, run, values
from tests.cuda.test_warpgroup import SM_90A, needs_shim
from tlm.backend.cuda import runtime
from tlm.backend.cuda.emitter import emit
from tlm.errors import ScheduleError
from tlm.ir.build import Builder
from tlm.ir.dtypes import f32, to_numpy
from tlm.ir.exprs import converted
from tlm.ir.serialize import from_json, to_json
from tlm.lang.encode import prompt
from tlm.schedule import Schedule, apply
from tlm.schedule.steps import from_json as steps_from_json
from tlm.schedule.steps import to_json as steps_to_json
from tlm.search.gpu_cost import estimate
from tlm.search.heuristic import heuristic
from tlm.space.decide import at_random, replay
from tlm.space.decide import run as decide
from tlm.space.spaces import space_for
from tlm.space.vocabulary import CHOICES, WORDS
from tlm.target import Target

# The primitive


def _tiles(lanes: tuple[str, str] = ("i.1.1", "j.1.0")) -> Schedule:
    """64 x 16 results, 16 products deep, in the order of an instruction's loops."""
    b = Builder("p")
    x, y = b.input("A", (64, 16), "bf16"), b.input("B", (16, 16), "bf16")
    b.reduce(
        "C", (64, 16), {"k": 16}, lambda i, j, k: converted(x[i, k], f32) * converted(y[k, j], f32),
        output=True,
    )  # fmt: skip
    s = Schedule(b.build()).split("i", 16).split("i.1", 8).split("j", 8).split("j.1", 2)
    return s.reorder("i.0", *lanes, "k", "j.0", "i.1.0", "j.1.1").fuse(*lanes)


def _bound(s: Schedule, lane: str = "i.1.1*j.1.0") -> Schedule:
    s.cache_write("C", "", "register", ("i.0", lane, "j.0", "i.1.0", "j.1.1"), "acc")
    s.decompose_reduction("acc", "i.0")
    return s.bind("i.0", "threadIdx.y").bind(lane, "threadIdx.x")


def test_loops_are_marked_and_mean_the_same():
    s = _bound(_tiles())
    rng = np.random.default_rng(1)
    given = [rng.integers(-3, 4, b.shape).astype(to_numpy(b.dtype)) for b in s.program.inputs]
    before = s.run(*given)[0]
    s.tensorize_group("k")
    assert str(s).count("warpgroup for ") == 4
    np.testing.assert_array_equal(s.run(*given)[0], before)
    assert from_json(to_json(s.program)) == s.program
    assert steps_from_json(steps_to_json(s.steps)) == s.steps


def test_what_is_no_instruction_of_a_warpgroup_is_refused():
    with pytest.raises(ScheduleError, match="no whole groups of 4 warps run k"):
        _tiles().tensorize_group("k")
    s = _bound(_tiles())
    with pytest.raises(ScheduleError, match=r"j\.0 and the three loops in it are no sum of products"):
        s.tensorize_group("j.0")
    s = _tiles().bind("i.0", "threadIdx.y").bind("i.1.1*j.1.0", "threadIdx.x")
    with pytest.raises(
        ScheduleError, match=r"C has no dimensions for i.0, .*, and at last j.0, i.1.0, j.1.1"
    ):
        s.tensorize_group("k")
    s = _bound(_tiles().split("k", 8))
    with pytest.raises(ScheduleError, match="have 8 and 2 iterations; instructions are 16 products deep"):
        s.tensorize_group("k.1")
    s = _bound(_tiles(("j.1.0", "i.1.1")), "j.1.0*i.1.1")
    with pytest.raises(ScheduleError, match=r"the left factor, of A, does not depend on i.0 and .* by"):
        s.tensorize_group("k")


# The space


def test_only_targets_with_warpgroups_offer_them():
    a = np.empty((1024, 1024), "f2")
    program = tlm.ops.matmul.program(a, a)
    forms = {}
    for name in ("sm_80", "sm_90", "sm_90a", "sm_100"):
        found = decide(space_for(program, Target(name)), heuristic)
        forms[name] = found.choices[0][0].values
        assert ("groups" in found.values) == (name == "sm_90a")
    assert forms["sm_90a"] == (*forms["sm_90"], "groups")
    assert forms["sm_80"] == forms["sm_90"] == forms["sm_100"]
    others = (
        tlm.ops.matmul.program(a.T, a),
        tlm.ops.matmul.program(np.empty((1024, 1001), "f2"), np.empty((1001, 1024), "f2")),
        tlm.ops.matmul.program(np.empty((32, 1024), "f2"), a),
        tlm.ops.matmul.program(np.empty((1024, 1024), "f4"), np.empty((1024, 1024), "f4")),
    )
    for other in others:
        assert "groups" not in decide(space_for(other, SM_90A), heuristic).choices[0][0].values


@needs_shim
@pytest.mark.parametrize("seed", range(6))
def test_random_sentences_of_warpgroups(seed):
    rng = Random(seed)
    m, n, k = rng.choice((64, 72, 136)), rng.choice((64, 80, 136)), rng.choice((64, 72, 200))
    a, b = np.empty((m, k), "f2"), np.empty((k, n), "f2") if seed % 2 else np.empty((n, k), "f2").T
    if seed > 3:
        a, b = np.empty((2, m, k), "f2"), np.empty((2, k, n), "f2") if seed % 2 else b
    program = tlm.ops.matmul.program(a, b)
    dice = at_random(rng)

    def groups(choice, picked):
        return choice.values.index("groups") if choice.name == "form" else dice(choice, picked)

    found = decide(space_for(program, SM_90A), groups)
    assert replay(space_for(program, SM_90A), found.values) == found
    assert steps_from_json(steps_to_json(found.steps)) == found.steps
    multiplied(apply(program, found.steps), SM_90A)


def test_a_model_reads_such_sentences():
    a = np.empty((1024, 1024), "f2")
    program = tlm.ops.matmul.program(a, a)
    found = decide(space_for(program, SM_90A), heuristic)
    assert {c.name for c, _ in found.choices} <= set(CHOICES)
    assert {v for c, _ in found.choices for v in c.values if isinstance(v, str)} <= set(WORDS)
    assert prompt(program, SM_90A).phrases == prompt(program, Target("sm_90")).phrases
    assert estimate(apply(program, found.steps), SM_90A).seconds > 0


@needs_shim
def test_a_fused_epilogue_and_parts_of_k():
    a, b, bias = np.empty((64, 512), "f2"), np.empty((512, 64), "f2"), np.empty(64, "f2")
    program = tlm.ops.linear.program(a, b, bias, activation="relu")
    for slices in (1, 2):
        picks = {"form": "groups", "slices": slices, "epilogue": "fused", "cta_m": 64}

        def chosen(choice, picked, picks=picks):
            value = picks.get(choice.name)
            return choice.values.index(value) if value in choice.values else heuristic(choice, picked)

        found = decide(space_for(program, SM_90A), chosen)
        assert {"groups"} <= set(found.values)
        source = emit(apply(program, found.steps), SM_90A)
        given = values(program)
        (got, *_), _ = run(source, given, passes=shim.PASSES[1:])
        x = given[0].astype("f4") @ given[1].astype("f4")
        right = np.maximum(x.astype("f2").astype("f4") + given[2].astype("f4"), 0)
        np.testing.assert_array_equal(got.astype("f4"), right.astype("f2").astype("f4"))


def test_such_code_runs_on_one_architecture_alone(monkeypatch):
    for capability, plain, own in (("90", True, True), ("91", True, False), ("100", False, False)):
        card = SimpleNamespace(compute_capability=capability)
        stand_in = SimpleNamespace(cuda=SimpleNamespace(Device=lambda number, card=card: card))
        monkeypatch.setattr(runtime, "cupy", lambda made=stand_in: made)
        assert runtime.runs_on(Target("sm_90"), 0) == plain
        assert runtime.runs_on(SM_90A, 0) == own


@pytest.mark.parametrize(
    ("capability", "name", "isa"),
    [
        ("80", "sm_80", "sm_80"),
        ("90", "sm_90a", "sm_90a"),
        ("100", "sm_100", "sm_100"),
        ("87", "sm_86", "sm_87"),
    ],
)
def test_the_present_gpu_has_its_own_instructions(monkeypatch, capability: str, name: str, isa: str):
    """Only 9.0 has wgmma: what comes later lacks it again."""
    card = SimpleNamespace(compute_capability=capability, attributes={"MultiProcessorCount": 114})
    stand_in = SimpleNamespace(cuda=SimpleNamespace(Device=lambda number: card))
    monkeypatch.setattr(runtime, "cupy", lambda: stand_in)
    runtime._present.cache_clear()
    found = runtime.present(7)
    runtime._present.cache_clear()
    assert (found.name, found.isa, found.threads) == (name, isa, 114)
    assert found.warpgroups == (capability == "90")
    assert runtime.runs_on(found, 7)
    assert runtime.runs_on(Target("sm_90"), 7) == (capability == "90")


@pytest.mark.parametrize("k", [8, 16, 24, 32, 48, 56])
def test_short_sums_take_the_other_form(k: int):
    """A step of k fills a row of shared memory: where there is none, groups are not offered."""
    a, b = np.empty((256, k), np.float16), np.empty((k, 256), np.float16)
    program = tlm.ops.matmul.program(a, b)
    rng = Random(k)
    for pick in (heuristic, *[at_random(rng)] * 4):
        decided = decide(space_for(program, SM_90A), pick)
        assert "groups" not in decided.values
        apply(program, decided.steps)
