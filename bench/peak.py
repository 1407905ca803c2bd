"""The FMA peak of one core, measured with a kernel of our own: independent sums, operands in registers or L1;
and the share of it that generated products reach.

python -m bench.peak [--target avx512] [--products]
"""

from __future__ import annotations

import argparse
import gc
import time
from statistics import median

import numpy as np

import tlm
from tlm.backend import compile as compile_program
from tlm.ir.dtypes import f32
from tlm.ir.exprs import Load, Var
from tlm.ir.nodes import Alloc, Buffer, For, Program, Store, Update, block

CHAINS = 12
STEPS = 200_000
SIDES = (768, 1000, 1024, 1536, 2048)


def peak_program(lanes: int) -> Program:
    """acc[r, l] += x[l] * x[l], STEPS times, for CHAINS vectors of `lanes`; written once, at the end."""
    x = Buffer("x", (lanes,), f32)
    out = Buffer("out", (CHAINS, lanes), f32)
    acc = Buffer("acc", (CHAINS, lanes), f32, "register")
    r, lane = Var("r"), Var("l")

    def tile(body: Store | Update, tag: str) -> For:
        return For("r" + tag, CHAINS, For("l" + tag, lanes, body, "vectorize"), "unroll")

    zero = Store("acc", (Var("r@0"), Var("l@0")), Load("x", (Var("l@0"),), f32))
    value = Load("x", (lane,), f32) * Load("x", (lane,), f32)
    step = Update(("acc",), (r, lane), (value,), "sum", ("s",), init=False)
    last = Store("out", (Var("r@1"), Var("l@1")), Load("acc", (Var("r@1"), Var("l@1")), f32))
    loop = For("s", STEPS, tile(step, ""), unroll=4)
    body = Alloc(acc, block(tile(zero, "@0"), loop, tile(last, "@1")))
    return Program("peak", (x,), (out,), body)


def peak_gflops(target: tlm.Target, repeats: int = 15) -> float:
    """Best multiply-add rate of one core in GFLOP/s, f32."""
    lanes = target.vector_bytes // 4
    kernel = compile_program(peak_program(lanes), target.with_threads(1))
    x, out = np.full(lanes, 1e-3, np.float32), np.empty((CHAINS, lanes), np.float32)
    seconds = kernel.time(x, out, repeats=repeats)
    best = min(seconds) if isinstance(seconds, (list, tuple)) else seconds
    return 2.0 * CHAINS * lanes * STEPS / best / 1e9


def rates(target: tlm.Target, side: int, rounds: int = 25) -> tuple[list[float], list[float]]:
    """Multiply-adds a second of a generated product of `side` cubed, f32, one thread, and of the peak kernel.

    They run in turns: a machine shared with others may be twice as fast a tenth of a second later. A turn of
    the peak kernel lasts about as long as one of the product, so that what a call costs does not count.
    """
    one, lanes = target.with_threads(1), target.vector_bytes // 4
    peak = compile_program(peak_program(lanes), one)
    a, b = (np.random.default_rng(n).standard_normal((side, side), np.float32) for n in range(2))
    out = np.empty((side, side), np.float32)
    product = tlm.ops.matmul.kernel(a, b, target=one)
    x, acc = np.full(lanes, 1e-3, np.float32), np.empty((CHAINS, lanes), np.float32)

    pointers = x.ctypes.data, acc.ctypes.data
    work = CHAINS * lanes * STEPS
    calls = max(1, round(side**3 / work))

    def of_peak() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            peak.call(*pointers)
        return calls * work / (time.perf_counter() - began)

    def of_product() -> float:
        began = time.perf_counter()
        product(a, b, out=out)
        return side**3 / (time.perf_counter() - began)

    of_peak(), of_product()
    gc.disable()
    found = [(of_product(), of_peak()) for _ in range(rounds)]
    gc.enable()
    return [mine for mine, _ in found], [peak for _, peak in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--products", action="store_true", help="generated products as shares of the peak")
    given = parser.parse_args()
    target = tlm.Target(given.target)
    print(f"{target.name}: {peak_gflops(target):.1f} GFLOP/s, one core, f32")
    for side in SIDES if given.products else ():
        mine, peak = rates(target, side)
        of_medians, of_bests = median(mine) / median(peak), max(mine) / max(peak)
        print(f"{side} cubed: {of_medians:.3f} of the peak beside it (the best of each: {of_bests:.3f})")


if __name__ == "__main__":
    main()
