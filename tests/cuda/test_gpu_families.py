"""The proof of random schedules and of all operators without a GPU, on a few of them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import tlm
from bench import gpu_families, gpu_operators, gpu_proof
from bench.gpu_halves import Half
from tests.cuda import shim
from tests.cuda.emitted import values
from tlm.backend.cuda.emitter import emit
from tlm.errors import ScheduleError
from tlm.model.shapes import Shape
from tlm.target import Target

SHAPE = Shape("small", 20, 17, 24)


def test_every_operator_has_a_case(monkeypatch):
    named = {n for n in tlm.ops.__all__ if n != "Kernel"}
    assert named == set(gpu_operators.operators())
    assert {c.op for c in gpu_operators.chosen()} == named
    monkeypatch.setattr(gpu_operators, "operators", lambda: [*named, "brand_new"])
    with pytest.raises(SystemExit, match=r"without a case in .*: brand_new"):
        gpu_operators.chosen()


def test_families_give_small_workloads_by_seed():
    found = gpu_families.families()
    assert {"products", "thin", "attention", "bfloat16 products", "float16 products"} <= set(found)
    for name, draw in found.items():
        works = draw(3)
        assert works == draw(4)[:3]
        assert all(w.work <= 300_000 for w in works), name


def test_what_is_exact():
    sample = gpu_families.families()["conv"](12)
    assert {gpu_families.exact(w) for w in sample} == {True, False}
    assert gpu_families.exact(SHAPE)
    assert not gpu_families.exact(replace(SHAPE, epilogue="gelu"))


def test_bits_are_compared():
    plain, other = np.float32([0.0, np.nan, 1.0]), np.float32([-0.0, np.nan, 1.0])
    assert gpu_proof.compared([plain], [plain.copy()], bits=True) == ""
    assert "(0,)" in gpu_proof.compared([plain], [other], bits=True)
    assert gpu_proof.compared([plain], [other], bits=False) == ""
    near = plain * np.float32(1 + 1e-4)
    assert "(2,)" in gpu_proof.compared([near], [plain], bits=False)
    assert "expected int32[3]" in gpu_proof.compared([plain], [np.int32([0, 1, 2])], bits=True)


def test_results_are_resumed(tmp_path):
    path, ran = tmp_path / "r.jsonl", []

    def job(n):
        def run():
            ran.append(n)
            if n == 1:
                raise ZeroDivisionError("by dice")
            return {"status": "right", "message": ""}

        return {"family": "f", "arch": "sm_80", "seed": n}, run

    assert not gpu_families.run_all(map(job, range(3)), gpu_families.Results(path), -1.0)
    assert gpu_families.run_all(map(job, range(2)), gpu_families.Results(path), 60.0)
    path.write_bytes(path.read_bytes() + b'{"family": "f", "ar')
    results = gpu_families.Results(path)
    assert gpu_families.run_all(map(job, range(3)), results, 60.0)
    assert ran == [0, 1, 2]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["status"] for r in rows] == ["right", "error", "right"]
    assert rows[1]["message"] == "ZeroDivisionError: by dice"
    counts = gpu_families.summary(results.rows)["f"]["sm_80"]
    assert (counts["programs"], counts["rejected"], counts["wrong"]) == (3, 0, 1)
    assert counts["faults"] == {"error": 1}


@pytest.mark.parametrize(
    ("work", "arch", "seed"),
    [
        (Shape("thin", 32, 338, 1), "sm_90", 0),
        (Shape("awkward", 27, 35, 35), "sm_80", 23),
        (Half("bfloat16", Shape("bfloat16 products", 16, 40, 48, 2, "tn")), "sm_80", 35),
    ],
    ids=str,
)
def test_loops_of_one_iteration_are_in_nobodys_way(work, arch, seed):
    # These sentences were refused: a dealt copy, and a stage of its own, have such loops.
    for n in (seed, seed + 1, seed + 2):
        found = gpu_families.schedule(work, Target(arch), n)
        assert gpu_families.apply(work.program(), found.steps).body != work.program().body


def test_a_rejected_schedule_is_a_row(monkeypatch):
    def refuse(program, steps):
        raise ScheduleError("no such loop")

    monkeypatch.setattr(gpu_families, "apply", refuse)
    row = gpu_families.check(SHAPE, "sm_80", 0)
    assert (row["status"], row["message"]) == ("rejected", "no such loop")
    assert row["sentence"]


@pytest.mark.skipif(bool(shim.missing()), reason=f"the shim needs {shim.missing()}")
class TestProof:
    @pytest.fixture(autouse=True)
    def _compilers(self):
        pytest.importorskip("cupy_backends", reason="compiling for CUDA needs CuPy and NVRTC")

    def test_right_and_wrong_texts(self):
        program, target = tlm.ops.add.program(np.empty((4, 8), "f4"), np.empty(8, "f4")), Target("sm_80")
        source, inputs = emit(program, target), values(program)
        right = [inputs[0] + inputs[1]]

        def judge(outputs):
            return gpu_proof.compared([o.reshape(4, 8) for o in outputs], right, bits=True)

        row = gpu_proof.proven(source, target, inputs, judge)
        assert row["status"] == "right"
        assert row["cubin"] > 100
        assert "] + " in source.text
        for text, status in (
            (source.text.replace("] + ", "] - "), "wrong"),
            (source.text.replace("{", "{ nonsense", 1), "refused"),
        ):
            assert gpu_proof.proven(replace(source, text=text), target, inputs, judge)["status"] == status

    @pytest.mark.parametrize("family", ["products", "bfloat16 products"])
    def test_a_schedule_of_each_kind(self, family):
        row = gpu_families.check(gpu_families.families()[family](1)[0], "sm_90", 1)
        assert (row["status"], row["message"]) == ("right", "")
        assert row["matrix"] == (family != "products")

    def test_an_operator(self):
        found = next(c for c in gpu_operators.small() if (c.op, c.dtype) == ("matmul", "float16"))
        row = gpu_operators.check(found, "sm_80", "heuristic")
        assert (row["status"], row["message"]) == ("right", "")
