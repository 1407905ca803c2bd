"""The value model: how close to the best known program of its workload a program is, from its features alone.

An ensemble of small networks regresses log(best / seconds) and ranks programs within each workload. It
labels sentences of shapes that nobody measured. Fitting uses JAX, scoring only numpy (worker processes do
nothing else).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import RecordError
from ..lang import features
from ..lang.encode import Prompt
from ..lang.features import Picked
from .serial import alone

Floats = NDArray[np.float32]

WORST = -3.0
"""log(best / seconds) is cut here: programs 20 times slower than the best are all alike."""


@dataclass(frozen=True, slots=True)
class ValueModel:
    """`columns` of the features that are used, (x - mean) * scale, then two hidden layers; E networks
    stacked.

    w1 (E, columns, H), b1 (E, 1, H), w2 (E, H, H), b2 (E, 1, H), w3 (E, H, 1), b3 (E, 1, 1).
    """

    columns: NDArray[np.int64]
    mean: Floats
    scale: Floats
    weights: dict[str, Floats]

    def scores(
        self, prompt: Prompt, many: Sequence[Picked], *, caution: float = 0.5, exact: bool = False
    ) -> NDArray[np.floating]:
        """Predicted log(best / seconds) of programs of one workload, less `caution` deviations of the
        ensemble.

        exact: in f64, so that sums in another order differ by 1e-12 or so.
        """
        each = self.predict(features.matrix(prompt, many, self.columns), np.float64 if exact else np.float32)
        return np.asarray(each.mean(0) - caution * each.std(0))

    def predict(self, x: Floats, dtype: type[np.floating] = np.float32) -> NDArray[np.floating]:
        """The prediction of each network, (E, n), for the used columns of n programs.

        In f64, for the few programs of one call, in one thread.
        """
        product = alone if dtype == np.float64 else np.matmul
        h = ((x - self.mean) * self.scale).astype(dtype)
        w = {name: array.astype(dtype, copy=False) for name, array in self.weights.items()}
        out = []
        for e in range(len(w["w1"])):
            y = np.maximum(product(h, w["w1"][e]) + w["b1"][e], 0)
            y = np.maximum(product(y, w["w2"][e]) + w["b2"][e], 0)
            out.append((product(y, w["w3"][e]) + w["b3"][e])[:, 0])
        return np.stack(out)

    def save(self, path: Path) -> None:
        from safetensors.numpy import save_file

        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".partial")
        names = {"features": "\n".join(features.COLUMNS[c] for c in self.columns)}
        save_file({"mean": self.mean, "scale": self.scale, **self.weights}, half, metadata=names)
        half.replace(path)

    @staticmethod
    def load(path: Path) -> ValueModel:
        """RecordError where the file is not a value model over features that this version has."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "np") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                names = (file.metadata() or {}).get("features", "").split("\n")
            place = {name: n for n, name in enumerate(features.COLUMNS)}
            columns = np.array([place[name] for name in names], np.int64)
            model = ValueModel(columns, arrays.pop("mean"), arrays.pop("scale"), arrays)
            # What does not fit together, or is no number, must not wait for the first program to be seen.
            if not np.isfinite(model.predict(np.zeros((1, len(columns)), np.float32))).all():
                raise ValueError("not all of its weights are numbers")
            return model
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise RecordError(
                f"{path} is not a value model of this version ({error}): fit it again"
            ) from None
