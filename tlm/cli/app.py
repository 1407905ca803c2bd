"""The commands. Each parses, calls one function of the package, prints; imports wait for their command."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="tlm",
    help="A tensor compiler whose schedules are written by a language model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Op = Annotated[str, typer.Argument(help="Operator: matmul or linear.")]
Extents = Annotated[list[int] | None, typer.Argument(help="matmul: [B ...] M K N. linear: M K N.")]
Dtype = Annotated[str, typer.Option(help="f32, f64, f16, bf16, i8, ... of the operands.")]
Activation = Annotated[str | None, typer.Option(help="linear: relu, gelu, silu, sigmoid or tanh.")]
How = Annotated[str, typer.Option(help="default, heuristic, random, search, generate or generate+measure.")]
Machine = Annotated[
    str,
    typer.Option(
        help="cpu (this machine), or a level: avx512, avx2, sse, neon; cuda (the GPU here), or sm_75, sm_80, "
        "sm_86, sm_89, sm_90, sm_90a, sm_100."
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Default: the CPUs that this process may use.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _limit_libraries(threads: int | None) -> None:
    # Only heard by libraries that are not loaded yet: numpy is first imported after this.
    if threads is not None:
        os.environ.update({name: str(threads) for name in _THREAD_VARIABLES})


@app.command()
def run(
    op: Op,
    extents: Extents = None,
    dtype: Dtype = "f32",
    activation: Activation = None,
    schedule: How = "generate",
    target: Machine = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Compile an operator, run it, check it, and time it beside numpy."""
    _limit_libraries(threads)
    from .running import run_once
    from .workload import workload

    work = workload(op, extents or (), dtype, activation)
    report = run_once(work, schedule, target, threads)
    print(json.dumps(report.to_json()) if as_json else report.text())
    if not report.right:
        raise typer.Exit(1)


@app.command()
def show(
    op: Op,
    extents: Extents = None,
    dtype: Dtype = "f32",
    activation: Activation = None,
    schedule: How = "generate",
    target: Machine = "cpu",
    threads: Threads = None,
    steps: Annotated[bool, typer.Option(help="The nest after each step.")] = True,
    source: Annotated[bool, typer.Option("--source", help="LLVM IR, or CUDA C.")] = False,
    assembly: Annotated[bool, typer.Option("--asm", help="Assembly, of CPUs.")] = False,
    as_json: Json = False,
) -> None:
    """The sentence, every choice with its options, the nest after each step, and code."""
    from .running import kernel_of
    from .showing import as_text, as_values
    from .workload import workload

    kernel = kernel_of(workload(op, extents or (), dtype, activation), schedule, target, threads)
    if as_json:
        print(json.dumps(as_values(kernel, source=source, assembly=assembly)))
    else:
        print(as_text(kernel, steps=steps, source=source, assembly=assembly))


@app.command()
def doctor(as_json: Json = False) -> None:
    """What this machine is, what was found on it, and whether a small product comes out right."""
    from .doctor import examine

    found = examine()
    if as_json:
        print(json.dumps(found))
    else:
        _table(found)
    if found["problems"]:
        raise typer.Exit(1)


@app.command()
def bench(
    shapes: Annotated[
        list[str] | None, typer.Argument(help="Shapes as MxKxN; default: a mixed list.")
    ] = None,
    schedule: How = "generate",
    threads: Threads = None,
    seconds: Annotated[float, typer.Option(min=0.05, help="Time spent on each shape.")] = 0.5,
    as_json: Json = False,
) -> None:
    """f32 products beside numpy, timed in pairs."""
    _limit_libraries(threads)
    from .benching import SHAPES, parse_shape, summary, versus_numpy

    wanted = [parse_shape(s) for s in shapes] if shapes else list(SHAPES)
    rows = []
    for shape in wanted:
        row = versus_numpy(shape, schedule, threads, seconds)
        rows.append(row)
        if not as_json:
            print(row.text(), flush=True)
    print(json.dumps([r.to_json() for r in rows]) if as_json else summary(rows))
    if not all(r.right for r in rows):
        raise typer.Exit(1)


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything.")] = False, as_json: Json = False
) -> None:
    """Show, or clear, what is kept on disk: sentences, object code (CPUs) and cubins (GPUs)."""
    from ..ops.caching import clear as clear_all
    from ..ops.caching import usage

    removed = clear_all() if clear else None
    found = usage() | ({} if removed is None else {"removed": removed})
    if as_json:
        print(json.dumps(found))
    else:
        _table(found)


def _table(values: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        for key, value in values.items():
            print(f"{key}: {value}")
        return
    table = Table(show_header=False, box=None)
    for key, value in values.items():
        table.add_row(f"[bold]{key}[/bold]", str(value).replace("[", "\\["))
    console.print(table)
