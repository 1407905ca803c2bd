"""The judgement of a model: held-out shapes, one generated program against search, a closed form, and dice.

First every shape is searched, then all ways of one shape are timed again in turns in one process, so that
their ratios are paired, and again in further processes: where the system puts the pages of an operand can
make a program faster or slower by a third for the whole life of a process. What was done is read from the
file of rows, so a killed evaluation goes on.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Protocol

from ..errors import ArgumentError, RecordError
from ..ir.nodes import Program
from ..measure.jsonl import append_lines
from ..measure.measure import Measurer
from ..measure.record import Record, Values
from ..measure.store import Store
from ..space.decide import Decide, at_random, run
from ..space.spaces import space_for
from ..target import Target, host
from . import weights
from .config import SAMPLES
from .files import digest
from .generate import generate
from .infer import Network
from .progress import Progress, silent
from .shapes import PRODUCTS, RARE, Work, held_out
from .value import ValueModel

MEASURED, RANDOM = 8, 10
PROCESSES = 3
"""In which the ways of a shape are timed against each other; the median of their ratios counts."""
_PRODUCTS = {*PRODUCTS, *RARE, "common"}


class Found(Protocol):
    """What a search gives back."""

    best: Values | None


Search = Callable[..., Found]
"""search(program, target, measurer, trials=, seed=, store=): see tlm.search."""


@dataclass(frozen=True, slots=True)
class Row:
    """One shape.

    By way ("search", "greedy", "one", "one of 8", "heuristic", "random", "best of 10 random"; with several
    models "one #0" and so on): `fraction` time of the search's program / time (without a search, of the
    fastest way), 0 where it failed; `seconds` of work until the program is known; `microseconds` of one run.
    "greedy" is what the language model writes first, "one" what its value model likes best of 12.
    """

    shape: str
    family: str
    fraction: dict[str, float]
    seconds: dict[str, float]
    microseconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Report:
    """All rows, and what they were made with."""

    rows: tuple[Row, ...]
    about: Mapping[str, Any]

    def summary(self, kind: str | None = None) -> dict[str, dict[str, float]]:
        """By way: geometric mean and worst of the fraction, and mean seconds. A failure counts as 0.01.

        Of all rows, or of those of one of `kinds`.
        """
        out = {}
        rows = [row for row in self.rows if kind is None or _kind(row) == kind]
        for way in rows[0].fraction if rows else ():
            values = [max(0.01, row.fraction[way]) for row in rows]
            mean = math.exp(sum(map(math.log, values)) / len(values))
            spent = sum(row.seconds.get(way, 0.0) for row in rows) / len(rows)
            out[way] = {"mean": mean, "worst": min(values), "seconds": spent}
        return out

    @property
    def kinds(self) -> tuple[str, ...]:
        """Families of operators among the rows: all products are one."""
        return tuple(dict.fromkeys(_kind(row) for row in self.rows))

    def to_json(self) -> dict[str, Any]:
        kinds = {kind: self.summary(kind) for kind in self.kinds}
        rows = [asdict(r) for r in self.rows]
        return {"about": dict(self.about), "summary": self.summary(), "kinds": kinds, "rows": rows}

    def text(self) -> str:
        """A table of ways (and one for each kind where there are several), then the fractions by shape."""
        estimates = self.about.get("estimates")
        told = [f"by estimate of the analytic model {estimates}: nothing was measured"] if estimates else []
        lines = [*told, *_table(self.summary())]
        for kind in self.kinds if len(self.kinds) > 1 else ():
            lines += ["", kind, *_table(self.summary(kind))]
        if self.rows:
            lines += ["", f"{'shape':<28}" + "".join(f"{way[-11:]:>12}" for way in self.rows[0].fraction)]
        for row in self.rows:
            lines.append(f"{row.shape:<28}" + "".join(f"{f:>12.3f}" for f in row.fraction.values()))
        return "\n".join(lines)


def _kind(row: Row) -> str:
    return "products" if row.family in _PRODUCTS else row.family


def _table(summary: Mapping[str, Mapping[str, float]]) -> list[str]:
    lines = [f"{'way':<22}{'mean':>8}{'worst':>8}{'seconds':>10}"]
    for way, figures in summary.items():
        lines.append(f"{way:<22}{figures['mean']:>8.3f}{figures['worst']:>8.3f}{figures['seconds']:>10.3g}")
    return lines


def evaluate(
    store_path: str | Path | None,
    model_dirs: Sequence[str | Path],
    *,
    shapes: int | Sequence[Work] | None = None,
    trials: int = 500,
    seed: int = 0,
    target: Target | None = None,
    search: Search | None = None,
    heuristic: Decide | None = None,
    rows: str | Path | None = None,
    progress: Progress = silent,
    measurer: Callable[[Target], Any] = Measurer,
    estimates: str = "",
) -> Report:
    """Judge models on held-out shapes.

    model_dirs: folders of `train` (or paths of weights), one a seed; none means the weights of the package.
    shapes: how many of the held-out products, or other workloads; default all products. search:
    `tlm.search.evolve.search` (measures `trials` programs a shape; its records go to the store, if there is
    one), heuristic: a decider; a way that is None is left out. rows: a file to which each shape is added when
    it is done, and from which they are read. estimates: the name of the analytic model where `measurer` only
    estimates: the report says so.
    """
    if seed < 0:
        raise ArgumentError(f"seed is 0 or more, got {seed}")
    machine = target or host().with_threads(1)
    models = _models(model_dirs, machine.kind)
    networks = {name: (weights.load(path), weights.load_value(path)) for name, path in models.items()}
    chosen = shapes if isinstance(shapes, Sequence) else held_out()[:shapes]
    digests = {name: digest(path) for name, path in models.items()}
    about = {"models": digests, "trials": trials, "seed": seed, "target": machine.key, "processes": PROCESSES}
    left_out = [name for name, way in (("search", search), ("heuristic", heuristic)) if way is None]
    if left_out:
        about["without"] = left_out
    if estimates:
        about["estimates"] = estimates
    path = Path(rows) if rows is not None else None
    ways = _Ways(machine, networks, trials, seed, heuristic)
    kept = nullcontext() if store_path is None else Store(store_path)
    with kept as store, measurer(machine) as active:
        searched = {}
        if search is not None:
            searched = search_all(
                chosen, search, active, store, trials=trials, seed=seed, rows=path, progress=progress
            )
        done = {name: Row(**row) for name, row in _read(path, about).items()}
        found = []
        for number, shape in enumerate(chosen):
            row = done.get(str(shape)) or ways.row(shape, active, searched.get(str(shape)))
            if path is not None and str(shape) not in done:
                _append(path, about, str(shape), asdict(row))
            found.append(row)
            shown = ", ".join(f"{way} {f:.2f}" for way, f in row.fraction.items())
            progress("eval", number + 1, len(chosen), f"{shape}: {shown}")
    return Report(tuple(found), about)


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search of one shape found, and the seconds that it took."""

    best: Values | None
    seconds: float


def search_all(
    shapes: Sequence[Work],
    search: Search,
    measurer: Measurer,
    store: Store | None,
    *,
    trials: int,
    seed: int,
    rows: Path | None,
    progress: Progress = silent,
) -> dict[str, Searched]:
    """The best program of a search of `trials` measurements for each shape; `rows` has those done before."""
    about = {"search": trials, "seed": seed, "target": measurer.target.key}
    done = {
        n: Searched(None if d["best"] is None else tuple(d["best"]), d["seconds"])
        for n, d in _read(rows, about).items()
    }
    for number, shape in enumerate(shapes):
        if str(shape) in done:
            continue
        began = time.perf_counter()
        found = search(
            shape.program(), measurer.target, measurer, trials=trials, seed=seed, store=store, resume=False
        )
        one = Searched(found.best, time.perf_counter() - began)
        done[str(shape)] = one
        if rows is not None:
            _append(rows, about, str(shape), asdict(one))
        progress("search", number + 1, len(shapes), f"{shape}: {one.seconds:.0f} s")
    return done


def _models(model_dirs: Sequence[str | Path], kind: str) -> dict[str, Path]:
    paths = [Path(p) for p in model_dirs] or [weights.shipped(kind)]
    files = [p / f"{kind}.safetensors" if p.is_dir() else p for p in paths]
    if missing := [str(p) for p in files if not p.exists()]:
        raise ArgumentError(f"no weights at {', '.join(missing)}; `tlm train` writes them")
    return {"" if len(files) == 1 else f" #{n}": p for n, p in enumerate(files)}


@dataclass(frozen=True, slots=True)
class _Ways:
    """How the contenders of one shape are found, and timed against each other."""

    target: Target
    networks: Mapping[str, tuple[Network, ValueModel | None]]
    trials: int
    seed: int
    heuristic: Decide | None

    def row(self, shape: Work, measurer: Measurer, searched: Searched | None) -> Row:
        program = shape.program()
        chosen: dict[str, Values | None] = {}
        seconds: dict[str, float] = {}
        if searched is not None:
            chosen["search"], seconds["search"] = searched.best, searched.seconds
        for name, model in self.networks.items():
            self._generated(program, name, model, measurer, chosen, seconds)
        if self.heuristic is not None:
            began = time.perf_counter()
            chosen["heuristic"] = run(space_for(program, self.target), self.heuristic).values
            seconds["heuristic"] = time.perf_counter() - began
        rng = Random(f"{self.seed} {shape}")
        dice = [run(space_for(program, self.target), at_random(rng)).values for _ in range(RANDOM)]
        chosen["random"], seconds["random"] = dice[0], 0.0
        began = time.perf_counter()
        chosen[f"best of {RANDOM} random"] = _fastest(
            measurer.measure(program, dice, kind="eval", thorough=True)
        )
        seconds[f"best of {RANDOM} random"] = time.perf_counter() - began
        fraction, micro = _paired(program, chosen, measurer)
        return Row(str(shape), shape.family, fraction, seconds, micro)

    def _generated(
        self,
        program: Program,
        name: str,
        model: tuple[Network, ValueModel | None],
        measurer: Measurer,
        chosen: dict[str, Values | None],
        seconds: dict[str, float],
    ) -> None:
        network, value = model
        began = time.perf_counter()
        greedy = generate([program], self.target, network=network)[0][0]
        chosen[f"greedy{name}"], seconds[f"greedy{name}"] = greedy.decided.values, time.perf_counter() - began
        began = time.perf_counter()
        many = generate(
            [program], self.target, samples=SAMPLES, seed=self.seed, network=network, value=value
        )[0]
        chosen[f"one{name}"], seconds[f"one{name}"] = many[0].decided.values, time.perf_counter() - began
        wanted = [s.decided.values for s in many[:MEASURED]]
        chosen[f"one of {MEASURED}{name}"] = _fastest(
            measurer.measure(program, wanted, kind="eval", thorough=True)
        )
        seconds[f"one of {MEASURED}{name}"] = time.perf_counter() - began


def _fastest(records: Sequence[Record]) -> Values | None:
    good = [r for r in records if r.status == "ok"]
    return min(good, key=lambda r: r.score).choices if good else None


def _paired(
    program: Program, chosen: Mapping[str, Values | None], measurer: Measurer
) -> tuple[dict[str, float], dict[str, float]]:
    """Fractions and microseconds of all ways, from rounds in which each different program runs once."""
    different = list(dict.fromkeys(v for v in chosen.values() if v is not None))
    wanted, fractions, micros = chosen.get("search"), defaultdict(list), defaultdict(list)
    for _ in range(PROCESSES):
        measurer.close()
        records = measurer.measure(program, different, kind="final", thorough=True)
        times = {r.choices: r.seconds for r in records if r.status == "ok"}
        if not times:
            raise RecordError(
                f"no program of {program.name} runs: {records[0].message if records else 'none was built'}"
            )
        best = times[wanted] if wanted in times else min(times.values(), key=median)
        for way, values in chosen.items():
            mine = times.get(values) if values is not None else None
            fractions[way].append(median(b / t for b, t in zip(best, mine, strict=False)) if mine else 0.0)
            micros[way].append(1e6 * median(mine) if mine else math.inf)
    # A program that fails once is no good, however fast it is elsewhere.
    middle = {way: median(f) if min(f) > 0.0 else 0.0 for way, f in fractions.items()}
    return middle, {way: median(m) for way, m in micros.items()}


def _read(path: Path | None, about: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What an earlier run with the same arguments wrote, by shape; other and torn lines are left alone."""
    if path is None or not path.exists():
        return {}
    found = {}
    for line in path.read_text().splitlines():
        try:
            data = json.loads(line)
            if data["about"] == about:
                found[str(data["shape"])] = dict(data["row"])
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _append(path: Path, about: Mapping[str, Any], shape: str, row: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    append_lines(path, [json.dumps({"about": about, "shape": shape, "row": row})])
