"""Lets the tests of this folder share `tests/cuda/shim.py`, and stand-ins for the libraries of a GPU."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture
def machine(monkeypatch):
    from tests.cuda import fake_cupy

    return fake_cupy.install(monkeypatch)


@pytest.fixture
def torch(monkeypatch, machine):
    from tests.cuda.fake_libraries import install_torch

    return install_torch(monkeypatch, machine)


@pytest.fixture
def jax(monkeypatch, machine):
    from tests.cuda.fake_libraries import install_jax

    return install_jax(monkeypatch, machine)
