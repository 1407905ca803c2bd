"""`tlm doctor` finds what is wrong; dependencies name their oldest versions (kind W)."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tlm.backend.llvm import codegen
from tlm.cli import doctor
from tlm.errors import BackendError


def test_oldest_versions_are_those_of_the_project():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    bounds = dict(d.split(">=") for d in project["dependencies"])
    assert {name: bounds[name] for name in doctor.OLDEST} == doctor.OLDEST
    assert ".".join(map(str, codegen.OLDEST)) == bounds["llvmlite"]
    assert not any("<" in d or "==" in d for d in project["dependencies"])


@pytest.mark.parametrize(
    ("found", "wanted", "older"),
    [
        ("0.44.0", "0.45", True), ("0.45.0", "0.45", False), ("0.100.1", "0.45", False),
        ("2.0.0rc1", "2.0", False), ("1.26.4", "2.0", True), ("not installed", "1", True),
        ("0.2.4", "0.2.5", True),
    ],
)  # fmt: skip
def test_versions_compare_as_numbers(found: str, wanted: str, older: bool):
    assert doctor._older(found, wanted) is older


def test_an_old_library_is_a_problem(monkeypatch: pytest.MonkeyPatch):
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "0.44.0" if name == "llvmlite" else real(name))
    assert "llvmlite 0.44.0 is too old; tlm needs 0.45 or later" in doctor.examine()["problems"]


def test_an_old_llvmlite_is_one_line_at_the_first_compilation(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(codegen.llvmlite, "__version__", "0.44.0")
    with pytest.raises(BackendError, match=r"llvmlite 0\.44\.0 is too old; tlm needs 0\.45 or later"):
        codegen._initialize.__wrapped__()


def test_a_broken_compiler_is_a_problem(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "_product", lambda: 1 / 0)
    assert any(p.startswith("compiler: ZeroDivisionError") for p in doctor.examine()["problems"])
