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


@pytest.fixture(scope="session")
def small_weights():
    """Weights by dice of a model of the size `gpu_programs.SMALL`, of the names and shapes that a trained one
    has; JAX would compile for seconds to make an untrained one."""
    import numpy as np
    from flax import nnx

    from tests.cuda.gpu_programs import SMALL
    from tlm.model.gpt import GPT

    rng, model = np.random.default_rng(5), nnx.eval_shape(lambda: GPT(SMALL, nnx.Rngs(0)))
    shapes = {
        ".".join(map(str, path)): leaf.shape for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param))
    }
    return {
        name: rng.normal(name.endswith("scale"), 0.1, shape).astype("f4") for name, shape in shapes.items()
    }
