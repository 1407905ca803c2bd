"""Every sentence is a legal schedule: random and generated ones, over many shapes and targets, are applied.

    python -m bench.sentences --random 100000 --generated 10000 --shapes 500
    python -m bench.sentences --random 0 --generated 0 --run 2000    # small shapes, run and compared

The second form runs each schedule in the interpreter and, for the levels that this machine has, as compiled
code; on integer-valued f32 both must equal numpy bit for bit.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Iterable
from random import Random

import numpy as np

from tlm.errors import TlmError
from tlm.ir.build import Builder
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.schedule import apply
from tlm.space.decide import at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

PRIMES = (2, 3, 5, 7, 11, 13, 17, 31, 61, 97, 127, 251, 509, 1009, 2003, 4001, 10007, 49999, 99991)
Shape = tuple[int, int, int, int]


def targets() -> tuple[Target, ...]:
    """Four machines: three x86 levels and one that is not here."""
    return tuple([Target(n, threads=t) for n, t in (("avx512", 2), ("avx2", 1), ("sse", 4), ("neon", 8))])


def product(shape: Shape, form: int) -> Program:
    """A product of `shape` (batch, m, k, n); `form` picks plain, transposed operands, or an epilogue."""
    batch, m, k, n = shape
    b = Builder("matmul")
    lead = (batch,) if batch > 1 else ()
    names = ("b",) * len(lead)
    turned = (*((k * n,) if lead else ()), 1, k)
    x = b.input("A", (*lead, m, k), "f32")
    y = b.input("B", (*lead, k, n), "f32", turned if form == 1 else None)
    acc = b.reduce(
        "C", (*lead, m, n), over={"k": k}, axes=(*names, "i", "j"), output=form != 2,
        fn=lambda *v: x[(*v[:-2], v[-1])] * y[(*v[:-3], v[-1], v[-2])],
    )  # fmt: skip
    if form == 2:
        bias = b.input("bias", (n,), "f32")
        b.compute("Y", (*lead, m, n), lambda *v: acc[v] + bias[v[-1]], axes=(*names, "i", "j"), output=True)
    return b.build()


def shapes(count: int, largest: int, rng: Random) -> list[tuple[Shape, int]]:
    """Extents of 1, primes, powers of two and others, up to `largest`; at most 2^40 multiply-adds."""
    out: list[tuple[Shape, int]] = []
    primes = [p for p in PRIMES if p <= largest]

    def extent() -> int:
        kind = rng.randrange(4)
        if kind == 0:
            return rng.choice((1, *primes))
        if kind == 1:
            return 2 ** rng.randrange(int(math.log2(largest)) + 1)
        return round(math.exp(rng.uniform(0, math.log(largest))))

    while len(out) < count:
        shape = (rng.choice((1, 1, 1, 2, 3, 12)), extent(), extent(), extent())
        if math.prod(shape) <= 2**40:
            out.append((shape, rng.randrange(3)))
    return out


def check(job: tuple[Shape, int, int, int, int]) -> tuple[int, list[str]]:
    """Decide and apply `count` random sentences of a shape on a target; returns how many, and what failed."""
    shape, form, number, count, seed = job
    program, target, failures = product(shape, form), targets()[number], []
    for i in range(count):
        rng = Random(f"{seed}-{shape}-{form}-{number}-{i}")
        try:
            apply(program, run(space_for(program, target), at_random(rng)).steps)
        except TlmError as error:
            failures.append(f"{shape} form {form} on {target.name}, sentence {i}: {error}")
    return count, failures


def check_generated(pairs: list[tuple[Shape, int]], samples: int, seed: int) -> tuple[int, list[str]]:
    """The same for sentences sampled from the shipped model."""
    from tlm.model.generate import generate

    total, failures = 0, []
    for shape, form in pairs:
        program = product(shape, form)
        for target in targets():
            for made in generate([program], target, samples=samples, temperature=1.0, seed=seed)[0]:
                total += 1
                try:
                    apply(program, made.decided.steps)
                except TlmError as error:
                    failures.append(f"{shape} form {form} on {target.name}, generated: {error}")
    return total, failures


def check_run(job: tuple[Shape, int, int, int]) -> list[str]:
    """One random schedule of a small shape: the interpreter and the kernel against numpy, bit for bit."""
    from tlm.backend import compile as compile_program

    shape, form, number, seed = job
    program, target = product(shape, form), targets()[number]
    rng = Random(f"{seed}-{shape}-{form}-{number}")
    scheduled = apply(program, run(space_for(program, target), at_random(rng)).steps)
    data = np.random.default_rng(seed)
    inputs = [
        _laid_out(data.integers(-4, 5, b.shape).astype(np.float32), b.element_strides) for b in program.inputs
    ]
    want = np.matmul(inputs[0], inputs[1]) + (inputs[2] if form == 2 else np.float32(0))
    outputs = {"interpreter": interpret(scheduled, inputs)[0]}
    if target.runs_here():
        outputs["kernel"] = np.full(want.shape, np.nan, np.float32)
        compile_program(scheduled, target, cache=False)(*inputs, outputs["kernel"])
    return [f"{job}: {who} differs" for who, got in outputs.items() if not np.array_equal(got, want)]


def _laid_out(x: np.ndarray, strides: tuple[int, ...]) -> np.ndarray:
    """`x` in memory order of the buffer's strides."""
    order = sorted(range(x.ndim), key=lambda axis: -strides[axis])
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order)) if x.ndim else x


def _report(name: str, results: Iterable[tuple[int, list[str]]], start: float) -> int:
    total, failures = 0, []
    for count, failed in results:
        total += count
        failures += failed
    print(
        f"{name}: {total} sentences, {len(failures)} rejected, {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    for line in failures[:5]:
        print("  " + line)
    return len(failures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=100_000)
    parser.add_argument("--generated", type=int, default=10_000)
    parser.add_argument("--run", type=int, default=0)
    parser.add_argument("--shapes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    pairs = shapes(args.shapes, 100_000, Random(args.seed))
    bad = {}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        if args.random:
            each = -(-args.random // (4 * len(pairs)))
            jobs = [(*pair, number, each, args.seed) for pair in pairs for number in range(4)]
            bad["random"] = _report("random", pool.imap_unordered(check, jobs, 8), time.perf_counter())
        if args.generated:
            start = time.perf_counter()
            each = -(-args.generated // (4 * len(pairs)))
            bad["generated"] = _report("generated", [check_generated(pairs, each, args.seed)], start)
        if args.run:
            small = shapes(args.run, 40, Random(args.seed + 1))
            runs = [(*pair, i % 4, args.seed + i) for i, pair in enumerate(small)]
            start = time.perf_counter()
            here = [t.runs_here() for t in targets()]
            compiled = sum(here[number] for _, _, number, _ in runs)
            print(f"run: {compiled} of {len(runs)} as compiled code", flush=True)
            bad["run"] = _report("run", ((1, f) for f in pool.imap_unordered(check_run, runs, 8)), start)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(bad, file)
    raise SystemExit(1 if any(bad.values()) else 0)


if __name__ == "__main__":
    main()
