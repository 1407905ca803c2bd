"""Tests that need a GPU: `pytest -m gpu` on a machine that has one; skipped with the reason elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tlm.backend.cuda import runtime
from tlm.errors import BackendError

HERE = Path(__file__).parent


@cache
def missing() -> str:
    """Why nothing can run on a GPU here; empty where it can."""
    try:
        runtime.cupy()
    except BackendError as error:
        return str(error)
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if missing():
                item.add_marker(pytest.mark.skip(reason=missing()))


@pytest.fixture
def cupy() -> Any:
    return runtime.cupy()
