"""A learned cost model: gradient-boosted trees on histograms, in numpy, fitted anew to all measurements in
a moment.

Friedman (2001), with the binned features of LightGBM (Ke et al., 2017). The target is log(best time / time)
within each workload, 0 for the fastest and about -4.6 for one that is 100 times slower; a failure counts as
slower than all.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import RecordError
from ..lang.features import COLUMNS

Floats = NDArray[np.float64]
Features = NDArray[np.float32]

SLOWEST = -5.0
FORMAT = 1
_BINS = 32
_LARGEST_FILE = 32 << 20
_WEIGHT_OF_SLOW = 0.1
_NEVER = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Settings:
    """Size and speed of the boosting."""

    trees: int = 40
    depth: int = 5
    rate: float = 0.2
    least_weight: float = 0.3
    ridge: float = 1.0


@dataclass(frozen=True, slots=True)
class Tree:
    """A complete binary tree: rows of node n with column > threshold go to 2n + 2, the others to 2n + 1."""

    column: NDArray[np.int32]
    threshold: Features
    leaf: Floats

    def __call__(self, x: Features) -> Floats:
        at, rows = np.zeros(len(x), np.int64), np.arange(len(x))
        for _ in range(len(self.leaf).bit_length() - 1):
            at = 2 * at + 1 + (x[rows, self.column[at]] > self.threshold[at])
        return self.leaf[at - len(self.column)]


@dataclass(frozen=True, slots=True)
class CostModel:
    """`predict` estimates log(best time / time) for each row of features: larger is faster."""

    trees: tuple[Tree, ...]
    base: float

    def predict(self, x: Features) -> Floats:
        """f64 of shape (rows,) for features of shape (rows, LENGTH)."""
        total = np.full(len(x), self.base)
        for tree in self.trees:
            total += tree(x)
        return total


def labels(seconds: Sequence[float], workloads: Sequence[str]) -> Floats:
    """log(best / seconds) within each workload, no less than SLOWEST; failures are inf seconds."""
    t, names = np.asarray(seconds, np.float64), np.asarray(workloads)
    out = np.full(len(t), SLOWEST)
    for name in dict.fromkeys(workloads):
        mine = (names == name) & np.isfinite(t)
        if mine.any():
            out[mine] = np.maximum(np.log(t[mine].min() / t[mine]), SLOWEST)
    return out


def fit(x: Features, y: Floats, settings: Settings | None = None) -> CostModel:
    """Boosted trees for features (rows, LENGTH) and labels (rows,). Fast rows weigh most: they are sought."""
    s = settings or Settings()
    used = np.flatnonzero(x.min(0) != x.max(0)) if len(x) else np.zeros(0, np.int64)
    if not len(used):
        return CostModel((), float(y.mean()) if len(y) else 0.0)
    weight = _WEIGHT_OF_SLOW + np.exp(y)
    base = float(np.average(y, weights=weight))
    binned = _bin(x, used)
    residual = y - base
    trees = []
    for _ in range(s.trees):
        tree, step = _grow(binned, residual, weight, s)
        residual = residual - step
        trees.append(tree)
    return CostModel(tuple(trees), base)


@dataclass(frozen=True, slots=True)
class _Binned:
    """Features as small integers, (rows, used columns), and the thresholds between the bins of each."""

    codes: NDArray[np.int64]
    cuts: list[Features]
    used: NDArray[np.int64]


def _bin(x: Features, used: NDArray[np.int64]) -> _Binned:
    cuts = [_cuts(x[:, c]) for c in used]
    codes = [np.searchsorted(c, x[:, n]) for c, n in zip(cuts, used, strict=True)]
    return _Binned(np.stack(codes, 1).astype(np.int64), cuts, used)


def _cuts(column: Features) -> Features:
    """Thresholds between the bins of a column: between its values where there are few, else quantiles."""
    values = np.unique(column)
    if len(values) > _BINS:
        values = np.unique(np.quantile(column, np.linspace(0, 1, _BINS)).astype(np.float32))
    return ((values[:-1] + values[1:]) / 2).astype(np.float32)


def _grow(data: _Binned, residual: Floats, weight: Floats, s: Settings) -> tuple[Tree, Floats]:
    """One tree of the weighted residuals, level by level, and what it adds to each row."""
    inner = 2**s.depth - 1
    column, cut = np.zeros(inner, np.int64), np.full(inner, _BINS)
    at, rows = np.zeros(len(residual), np.int64), np.arange(len(residual))
    for level in range(s.depth):
        first, nodes = 2**level - 1, 2**level
        gain = _gains(data, at - first, nodes, residual, weight, s).reshape(nodes, -1)
        best = gain.argmax(1)
        # A node that no cut improves sends all its rows left.
        found = gain[np.arange(nodes), best] > 1e-12
        column[first : first + nodes] = np.where(found, best // _BINS, 0)
        cut[first : first + nodes] = np.where(found, best % _BINS, _BINS)
        at = 2 * at + 1 + (data.codes[rows, column[at]] > cut[at])
    at -= inner
    size = 2**s.depth
    leaf = s.rate * np.bincount(at, weight * residual, size) / (np.bincount(at, weight, size) + s.ridge)
    threshold = [
        data.cuts[c][n] if n < len(data.cuts[c]) else _NEVER for c, n in zip(column, cut, strict=True)
    ]
    return Tree(data.used[column].astype(np.int32), np.array(threshold, np.float32), leaf), leaf[at]


def _gains(
    data: _Binned, node: NDArray[np.int64], nodes: int, residual: Floats, weight: Floats, s: Settings
) -> Floats:
    """What each cut takes off the squared error, (nodes, columns, bins): rows of bins up to it go left."""
    columns = data.codes.shape[1]
    shape, size = (nodes, columns, _BINS), nodes * columns * _BINS
    cell = ((node * columns)[:, None] + np.arange(columns)) * _BINS + data.codes
    each = np.repeat(weight, columns)
    w = np.bincount(cell.ravel(), each, size).reshape(shape).cumsum(2)
    g = np.bincount(cell.ravel(), each * np.repeat(residual, columns), size).reshape(shape).cumsum(2)
    all_w, all_g = w[:, :, -1:], g[:, :, -1:]
    left, right = g**2 / (w + s.ridge), (all_g - g) ** 2 / (all_w - w + s.ridge)
    gain = left + right - all_g**2 / (all_w + s.ridge)
    return np.where((w >= s.least_weight) & (all_w - w >= s.least_weight), gain, 0.0)


def _vocabulary() -> str:
    return hashlib.sha256("\n".join(COLUMNS).encode()).hexdigest()[:16]


def save(model: CostModel, path: str | Path) -> None:
    """Write a model as JSON, with the feature columns that it was made for."""
    trees = [
        {"column": t.column.tolist(), "threshold": t.threshold.tolist(), "leaf": t.leaf.tolist()}
        for t in model.trees
    ]
    data = {"format": FORMAT, "features": len(COLUMNS), "vocabulary": _vocabulary(), "base": model.base}
    half = Path(f"{path}.{os.getpid()}.partial")
    half.write_text(json.dumps(data | {"trees": trees}))
    half.replace(path)


def load(path: str | Path) -> CostModel:
    """Read a model; RecordError where the file is none, or one for other features than this version's."""
    try:
        if Path(path).stat().st_size > _LARGEST_FILE:
            raise RecordError(f"the cost model {path} is larger than {_LARGEST_FILE} bytes")
        data = json.loads(Path(path).read_text())
    except (OSError, ValueError, RecursionError) as e:
        raise RecordError(f"the cost model {path} cannot be read: {e}") from e
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RecordError(f"{path} is not a cost model of format {FORMAT}")
    made_for, ours = (data.get("features"), data.get("vocabulary")), (len(COLUMNS), _vocabulary())
    if made_for != ours:
        raise RecordError(
            f"the cost model {path} was made for {made_for[0]} features ({str(made_for[1])[:16]}), "
            f"this version has {ours[0]} ({ours[1]}): it must be fitted again"
        )
    try:
        return CostModel(tuple([_tree(t) for t in data["trees"]]), float(data["base"]))
    except (KeyError, TypeError, ValueError) as e:
        raise RecordError(f"the cost model {path} is damaged: {e}") from e


def _tree(data: Any) -> Tree:
    column, threshold = np.asarray(data["column"], np.int32), np.asarray(data["threshold"], np.float32)
    leaf = np.asarray(data["leaf"], np.float64)
    inner = len(column)
    if not inner or inner & (inner + 1) or threshold.shape != (inner,) or leaf.shape != (inner + 1,):
        raise ValueError("a tree is not complete")
    if column.min() < 0 or column.max() >= len(COLUMNS):
        raise ValueError("a tree uses a column that is not there")
    return Tree(column, threshold, leaf)
