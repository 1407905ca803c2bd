"""The space of elementwise and layout programs on a CPU: vectors, unrolling, transposed tiles, threads.

Stages with one reader are inlined. The nest of the largest stage, from the outside in: other loops, then
vectors side by side along a contiguous axis ("last": of the result, "swapped": of an operand in another
order); or tiles in which an operand is loaded along its own contiguous axis and turned in registers ("tile").
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache, partial

from ..ir.walk import loads, parts, statements
from ..schedule.steps import (
    CacheRead,
    Fuse,
    Parallel,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
    apply,
)
from ..target import Target
from .choice import Ask, Choice, Option, Space, question
from .contraction_choices import Facts, ceil, percent, thin, waste
from .inlining import inlined
from .maps import Maps, elements, maps
from .rows_choices import MOST_LANES, lane_options
from .stages import Stage


@dataclass(frozen=True, eq=False)
class Figures:
    """What facts are computed from. One object a program and target, compared by identity."""

    m: Maps
    target: Target

    @staticmethod
    @lru_cache(maxsize=256)
    def of(m: Maps, target: Target) -> Figures:
        return Figures(m, target)

    @property
    def full_lanes(self) -> int:
        return max(1, self.target.vector_bytes // self.m.stage.bytes)

    def extent(self, loop: str) -> int:
        return dict(self.m.stage.loops)[loop]

    @property
    def work(self) -> int:
        return elements(self.m.stage) * self.m.stage.work

    def stride(self, loop: str) -> int:
        """Bytes of the longest step of an access along `loop`."""
        steps = [abs(dict(s).get(loop, 0)) for s in self.m.stage.strides]
        return max(steps, default=0) * self.m.stage.bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers. `block` counts tiles of the outer tile loop, `inner` names the inner one: "n" is the one
    along the result, "m" the one along the operand."""

    style: str
    lanes: int
    columns: int
    block: int
    inner: str
    parallel: str


def maps_space(m: Maps, target: Target) -> Space:
    """Every schedule of `m` that this space knows, one choice at a time."""
    inlined, m = yield from inline_stages(m, target)
    plan = yield from _plan(Figures.of(m, target))
    return (*inlined, *_steps(m, plan))


def inline_stages(m: Maps, target: Target) -> Generator[Choice, int, tuple[tuple[Step, ...], Maps]]:
    """Which stages are computed where they are read; the steps, and what is left of `m`."""
    asked = partial(recompute, Figures.of(m, target))
    inlining = yield from inlined(m.program, m.stages, partial(_readers, m), asked)
    return inlining, _after(m, inlining)


@lru_cache(maxsize=256)
def _after(m: Maps, inlining: tuple[Step, ...]) -> Maps:
    """The stages without those that are inlined."""
    found = maps(apply(m.program, inlining)) if inlining else m
    assert found is not None
    return found


@lru_cache(maxsize=1024)
def _readers(m: Maps, stage: Stage) -> int:
    """How many places read a temporary that may be computed there anew; 0 where that would multiply work."""
    if stage.name in {b.name for b in m.program.outputs}:
        return 0
    users = [s for s in m.stages if stage.name in s.reads]
    if any(elements(s) > elements(stage) for s in users):
        return 0
    leaves = [s for s in statements(m.program.body) if not parts(s)]
    return len({(id(s), e.indices) for s in leaves for e in loads(s) if e.buffer == stage.name})


@question("recompute")
def recompute(f: Figures, stage: Stage, readers: int) -> list[Option]:
    """Whether a stage with several readers is stored, or computed anew by each of them."""
    size = elements(stage) * stage.bytes
    facts: Facts = (("reuse", readers), ("code", stage.work), ("l2", percent(size, f.target.l2)))
    return [Option("store", facts), Option("inline", facts)]


def orders(f: Figures) -> list[Option]:
    """Along the result, along an operand in another order, or by tiles that turn that operand."""
    m = f.m

    def offer(value: str, loop: str) -> Option:
        return Option(value, (("size", f.extent(loop)), ("stride", f.stride(loop))))

    options = [offer("last", m.along)]
    if m.crossed:
        options += [offer("swapped", m.crossed[1]), offer("tile", m.along)]
    return options


@question("style")
def style(f: Figures) -> list[Option]:
    """Along which axis vectors run, and whether an operand in another order is turned in registers."""
    options = orders(f)
    if f.m.stage.scattered:
        options.append(Option("none", (("size", 1), ("stride", 0))))
    return options


@question("lanes")
def lanes(f: Figures, extent: int) -> list[Option]:
    """Elements of a vector."""
    return lane_options(f.full_lanes, extent)


@question("columns")
def columns(f: Figures, extent: int, width: int) -> list[Option]:
    """Vectors in one round of the innermost loop."""
    options = []
    for count in (1, 2, 4, 8):
        size = count * width
        if count == 1 or (size <= MOST_LANES and count < 2 * ceil(extent, width)):
            facts = (
                ("size", size), ("trips", ceil(extent, size)), ("waste", waste(extent, size)),
                ("code", count * f.m.stage.work),
            )  # fmt: skip
            options.append(Option(count, facts))
    return options


@question("inner")
def inner(f: Figures, lanes: int) -> list[Option]:
    """Which loop over tiles is the inner one: that along the result or that along the operand."""
    options = []
    for word, loop in (("m", f.m.crossed[1]), ("n", f.m.along)):
        facts: Facts = (("trips", ceil(f.extent(loop), lanes)), ("stride", f.stride(loop)))
        options.append(Option(word, facts))
    return options


@question("block_m")
def block(f: Figures, extent: int, other: int, lanes: int) -> list[Option]:
    """Tiles of the outer tile loop that share a block: the inner loop runs once for all of them."""
    tiles = ceil(extent, lanes)
    sizes = {s for s in (1, 2, 4, 8, 16, 32) if s < tiles} | {tiles}
    options = []
    for size in thin(sizes, 6, {tiles}):
        whole = size * lanes * other * f.m.stage.bytes
        facts = (
            ("size", size * lanes), ("trips", ceil(tiles, size)), ("waste", waste(tiles, size)),
            ("l1", percent(whole, f.target.l1)), ("l2", percent(whole, f.target.l2)),
        )  # fmt: skip
        options.append(Option(size, facts))
    return options


@question("parallel")
def parallel(f: Figures, trips: int) -> list[Option]:
    """Whether threads share the outermost loop."""
    options = [Option("none", (("size", f.work),))]
    threads = f.target.threads
    if threads > 1 and trips > 1:
        busiest = ceil(trips, threads)
        facts: Facts = (
            ("size", f.work), ("trips", trips), ("tasks", percent(trips, threads)),
            ("imbalance", percent(busiest * threads, trips) - 100),
        )  # fmt: skip
        options.append(Option("outer", facts))
    return options


def _plan(f: Figures) -> Ask:
    m = f.m
    how = yield from style(f)
    loop = m.crossed[1] if how == "swapped" and m.crossed else m.along
    width = 1 if how == "none" else (yield from lanes(f, f.extent(loop)))
    if how != "tile":
        count = 1 if how == "none" else (yield from columns(f, f.extent(loop), width))
        plan = Plan(how, width, count, 0, "", "none")
    else:
        word = yield from inner(f, width)
        outer = m.crossed[1] if word == "n" else m.along
        other = m.along if word == "n" else m.crossed[1]
        size = yield from block(f, f.extent(outer), f.extent(other), width)
        plan = Plan(how, width, 1, size, word, "none")
    trips = _outer(m, plan)[1]
    shared = yield from parallel(f, trips)
    return Plan(how, plan.lanes, plan.columns, plan.block, plan.inner, shared)


def _outer(m: Maps, p: Plan) -> tuple[tuple[str, ...], int]:
    """The loops that threads share, as one, and its iterations."""
    order = _order(m, p)
    # Loops over vectors and tiles stay as they are: their guards are to be decided once, not in each round.
    plain = [v for v, _ in order[:2] if v in dict(m.stage.loops)]
    if len(plain) < 2 or order[0][1] >= 64:
        return (order[0][0],), order[0][1]
    return tuple(plain), order[0][1] * order[1][1]


def _order(m: Maps, p: Plan) -> list[tuple[str, int]]:
    """The loops of the main stage outside of vectors and tiles, with their iterations."""
    extents = dict(m.stage.loops)
    if p.style == "none":
        return list(m.stage.loops)
    if p.style != "tile":
        loop = m.crossed[1] if p.style == "swapped" and m.crossed else m.along
        rest = [(v, n) for v, n in m.stage.loops if v != loop]
        return [*rest, (f"{loop}.0", ceil(extents[loop], p.lanes * p.columns))]
    near, far = (m.along, m.crossed[1]) if p.inner == "n" else (m.crossed[1], m.along)
    rest = [(v, n) for v, n in m.stage.loops if v not in (near, far)]
    tiles = ceil(extents[far], p.lanes)
    inside = (f"{near}.0", ceil(extents[near], p.lanes))
    if p.block >= tiles:
        return [*rest, inside, (f"{far}.0", tiles)]
    blocks = ceil(tiles, p.block)
    return [*rest, (f"{far}.0.0", blocks), inside, (f"{far}.0.1", p.block)]


def _steps(m: Maps, p: Plan) -> tuple[Step, ...]:
    out: list[Step] = []
    for n, stage in enumerate(m.stages):
        out += _main(m, p) if n == m.main else _beside(stage, p)
    return tuple(out)


def _main(m: Maps, p: Plan) -> list[Step]:
    order = [v for v, _ in _order(m, p)]
    out: list[Step] = []
    if p.style == "tile":
        out += _tiles(m, p, order)
    elif p.style != "none":
        loop = m.crossed[1] if p.style == "swapped" and m.crossed else m.along
        out += [Split(loop, p.lanes * p.columns)]
        lane = f"{loop}.1"
        out += [Reorder((*order, lane)), Vectorize(lane)]
    if p.parallel == "outer":
        loops = _outer(m, p)[0]
        out += [Fuse(*loops)] if len(loops) > 1 else []
        out.append(Parallel("*".join(loops)))
    return out


def _tiles(m: Maps, p: Plan, order: list[str]) -> list[Step]:
    buffer, other = m.crossed
    along = m.along
    far = other if p.inner == "n" else along
    out: list[Step] = [Split(along, p.lanes), Split(other, p.lanes)]
    if f"{far}.0.0" in order:
        out.append(Split(f"{far}.0", p.block))
    name = f"{buffer}_tile"
    layout = (f"{along}.1", f"{other}.1")
    return [
        *out,
        Reorder((*order, f"{other}.1", f"{along}.1")),
        CacheRead(buffer, order[-1], memory="register", layout=layout, name=name),
        Unroll(f"{along}.1@{name}"),
        Vectorize(f"{other}.1@{name}"),
        Unroll(f"{other}.1"),
        Vectorize(f"{along}.1"),
    ]


def _beside(stage: Stage, p: Plan) -> list[Step]:
    """A small stage: vectors along its innermost loop where it writes contiguously."""
    if not stage.loops or p.lanes < 2:
        return []
    loop, extent = stage.loops[-1]
    if extent < 2 or dict(stage.strides[0]).get(loop) != 1:
        return []
    return [Split(loop, p.lanes), Vectorize(f"{loop}.1")]
