"""A value model for tests that need one, whatever it likes."""

from __future__ import annotations

import numpy as np

from tlm.lang import features
from tlm.model.value import ValueModel


def dice_value_model() -> ValueModel:
    """A value model with an opinion about every column, and no reason for it."""
    rng, sizes = np.random.default_rng(3), [("w1", features.LENGTH, 8), ("w2", 8, 8), ("w3", 8, 1)]
    made = {name: rng.normal(size=(2, rows, columns)) / rows**0.5 for name, rows, columns in sizes}
    made |= {f"b{n}": np.zeros((2, 1, width)) for n, width in ((1, 8), (2, 8), (3, 1))}
    weights = {name: array.astype(np.float32) for name, array in made.items()}
    zeros, ones = np.zeros(features.LENGTH, np.float32), np.ones(features.LENGTH, np.float32)
    return ValueModel(features.ALL, zeros, ones, weights)
