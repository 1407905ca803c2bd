"""Dispatch: each problem is decided and compiled once, whatever calls it (kinds O, P, V); the disk cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import tlm
from tlm.errors import RecordError, TlmWarning
from tlm.ops import deciders, kernel, linear, matmul
from tlm.ops.arrays import _address_from_interface, address


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts compilations, by the text of the program's parameters."""
    seen: Counter[str] = Counter()
    real = kernel.compile_program

    def counting(program: Any, *args: Any, **more: Any) -> Any:
        seen[str([b.shape for b in program.inputs])] += 1
        return real(program, *args, **more)

    monkeypatch.setattr(kernel, "compile_program", counting)
    return seen


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, "f4")


def test_a_shape_is_compiled_once(compiled: Counter[str]):
    a, b, out = ones(3, 11), ones(11, 4), np.empty((3, 4), "f4")
    for _ in range(100):
        matmul(a, b, schedule="heuristic")
        matmul(a, b, schedule="heuristic", out=out)
    assert list(compiled.values()) == [1]


def test_calls_that_mean_the_same_share_a_kernel(compiled: Counter[str]):
    matmul(ones(6, 12), ones(12, 4), schedule="heuristic")
    matmul(ones(2, 3, 12), ones(12, 4), schedule="heuristic", target=tlm.host())
    matmul(ones(6, 24)[:, ::2], ones(12, 4), schedule="heuristic")
    matmul.kernel(ones(6, 12), ones(12, 4), schedule="heuristic")
    assert sum(compiled.values()) <= 2


def test_different_settings_do_not_share(compiled: Counter[str]):
    a, b = ones(13, 14), ones(14, 15)
    kernels = [
        matmul.kernel(a, b, schedule=s, threads=t, target=target)
        for s, t, target in (
            ("heuristic", 1, "cpu"), ("heuristic", 2, "cpu"), ("default", 1, "cpu"),
            ("heuristic", 1, tlm.Target("sse")),
        )
    ]  # fmt: skip
    assert len({id(k) for k in kernels}) == 4
    assert sum(compiled.values()) == 4


@pytest.mark.parametrize("shapes", [1, 8])
def test_many_threads_one_compilation_a_shape(compiled: Counter[str], shapes: int):
    operands = [(ones(20 + shapes, 17 + s), ones(17 + s, 5)) for s in range(shapes)]
    start, wrong = threading.Barrier(8), []

    def work(n: int) -> None:
        a, b = operands[n % shapes]
        start.wait()
        for _ in range(3):
            if not (matmul(a, b, schedule="heuristic") == a.shape[1]).all():
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert sorted(compiled.values()) == [1] * shapes


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_thread_counts_agree(threads: int):
    rng = np.random.default_rng(threads)
    a, b = (rng.integers(-3, 4, s).astype("f4") for s in ((130, 70), (70, 90)))
    made = matmul.kernel(a, b, schedule="heuristic", threads=threads)
    assert made.target.threads == threads
    np.testing.assert_array_equal(made(a, b), a @ b)


def test_threads_default_to_what_the_process_may_use():
    assert matmul.kernel(ones(4, 5), ones(5, 6), schedule="heuristic").target.threads == tlm.host().threads


def test_addresses():
    room = np.zeros((4, 6), "f4")
    for x in (room, room.T, room[1:, 2:], np.zeros(3, np.int8)[1:], np.zeros(()), np.zeros((0, 3))):
        assert address(x) == _address_from_interface(x)


def test_the_switch_keeps_the_disk_untouched(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tlm.cache() is True
    tlm.cache(False)
    try:
        matmul(ones(5, 19), ones(19, 7), schedule="heuristic")
    finally:
        tlm.cache(True)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_damaged_sentences_are_no_sentences(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    from tlm.ops.caching import clear, recall, remember, usage

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember("a" * 40, (8, "none"), ((0.25, 0.75), (1.0,)))
    found = recall("a" * 40)
    assert found is not None
    assert (found.values, found.probabilities) == ((8, "none"), ((0.25, 0.75), (1.0,)))
    path = next(tmp_path.rglob("*.json"))
    for text in (
        "",
        "{",
        "[]",
        "{}",
        '{"values": 3, "probabilities": []}',
        '{"values": [[1]], "probabilities": []}',
    ):
        path.write_text(text)
        assert recall("a" * 40) is None
    assert usage()["files"] == 1
    assert clear() == 1
    assert usage()["files"] == 0


def test_missing_weights_are_announced(monkeypatch: pytest.MonkeyPatch):
    from tlm.model import weights

    monkeypatch.setattr(weights, "available", lambda kind="cpu": False)
    with pytest.warns(TlmWarning, match="weights are missing"):
        got = matmul(ones(5, 23), ones(23, 7))
    assert (got == 23).all()


def test_a_model_that_cannot_be_used_is_announced(monkeypatch: pytest.MonkeyPatch):
    from tlm.model import weights

    def torn(*_: Any) -> None:
        raise RecordError("cpu.safetensors is not a safetensors file")

    monkeypatch.setattr(weights, "available", lambda kind="cpu": True)
    monkeypatch.setattr(deciders, "_generated", torn)
    with pytest.warns(TlmWarning, match="cpu.safetensors is not a safetensors file.*'heuristic'") as caught:
        got = matmul(ones(5, 31), ones(31, 7))
    assert len(caught) == 1
    assert (got == 31).all()


def test_weights_without_a_value_model_are_announced_and_write_the_likeliest_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from tlm.model import weights
    from tlm.model.generate import generate

    for name in ("cpu.json", "cpu.safetensors"):
        shutil.copyfile(weights.FOLDER / name, tmp_path / name)
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program, target = matmul.program(ones(6, 43), ones(43, 9)), tlm.host()
    with pytest.warns(TlmWarning, match=r"no value model at .*cpu\.value\.safetensors"):
        plan = deciders.decide(program, target, deciders.Generate())
    network = weights.load(tmp_path / "cpu.safetensors")
    assert plan.steps == generate([program], target, network=network)[0][0].decided.steps
    assert not plan.kept


def test_a_search_without_a_result_tells_why_and_is_not_remembered(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
):
    from tlm.ir import canonical, serialize
    from tlm.measure.measure import Measurer
    from tlm.measure.record import Record

    def broken(self: Measurer, program: Any, candidates: Any, **_: Any) -> list[Record]:
        about = canonical.key(program), serialize.to_json(program), self.target.to_json()
        return [Record(*about, values, "crash", (), "killed by SIGSEGV") for values in candidates]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(Measurer, "measure", broken)
    program, how = matmul.program(ones(6, 37), ones(37, 9)), tlm.Search(trials=3)
    for measured in ("3 measured (3 crash), 0 from the store", "0 measured (nothing new), 3 from the store"):
        with pytest.warns(TlmWarning, match="no valid schedule of matmul") as caught:
            plan = deciders.decide(program, tlm.host(), how)
        assert measured in str(caught[0].message)
        assert f"all 3 records of matmul in {tmp_path}" in str(caught[0].message)
        assert ("killed by SIGSEGV" in str(caught[0].message)) == measured.startswith("3")
        assert plan.steps == deciders.decide(program, tlm.host(), deciders.Heuristic()).steps
        assert not plan.kept


def test_what_was_measured_is_not_measured_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    """The same search asks for nothing, with or without its sentence; one more trial asks for one."""
    from tlm.ir import canonical, serialize
    from tlm.measure.measure import Measurer
    from tlm.measure.record import Record
    from tlm.ops.caching import clear

    asked: list[Any] = []

    def measure(
        self: Measurer, program: Any, candidates: Any, kind: str = "search", **_: Any
    ) -> list[Record]:
        asked.extend(candidates if kind != "final" else ())
        about = canonical.key(program), serialize.to_json(program), self.target.to_json()
        return [
            Record(*about, v, "ok", (1e-6 + 1e-15 * crc32(repr(v).encode()),), kind=kind) for v in candidates
        ]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(Measurer, "measure", measure)
    program = matmul.program(ones(6, 41), ones(41, 9))
    for trials, new in ((8, 8), (8, 0), (9, 1)):
        asked.clear()
        plan = deciders.decide(program, tlm.host(), tlm.Search(trials=trials))
        assert plan.kept
        assert len(asked) == new
    asked.clear()
    assert clear() > 0
    assert deciders.decide(program, tlm.host(), tlm.Search(trials=9)).steps == plan.steps
    assert not asked


def test_a_remembered_sentence_asks_no_model(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    from tlm.model import weights

    if not weights.available():
        pytest.skip("this checkout has no weights")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = matmul.program(ones(6, 29), ones(29, 8))
    first = deciders.decide(program, tlm.host(), deciders.Generate())
    monkeypatch.setattr(deciders, "_generated", lambda *_: pytest.fail("the model was asked again"))
    assert deciders.decide(program, tlm.host(), deciders.Generate()) == first


def test_two_processes_write_the_same_sentence_and_code():
    code = (
        "import hashlib, numpy as np, tlm; tlm.cache(False);"
        "k = tlm.ops.matmul.kernel(np.ones((30, 40), 'f4'), np.ones((40, 50), 'f4'), schedule='heuristic');"
        "print(k.sentence, hashlib.sha256(k.object).hexdigest())"
    )
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in "ab"
    }
    assert len(runs) == 1


def test_a_kernel_tells_its_story():
    x, w, b = ones(24, 30), ones(30, 40), ones(40)
    made = linear.kernel(x, w, b, activation="relu", schedule="heuristic")
    assert made.flops == 2 * 24 * 30 * 40 + 2 * 24 * 40
    assert made.bytes == 4 * (24 * 30 + 30 * 40 + 40 + 24 * 40)
    assert made.history[-1][1] == made.program
    assert [name for name, *_ in made.choices] == [c.name for c, _ in made.plan.picked]
    assert all(picked in options for _, options, picked, _ in made.choices)
    assert "define" in made.source
    assert "ret" in made.assembly
    assert made.time(x, w, b) > 0
    assert made.sentence
    np.testing.assert_array_equal(made(x, w, b), np.full((24, 40), 31))


def test_operands_without_data():
    class Shaped:
        shape = (12, 18)
        dtype = np.dtype("f4")

    class Other(Shaped):
        shape = (18, 5)

    made = matmul.kernel(Shaped(), Other(), schedule="heuristic")
    np.testing.assert_array_equal(made(ones(12, 18), np.asfortranarray(ones(18, 5))), np.full((12, 5), 18))


def test_a_schedule_by_hand_may_change_between_calls():
    a, b = ones(8, 12), ones(12, 16)
    s = tlm.Schedule(matmul.program(a, b))
    assert (matmul(a, b, schedule=s) == 12).all()
    s.split("j", 8)
    s.reorder("i", "k", "j.0", "j.1")
    s.vectorize("j.1")
    assert (matmul(a, b, schedule=s) == 12).all()
    assert "j.1" in str(matmul.kernel(a, b, schedule=s).program)
