"""Fitting the value model to measurements, in JAX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from ..errors import RecordError
from .value import WORST, ValueModel

Array = jax.Array
Weights = dict[str, Array]

WORKLOADS, PROGRAMS = 64, 16
"""Of one step: workloads, and programs of each, so that every loss sees ranks within workloads."""


@dataclass(frozen=True, slots=True)
class Group:
    """Measured programs of one workload on one target.

    features f32 (n, features.LENGTH), quality f32 (n,) log(best / seconds).
    """

    features: NDArray[np.float32]
    quality: NDArray[np.float32]


def fit(
    groups: Sequence[Group], *, seed: int = 0, networks: int = 8, hidden: int = 128, steps: int = 1500
) -> ValueModel:
    """An ensemble fitted to measurements; each network sees other batches and starts elsewhere.

    Groups of fewer than 4 programs rank nothing and are left out; RecordError where none remains.
    """
    kept = [g for g in groups if len(g.quality) >= 4]
    if not kept:
        raise RecordError("no workload has 4 or more good measurements; `tlm collect` makes some")
    stacked = np.concatenate([g.features for g in kept])
    columns = np.flatnonzero(stacked.std(0) > 1e-6)
    mean = stacked[:, columns].mean(0)
    # A column that is almost always the same would be blown up by its deviation where it differs for once.
    scale = 1.0 / np.maximum(stacked[:, columns].std(0), 0.05)
    x = jnp.asarray((stacked[:, columns] - mean) * scale)
    y = jnp.asarray(np.maximum(np.concatenate([g.quality for g in kept]), WORST))
    optimizer = optax.adamw(optax.cosine_onecycle_schedule(steps, 4e-3, 0.1), weight_decay=1e-2)

    @jax.jit
    def step(params: Weights, moments: Any, rows: Array) -> tuple[Weights, Any]:
        def one(p: Weights, m: Any, r: Array) -> tuple[Weights, Any]:
            update, m = optimizer.update(jax.grad(_loss)(p, x, y, r), m, p)
            return optax.apply_updates(p, update), m

        return jax.vmap(one)(params, moments, rows)

    keys = jax.random.split(jax.random.key(seed), networks)
    params = jax.vmap(lambda key: _init(key, len(columns), hidden))(keys)
    moments = jax.vmap(optimizer.init)(params)
    sizes = np.array([len(g.quality) for g in kept])
    first = np.cumsum(sizes) - sizes
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        group = rng.integers(0, len(kept), (networks, WORKLOADS, 1))
        rows = first[group] + rng.integers(0, sizes[group], (networks, WORKLOADS, PROGRAMS))
        params, moments = step(params, moments, jnp.asarray(rows))
    weights = {name: np.asarray(w) for name, w in params.items()}
    return ValueModel(columns, mean.astype(np.float32), scale.astype(np.float32), weights)


def _init(key: Array, width: int, hidden: int) -> Weights:
    a, b, c = jax.random.split(key, 3)
    return {
        "w1": jax.random.normal(a, (width, hidden)) * (2 / width) ** 0.5, "b1": jnp.zeros((1, hidden)),
        "w2": jax.random.normal(b, (hidden, hidden)) * (2 / hidden) ** 0.5, "b2": jnp.zeros((1, hidden)),
        "w3": jax.random.normal(c, (hidden, 1)) * 0.05, "b3": jnp.full((1, 1), -0.7),
    }  # fmt: skip


def _loss(p: Weights, x: Array, y: Array, rows: Array) -> Array:
    """Huber loss on the quality, and a logistic loss on pairs of one workload (rows: workloads, programs)."""
    h = jax.nn.relu(x[rows.reshape(-1)] @ p["w1"] + p["b1"])
    h = jax.nn.relu(h @ p["w2"] + p["b2"])
    guess, true = (h @ p["w3"] + p["b3"])[:, 0].reshape(rows.shape), y[rows]
    # Near the best a small difference matters, far from it none does.
    weight = 0.2 + jnp.exp(2.0 * true)
    regression = jnp.mean(weight * optax.huber_loss(guess, true, delta=0.3))
    better = jnp.clip(true[:, :, None] - true[:, None, :], 0.0, 0.3) * weight[:, :, None]
    margin = guess[:, :, None] - guess[:, None, :]
    ranks = jnp.sum(better * jax.nn.softplus(-10.0 * margin)) / (jnp.sum(better) + 1e-6)
    return regression + 0.1 * ranks
