"""From measurements to a language model: value model, imagined sentences, GPT, and rounds of measuring its
own.

A round fits the value model to everything measured, searches imagined shapes with it, trains the language
model on what that finds, and (but for the last round) measures what the model now proposes. Every part
leaves a file, so a killed run goes on with the part that was running.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, islice
from pathlib import Path
from random import Random
from typing import Any

from .. import __version__
from ..errors import ArgumentError, RecordError
from ..ir import canonical
from ..ir.nodes import Program
from ..measure.measure import Measurer
from ..measure.store import Store
from ..target import Target, host
from . import data, weights
from .collect import Job, jobs
from .config import Config
from .files import value_path
from .fleet import Fleet, of_host
from .generate import generate
from .imagine import Effort, Imagination, imagine_many
from .infer import Network
from .measured import Workload, fastest, keys, read, taught
from .progress import Progress, silent
from .shapes import LEARNED, Families, Work, draw, training

_CHUNK = 40  # shapes of one job of the imagining processes
_EARLY = 0.35  # share of shapes and steps in rounds whose model only has to propose what to measure
_TARGETS = {"cpu": "cpu", "cuda": "sm_90"}  # of each kind, one that `tlm train` takes
_JUDGED = 8  # sentences of an imagined shape that an analytic model looks at, where there is one


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train. `imagined` and `steps` are scaled down for all rounds but the last.

    value_steps: batches for the value model; imagined: shapes searched with it; steps: batches of `size`
    sentences for the GPT, 0 keeps that of `start` and fits only the value model; proposals: shapes of which
    `samples` generated programs are measured after each round but the last; start: a file of weights to go on
    from.
    """

    seed: int = 0
    rounds: int = 2
    imagined: int = 3000
    steps: int = 2500
    size: int = 128
    proposals: int = 120
    samples: int = 8
    value_steps: int = 1500
    start: str | None = None
    effort: Effort = field(default_factory=Effort)
    config: Config = field(default_factory=Config)


def train(
    store_path: str | Path,
    out_dir: str | Path,
    *,
    seed: int = 0,
    rounds: int = 2,
    imagined: int = 3000,
    steps: int = 2500,
    start: str | Path | None = None,
    families: Families = LEARNED,
    progress: Progress = silent,
    resume: bool = True,
    measure: bool = True,
    fleet: Fleet | None = None,
) -> Path:
    """Train on a store; returns the path of the weights, `out_dir`/cpu.safetensors, with a card beside it.

    start: weights to go on from. families: of the workloads that are imagined. measure: whether proposals
    are measured between rounds (this machine must be able to run the targets). fleet: the targets and
    workloads, by default this machine's and `families`; of GPUs the weights are `out_dir`/cuda.safetensors.
    ArgumentError where `out_dir` holds a run with other arguments and `resume` is set.
    """
    first = None if start is None else str(start)
    recipe = Recipe(seed=seed, rounds=rounds, imagined=imagined, steps=steps, start=first)
    return run_recipe(
        recipe, Path(store_path), Path(out_dir), families=families, progress=progress, resume=resume,
        measure=measure, fleet=fleet,
    )  # fmt: skip


def run_recipe(
    recipe: Recipe,
    store_path: Path,
    out: Path,
    *,
    families: Families = LEARNED,
    progress: Progress,
    resume: bool,
    measure: bool,
    fleet: Fleet | None = None,
) -> Path:
    """`train` with every knob."""
    if recipe.seed < 0:
        raise ArgumentError(f"seed is 0 or more, got {recipe.seed}")
    check_start(recipe, "cpu" if fleet is None else fleet.kind)
    fleet = fleet or of_host(families, Measurer)
    _open(out, recipe, fleet, resume)
    for number in range(recipe.rounds):
        last = number == recipe.rounds - 1
        path = _round(recipe, store_path, out, number, fleet, progress)
        if not last and measure:
            _propose(recipe, store_path, out / f"round{number}", number, path, fleet, progress)
    final = out / path.name
    shutil.copyfile(path.with_suffix(".json"), final.with_suffix(".json"))
    shutil.copyfile(value_path(path), value_path(final))
    shutil.copyfile(path, final)
    return final


def check_start(recipe: Recipe, kind: str) -> None:
    """Whether a recipe's weights to go on from are there, and are such as it trains: for targets of `kind`.

    ArgumentError where they are missing, for targets of another kind, or of other sizes than `recipe.config`;
    RecordError where the file is no model of tlm.
    """
    if recipe.start is None:
        if not recipe.steps:
            raise ArgumentError("steps=0 fits only the value model of weights that exist: it needs start=")
        return
    path = Path(recipe.start)
    if not path.is_file():
        raise ArgumentError(f"start= (--start) names a file of weights; there is none at {path}")
    weights.read(path)
    described = weights.card(path)
    kinds = weights.kinds(described)
    if kinds != {kind}:
        found = " and ".join(sorted(kinds)) or "no"
        raise ArgumentError(
            f"start= (--start): {path} was trained for {found} targets, and this trains for {kind} targets; "
            f"give weights of `tlm train --target {_TARGETS[kind]}`"
        )
    sizes = Config.from_json(described.get("config"))
    if recipe.steps and sizes != recipe.config:
        raise ArgumentError(f"start= (--start): {path} is a model of {sizes}, and {recipe.config} is trained")


def _open(out: Path, recipe: Recipe, fleet: Fleet, resume: bool) -> None:
    """Take over a folder: go on with the same recipe, or start from nothing."""
    plan = out / "recipe.json"
    mine = json.loads(json.dumps(asdict(recipe) | fleet.about))
    if plan.exists() and resume:
        found = _recipe(plan)
        if found != mine:
            other = sorted(k for k in mine.keys() | found.keys() if found.get(k) != mine.get(k))
            raise ArgumentError(
                f"{out} holds a run with another {', '.join(other)}; give the same, another folder, "
                "or resume=False (--fresh)"
            )
        return
    for old in out.glob("round*"):
        shutil.rmtree(old)
    out.mkdir(parents=True, exist_ok=True)
    half = plan.with_suffix(".partial")
    half.write_text(json.dumps(mine, indent=1) + "\n")
    half.replace(plan)


def _recipe(plan: Path) -> dict[str, Any]:
    """What a folder was begun with."""
    try:
        found = json.loads(plan.read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RecordError(f"{plan} is no recipe of tlm train; give another folder, or resume=False (--fresh)")
    return found


def _round(
    recipe: Recipe, store_path: Path, out: Path, number: int, fleet: Fleet, progress: Progress
) -> Path:
    here, seed = out / f"round{number}", recipe.seed * 1000 + number
    path = here / f"{fleet.kind}.safetensors"
    if path.exists() and path.with_suffix(".json").exists():
        return path
    began, hidden = time.monotonic(), keys(fleet.held_out)
    workloads, unused = read(
        store_path, lambda program: taught(program, hidden, fleet.hidden), kind=fleet.kind,
        estimates=bool(fleet.estimates),
    )  # fmt: skip
    programs = sum(len(w.programs) for w in workloads)
    progress("read", 1, 1, f"{programs} programs of {len(workloads)} workloads, {unused} records unused")
    value = value_path(path)
    if not value.exists():
        _fit_value(workloads, value, recipe.value_steps, seed, progress)
    first = None if recipe.start is None else Path(recipe.start)
    before = out / f"round{number - 1}" / path.name if number else first
    trained = None if before is None else weights.read(before)
    config = recipe.config
    origin: dict[str, Any] = {}
    if recipe.steps:
        share = 1.0 if number == recipe.rounds - 1 else _EARLY
        how = Imagination(value, before, seed, recipe.effort, fleet.judge, _JUDGED)
        found = _imagine(how, here / "imagined", max(1, int(recipe.imagined * share)), fleet, progress)
        corpus = data.concatenate([*found, fastest(workloads, recipe.effort.tau)])
        trained = _learn(recipe, corpus, here, trained, max(1, int(recipe.steps * share)), progress)
        origin = {"sentences": len(corpus)}
    elif before is not None:
        kept = weights.card(before)
        config = Config.from_json(kept["config"])
        origin = {"language_model": {name: kept.get(name) for name in ("recipe", "measured", "sentences")}}
    assert trained is not None
    about: dict[str, Any] = {
        "version": __version__,
        "recipe": asdict(recipe),
        **_source(fleet, {"programs": programs, "workloads": len(workloads)}),
        "targets": sorted({w.target.key for w in workloads}),
        **origin,
        "round": number,
        "seconds": round(time.monotonic() - began, 1),
    }
    weights.save(path, trained, config, about)
    return path


def _source(fleet: Fleet, counts: dict[str, int]) -> dict[str, Any]:
    """What the card says of where the labels come from."""
    if not fleet.estimates:
        return {"measured": counts}
    told = (
        "No measurement of a GPU went into these weights: every label is an estimate of the analytic model "
        f"{fleet.estimates}, made without a GPU."
    )
    return {"note": told, "measured": {"programs": 0, "workloads": 0}, "estimated": counts}


def _fit_value(workloads: Sequence[Workload], path: Path, steps: int, seed: int, progress: Progress) -> None:
    from .fit import Group, fit

    began = time.monotonic()
    fit([Group(w.features(), w.quality) for w in workloads], seed=seed, steps=steps).save(path)
    progress("value", 1, 1, f"value model fitted in {time.monotonic() - began:.0f} s")


def _imagine(
    how: Imagination, folder: Path, count: int, fleet: Fleet, progress: Progress
) -> list[data.Corpus]:
    """Corpora of all chunks; those that an earlier run wrote are read."""
    todo = imagined_jobs(count, how.seed, fleet)
    chunks = [todo[n : n + _CHUNK] for n in range(0, len(todo), _CHUNK)]
    paths = [folder / f"{n:05}.npz" for n in range(len(chunks))]
    missing = [n for n, path in enumerate(paths) if not path.exists()]
    done = len(chunks) - len(missing)
    if missing:
        for n, found in imagine_many([chunks[n] for n in missing], how, host().threads):
            data.save(paths[missing[n]], found)
            done += 1
            progress("imagine", min(done * _CHUNK, count), count, f"{len(found)} sentences of a chunk")
    return [data.load(path) for path in paths]


def imagined_jobs(count: int, seed: int, fleet: Fleet | None = None) -> list[Job]:
    """Shapes that nobody has to measure, larger ones too, dealt to the targets of a fleet (this host's)."""
    fleet = fleet or of_host()
    free = (s for s in draw(seed + 7919, fleet.families, fleet.most_imagined) if not s.pairs & fleet.hidden)
    shapes = list(islice(free, count))
    rng = Random(f"imagined {seed}")
    dealt = rng.choices([t for t, _ in fleet.shares], [share for _, share in fleet.shares], k=len(shapes))
    return list(zip(shapes, dealt, strict=True))


def _learn(
    recipe: Recipe,
    corpus: data.Corpus,
    here: Path,
    start: weights.Weights | None,
    steps: int,
    progress: Progress,
) -> weights.Weights:
    from .learn import learn

    return learn(
        corpus,
        recipe.config,
        steps=steps,
        size=recipe.size,
        seed=recipe.seed,
        start=start,
        checkpoints=here / "checkpoints",
        report=lambda step, total, loss: progress("train", step, total, f"loss {loss:.3f}"),
    )


def _propose(
    recipe: Recipe,
    store_path: Path,
    here: Path,
    number: int,
    path: Path,
    fleet: Fleet,
    progress: Progress,
) -> None:
    """Measure what the model proposes for shapes that were measured before, and for as many new ones."""
    done = here / "proposals.done"
    if done.exists():
        return
    todo = _proposed_jobs(recipe, number, fleet)
    network, finished = weights.load(path), 0
    with Store(store_path, estimates=bool(fleet.estimates)) as store:
        for _, group in groupby(sorted(todo, key=lambda job: job[1].key), key=lambda job: job[1].key):
            members = list(group)
            target = members[0][1]
            programs = [shape.program() for shape, _ in members]
            proposals = _proposals(programs, target, recipe, number, network)
            with fleet.measurer(target) as measurer:
                for (shape, _), program, wanted in zip(members, programs, proposals, strict=True):
                    key = canonical.key(program)
                    known = {r.choices for r in store.records(key, target.key)}
                    new = [values for values in wanted if values not in known]
                    if new:
                        measurer.measure(program, new, kind=f"round {number}", sink=store.add)
                    finished += 1
                    progress("measure", finished, len(todo), f"{shape}: {len(new)} new programs")
    done.touch()


def _proposed_jobs(recipe: Recipe, number: int, fleet: Fleet) -> list[Job]:
    def drawn(count: int, seed: int) -> list[Work]:
        return training(count, seed, fleet.families, hidden=fleet.hidden, most_work=fleet.most_work)

    old = drawn(recipe.proposals // 2, recipe.seed)
    new = drawn(recipe.proposals - len(old) + 12, recipe.seed + 1000 + number)[12:]
    return jobs([*old, *new], fleet.shares, recipe.seed)


def _proposals(
    programs: Sequence[Program], target: Target, recipe: Recipe, number: int, network: Network
) -> list[list[tuple[int | str, ...]]]:
    found: list[list[tuple[int | str, ...]]] = []
    for n in range(0, len(programs), 16):
        many = generate(
            programs[n : n + 16], target, samples=recipe.samples, seed=recipe.seed + number, network=network
        )
        found += [[s.decided.values for s in sentences] for sentences in many]
    return found
