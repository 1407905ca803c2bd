"""The training loop of the language model: AdamW, a warm-up and a cosine, checkpoints that a kill cannot
spoil."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from numpy.typing import NDArray

from .config import Config
from .data import Corpus, batches
from .gpt import GPT, Batch, flatten, loss

CHECKPOINT_SECONDS, REPORT_SECONDS = 20.0, 2.0

Report = Callable[[int, int, float], None]
"""(step, steps, loss): called a few times a second at most."""


def learn(
    data: Corpus,
    config: Config,
    *,
    steps: int,
    size: int = 128,
    rate: float = 2e-3,
    seed: int = 0,
    start: Mapping[str, NDArray[np.float32]] | None = None,
    checkpoints: Path | None = None,
    report: Report = lambda *_: None,
) -> dict[str, NDArray[np.float32]]:
    """Weights trained on `data` for `steps` batches of `size` sentences, by the names of `gpt.flatten`.

    start: weights to go on from, in place of random ones. checkpoints: a folder; where it holds a
    checkpoint of this very run, training goes on from there.
    """
    model = GPT(config, nnx.Rngs(seed))
    if start is not None:
        _assign(model, start)
    graph, params = nnx.split(model, nnx.Param)
    optimizer, step = _training(graph, steps, rate)
    state = (params, optimizer.init(params))
    manager = None if checkpoints is None else _Checkpoints(checkpoints)
    done, state = (0, state) if manager is None else manager.restore(state)
    said = saved = time.monotonic()
    for batch in batches(data, config, size, steps, seed, done):
        state, value = step(state, batch)
        done += 1
        if time.monotonic() - said > REPORT_SECONDS or done == steps:
            report(done, steps, float(value))
            said = time.monotonic()
        if manager is not None and (time.monotonic() - saved > CHECKPOINT_SECONDS or done == steps):
            manager.save(done, state)
            saved = time.monotonic()
    if manager is not None:
        manager.close()
    return flatten(nnx.merge(graph, state[0]))


@cache
def _training(graph: Any, steps: int, rate: float) -> tuple[Any, Any]:
    """(optimizer, compiled step) of a kind of run: compiling takes seconds, and killed runs go on."""
    warm = max(1, steps // 20)
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, warm, max(steps, warm + 1), rate * 0.01)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98, weight_decay=0.02, mask=_matrices)
    )

    @jax.jit
    def step(state: Any, batch: Batch) -> Any:
        params, moments = state
        value, gradient = jax.value_and_grad(lambda p: loss(nnx.merge(graph, p), batch))(params)
        update, moments = optimizer.update(gradient, moments, params)
        return (optax.apply_updates(params, update), moments), value

    return optimizer, step


class _Checkpoints:
    """Leaves of the training state under orbax, which makes a checkpoint visible only when it is whole."""

    def __init__(self, folder: Path) -> None:
        import orbax.checkpoint as ocp

        self._ocp = ocp
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def restore(self, state: Any) -> tuple[int, Any]:
        """(steps done, state): the latest checkpoint, or 0 and `state` itself."""
        latest = self._manager.latest_step()
        if latest is None:
            return 0, state
        leaves, shape = jax.tree.flatten(state)
        wanted = {str(n): np.asarray(leaf) for n, leaf in enumerate(leaves)}
        found = self._manager.restore(latest, args=self._ocp.args.StandardRestore(wanted))
        return latest, jax.tree.unflatten(shape, [found[str(n)] for n in range(len(leaves))])

    def save(self, step: int, state: Any) -> None:
        leaves = {str(n): np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(state))}
        self._manager.save(step, args=self._ocp.args.StandardSave(leaves))

    def close(self) -> None:
        self._manager.wait_until_finished()
        self._manager.close()


def _matrices(params: Any) -> Any:
    """Weight decay is for matrices, not for biases, norms and positions."""
    return jax.tree.map(lambda leaf: leaf.ndim == 2, params)


def _assign(model: GPT, weights: Mapping[str, NDArray[np.float32]]) -> None:
    for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        leaf[...] = weights[".".join(map(str, path))]
    # The state shares its variables with the model, so assigning to them is enough.
