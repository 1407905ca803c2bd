"""`tlm doctor`: the machine, the libraries, the model, and one small product."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from .. import __version__
from ..backend.cache import root

_LIBRARIES = (
    "numpy",
    "llvmlite",
    "jax",
    "flax",
    "optax",
    "safetensors",
    "ml_dtypes",
    "orbax-checkpoint",
    "cupy",
)


OLDEST = {
    "numpy": "2.0",
    "llvmlite": "0.45",
    "jax": "0.7",
    "flax": "0.12",
    "optax": "0.2.5",
    "safetensors": "0.4.3",
}
"""The oldest versions that work; newer ones are not ruled out."""


def examine() -> dict[str, Any]:
    """Facts by name; `problems` lists what is wrong, and is empty on a healthy machine."""
    from ..target import host

    machine, problems = host(), list[str]()
    found: dict[str, Any] = {
        "tlm": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "target": machine.isa,
        "threads": machine.threads,
        "caches": f"L1 {machine.l1 >> 10} KiB, L2 {machine.l2 >> 10} KiB, L3 {machine.l3 >> 10} KiB",
        "features": " ".join(machine.features),
        **{name: _version(name) for name in _LIBRARIES},
        "cache": str(root()),
    }
    problems += [
        f"{n} {found[n]} is too old; tlm needs {v} or later" for n, v in OLDEST.items() if _older(found[n], v)
    ]
    for name, check in (("model", _model), ("compiler", _product)):
        try:
            found[name] = check()
        except Exception as error:
            problems.append(f"{name}: {type(error).__name__}: {error}")
    return found | {"problems": problems}


def _version(name: str) -> str:
    """The version of a library; CuPy comes under a name for each version of CUDA."""
    for distribution in (name, *(("cupy-cuda13x", "cupy-cuda12x") if name == "cupy" else ())):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return "not installed"


def _older(found: str, wanted: str) -> bool:
    """Whether version `found` comes before `wanted`; a version that is not made of numbers does not."""
    try:
        return [int(p) for p in found.split(".")[:3]] < [int(p) for p in wanted.split(".")]
    except ValueError:
        return found == "not installed"


def _model() -> str:
    from ..model import weights

    if not weights.available():
        raise FileNotFoundError(
            f"no weights at {weights.shipped()}; schedule='generate' falls back to 'heuristic'"
        )
    network, card = weights.load(weights.shipped()), weights.card(weights.shipped())
    measured = card.get("measured", {}).get("programs", 0)
    value = weights.load_value(weights.shipped())
    judge = "no value model" if value is None else f"a value model of {len(value.weights['w1'])} networks"
    return (
        f"{network.config.layers} layers, {network.config.width} wide, {judge}, {measured} measured programs"
    )


def _product() -> str:
    from ..ops import matmul

    a = np.arange(35, dtype=np.float32).reshape(5, 7)
    b = np.arange(63, dtype=np.float32).reshape(7, 9)
    if not np.array_equal(matmul(a, b, schedule="heuristic"), a @ b):
        raise ArithmeticError("a 5x7x9 product came out wrong")
    return "a 5x7x9 product is right"
