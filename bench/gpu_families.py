"""Random legal schedules of every family of operators as CUDA C, proven without a GPU.

    python -m bench.gpu_families --each 200 --out results.jsonl [--arch sm_80 sm_90] [--family F ...]
        [--operators] [--seconds S] [--summary FILE]

Each text is compiled to a cubin by NVRTC, and runs on the CPU with all checks of the shim (races, bounds,
alignment, barriers, warp operations, order of threads). What it computes from small integers equals what the
interpreter computes from the unscheduled program, bit for bit where the arithmetic is exact. `--operators`:
every operator of `tlm.ops` instead, by the closed form and by dice. A row is added to `--out` for each
program; what stands there is not run again. Run from a checkout: the shim is part of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from bench.families import workloads
from bench.gpu_halves import Half, halves
from bench.gpu_proof import REJECTED, RIGHT, Row, compared, proven
from tests.cuda import shim
from tests.cuda.emitted import values
from tlm.backend.cuda.emitter import emit
from tlm.backend.cuda.nvrtc import version
from tlm.errors import TlmError
from tlm.ir.interpret import interpret
from tlm.model.shapes import PRODUCTS, Shape, Work
from tlm.ops.workloads import FAMILIES, Sample
from tlm.schedule import Tensorize, apply
from tlm.space.decide import Decided, at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

ARCHITECTURES = ("sm_80", "sm_90")
_ROUNDED = frozenset(
    (
        "softmax", "log_softmax", "layer_norm", "rms_norm", "var", "logsumexp", "gelu", "silu", "exp", "tanh",
        "sigmoid", "dot_product_attention",
    )
)  # fmt: skip
_DRAWS = 40
"""Sentences until one has matrix instructions."""

Draw = Callable[[int], list[Work]]


def families() -> dict[str, Draw]:
    """Family -> its first workloads: small ones, so that the interpreter takes milliseconds."""
    names = ("products", *(n for n in FAMILIES if n not in PRODUCTS))
    found: dict[str, Draw] = {n: partial(_small, n) for n in names}
    return found | {f"{d} products": partial(_halves, d) for d in ("float16", "bfloat16")}


def _small(family: str, count: int) -> list[Work]:
    return workloads(family, count, 0)


def _halves(dtype: str, count: int) -> list[Work]:
    return list(islice(halves(dtype, 0), count))


def exact(work: Work) -> bool:
    """Whether every schedule gives the same bits on small integers."""
    match work:
        case Shape(epilogue=epilogue):
            return epilogue != "gelu"
        case Sample(op=op, settings=settings):
            return op not in _ROUNDED and dict(settings).get("activation") != "silu"
    return True


def schedule(work: Work, target: Target, seed: int) -> Decided:
    """A random sentence; for products of halves most often one with matrix instructions."""
    program, decide = work.program(), at_random(Random(f"{seed} {target.isa} {work}"))
    found = run(space_for(program, target), decide)
    for _ in range(_DRAWS if isinstance(work, Half) and seed % 4 else 0):
        if any(isinstance(step, Tensorize) for step in found.steps):
            break
        found = run(space_for(program, target), decide)
    return found


@lru_cache(maxsize=2)
def _expected(work: Work) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Inputs of small integers, and the outputs of the unscheduled program."""
    program = work.program()
    inputs = values(program, 1)
    return inputs, interpret(program, inputs)


def check(work: Work, arch: str, seed: int) -> Row:
    """One random schedule: what became of it."""
    target = Target(arch)
    row: Row = {"workload": str(work), "exact": exact(work)}
    try:
        decided = schedule(work, target, seed)
        row["sentence"] = decided.values
        source = emit(apply(work.program(), decided.steps), target)
    except TlmError as error:
        return row | {"status": "rejected", "message": str(error)}
    inputs, wanted = _expected(work)
    return row | proven(source, target, inputs, lambda outputs: compared(outputs, wanted, bits=exact(work)))


def jobs(names: Sequence[str], archs: Sequence[str], each: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """(key, run) of all schedules. Families take turns, so that a run that is stopped has a part of each; two
    schedules of a workload for each architecture, which share what the interpreter computed."""
    small = {name: families()[name](-(-each // 2)) for name in names}
    for n in range(-(-each // 2)):
        for name in names:
            for seed in range(2 * n, min(2 * n + 2, each)):
                for arch in archs:
                    key = {"family": name, "arch": arch, "seed": seed}
                    yield key, partial(check, small[name][n], arch, seed)


class Results:
    """Rows in a file of JSON lines, which is only added to."""

    def __init__(self, path: Path, again: bool = False) -> None:
        """`again`: programs that were not right count as not run."""
        self.path = path
        self.rows: list[Row] = []
        if path.exists():
            lines = path.read_bytes().splitlines(keepends=True)
            # A killed run may have left half of a line.
            self.rows = [json.loads(x) for x in lines if x.endswith(b"\n")]
            if lines and not lines[-1].endswith(b"\n"):
                os.truncate(path, sum(map(len, lines[:-1])))
        # The newest row of a program counts.
        self.rows = list({_key(r): r for r in self.rows}.values())
        if again:
            self.rows = [r for r in self.rows if r["status"] == RIGHT]
        self._known = {_key(r) for r in self.rows}

    def __contains__(self, key: dict[str, Any]) -> bool:
        return _key(key) in self._known

    def add(self, row: Row) -> None:
        """Append a row."""
        self.rows.append(row)
        self._known.add(_key(row))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _key(row: Row) -> tuple[Any, ...]:
    return row["family"], row["arch"], row["seed"]


def run_all(todo: Iterator[tuple[dict[str, Any], Any]], results: Results, seconds: float) -> bool:
    """Run what is missing; False where the time ended first."""
    began = time.perf_counter()
    for key, job in todo:
        if key in results:
            continue
        if time.perf_counter() - began > seconds:
            return False
        start = time.perf_counter()
        try:
            row = job()
        except Exception as error:
            row = {"status": "error", "message": f"{type(error).__name__}: {error}"}
        row = key | row | {"seconds": round(time.perf_counter() - start, 3)}
        results.add(row)
        if row["status"] != RIGHT:
            named = f"{row['family']}, {row['arch']}, seed {row['seed']}, {row.get('workload', '')}"
            print(f"{row['status']}: {named}: {row['message']}\n  {row.get('sentence', '')}", flush=True)
    return True


def summary(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, Any]]]:
    """Family -> architecture -> counts."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for family in dict.fromkeys(r["family"] for r in rows):
        for arch in sorted({r["arch"] for r in rows if r["family"] == family}):
            own = [r for r in rows if (r["family"], r["arch"]) == (family, arch)]
            kinds = Counter(r["status"] for r in own)
            rejected = sum(kinds[k] for k in REJECTED)
            found.setdefault(family, {})[arch] = {
                "programs": len(own), "rejected": rejected,
                "wrong": len(own) - rejected - kinds[RIGHT],
                "bit_for_bit": sum(r.get("exact", False) for r in own),
                "faults": {k: n for k, n in kinds.items() if k != RIGHT},
                **{k: sum(r.get(k, False) for r in own) for k in ("matrix", "pipelined", "barriers")},
                "spilling": sum(r.get("spills", 0) > 0 for r in own),
            }  # fmt: skip
    return found


def table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The summary as text."""
    columns = ("programs", "rejected", "wrong", "bit_for_bit", "matrix", "pipelined", "barriers", "spilling")
    lines = ["".join([f"{'family':<18}{'arch':<7}", *(f"{c:>13}" for c in columns)])]
    lines += [
        "".join([f"{family:<18}{arch:<7}", *(f"{own[c]:>13}" for c in columns)])
        for family, archs in found.items()
        for arch, own in archs.items()
    ]
    return "\n".join(lines)


def versions() -> dict[str, str]:
    """The compilers that the texts went through."""
    gxx = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout
    return {"nvrtc": ".".join(map(str, version())), "g++": gxx.strip()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--each", type=int, default=200, help="schedules of a family for each architecture")
    parser.add_argument("--arch", nargs="+", default=ARCHITECTURES)
    parser.add_argument("--family", nargs="+", default=None, choices=list(families()), help="default: all")
    parser.add_argument("--operators", action="store_true", help="every operator of tlm.ops instead")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start nothing later than this")
    parser.add_argument("--out", type=Path, default=Path("gpu-families.jsonl"))
    parser.add_argument("--again", action="store_true", help="run anew what was not right")
    parser.add_argument("--summary", type=Path, default=None, help="where the table goes as JSON")
    args = parser.parse_args()
    if reason := shim.missing():
        parser.error(reason)
    results = Results(args.out, args.again)
    if args.operators:
        from bench.gpu_operators import jobs as operator_jobs

        todo = operator_jobs(args.arch)
    else:
        todo = jobs(args.family or list(families()), args.arch, args.each)
    whole = run_all(todo, results, args.seconds)
    found = summary(results.rows)
    print(table(found))
    if args.summary is not None:
        args.summary.write_text(json.dumps({"versions": versions(), "families": found}, indent=1) + "\n")
    print("complete" if whole else "stopped: the time is over; run again to go on")
    bad = any(own["rejected"] or own["wrong"] for archs in found.values() for own in archs.values())
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
