"""Object code of the tests goes to a folder of its own, and the tests share `tests/backend/programs.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tlm.backend import cache

    monkeypatch.setattr(cache, "root", lambda: tmp_path)


@pytest.fixture(params=["avx512", "avx2", "sse"])
def isa(request: pytest.FixtureRequest) -> str:
    """Each x86 level that this CPU has."""
    from tests.backend.programs import target

    target(request.param)
    return str(request.param)
