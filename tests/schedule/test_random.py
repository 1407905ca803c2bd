"""Random chains of steps: whatever is accepted must keep every bit, in the interpreter that checks races
and bounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pytest

from tlm.errors import ScheduleError
from tlm.ir.build import Builder
from tlm.ir.dtypes import i32, i64
from tlm.ir.exprs import Cast, Const, const, op
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Alloc, For, Program, Update
from tlm.ir.paths import find_writers, loops_on
from tlm.ir.verify import verify
from tlm.ir.walk import free_vars, loads, statements, targets
from tlm.schedule import (
    Bind,
    CacheRead,
    CacheWrite,
    ComputeAt,
    DecomposeReduction,
    Fuse,
    Inline,
    Merge,
    Parallel,
    PrefetchAhead,
    Reorder,
    ReverseComputeAt,
    ReverseInline,
    RFactor,
    Schedule,
    Split,
    Step,
    Unroll,
    Vectorize,
)


def counts() -> Program:
    """How often each element is computed: 3 times, or a loop was lost or repeated."""
    b = Builder("counts")
    b.reduce("cnt", (13, 17), {"k": 3}, lambda i, j, k: const(1, i32), output=True)
    return b.build()


def matmul(m: int = 7, n: int = 10, k: int = 9) -> Program:
    b = Builder("matmul")
    x, w = b.input("A", (m, k), "f32"), b.input("B", (k, n), "f32")
    b.reduce("C", (m, n), {"k": k}, lambda i, j, r: x[i, r] * w[r, j], output=True)
    return b.build()


def linear() -> Program:
    b = Builder("linear")
    x, w, v = b.input("A", (6, 5), "f32"), b.input("B", (5, 11), "f32"), b.input("bias", (11,), "f32")
    c = b.reduce("C", (6, 11), {"k": 5}, lambda i, j, k: x[i, k] * w[k, j])
    y = b.compute("Y", (6, 11), lambda i, j: c[i, j] + v[j])
    b.compute("Z", (6, 11), lambda i, j: op("maximum", y[i, j], Const(0.0, y.dtype)), output=True)
    return b.build()


def row_maximum() -> Program:
    b = Builder("rows")
    x = b.input("X", (13, 13), "f16")
    b.reduce("M", (13,), {"k": 13}, lambda i, k: x[i, k], combiner="max", axes=("i",), output=True)
    return b.build()


def argmax() -> Program:
    b = Builder("argmax")
    x = b.input("X", (5, 12), "f32")
    b.reduce(
        ("V", "I"),
        (5,),
        {"k": 12},
        lambda i, k: (x[i, k], Cast(k, i64)),
        combiner="argmax",
        axes=("i",),
        output=True,
    )
    return b.build()


def normalise() -> Program:
    """Rows minus their sum, then neighbours added: a reduction and two elementwise readers, one of them
    shifted."""
    b = Builder("normalise")
    x = b.input("X", (6, 10), "f32")
    s = b.reduce("S", (6,), {"k": 10}, lambda i, k: x[i, k], axes=("i",))
    y = b.compute("Y", (6, 10), lambda i, j: x[i, j] - s[i])
    b.compute("Z", (6, 10), lambda i, j: y[i, j] + y[i, op("minimum", j + 1, Const(9))], output=True)
    return b.build()


PROGRAMS: dict[str, Callable[[], Program]] = {
    f.__name__: f for f in (counts, matmul, linear, row_maximum, argmax, normalise)
}


def propose(rng: random.Random, program: Program) -> Step:
    """Any step with arguments that exist; most of them are legal, some are not."""
    loops = [s for s in statements(program.body) if isinstance(s, For)]
    names = [f.var for f in loops]
    stages = list(dict.fromkeys([t for s in statements(program.body) for t in targets(s)]))
    read = list(dict.fromkeys([e.buffer for e in loads(program.body)]))
    temporaries = [s.buffer.name for s in statements(program.body) if isinstance(s, Alloc)]
    one, stage = rng.choice(names), rng.choice(stages)
    place = rng.choice([*names, ""])
    axes = [a for s in statements(program.body) if isinstance(s, Update) for a in s.axes] or names
    memory = rng.choice(["heap", "stack", "register"])
    inside = [f for f in loops if isinstance(f.body, For)]
    kinds: dict[str, Callable[[], Step]] = {
        "split": lambda: Split(one, rng.randint(1, 9), rng.choice(["guard", "guard", "guard", "peel"])),
        "fuse": lambda: Fuse(*((f := rng.choice(inside)).var, f.body.var) if inside else (one, one)),
        "reorder": lambda: Reorder(tuple(rng.sample(names, min(len(names), rng.randint(2, 4))))),
        "unroll": lambda: Unroll(one, rng.choice([0, 0, 2, 3])),
        "vectorize": lambda: Vectorize(one),
        "parallel": lambda: Parallel(one),
        "bind": lambda: Bind(one, rng.choice(["blockIdx.x", "threadIdx.x", "threadIdx.y"])),
        "cache_read": lambda: CacheRead(
            rng.choice(read or ["?"]), place, "heap", (), None, rng.random() < 0.5
        ),
        "pack": lambda: pack(rng, program, place, read),
        "cache_write": lambda: CacheWrite(stage, place, memory),
        "decompose": lambda: DecomposeReduction(stage, one),
        "rfactor": lambda: RFactor(rng.choice(axes), memory, place),
        "compute_at": lambda: ComputeAt(rng.choice(temporaries or stages), one),
        "reverse_compute_at": lambda: ReverseComputeAt(stage, one),
        "merge": lambda: Merge(one, rng.choice(names)),
        "inline": lambda: Inline(rng.choice(temporaries or stages)),
        "reverse_inline": lambda: ReverseInline(stage),
        "prefetch": lambda: PrefetchAhead(rng.choice(read or ["?"]), one, rng.randint(1, 4)),
    }
    weights = {"split": 6, "reorder": 4, "fuse": 2, "cache_write": 2, "pack": 2}
    return kinds[rng.choices(list(kinds), [weights.get(k, 1) for k in kinds])[0]]()


def pack(rng: random.Random, program: Program, place: str, read: list[str]) -> Step:
    """A copy laid out along all loops below `place` that its place uses, in random order."""
    buffer = rng.choice(read or ["?"])
    root = next((s for s in statements(program.body) if isinstance(s, For) and s.var == place), program.body)
    inner = [s.var for s in statements(root) if isinstance(s, For) and s.var != place]
    used = {v for e in loads(root) if e.buffer == buffer for i in e.indices for v in free_vars(i)}
    layout = [n for n in inner if n in used]
    rng.shuffle(layout)
    return CacheRead(buffer, place, "heap", tuple(layout), None, rng.random() < 0.6)


def inputs(program: Program, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, b.shape).astype(b.dtype.numpy) for b in program.inputs]


def chains(program: Program, seed: int, tries: int) -> Iterator[Schedule]:
    rng = random.Random(seed)
    schedule = Schedule(program)
    for _ in range(tries):
        before = schedule.program
        try:
            schedule.apply(propose(rng, before))
        except ScheduleError:
            assert schedule.program is before
    yield schedule


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_chains_keep_every_bit(name: str) -> None:
    program = PROGRAMS[name]()
    arrays = inputs(program, 1)
    expected = interpret(program, arrays)
    steps = 0
    for seed in range(60):
        for schedule in chains(program, seed, 14):
            verify(schedule.program)
            steps += len(schedule.steps)
            for got, want in zip(schedule.run(*arrays), expected, strict=True):
                assert np.array_equal(got, want), (name, seed, [str(s) for s in schedule.steps])
    assert steps > 60 * 3


def shape(rng: random.Random, schedule: Schedule) -> None:
    """Split some loops of some stages, once or twice, and reorder them: mostly tiles outside, what is in
    them inside."""
    for stage in dict.fromkeys([t for s in statements(schedule.program.body) for t in targets(s)]):
        chain = [f.var for f in loops_on(find_writers(schedule.program.body, stage)[0])]
        for loop in list(chain) if rng.random() < 0.65 else []:
            at, parts = chain.index(loop), [f"{loop}.0", f"{loop}.1"]
            schedule.split(loop, rng.randint(1, 6))
            if rng.random() < 0.4:
                which = rng.randint(0, 1)
                schedule.split(parts[which], rng.randint(1, 4))
                parts[which : which + 1] = [f"{parts[which]}.0", f"{parts[which]}.1"]
            chain[at : at + 1] = parts
        if len(chain) > 1:
            order = sorted(chain, key=lambda n: n.count("1") * (rng.random() < 0.8) + rng.random() / 2)
            schedule.reorder(*order)


def place(rng: random.Random, program: Program) -> Step:
    """A step that moves or stages something."""
    names = [s.var for s in statements(program.body) if isinstance(s, For)]
    stage = rng.choice([t for s in statements(program.body) for t in targets(s)])
    read = [e.buffer for e in loads(program.body)]
    loop, around = rng.choice(names), rng.choice([*names, ""])
    kinds: list[Callable[[], Step]] = [
        lambda: ReverseComputeAt(stage, loop),
        lambda: ReverseComputeAt(stage, loop),
        lambda: ComputeAt(stage, loop),
        lambda: CacheWrite(stage, around, "stack"),
        lambda: pack(rng, program, around, read),
        lambda: CacheRead(rng.choice(read), around, pad=rng.random() < 0.5),
        lambda: ReverseInline(stage),
        lambda: Parallel(loop),
        lambda: Merge(loop, rng.choice(names)),
        lambda: Merge(loop, rng.choice(names)),
    ]
    return rng.choice(kinds)()


@pytest.mark.parametrize("name", ["linear", "normalise"])
def test_stages_move_between_ragged_tiles(name: str) -> None:
    program = PROGRAMS[name]()
    arrays = inputs(program, 2)
    (expected,) = interpret(program, arrays)
    moved = 0
    for seed in range(100):
        rng, s = random.Random(seed), Schedule(program)
        shape(rng, s)
        for _ in range(8):
            with suppress(ScheduleError):
                s.apply(place(rng, s.program))
        verify(s.program)
        kinds = (ComputeAt, ReverseComputeAt, ReverseInline, Merge)
        moved += sum(isinstance(step, kinds) for step in s.steps)
        assert np.array_equal(s.run(*arrays)[0], expected), (name, seed, [str(x) for x in s.steps])
        assert Schedule.from_json(program, s.to_json()).program == s.program
    assert moved > 15
