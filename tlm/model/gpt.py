"""The language model: a small GPT-2 (pre-norm, learned positions, GELU, tied embeddings) that scores legal
options.

Tokens are not looked up in a table of words: a phrase of the prompt and an option of a choice are vectors
of their words and numbers, and the same embedding of an option is its score (dotted with the hidden state)
and, once it is picked, the next input. Shapes below: B sentences, P phrases, T decisions, N options of the
whole batch, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ..lang.encode import PROMPT_TOKENS
from ..lang.vocabulary import OPTION_COLUMNS, PROMPT_COLUMNS
from ..space.vocabulary import CHOICES
from .config import Config

Array = jax.Array


@dataclass(frozen=True, slots=True)
class Batch:
    """Sentences, padded. A padded decision has `asked` -1; a padded option belongs to decision B * T.

    prompt f32 (B, P, len(PROMPT_COLUMNS)), length i32 (B,) phrases, asked i32 (B, T) index in CHOICES,
    options f32 (N, len(OPTION_COLUMNS)), owner i32 (N,) the decision b * T + t that each option answers,
    picked i32 (B, T) index of an option, weight f32 (B,) of the sentence in the loss.
    """

    prompt: Array
    length: Array
    asked: Array
    options: Array
    owner: Array
    picked: Array
    weight: Array


jax.tree_util.register_dataclass(Batch)


class Block(nnx.Module):
    """Causal self-attention and a feed-forward layer, each after a layer norm and added to the stream."""

    def __init__(self, config: Config, rngs: nnx.Rngs) -> None:
        d = config.width
        self.heads = config.heads
        self.norm1 = nnx.LayerNorm(d, epsilon=config.epsilon, rngs=rngs)
        self.qkv = nnx.Linear(d, 3 * d, rngs=rngs)
        self.out = nnx.Linear(d, d, rngs=rngs)
        self.norm2 = nnx.LayerNorm(d, epsilon=config.epsilon, rngs=rngs)
        self.up = nnx.Linear(d, 4 * d, rngs=rngs)
        self.down = nnx.Linear(4 * d, d, rngs=rngs)

    def __call__(self, x: Array, mask: Array) -> Array:
        b, s, d = x.shape
        q, k, v = (
            y.reshape(b, s, self.heads, d // self.heads)
            for y in jnp.split(self.qkv(self.norm1(x)), 3, axis=-1)
        )  # (B, S, H, D/H)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(d / self.heads)
        attention = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)  # (B, H, S, S)
        x = x + self.out(jnp.einsum("bhqk,bkhd->bqhd", attention, v).reshape(b, s, d))
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x)), approximate=True))


class GPT(nnx.Module):
    """Scores of the options of every decision, given the prompt and the earlier decisions."""

    def __init__(self, config: Config, rngs: nnx.Rngs) -> None:
        d, small = config.width, nnx.initializers.normal(0.02)
        self.config = config
        self.prompt = nnx.Linear(len(PROMPT_COLUMNS), d, use_bias=False, rngs=rngs)
        self.fact = nnx.Linear(len(OPTION_COLUMNS), config.option_width, rngs=rngs)
        self.gate = nnx.Linear(
            len(CHOICES), config.option_width, use_bias=False, kernel_init=nnx.initializers.zeros, rngs=rngs
        )
        self.option = nnx.Linear(config.option_width, d, rngs=rngs)
        self.asked = nnx.Param(small(rngs.params(), (len(CHOICES), d)))
        self.begin = nnx.Param(small(rngs.params(), (d,)))
        self.position = nnx.Param(small(rngs.params(), (PROMPT_TOKENS + config.decisions, d)))
        self.blocks = nnx.List([Block(config, rngs) for _ in range(config.layers)])
        self.norm = nnx.LayerNorm(d, epsilon=config.epsilon, rngs=rngs)

    def embed(self, options: Array) -> Array:
        """Embeddings of options, (N, D). The choice scales the hidden units, so that it can use facts in
        its own way."""
        hidden = self.fact(options) * (1.0 + self.gate(options[:, : len(CHOICES)]))
        return self.option(jax.nn.gelu(hidden, approximate=True))

    def hidden(self, batch: Batch, embedded: Array) -> Array:
        """The hidden state at each decision, before its option is known: (B, T, D)."""
        b, p, _ = batch.prompt.shape
        t = batch.asked.shape[1]
        before = jnp.concatenate(
            [jnp.broadcast_to(self.begin[...], (b, 1, self.config.width)), embedded[batch.picked[:, :-1]]],
            axis=1,
        )
        decisions = before + self.asked[...][jnp.maximum(batch.asked, 0)]
        x = jnp.concatenate([self.prompt(batch.prompt), decisions], axis=1)
        where = jnp.concatenate([jnp.arange(p), PROMPT_TOKENS + jnp.arange(t)])
        x = x + self.position[...][where]
        seen = jnp.tri(p + t, dtype=bool)[None]
        real = (jnp.arange(p + t)[None] < batch.length[:, None]) | (jnp.arange(p + t)[None] >= p)
        mask = (seen & real[:, None])[:, None]  # (B, 1, S, S)
        for layer in self.blocks:
            x = layer(x, mask)
        states: Array = self.norm(x[:, p:])
        return states

    def __call__(self, batch: Batch) -> Array:
        """Scores of all options, (N,). Options of one decision compete with each other only."""
        embedded = self.embed(batch.options)
        states = self.hidden(batch, embedded).reshape(-1, self.config.width)
        states = jnp.concatenate([states, jnp.zeros((1, self.config.width), states.dtype)])
        return jnp.sum(states[batch.owner] * embedded, axis=-1) / jnp.sqrt(self.config.width)


def log_probabilities(scores: Array, batch: Batch) -> Array:
    """Log-probability of each picked option, (B, T); 0 at padded decisions."""
    b, t = batch.asked.shape
    n = b * t + 1
    top = jax.ops.segment_max(scores, batch.owner, n, indices_are_sorted=True)
    total = jax.ops.segment_sum(jnp.exp(scores - top[batch.owner]), batch.owner, n, indices_are_sorted=True)
    logs = scores - (top + jnp.log(total))[batch.owner]
    return jnp.where(batch.asked >= 0, logs[batch.picked], 0.0)


def loss(model: GPT, batch: Batch) -> Array:
    """Weighted mean over the decisions of -log p(picked)."""
    logs = log_probabilities(model(batch), batch)
    weight = batch.weight[:, None] * (batch.asked >= 0)
    return -jnp.sum(logs * weight) / jnp.maximum(jnp.sum(weight), 1e-9)


def flatten(model: GPT) -> dict[str, Any]:
    """The weights as numpy arrays by dotted name, e.g. `blocks.0.qkv.kernel`."""
    import numpy as np

    state = nnx.state(model, nnx.Param)
    return {".".join(map(str, path)): np.asarray(leaf[...]) for path, leaf in nnx.to_flat_state(state)}
