"""Cubins and decisions for GPUs on disk: later processes ask neither NVRTC nor the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import tlm
from bench.sentences import product
from tests.cuda import programs
from tests.cuda.gpu_programs import SMALL
from tests.model.dice import dice_value_model
from tlm.backend import cache
from tlm.backend.cuda import compiler, runtime
from tlm.backend.cuda import nvrtc as library
from tlm.backend.cuda.emitter import Source, emit
from tlm.cli.app import app
from tlm.errors import BackendError
from tlm.model import weights
from tlm.model.files import value_path
from tlm.ops import deciders
from tlm.target import Target

SM_80, SM_90 = Target("sm_80"), Target("sm_90")
TEXT = Source('extern "C" __global__ void f(float* x) { x[threadIdx.x] = 1; }', (), (), False)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


class Refused(Exception):
    """What the stand-in raises."""


class NVRTC:
    """A stand-in that counts what it compiles; the cubin is the text with what it was told."""

    NVRTCError = Refused

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[str, ...]]] = []
        self.number = (13, 0)
        self.known: tuple[int, ...] = (75, 80, 86, 87, 89, 90, 100)

    def getVersion(self) -> tuple[int, int]:
        return self.number

    def getSupportedArchs(self) -> tuple[int, ...]:
        return self.known

    def createProgram(self, text: str, name: str, headers: Any, names: Any) -> Any:
        return SimpleNamespace(text=text, options=())

    def compileProgram(self, made: Any, options: tuple[str, ...]) -> None:
        made.options = options
        self.seen.append((made.text, options))
        if "refuse" in made.text:
            raise Refused("NVRTC_ERROR_COMPILATION")

    def getCUBIN(self, made: Any) -> bytes:
        return f"{made.options}{made.text}".encode()

    def getProgramLog(self, made: Any) -> str:
        return f"log µ of {len(self.seen)}"

    def destroyProgram(self, made: Any) -> None:
        made.text = None


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch) -> NVRTC:
    made = NVRTC()
    for module in (library, compiler):
        monkeypatch.setattr(module, "binding", lambda: made)
    return made


@pytest.mark.parametrize(
    ("capability", "number", "known", "name", "isa"),
    [
        ("90", (12, 0), (75, 80, 86, 87, 89, 90), "sm_90a", "sm_90a"),
        ("90", (11, 8), (75, 80, 86, 87, 89, 90), "sm_90", "sm_90"),
        ("89", (11, 8), (75, 80, 86, 87, 89, 90), "sm_89", "sm_89"),
        ("89", (11, 4), (75, 80, 86, 87), "sm_89", "sm_86"),
        ("87", (11, 4), (75, 80, 86, 87), "sm_86", "sm_87"),
        ("120", (13, 0), (90, 100, 120), "sm_100", "sm_120"),
        ("120", (12, 0), (80, 90), "sm_100", "sm_120"),
    ],
)
def test_the_present_gpu_is_compiled_for_as_this_nvrtc_can(
    capability: str, number: tuple[int, int], known: tuple[int, ...], name: str, isa: str, nvrtc: NVRTC,
    machine: Any,
):  # fmt: skip
    """Code of the same major version runs; where there is none, compiling says so, for what the GPU is."""
    machine.capabilities[0], nvrtc.number, nvrtc.known = capability, number, known
    found = runtime.present()
    assert (found.name, found.isa, found.threads) == (name, isa, 108)
    assert runtime.runs_on(found, 0)
    assert f"--gpu-architecture={isa}" in compiler.options(found)


def test_without_nvrtc_the_present_gpu_is_known_all_the_same(machine: Any, monkeypatch: pytest.MonkeyPatch):
    def missing() -> Any:
        raise BackendError("compiling for CUDA needs CuPy and NVRTC")

    monkeypatch.setattr(library, "binding", missing)
    machine.capabilities[0] = "90"
    assert runtime.present().isa == "sm_90a"


def test_what_was_kept_comes_back_whole(nvrtc: NVRTC):
    first = compiler.binary(TEXT, SM_80)
    assert first == (f"{compiler.options(SM_80)}{TEXT.text}".encode() + b"\0", "log µ of 1")
    assert compiler.binary(TEXT, SM_80) == first
    assert len(nvrtc.seen) == 1


def _changed_flags(nvrtc: NVRTC, patch: pytest.MonkeyPatch) -> None:
    told = compiler.options
    patch.setattr(compiler, "options", lambda target: (*told(target), "--use_fast_math"))


CHANGES: dict[str, Callable[[NVRTC, pytest.MonkeyPatch], Any]] = {
    "flags": _changed_flags,
    "NVRTC": lambda nvrtc, _: setattr(nvrtc, "number", (13, 1)),
    "version": lambda _, patch: patch.setattr(tlm, "__version__", "9.9.9"),
    "generator": lambda _, patch: patch.setattr(cache, "generator", lambda: "edited"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_compiles_is_a_miss(change: str, nvrtc: NVRTC, monkeypatch: pytest.MonkeyPatch):
    compiler.binary(TEXT, SM_80)
    CHANGES[change](nvrtc, monkeypatch)
    for _ in range(2):
        compiler.binary(TEXT, SM_80)
    assert len(nvrtc.seen) == 2


@pytest.mark.parametrize("other", [SM_90, Target("sm_86"), "text"])
def test_another_text_or_architecture_is_a_miss(other: Any, nvrtc: NVRTC):
    source = replace(TEXT, text=TEXT.text + "\n") if other == "text" else TEXT
    target = SM_80 if other == "text" else other
    compiler.binary(TEXT, SM_80)
    made = [compiler.binary(source, target) for _ in range(2)]
    assert len(nvrtc.seen) == 2
    assert made[0] == made[1] != compiler.binary(TEXT, SM_80)
    assert len(nvrtc.seen) == 2


@pytest.mark.parametrize("damage", [b"", b"tlm1", b"x" * 400, "one bit", "a log beyond the end", "no text"])
def test_damaged_files_are_misses(damage: bytes | str, nvrtc: NVRTC):
    first = compiler.binary(TEXT, SM_80)
    (path,) = cache.directory(cache.CUBINS).iterdir()
    data = path.read_bytes()
    match damage:
        case bytes():
            path.write_bytes(damage)
        case "one bit":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "a log beyond the end":
            cache.save(path.name, (1 << 40).to_bytes(8, "little") + b"short", cache.CUBINS)
        case _:
            cache.save(path.name, (2).to_bytes(8, "little") + b"\xff\xff and code", cache.CUBINS)
    assert compiler.binary(TEXT, SM_80)[0] == first[0]
    assert len(nvrtc.seen) == 2
    assert compiler.binary(TEXT, SM_80)[0] == first[0]
    assert len(nvrtc.seen) == 2


def test_nothing_is_kept_while_it_is_off_or_refused(nvrtc: NVRTC, folder: Path):
    tlm.cache(False)
    try:
        compiler.binary(TEXT, SM_80)
    finally:
        tlm.cache(True)
    compiler.binary(TEXT, SM_80, cached=False)
    with pytest.raises(BackendError, match="NVRTC refuses the text for sm_80"):
        compiler.binary(replace(TEXT, text="refuse"), SM_80)
    assert not [p for p in folder.rglob("*") if p.is_file()]


def test_a_folder_that_cannot_be_written_is_no_error(nvrtc: NVRTC, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache, "root", lambda: Path("/proc/none"))
    assert compiler.binary(TEXT, SM_80)[0].endswith(b"\0")


def test_the_size_is_capped_with_that_of_objects():
    for n in range(4):
        cache.save(f"{n:064}", bytes(1000), cache.CUBINS if n % 2 else cache.OBJECTS)
    cache.trim(2500)
    assert len(list(cache.root().rglob("0*"))) == 2


def test_the_command_lists_and_clears_them(nvrtc: NVRTC):
    def call(*words: str) -> str:
        return CliRunner().invoke(app, ["cache", *words]).output

    compiler.binary(TEXT, SM_80)
    shown = json.loads(call("--json"))
    assert shown["files"] == 1
    assert shown["cubins"] == f"1 files, {shown['bytes']} bytes"
    assert json.loads(call("--clear", "--json"))["removed"] == 1
    compiler.binary(TEXT, SM_80)
    assert len(nvrtc.seen) == 2


def test_decisions_for_gpus_are_kept_and_ask_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_weights: dict[str, Any]
):
    """A second process would find the same files: only the memory of this one is left out."""
    from tlm.model import generate

    monkeypatch.setattr(weights, "FOLDER", tmp_path / "weights")
    path = tmp_path / "weights" / "cuda.safetensors"
    weights.save(path, small_weights, SMALL, {"measured": {}})
    dice_value_model().save(value_path(path))
    weights.load.cache_clear()
    program = product((1, 96, 64, 80), 0)
    plan = deciders.decide(program, SM_90, tlm.Generate())
    asked: list[Any] = []
    real = generate.generate
    monkeypatch.setattr(generate, "generate", lambda *a, **k: (asked.append(a), real(*a, **k))[1])
    assert deciders.decide(program, SM_90, tlm.Generate()) == plan
    assert not asked
    (path,) = tmp_path.rglob("sentences/*.json")
    path.write_bytes(b"{")
    assert deciders.decide(program, SM_90, tlm.Generate()) == plan
    assert len(asked) == 1
    deciders.decide(program, SM_80, tlm.Generate())
    assert len(asked) == 2


def test_a_kernel_of_kept_code_has_the_same_figures(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="NVRTC comes with CuPy")
    program = programs.bound_product(m=64, n=64, k=32, stages=2).program
    first = compiler.compile(program, SM_80)
    (path,) = cache.directory(cache.CUBINS).iterdir()
    assert path.stat().st_size > len(first.cubin)
    monkeypatch.setattr(compiler, "_made", lambda *_: pytest.fail("it was compiled again"))
    again = compiler.compile(program, SM_80)
    assert (again.cubin, again.launch_stats) == (first.cubin, first.launch_stats)
    assert emit(program, SM_80).text == again.source
