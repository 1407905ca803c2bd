"""The language model in numpy, with a key-value cache: the same function as `gpt.GPT`, without importing JAX.

Everything is computed in float64 from the f32 weights, so that sums in another order (threads, batch sizes,
BLAS versions) differ by 1e-12 or so and never change which option wins; options closer than `TIE` count as
equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..lang.encode import PROMPT_TOKENS
from ..lang.vocabulary import CHOICE_INDEX
from ..space.vocabulary import CHOICES
from .config import Config

Floats = NDArray[np.float64]

TIE = 1e-6
"""Scores closer than this are equal; the first of them is picked."""

ALONE = 1 << 18
"""Multiply-adds up to which OpenBLAS computes a product in the calling thread. The threads that it would
start spin for tens of milliseconds afterwards, on the CPU that the generated kernel needs."""


class Network:
    """Weights by the names of `gpt.flatten`, as float64."""

    def __init__(self, config: Config, weights: Mapping[str, NDArray[np.float32]]) -> None:
        self.config = config
        self._w = {name: np.ascontiguousarray(w, np.float64) for name, w in weights.items()}
        # The gain and offset of a layer norm become part of the layer after it: fewer passes over each token.
        for n in range(config.layers):
            for norm, after in (("norm1", "qkv"), ("norm2", "up")):
                gain, offset = (self._w.pop(f"blocks.{n}.{norm}.{part}") for part in ("scale", "bias"))
                kernel, bias = f"blocks.{n}.{after}.kernel", f"blocks.{n}.{after}.bias"
                self._w[bias] = self._w[bias] + offset @ self._w[kernel]
                self._w[kernel] = gain[:, None] * self._w[kernel]

    def start(self, prompts: Sequence[NDArray[np.float32]], copies: int = 1) -> Session:
        """Read prompts, each f32 (phrases, len(PROMPT_COLUMNS)); the session then answers choices in
        lockstep, for up to `copies` sentences of each prompt."""
        return Session(self, prompts, copies)

    def linear(self, name: str, x: Floats) -> Floats:
        return _product(x, self._w[f"{name}.kernel"]) + self._w.get(f"{name}.bias", 0.0)

    def norm(self, x: Floats) -> Floats:
        """Layer norm over the last axis, without gain and offset."""
        centred = x - np.add.reduce(x, -1, keepdims=True) / x.shape[-1]
        variance = np.einsum("...d,...d->...", centred, centred)[..., None] / x.shape[-1]
        return np.asarray(centred / np.sqrt(variance + self.config.epsilon))

    def embed(self, options: NDArray[np.float32]) -> Floats:
        """Embeddings of options, (options, len(OPTION_COLUMNS)) to (options, D)."""
        x = options.astype(np.float64)
        hidden = self.linear("fact", x) * (1.0 + self.linear("gate", x[:, : len(CHOICES)]))
        return self.linear("option", _gelu(hidden))

    def table(self, name: str) -> Floats:
        return self._w[name]


class Session:
    """N = prompts * copies sentences in the making; keys and values of each layer (N, H, longest, D/H).

    The sentences of prompt p are the rows p * copies and on. The prompt is read into the first of them;
    `fork` fills another when it parts from what was said so far.
    """

    def __init__(self, network: Network, prompts: Sequence[NDArray[np.float32]], copies: int = 1) -> None:
        self._net, c = network, network.config
        n, self._prompt = len(prompts) * copies, max(len(p) for p in prompts)
        if self._prompt > PROMPT_TOKENS:
            raise ArgumentError(f"a prompt has at most {PROMPT_TOKENS} phrases, got {self._prompt}")
        shape = (c.layers, n, c.heads, self._prompt + c.decisions, c.width // c.heads)
        self._keys, self._values = np.zeros(shape), np.zeros(shape)
        self._made = 0
        self._before = np.broadcast_to(network.table("begin"), (n, c.width)).copy()
        words = np.zeros((len(prompts), self._prompt, prompts[0].shape[1]))
        for row, prompt in enumerate(prompts):
            words[row, : len(prompt)] = prompt
        real = np.arange(self._prompt) < np.array([len(p) for p in prompts])[:, None]
        self._real = np.repeat(
            np.concatenate([real, np.ones((len(prompts), c.decisions), bool)], axis=1), copies, 0
        )
        x = network.linear("prompt", words) + network.table("position")[: self._prompt]
        seen = np.tri(self._prompt, dtype=bool) & real[:, None]
        self._forward(x, np.arange(0, n, copies), 0, seen[:, None])

    def scores(
        self, numbers: NDArray[np.int64], asked: Sequence[str], options: Floats, counts: Sequence[int]
    ) -> list[Floats]:
        """Scores of the options of the next choice of each of the sentences `numbers`.

        options: embeddings of all options, (sum of counts, D); counts: options of each choice. `pick` must
        follow.
        """
        c, at = self._net.config, self._prompt + self._made
        if self._made >= c.decisions:
            raise ArgumentError(f"this model makes at most {c.decisions} decisions, the space asks for more")
        x = self._before[numbers] + self._net.table("asked")[[CHOICE_INDEX[name] for name in asked]]
        x = x + self._net.table("position")[PROMPT_TOKENS + self._made]
        seen = self._real[numbers, None, None, : at + 1]
        state = self._forward(x[:, None], numbers, at, seen)[:, 0]
        gain, offset = self._net.table("norm.scale"), self._net.table("norm.bias")
        state = (self._net.norm(state) * gain + offset) / np.sqrt(c.width)
        split = np.split(options, np.cumsum(counts)[:-1])
        self._made += 1
        return [part @ row for part, row in zip(split, state, strict=True)]

    def fork(self, rows: NDArray[np.int64], into: NDArray[np.int64]) -> None:
        """The sentences `into` become copies of `rows`; before `pick`."""
        end = self._prompt + self._made
        self._keys[:, into, :, :end] = self._keys[:, rows, :, :end]
        self._values[:, into, :, :end] = self._values[:, rows, :, :end]

    def pick(self, numbers: NDArray[np.int64], embedded: Floats) -> None:
        """Continue each of the sentences `numbers` with its picked option, (sentences, D)."""
        self._before[numbers] = embedded

    def _forward(self, x: Floats, rows: NDArray[np.int64], at: int, seen: NDArray[np.bool_]) -> Floats:
        """Tokens x (n, s, D) at places at .. at + s of the sentences `rows`; `seen` (n, 1, s, at + s)."""
        net, c = self._net, self._net.config
        n, s, d = x.shape
        for layer in range(c.layers):
            name = f"blocks.{layer}"
            qkv = net.linear(f"{name}.qkv", net.norm(x)).reshape(n, s, 3, c.heads, d // c.heads)
            query, key, value = qkv.transpose(2, 0, 3, 1, 4)  # each (n, H, s, D/H)
            self._keys[layer][rows, :, at : at + s] = key
            self._values[layer][rows, :, at : at + s] = value
            keys, values = self._keys[layer][rows, :, : at + s], self._values[layer][rows, :, : at + s]
            weight = query @ keys.transpose(0, 1, 3, 2) / np.sqrt(d // c.heads)
            attention = _softmax(np.where(seen, weight, -1e9))
            mixed = (attention @ values).transpose(0, 2, 1, 3).reshape(n, s, d)
            x = x + net.linear(f"{name}.out", mixed)
            x = x + net.linear(f"{name}.down", _gelu(net.linear(f"{name}.up", net.norm(x))))
        return x


def _product(x: Floats, w: Floats) -> Floats:
    """x (..., K) times w (K, N), by blocks of columns of at most `ALONE` multiply-adds, if a column has not
    more."""
    rows = x.reshape(-1, x.shape[-1])
    out = np.empty((len(rows), w.shape[1]))
    columns = max(1, ALONE // max(1, rows.size))
    for at in range(0, w.shape[1], columns):
        np.matmul(rows, w[:, at : at + columns], out=out[:, at : at + columns])
    return out.reshape(*x.shape[:-1], w.shape[1])


def best(scores: Floats) -> int:
    """The first option whose score is within `TIE` of the highest."""
    return int(np.argmax(scores >= scores.max() - TIE))


def probabilities(scores: Floats) -> Floats:
    """The probabilities of the options of one choice."""
    return _softmax(scores)


def _softmax(x: Floats) -> Floats:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _gelu(x: Floats) -> Floats:
    return np.asarray(0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))))
