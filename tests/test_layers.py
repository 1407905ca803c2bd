"""Imports only go down, heavy libraries stay where they belong, and `import tlm` loads none of them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tlm

ROOT = Path(tlm.__file__).parent
# Lower layers first; parts in one tuple do not import each other.
ORDER: tuple[tuple[str, ...], ...] = (
    ("errors",), ("ir",), ("target",), ("schedule",), ("lower",), ("space",), ("backend",), ("lang",),
    ("measure",), ("model", "search"), ("front",), ("ops",), ("cli",),
)  # fmt: skip
LEVEL = {name: depth for depth, names in enumerate(ORDER) for name in names}
# Library -> the only places that may import it.
HOMES = {
    "jax": ("model", "front"), "flax": ("model", "front"), "optax": ("model", "front"), "orbax": ("model",),
    "llvmlite": ("backend/llvm",), "cupy": ("backend/cuda",), "sqlite3": ("measure/store",),
    "typer": ("cli",), "rich": ("cli",), "torch": (),
}  # fmt: skip
FILES = sorted(p for p in ROOT.rglob("*.py"))


def imports(path: Path) -> list[str]:
    """Absolute names of the modules that a file imports, at any depth of nesting."""
    package = ["tlm", *path.relative_to(ROOT).parts[:-1]]
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            found += [".".join([*base, a.name]) for a in node.names]
    return found


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_every_part_has_a_layer():
    known = {*LEVEL, "__init__", "__main__"}
    assert {part(p) for p in FILES} <= known


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path: Path):
    mine = part(path)
    if mine in ("__init__", "__main__"):
        return
    for name in imports(path):
        pieces = name.split(".")
        if pieces[0] != "tlm" or len(pieces) < 2 or pieces[1] == mine or pieces[1] not in LEVEL:
            continue
        assert LEVEL[pieces[1]] < LEVEL[mine], f"{path} imports {name}, which is not below {mine}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_libraries_stay_at_home(path: Path):
    where = path.relative_to(ROOT).as_posix()
    for name in imports(path):
        homes = HOMES.get(name.split(".")[0])
        assert homes is None or where.startswith(homes), f"{where} imports {name}"


def test_import_loads_nothing_heavy():
    code = (
        f"import tlm, sys; print([m for m in {[*HOMES, 'distributed', 'ml_dtypes']!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_check_sees_relative_and_nested_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "ir").mkdir()
    path = tmp_path / "ir" / "bad.py"
    path.write_text("def f():\n    from ..ops.matmul import x\n    import jax.numpy as jnp\n")
    assert imports(path) == ["tlm.ops.matmul.x", "jax.numpy"]
