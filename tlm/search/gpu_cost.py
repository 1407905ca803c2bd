"""How long a scheduled GPU program would take, from its loops alone: no device, no measurement, no learning.

A roofline of several ceilings (Williams et al. 2009), one kernel at a time: multiply-adds, instructions
issued, wavefronts of shared memory and L1 (which are one), sectors between L1 and L2, bytes of the device's
memory; and the latency of what a block waits for, hidden by the blocks that are resident beside it
(occupancy) and by copies that run ahead. Traffic is counted from the addresses of one warp, so that accesses
that do not coalesce and bank conflicts cost what they cost; instructions beside multiply-adds as they were
counted in the machine code of products.
Estimates rank schedules; they are no times, and are never stored as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from ..ir.exprs import Expr, Var
from ..ir.nodes import Alloc, Block, Buffer, For, If, Program, Stmt, Store, Update
from ..ir.walk import buffers, loads
from ..lower.gpu import architecture
from ..space.gpu.limits import BASE_REGISTERS, Cost, occupancy, resident
from ..space.gpu.plain import top
from ..space.gpu.staging import EACH_HELD
from ..target import Target
from .gpu_instructions import GUARD, SPECIAL_COST, casts, guards, operations, overhead, values
from .gpu_traffic import WORD, address, addresses, box, free_vars_of, places, wavefronts
from .gpu_waits import Waits, asynchronous, copied, waits

LAUNCH = 2.5e-6
"""Seconds of a kernel that does nothing."""
ISSUE = 4
"""Instructions of warps that a multiprocessor starts in a cycle."""
SECTOR, L2_BYTES, LINE = 32, 32, 128
"""Bytes that are moved at least, that a multiprocessor takes from L2, and that L1 gives in a cycle."""
GROUPED, WARP_SHARE = 90, 0.63
"""From this architecture on, only instructions of several warps reach the tensor rate; those of one warp,
mma.sync, 63 % of it (Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, 2024)."""
IN_FLIGHT, THREAD_IN_FLIGHT = 40_000, 32
"""Bytes on their way that a multiprocessor needs to keep the device's memory busy, and that a thread has."""
BUSY_WARPS = 8
"""Warps that keep a multiprocessor's units busy: two for each that starts instructions."""


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """One launch. `bounds` are seconds under each ceiling alone; `seconds` joins them, with the launch."""

    blocks: int
    cost: Cost
    occupancy: float
    flops: float
    memory_bytes: float
    bounds: tuple[tuple[str, float], ...]
    seconds: float

    @property
    def limit(self) -> str:
        """The ceiling that is reached first."""
        return max(self.bounds, key=lambda bound: bound[1])[0]

    @property
    def intensity(self) -> float:
        """Operations for each byte of the device's memory."""
        return self.flops / max(self.memory_bytes, 1.0)


@dataclass(frozen=True, slots=True)
class Estimate:
    """All launches of a program."""

    kernels: tuple[KernelEstimate, ...]

    @property
    def seconds(self) -> float:
        return sum(k.seconds for k in self.kernels)


@dataclass(slots=True)
class _Counts:
    """What one block does in all: warp instructions, multiply-adds, and traffic; and where it waits."""

    issued: float = 0.0
    fma: float = 0.0
    flops: float = 0.0
    wavefronts: float = 0.0
    sectors: float = 0.0
    held: int = 0
    waits: Waits = field(default_factory=Waits)
    reads: dict[str, tuple[tuple[Expr, ...], float]] = field(default_factory=dict)


def estimate(program: Program, target: Target) -> Estimate:
    """The estimate of a scheduled program for a GPU."""
    known = buffers(program)
    return Estimate(tuple([_kernel(nest, known, target) for nest in top(program.body)]))


def _walk(stmt: Stmt, around: tuple[For, ...] = ()) -> Iterator[tuple[tuple[For, ...], Stmt]]:
    """Every Store, Update and Alloc with the loops around it."""
    match stmt:
        case For(body=body):
            yield from _walk(body, (*around, stmt))
        case Block(stmts):
            for s in stmts:
                yield from _walk(s, around)
        case If(_, then, other):
            yield from _walk(then, around)
            if other is not None:
                yield from _walk(other, around)
        case Alloc(_, body):
            yield around, stmt
            yield from _walk(body, around)
        case Store() | Update():
            yield around, stmt


def _kernel(nest: Stmt, known: Mapping[str, Buffer], target: Target) -> KernelEstimate:
    found = list(_walk(nest))
    loops = {f.var: f for around, _ in found for f in around}
    blocks = prod([f.extent for f in loops.values() if f.kind.startswith("block")])
    shape = {
        axis: max([f.extent for f in loops.values() if f.kind == axis], default=1)
        for axis in ("threadIdx.x", "threadIdx.y", "threadIdx.z")
    }
    counts = _Counts()
    made_in = {leaf.buffer.name: len(around) for around, leaf in found if isinstance(leaf, Alloc)}
    for around, leaf in found:
        if isinstance(leaf, Store | Update):
            _count(counts, around, leaf, known, target, shape, made_in)
    counts.waits = waits(nest, known)
    counts.issued += overhead(found, known, target, prod(shape.values()))
    shared = sum(_span(b) * b.dtype.bytes * b.stages for b in _made(found, "shared"))
    registers = min(target.thread_registers, _registers(found, loops) + counts.held)
    cost = Cost(prod(shape.values()), shared, registers)
    return _joined(counts, cost, blocks, loops, known, target)


def _span(buffer: Buffer) -> int:
    """Elements of a buffer, with what its strides leave out."""
    return 1 + sum((n - 1) * step for n, step in zip(buffer.shape, buffer.element_strides, strict=True))


def _made(found: list[tuple[tuple[For, ...], Stmt]], memory: str) -> list[Buffer]:
    return [s.buffer for _, s in found if isinstance(s, Alloc) and s.buffer.memory == memory]


def _registers(found: list[tuple[tuple[For, ...], Stmt]], loops: Mapping[str, For]) -> int:
    """Registers of a thread: its part of every register buffer. A dimension that is always indexed by loops
    over threads belongs to the threads."""
    private = {b.name: [True] * len(b.shape) for b in _made(found, "register")}
    for _, leaf in found:
        if isinstance(leaf, Store | Update):
            names = (leaf.buffer,) if isinstance(leaf, Store) else leaf.targets
            places = [(n, leaf.indices) for n in names]
            places += [(e.buffer, e.indices) for v in values(leaf) for e in loads(v)]
            for name, indices in places:
                for d, index in enumerate(indices):
                    thread = isinstance(index, Var) and loops[index.name].kind.startswith("thread")
                    if name in private and thread:
                        private[name][d] = False
    held = 0
    for b in _made(found, "register"):
        size = prod([n for n, own in zip(b.shape, private[b.name], strict=True) if own])
        held += size * -(-b.dtype.bytes // WORD)
    return BASE_REGISTERS + held


def _count(
    counts: _Counts, around: tuple[For, ...], leaf: Store | Update, known: Mapping[str, Buffer],
    target: Target, shape: Mapping[str, int], made_in: Mapping[str, int],
) -> None:  # fmt: skip
    serial = prod([f.extent for f in around if f.kind in ("serial", "unroll", "vthread")])
    lanes = prod([f.extent for f in around if f.kind == "vectorize"])
    threads = prod([f.extent for f in around if f.kind.startswith("thread")])
    warps = max(1.0, threads / target.warp)
    runs = serial * lanes * warps
    work, special, product = operations(leaf)
    # Loops of one matrix instruction are products that take the time of fewer.
    instruction = [f for f in around if f.kind in ("tensor", "warpgroup")]
    inside = prod([f.extent for f in instruction])
    slower = 1.0 if inside == 1 else inside * target.fma_rate / _tensor_rate(instruction[0].kind, target)
    counts.fma += runs * (work - product) * slower
    counts.flops += serial * lanes * threads * inside * (work + special)
    counts.issued += runs * (work - product + special * SPECIAL_COST)
    if inside == 1:
        counts.issued += sum([_runs(_since(around, e, made_in), (e,), runs) for e in casts(leaf)])
    counts.issued += GUARD * sum([_runs(around, (e,), serial * warps) for e in guards(leaf)])
    names = (leaf.buffer,) if isinstance(leaf, Store) else leaf.targets
    accesses = [(e.buffer, e.indices) for e in dict.fromkeys(e for v in values(leaf) for e in loads(v))]
    made = {
        name: _access(counts, around, known[name], indices, serial * warps, lanes, shape, target)
        for name, indices in [*[(n, leaf.indices) for n in names], *accesses]
    }
    source = copied(leaf, known)
    if isinstance(leaf, Store) and source is not None:
        # A copy by the machine itself is one instruction; else the value waits in registers.
        widths = [made[n] * known[n].dtype.bytes for n in (leaf.buffer, source.buffer)]
        own = prod([f.extent for f in _inside(around)])
        if asynchronous(target, *widths):
            counts.issued -= runs / made[source.buffer]
        else:
            counts.held += EACH_HELD * own * -(-source.dtype.bytes // WORD)


def _tensor_rate(kind: str, target: Target) -> float:
    """Multiply-adds of matrix instructions in a cycle: those of one warp reach a part of what groups do."""
    alone = kind == "tensor" and architecture(target) >= GROUPED
    return target.tensor_rate * (WARP_SHARE if alone else 1.0)


def _inside(around: tuple[For, ...]) -> tuple[For, ...]:
    """The loops inside of those over threads."""
    last = max([n for n, f in enumerate(around) if f.kind.startswith("thread")], default=len(around) - 1)
    return around[last + 1 :]


def _since(around: tuple[For, ...], value: Expr, made_in: Mapping[str, int]) -> tuple[For, ...]:
    """The loops in which what a value is made of stays: those inside of where its buffers are made."""
    return around[max([made_in.get(e.buffer, 0) for e in loads(value)], default=0) :]


def _runs(around: tuple[For, ...], indices: tuple[Expr, ...], runs: float) -> float:
    """Of so many runs, those that do not find in registers what another copy of the code has made."""
    moving = free_vars_of(indices)
    return runs / prod([f.extent for f in around if f.kind == "unroll" and f.var not in moving])


def _access(
    counts: _Counts, around: tuple[For, ...], buffer: Buffer, indices: tuple[Expr, ...], runs: float,
    lanes: int, shape: Mapping[str, int], target: Target,
) -> int:  # fmt: skip
    """Traffic of one access, from the addresses that the first warp of a block makes; the elements that a
    thread moves at once."""
    if buffer.memory in ("register", "stack"):
        return 1
    # Copies of a statement that read one place read it once.
    runs = _runs(around, indices, runs)
    made = list(addresses(around, buffer, indices, shape, target.warp))
    width = buffer.dtype.bytes
    vector = next((f for f in around if f.kind == "vectorize"), None)
    step = 0
    if vector is not None and made:
        moved = address(buffer, indices, {**made[0][1], vector.var: 1})
        step = abs(moved - made[0][0])
    whole = lanes if step == 1 and lanes * width <= 16 else 1
    repeats = lanes // whole if step else 1
    starts = {a * width for a, _ in made}
    if buffer.memory == "shared":
        counts.wavefronts += runs * repeats * wavefronts(starts, whole * width)
    else:
        touched = {(s + b) // SECTOR for s in starts for b in range(0, whole * width, WORD)}
        counts.sectors += runs * repeats * len(touched)
        name, size = buffer.name, runs * repeats * len(touched) * SECTOR
        counts.reads[name] = (indices, counts.reads.get(name, (indices, 0.0))[1] + size)
    counts.issued += runs * repeats
    return whole


def _joined(
    c: _Counts, cost: Cost, blocks: int, loops: Mapping[str, For], known: Mapping[str, Buffer], target: Target
) -> KernelEstimate:
    beside = max(1, resident(cost, target))
    hertz = target.clock * 1e6
    rounds = -(-blocks // target.threads)
    # What one multiprocessor does in all: the one with the most blocks.
    own = -(-cost.threads // target.warp)
    warps = min(beside, rounds) * own
    hidden = min(1.0, warps / BUSY_WARPS)
    memory = _memory(c, blocks, beside, loops, known, target)
    in_flight = min(1.0, warps * target.warp * THREAD_IN_FLIGHT / IN_FLIGHT)
    passes = c.wavefronts + c.sectors * SECTOR / LINE
    work = max(c.fma * target.warp / target.fma_rate, c.issued / ISSUE) / min(1.0, own / BUSY_WARPS)
    chain = c.waits.alone + max(c.waits.ahead, work, passes)
    busy = min(1.0, blocks / target.threads)
    bounds = (
        ("multiply-adds", rounds * c.fma * target.warp / target.fma_rate / hertz / hidden),
        ("issue", rounds * c.issued / ISSUE / hertz / hidden),
        ("shared", rounds * passes / hertz),
        ("l2", rounds * c.sectors * SECTOR / L2_BYTES / hertz),
        ("memory", memory / (target.bandwidth * 1e9) / max(in_flight * busy, 0.02)),
        ("latency", -(-blocks // (beside * target.threads)) * chain / hertz),
    )
    seconds = LAUNCH + sum(t**4 for _, t in bounds) ** 0.25
    share = occupancy(cost, target)
    return KernelEstimate(blocks, cost, share, c.flops * blocks, memory, bounds, seconds)


def _memory(
    c: _Counts,
    blocks: int,
    beside: int,
    loops: Mapping[str, For],
    known: Mapping[str, Buffer],
    target: Target,
) -> float:
    """Bytes of the device's memory: each once where all of it fits into L2, else once for each round of
    blocks that run at one time."""
    once = {name: known[name].size * known[name].dtype.bytes for name in c.reads}
    if sum(once.values()) <= 0.75 * target.l2:
        return float(sum(once.values()))
    at_once = min(blocks, beside * target.threads)
    rounds = -(-blocks // at_once)
    order = [f for axis in "zyx" for f in loops.values() if f.kind == f"blockIdx.{axis}"]
    total = 0.0
    for name, (indices, traffic) in c.reads.items():
        buffer = known[name]
        # Blocks that start at one place of a buffer share what they read.
        different = places(buffer, indices, order, at_once)
        again = rounds * different * box(indices, buffer, loops) * buffer.dtype.bytes
        total += max(float(once[name]), min(again, traffic * blocks)) if traffic else 0.0
    return total
