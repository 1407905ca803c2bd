"""The long-running commands, each resumable, each a call of the package; importing this completes `app`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ArgumentError
from .app import Activation, Dtype, Extents, Json, Machine, Op, Threads, app
from .progress import progress

StorePath = Annotated[Path | None, typer.Option("--store", help="SQLite file; default: in the user's data.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same choices.")]
Learned = Annotated[
    str, typer.Option(help="cpu (this machine's levels); cuda (the GPU here), or sm_75 ... sm_100.")
]
Seconds = Annotated[float | None, typer.Option(min=1, help="Stop after this many seconds.")]


def store_path(given: Path | None) -> Path:
    """The store that was asked for, or the user's."""
    from ..measure.store import default_path

    return given or default_path()


@app.command()
def search(
    op: Op,
    extents: Extents = None,
    dtype: Dtype = "f32",
    activation: Activation = None,
    target: Machine = "cpu",
    threads: Threads = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Measure so many (200 without a limit).")] = None,
    seconds: Seconds = None,
    seed: Seed = 0,
    store: StorePath = None,
    as_json: Json = False,
) -> None:
    """Search for the fastest schedule by measuring; resumes from the store; Ctrl-C keeps the best so far.

    For a GPU that is not here: by the estimates of an analytic model, which are not stored.
    """
    from ..measure.lookup import look_up
    from ..measure.store import Store
    from ..ops.judges import evidence_of, judge
    from ..ops.settings import machine
    from ..search.evolve import search as evolve
    from .workload import workload

    work, goal = workload(op, extents or (), dtype, activation), machine(target, threads)
    program = work.ours().program(*work.specs(), **work.options)
    modelled = evidence_of(goal) == "modelled"
    opened = nullcontext() if modelled else Store(store_path(store))
    with opened as kept, judge(goal) as measurer, progress() as show:
        result = evolve(
            program, goal, measurer, trials=trials, seconds=seconds, seed=seed, store=kept,
            progress=lambda p: show(str(p), p.done == p.total and not p.again),
        )  # fmt: skip
        reason = "" if kept is None else look_up(kept, program, goal).reason
    found = {
        "workload": work.title, "seconds": result.seconds, "best": result.best, "measured": result.measured,
        "reused": result.reused, "stopped": result.stopped, "spent": result.spent,
    }  # fmt: skip
    if modelled:
        found |= {"evidence": "modelled"}
    if result.best is None:
        told = f"{result.failures}; {reason}"
        print(json.dumps(found | {"seconds": None, "why": told}) if as_json else f"no valid schedule: {told}")
        raise typer.Exit(1)
    if as_json:
        print(json.dumps(found))
    else:
        by = f" on {goal.isa} by estimate: nothing was measured" if modelled else ""
        print(f"{work.title}: {result.seconds * 1e6:.1f} us{by}")
        print(result.summary.replace("measured", "estimated") if modelled else result.summary)
        print(*result.best)


@app.command()
def collect(
    shapes: Annotated[int, typer.Option(min=1, help="Training shapes to measure.")] = 300,
    trials: Annotated[int, typer.Option(min=1, help="Programs measured of each shape.")] = 48,
    seconds: Seconds = None,
    seed: Seed = 0,
    store: StorePath = None,
    again: Annotated[bool, typer.Option("--again", help="Time the best of the store again instead.")] = False,
    target: Learned = "cpu",
    as_json: Json = False,
) -> None:
    """Measure programs of many shapes on this machine's levels, or on its GPU: what the model learns from."""
    from ..model.collect import collect as run
    from ..model.retime import retime
    from ..model.shapes import COMMON
    from ..ops.networks import NETWORKS
    from ..ops.workloads import FAMILIES
    from ..search.heuristic import heuristic
    from .fleets import measured_fleet

    path, fleet = store_path(store), measured_fleet(target)
    if again and fleet is not None:
        raise ArgumentError(f"--again is for CPUs; it does not time programs of {target}")
    with progress() as show:
        told = _told(show)
        if again:
            done = retime(path, seconds=seconds, seed=seed, progress=told)
        else:
            done = run(
                path, shapes=shapes, trials=trials, seconds=seconds, seed=seed, families=FAMILIES,
                common=(*COMMON, *NETWORKS), heuristic=heuristic, progress=told, fleet=fleet,
            )  # fmt: skip
    found = asdict(done) | {"store": str(path)}
    print(json.dumps(found) if as_json else " ".join(f"{k}={v}" for k, v in found.items()))


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder; a killed run goes on from it.")] = Path("training"),
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of generate, measure, train.")] = 2,
    imagined: Annotated[int, typer.Option(min=1, help="Shapes searched with the value model.")] = 3000,
    steps: Annotated[
        int,
        typer.Option(min=0, help="Training steps of the language model; 0: only its value model is fitted."),
    ] = 2500,
    seed: Seed = 0,
    start: Annotated[Path | None, typer.Option(help="Weights to go on from.")] = None,
    store: StorePath = None,
    measure: Annotated[bool, typer.Option(help="Measure proposals between rounds.")] = True,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew, whatever is in --out.")] = False,
    target: Learned = "cpu",
    estimated: Annotated[
        str, typer.Option(help="SHAPESxPROGRAMS estimated first, for GPUs that nobody measured.")
    ] = "600x20",
    as_json: Json = False,
) -> None:
    """Train the language model on a store: value model, imagined sentences, GPT, rounds.

    For a GPU, on the store's measurements of it; where there are none, on estimates of an analytic model for
    all kinds of GPUs, most of them of that one. The card of the weights says which.
    """
    from .fleets import train_on

    with progress() as show:
        path = train_on(
            target, store_path(store), out, estimated, measure=measure, progress=_told(show),
            how=dict(seed=seed, rounds=rounds, imagined=imagined, steps=steps, start=start, resume=not fresh),
        )  # fmt: skip
    print(json.dumps({"weights": str(path)}) if as_json else f"weights: {path}")


def _told(show: Any) -> Any:
    return lambda what, done, total, remark: show(f"{what} {done}/{total} {remark}", done == total)


@app.command(name="eval")
def evaluate(
    models: Annotated[
        list[Path] | None, typer.Argument(help="Folders of tlm train, or the shipped model.")
    ] = None,
    shapes: Annotated[
        int | None, typer.Option(min=1, help="Of the held-out shapes, or of each family; default: all.")
    ] = None,
    families: Annotated[bool, typer.Option("--families", help="The other operators, not products.")] = False,
    trials: Annotated[int, typer.Option(min=1, help="Candidates of the search beside it.")] = 500,
    target: Machine = "cpu",
    threads: Threads = 1,
    rows: Annotated[
        Path | None, typer.Option(help="JSON lines, one a shape done; a killed run goes on.")
    ] = None,
    seed: Seed = 0,
    store: StorePath = None,
    as_json: Json = False,
) -> None:
    """Judge the model on held-out shapes, against search, heuristic and dice; by estimate for a GPU that is
    not here."""
    from ..model.eval import evaluate as run
    from ..ops.judges import analytic, judge
    from ..ops.settings import machine
    from ..search.evolve import search as evolve
    from ..search.heuristic import heuristic
    from .fleets import judged_by

    goal = machine(target, None if target.startswith(("cuda", "sm_")) else threads)
    named = analytic(goal)
    with progress() as show:
        report = run(
            None if named else store_path(store), models or (), shapes=judged_by(goal, shapes, families),
            trials=trials, seed=seed, target=goal, search=evolve, heuristic=heuristic, rows=rows,
            progress=_told(show), measurer=judge, estimates="".join(named),
        )  # fmt: skip
    print(json.dumps(report.to_json()) if as_json else report.text())
