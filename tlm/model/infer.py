"""The language model in numpy, with a key-value cache: the same function as `gpt.GPT`, without importing JAX.

Everything is computed in float64 from the f32 weights, so that sums in another order (threads, batch sizes,
BLAS versions) differ by 1e-12 or so and never change which option wins; options closer than `TIE` count as
equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, RecordError
from ..lang.encode import PROMPT_TOKENS
from ..lang.vocabulary import CHOICE_INDEX
from ..space.vocabulary import CHOICES
from .config import Config
from .serial import alone

Floats = NDArray[np.float64]

TIE = 1e-6
"""Scores closer than this are equal; the first of them is picked."""

Attend = Callable[[int, Floats, Floats, Floats], Floats]
"""(layer, query, key, value), each (n, H, s, D/H), to the mixed values of the same shape."""


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
        out = alone(x, self._w[f"{name}.kernel"])
        bias = self._w.get(f"{name}.bias")
        if bias is not None:
            out += bias
        return out

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
    """N = prompts * copies sentences in the making.

    The sentences of prompt p are the rows p * copies and on. `fork` fills a row when its sentence parts from
    what was said so far. Keys and values of the prompts are (layers, prompts, H, phrases, D/H), shared by
    the copies; those of what was decided are (layers, N, H, decisions, D/H).
    """

    def __init__(self, network: Network, prompts: Sequence[NDArray[np.float32]], copies: int = 1) -> None:
        self._net, c = network, network.config
        n, longest = len(prompts) * copies, max(len(p) for p in prompts)
        if longest > PROMPT_TOKENS:
            raise ArgumentError(f"a prompt has at most {PROMPT_TOKENS} phrases, got {longest}")
        self._copies, self._made = copies, 0
        self._read: list[tuple[Floats, Floats]] = []
        shape = (c.layers, n, c.heads, c.decisions, c.width // c.heads)
        self._keys, self._values = np.zeros(shape), np.zeros(shape)
        self._before = np.broadcast_to(network.table("begin"), (n, c.width)).copy()
        words = np.zeros((len(prompts), longest, prompts[0].shape[1]))
        for row, prompt in enumerate(prompts):
            words[row, : len(prompt)] = prompt
        self._real = np.arange(longest) < np.array([len(p) for p in prompts])[:, None]
        seen = np.tri(longest, dtype=bool) & self._real[:, None]

        def attend(layer: int, query: Floats, key: Floats, value: Floats) -> Floats:
            self._read.append((key, value))
            weight = query @ key.swapaxes(-1, -2)
            return _softmax(np.where(seen[:, None], weight, -1e9)) @ value

        self._forward(network.linear("prompt", words) + network.table("position")[:longest], attend)

    def scores(
        self, numbers: NDArray[np.int64], asked: Sequence[str], options: Floats, counts: Sequence[int]
    ) -> Floats:
        """Scores of the options of the next choice of each of the sentences `numbers`, (sum of counts,).

        options: embeddings of all options, (sum of counts, D); counts: options of each choice. `pick` must
        follow.
        """
        c, made = self._net.config, self._made
        if made >= c.decisions:
            raise RecordError(f"it makes at most {c.decisions} decisions, the space asks for more")
        x = self._before[numbers] + self._net.table("asked")[[CHOICE_INDEX[name] for name in asked]]
        x = x + self._net.table("position")[PROMPT_TOKENS + made]

        def attend(layer: int, query: Floats, key: Floats, value: Floats) -> Floats:
            keys, values = self._keys[layer], self._values[layer]
            keys[numbers, :, made], values[numbers, :, made] = key[:, :, 0], value[:, :, 0]
            keys, values = keys[numbers, :, : made + 1], values[numbers, :, : made + 1]
            return self._attend(layer, query, keys, values, numbers // self._copies)

        state = self._forward(x[:, None], attend)[:, 0]
        gain, offset = self._net.table("norm.scale"), self._net.table("norm.bias")
        state = (self._net.norm(state) * gain + offset) / np.sqrt(c.width)
        self._made += 1
        # Not by BLAS, which would start its threads for so little.
        return np.asarray(np.einsum("od,od->o", options, np.repeat(state, counts, axis=0)))

    def fork(self, rows: NDArray[np.int64], into: NDArray[np.int64]) -> None:
        """The sentences `into` become copies of `rows`; before `pick`."""
        self._keys[:, into, :, : self._made] = self._keys[:, rows, :, : self._made]
        self._values[:, into, :, : self._made] = self._values[:, rows, :, : self._made]

    def pick(self, numbers: NDArray[np.int64], embedded: Floats) -> None:
        """Continue each of the sentences `numbers` with its picked option, (sentences, D)."""
        self._before[numbers] = embedded

    def _attend(
        self, layer: int, query: Floats, keys: Floats, values: Floats, of: NDArray[np.int64]
    ) -> Floats:
        """What queries (n, H, 1, D/H) see of the prompts `of`, and of the decisions before them (keys and
        values (n, H, decisions, D/H))."""
        read_keys, read_values = self._read[layer]
        several = len(read_keys) > 1
        if several:
            read_keys, read_values = read_keys[of], read_values[of]
        told = query @ read_keys.swapaxes(-1, -2)  # [n, H, 1, phrases]
        if several:
            told = np.where(self._real[of, None, None], told, -1e9)
        share = _softmax(np.concatenate([told, query @ keys.swapaxes(-1, -2)], axis=-1))
        phrases = read_keys.shape[2]
        return np.asarray(share[..., :phrases] @ read_values + share[..., phrases:] @ values)

    def _forward(self, x: Floats, attend: Attend) -> Floats:
        """Tokens x (n, s, D) through all layers; `attend` is the attention of one."""
        net, c = self._net, self._net.config
        n, s, d = x.shape
        for layer in range(c.layers):
            name = f"blocks.{layer}"
            qkv = net.linear(f"{name}.qkv", net.norm(x)).reshape(n, s, 3, c.heads, d // c.heads)
            query, key, value = qkv.transpose(2, 0, 3, 1, 4)  # each (n, H, s, D/H)
            mixed = attend(layer, query / np.sqrt(d // c.heads), key, value)
            x = x + net.linear(f"{name}.out", mixed.transpose(0, 2, 1, 3).reshape(n, s, d))
            x = x + net.linear(f"{name}.down", _gelu(net.linear(f"{name}.up", net.norm(x))))
        return x


def best(scores: Floats, counts: Sequence[int] = ()) -> list[int]:
    """Of each choice, of so many options: the first whose score is within `TIE` of the highest."""
    starts, sizes = _segments(scores, counts)
    limit = np.maximum.reduceat(scores, starts) - TIE
    high = np.flatnonzero(scores >= np.repeat(limit, sizes))
    found: list[int] = (high[np.searchsorted(high, starts)] - starts).tolist()
    return found


def probabilities(scores: Floats, counts: Sequence[int] = ()) -> Floats:
    """The probabilities of the options of each choice, of so many options; () is one choice."""
    starts, sizes = _segments(scores, counts)
    e = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), sizes))
    return np.asarray(e / np.repeat(np.add.reduceat(e, starts), sizes))


def _segments(scores: Floats, counts: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    sizes = np.array(counts or [len(scores)])
    return np.cumsum(sizes) - sizes, sizes


def _softmax(x: Floats) -> Floats:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _gelu(x: Floats) -> Floats:
    """The tanh form, in place of as few temporaries as it takes."""
    y = x * x
    y *= 0.7978845608028654 * 0.044715
    y += 0.7978845608028654
    y *= x
    np.tanh(y, out=y)
    y += 1.0
    y *= x
    y *= 0.5
    return y
