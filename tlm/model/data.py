"""Training data as flat arrays: sentences of a prompt and decisions, each decision with all its options.

Sentences are ragged (choices differ in number, options too), so they are stored end to end with offsets,
and only a batch is made dense. A corpus of 100,000 sentences takes about 300 MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import RecordError
from ..lang import options
from ..lang.features import Picked
from ..lang.options import Options
from ..lang.vocabulary import PROMPT_COLUMNS
from .config import Config

if TYPE_CHECKING:
    from .gpt import Batch

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Sentences, end to end. An offset array has one entry more than what it counts.

    prompts f32 (phrases of all prompts, len(PROMPT_COLUMNS)) with `prompt_at`; `prompt` and `weight` of
    each sentence; `choice_at` offsets of the choices of each sentence, `option_at` of the options of each
    choice, `fact_at` of the facts of each option; `picked` the option of each choice; `options` all of
    them.
    """

    prompts: Floats
    prompt_at: Ints
    prompt: Ints
    weight: Floats
    choice_at: Ints
    option_at: Ints
    fact_at: Ints
    picked: Ints
    options: Options

    def __len__(self) -> int:
        return len(self.prompt)


def corpus(prompts: Sequence[Floats], sentences: Sequence[tuple[int, Picked, float]]) -> Corpus:
    """A corpus of (number of the prompt, decisions, weight)."""
    choices = [choice for _, picked, _ in sentences for choice, _ in picked]
    packed = options.pack(choices)
    facts = np.bincount(packed.owner, minlength=len(packed)) if len(packed) else np.zeros(0, np.int64)
    return Corpus(
        np.concatenate([np.zeros((0, len(PROMPT_COLUMNS)), np.float32), *prompts]),
        _offsets([len(p) for p in prompts]),
        np.array([n for n, _, _ in sentences], np.int64),
        np.array([w for _, _, w in sentences], np.float32),
        _offsets([len(picked) for _, picked, _ in sentences]),
        _offsets([len(choice.options) for choice in choices]),
        _offsets(facts),
        np.array([index for _, picked, _ in sentences for _, index in picked], np.int64),
        packed,
    )


def concatenate(parts: Sequence[Corpus]) -> Corpus:
    """One corpus of all sentences, in order."""
    if len(parts) == 1:
        return parts[0]
    shift = np.cumsum([0, *(len(p.prompt_at) - 1 for p in parts)])
    rows = np.cumsum([0, *(len(p.options) for p in parts)])
    ragged = [p.options for p in parts]
    arrays = {f.name: np.concatenate([getattr(o, f.name) for o in ragged]) for f in fields(Options)}
    arrays["owner"] = np.concatenate([o.owner + row for o, row in zip(ragged, rows[:-1], strict=True)])
    joined = {
        name: _join([getattr(p, name) for p in parts])
        for name in ("prompt_at", "choice_at", "option_at", "fact_at")
    }
    return Corpus(
        prompts=np.concatenate([p.prompts for p in parts]),
        prompt=np.concatenate([p.prompt + s for p, s in zip(parts, shift[:-1], strict=True)]),
        weight=np.concatenate([p.weight for p in parts]),
        picked=np.concatenate([p.picked for p in parts]),
        options=Options(**arrays),
        **joined,
    )


def save(path: Path, data: Corpus) -> None:
    """Write a corpus; a killed process leaves no half file."""
    arrays = {f.name: getattr(data, f.name) for f in fields(Corpus) if f.name != "options"}
    arrays |= {f"options.{f.name}": getattr(data.options, f.name) for f in fields(Options)}
    half = path.with_suffix(".partial.npz")
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(half, **arrays)
    half.replace(path)


def load(path: Path) -> Corpus:
    """Read a corpus; RecordError where the file is not one."""
    try:
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        packed = Options(*[arrays.pop(f"options.{f.name}") for f in fields(Options)])
        return Corpus(**arrays, options=packed)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is not a corpus of this version: {error}") from None


def batches(
    data: Corpus, config: Config, size: int, steps: int, seed: int, start: int = 0
) -> Iterator[Batch]:
    """Batches of `size` sentences for steps `start` .. `steps`: a new order for each pass, the same for a
    seed.

    Options are padded to 15 % above the mean (twice that in the rare batch that has more), so that the
    training step is compiled once or twice.
    """
    n = len(data)
    phrases = int(np.diff(data.prompt_at).max())
    decisions = int(np.diff(data.choice_at).max())
    if decisions > config.decisions:
        raise RecordError(f"a sentence has {decisions} decisions, the model takes {config.decisions}")
    unit = int(1.15 * size * len(data.options) / n) + 64
    order, passes = np.zeros(0, np.int64), 0
    skip = start * size
    for _ in range(start, steps):
        while len(order) < skip + size:
            order = np.concatenate([order, np.random.default_rng([seed, passes]).permutation(n)])
            passes += 1
        yield _batch(data, order[skip : skip + size], phrases, decisions, unit)
        order, skip = order[skip + size :], 0


def _batch(data: Corpus, rows: Ints, phrases: int, decisions: int, unit: int) -> Batch:
    from .gpt import Batch

    b = len(rows)
    prompt = np.zeros((b, phrases, data.prompts.shape[1]), np.float32)
    first, count = data.prompt_at[data.prompt[rows]], np.diff(data.prompt_at)[data.prompt[rows]]
    row, place = _ragged(count)
    prompt[row, place] = data.prompts[first[row] + place]
    row, place = _ragged(np.diff(data.choice_at)[rows])
    choice = data.choice_at[rows][row] + place
    decision = row * decisions + place
    sizes = np.diff(data.option_at)[choice]
    owner, within = _ragged(sizes)
    source = data.option_at[choice][owner] + within
    dense = options.dense(_take(data, source))
    padded = -(-len(dense) // unit) * unit
    asked = np.full(b * decisions, -1, np.int32)
    asked[decision] = data.options.choice[data.option_at[choice]]
    picked = np.zeros(b * decisions, np.int32)
    picked[decision] = np.cumsum(sizes) - sizes + data.picked[choice]
    return Batch(
        prompt=prompt,  # type: ignore[arg-type]
        length=count.astype(np.int32),  # type: ignore[arg-type]
        asked=asked.reshape(b, decisions),  # type: ignore[arg-type]
        options=_padded(dense, padded, 0),  # type: ignore[arg-type]
        owner=_padded(decision[owner].astype(np.int32), padded, b * decisions),  # type: ignore[arg-type]
        picked=picked.reshape(b, decisions),  # type: ignore[arg-type]
        weight=data.weight[rows],  # type: ignore[arg-type]
    )


def _take(data: Corpus, source: Ints) -> Options:
    """The options at `source`, with their facts."""
    o = data.options
    owner, within = _ragged(np.diff(data.fact_at)[source])
    facts = data.fact_at[source][owner] + within
    return Options(o.choice[source], o.word[source], o.value[source], owner, o.fact[facts], o.quantity[facts])


def _ragged(counts: Ints) -> tuple[Ints, Ints]:
    """For items laid end to end, `counts` to a row: the row of each item, and its place in the row."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]


def _offsets(counts: Sequence[int] | Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(counts, np.int64))])


def _join(offsets: Sequence[Ints]) -> Ints:
    return _offsets(np.concatenate([np.diff(o) for o in offsets]))


def _padded(x: NDArray[np.generic], length: int, fill: int) -> NDArray[np.generic]:
    out = np.full((length, *x.shape[1:]), fill, x.dtype)
    out[: len(x)] = x
    return out
