"""The shipped weights: for each kind of target a language model (safetensors), its card (JSON) and the value
model that ranks what it writes, loaded once a process."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import RecordError, TlmWarning
from ...lang.vocabulary import OPTION_COLUMNS, PROMPT_COLUMNS
from ...space.vocabulary import CHOICES
from ..config import Config
from ..files import value_path
from ..infer import Network
from ..value import ValueModel

Weights = Mapping[str, NDArray[np.float32]]

FORMAT = 1
"""Raised when the meaning of a column changes; weights of another format are refused."""

FOLDER = Path(__file__).parent

# Weights whose rows are named: rows of names that are new since the training are zero, others find their
# place.
_ROWS = {"prompt.kernel": "prompt", "fact.kernel": "options", "gate.kernel": "choices", "asked": "choices"}
_NAMES = {"prompt": PROMPT_COLUMNS, "options": OPTION_COLUMNS, "choices": CHOICES}


def shipped(kind: str = "cpu") -> Path:
    """Where the package has its weights for targets of a kind, "cpu" or "cuda"."""
    return FOLDER / f"{kind}.safetensors"


def available(kind: str = "cpu") -> bool:
    """Whether the package has weights for targets of a kind."""
    return shipped(kind).exists()


@cache
def load(path: Path) -> Network:
    """The network stored at `path`, kept for the process; errors as of `read`."""
    try:
        return Network(Config.from_json(card(path).get("config")), read(path))
    except KeyError as error:
        raise RecordError(f"{path} lacks the weights {error}") from None


@cache
def load_value(path: Path) -> ValueModel | None:
    """The value model of the language model at `path`, kept for the process; None, after one warning, where
    there is none."""
    beside = value_path(path)
    if beside.exists():
        return ValueModel.load(beside)
    target = "" if path.stem == "cpu" else " --target sm_90"
    warnings.warn(
        f"there is no value model at {beside}: of what {path.name} writes the likeliest sentence is used, "
        f"unranked; `tlm train{target} --steps 0 --start {path} --out FOLDER` makes one in FOLDER",
        TlmWarning,
        stacklevel=2,
    )
    return None


def read(path: Path) -> Weights:
    """The weights at `path`, rows in the order of this vocabulary; RecordError where it is not a model of
    tlm."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    described = card(path)
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RecordError(f"{path} is not a safetensors file: {error}") from None
    return _aligned(stored, described, path)


def card(path: Path) -> dict[str, Any]:
    """What is known of the weights at `path`: sizes, columns, and on what they were trained."""
    beside = path.with_suffix(".json")
    try:
        described = json.loads(beside.read_text())
    except (OSError, ValueError) as error:
        raise RecordError(f"no card of a model at {beside}: {error}; `tlm train` writes one") from None
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise RecordError(f"{beside} is not a card of format {FORMAT}; train again with this version of tlm")
    return described


def kinds(described: Mapping[str, Any]) -> frozenset[str]:
    """The kinds of targets ("cpu", "cuda") that the weights of a card were trained for."""
    keys = [str(key) for key in described.get("targets") or ()]
    return frozenset([key.partition(" ")[0].removeprefix("kind=") for key in keys])


def save(path: Path, weights: Weights, config: Config, about: Mapping[str, Any]) -> None:
    """Write weights and card; `about` says on what they were trained. Whole files or none."""
    from safetensors.numpy import save_file

    columns = {name: list(names) for name, names in _NAMES.items()}
    described = {"format": FORMAT, "config": config.to_json(), "columns": columns, **about}
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".partial")
    save_file({name: np.ascontiguousarray(w, np.float32) for name, w in weights.items()}, half)
    os.replace(half, path)
    half.write_text(json.dumps(described, indent=1) + "\n")
    os.replace(half, path.with_suffix(".json"))


def _aligned(weights: dict[str, NDArray[np.float32]], described: dict[str, Any], path: Path) -> Weights:
    columns = described.get("columns")
    if not isinstance(columns, dict) or set(columns) != set(_NAMES):
        raise RecordError(f"the card of {path} lacks the names of the columns")
    for name, kind in _ROWS.items():
        stored = weights.get(name)
        if stored is None or stored.ndim != 2 or len(stored) != len(columns[kind]):
            raise RecordError(
                f"{path}: {name} must have one row for each of {len(columns[kind])} {kind} columns"
            )
        if tuple(columns[kind]) != _NAMES[kind]:
            place = {column: row for row, column in enumerate(columns[kind])}
            rows = np.zeros((len(_NAMES[kind]), stored.shape[1]), np.float32)
            for row, column in enumerate(_NAMES[kind]):
                if column in place:
                    rows[row] = stored[place[column]]
            weights[name] = rows
    return weights
