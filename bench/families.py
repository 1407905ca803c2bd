"""Random legal schedules of every family of operators: none is rejected, and all compute the same.

    python -m bench.families --each 200

Each schedule of a small workload runs in the interpreter and as compiled code on the levels of this machine;
both must lie within the error bounds of the unscheduled program, evaluated in float64. Inputs are small
integers, on which sums of products are exact.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from itertools import islice
from random import Random

import numpy as np

from tlm.errors import TlmError
from tlm.ir.dtypes import to_numpy
from tlm.ir.interpret import interpret
from tlm.measure.reference import Expected, reference
from tlm.model.shapes import PRODUCTS, Work, draw
from tlm.ops.workloads import FAMILIES
from tlm.schedule import apply
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target, host

MOST_WORK = {"attention": 300_000}
"""Of a workload, where it is not LIGHT: the smallest of attention are few."""

LIGHT = 40_000
Job = tuple[Work, int, int]
"""A workload, the number of its target, and the seed of its sentence."""


def targets() -> tuple[Target, ...]:
    """The levels that run here, with one and with two threads."""
    levels = [host().with_isa(isa) for isa in ("avx512", "avx2", "sse", "neon")]
    return tuple([t.with_threads(n) for t in levels if t.runs_here() for n in (1, 2)])


def workloads(family: str, count: int, seed: int) -> list[Work]:
    """`count` small workloads of a family; products of all kinds are one family."""
    chosen = PRODUCTS if family == "products" else {family: FAMILIES[family]}
    return list(islice(draw(seed, chosen, most_work=MOST_WORK.get(family, LIGHT)), count))


def check(job: Job) -> tuple[str, str]:
    """What is wrong with one random schedule ("" where nothing is), and of which kind: rejected or wrong."""
    from tlm.backend import compile as compile_program

    work, number, seed = job
    program, target = work.program(), targets()[number]
    name = f"{work} on {target.isa}, {target.threads} threads, seed {seed}"
    try:
        decided = run(space_for(program, target), at_random(Random(f"{seed} {work}")))
        scheduled = apply(program, decided.steps)
    except TlmError as error:
        return "rejected", f"{name}: {error}"
    data = np.random.default_rng(seed)
    inputs = [
        _laid_out(data.integers(-4, 5, b.shape).astype(to_numpy(b.dtype)), b.element_strides)
        for b in program.inputs
    ]
    want = [Expected(w) for w in reference(program, inputs)]
    got = {"interpreter": interpret(scheduled, inputs)}
    # An element that is never written must not hold what an array that was here before held.
    made = [np.full(g.shape, np.nan if g.dtype.kind in "fV" else 113, g.dtype) for g in got["interpreter"]]
    compile_program(scheduled, target, cache=False)(*inputs, *made)
    got["kernel"] = made
    wrong = [who for who, out in got.items() if not all(w.met_by(o) for w, o in zip(want, out, strict=True))]
    return ("wrong", f"{name}: {' and '.join(wrong)}: {decided.values}") if wrong else ("", "")


def _laid_out(x: np.ndarray, strides: tuple[int, ...]) -> np.ndarray:
    """`x` in memory order of the buffer's strides."""
    order = sorted(range(x.ndim), key=lambda axis: -strides[axis])
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order)) if x.ndim else x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=200, help="schedules of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="")
    parser.add_argument("families", nargs="*", help="default: all")
    args = parser.parse_args()
    names = args.families or ["products", *(n for n in FAMILIES if n not in PRODUCTS)]
    many, found = len(targets()), {}
    with multiprocessing.get_context("spawn").Pool(host().threads) as pool:
        for name in names:
            began = time.perf_counter()
            small = workloads(name, -(-args.each // 2), args.seed)
            jobs = [(small[i // 2], i % many, args.seed + i) for i in range(args.each)]
            bad = [result for result in pool.imap_unordered(check, jobs, 4) if result[0]]
            rejected = sum(kind == "rejected" for kind, _ in bad)
            found[name] = {"schedules": len(jobs), "rejected": rejected, "wrong": len(bad) - rejected}
            told = f"{len(jobs)} schedules, {rejected} rejected, {len(bad) - rejected} wrong"
            print(f"{name}: {told}, {time.perf_counter() - began:.0f} s", flush=True)
            for _, line in bad[:5]:
                print("  " + line)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(found, file, indent=1)
    raise SystemExit(1 if any(f["rejected"] or f["wrong"] for f in found.values()) else 0)


if __name__ == "__main__":
    main()
