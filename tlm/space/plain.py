"""The space of programs without a family of their own: vectors along rows, threads along the outer loop."""

from __future__ import annotations

from math import prod

from ..ir.combiners import COMBINERS
from ..ir.nodes import For, Program, Store, Update
from ..ir.walk import buffers
from ..schedule.steps import CacheWrite, Parallel, Split, Step, Vectorize
from ..target import Target
from .choice import Option, Space, question
from .contraction_choices import CHAIN, LONG_SUM
from .problem import Nest, nests, strides_of


@question("width")
def _width(widths: tuple[int, ...]) -> list[Option]:
    return [Option(w, (("size", w),)) for w in widths]


@question("parallel")
def _parallel(threads: bool) -> list[Option]:
    return [Option(w) for w in (("none", "outer") if threads else ("none",))]


def plain_space(program: Program, target: Target) -> Space:
    """One width of vectors for all nests, and whether threads share the outermost loops."""
    found = list(nests(program.body))
    widest = max((target.vector_bytes // _store_bytes(program, s) for _, s in found), default=1)
    widths = [w for w in (widest, widest // 2) if w > 1]
    width = yield from _width((1, *widths))
    threads = target.threads > 1 and any(len(around) > 1 for around, _ in found)
    parallel = yield from _parallel(threads)
    out: list[Step] = []
    for nest in found:
        out += _nest(program, nest, int(width), parallel == "outer")
    return tuple(out)


def _store_bytes(program: Program, statement: Store | Update) -> int:
    name = statement.buffer if isinstance(statement, Store) else statement.targets[0]
    return buffers(program)[name].dtype.bytes


def _nest(program: Program, nest: Nest, width: int, parallel: bool) -> list[Step]:
    around, statement = nest
    axes = statement.axes if isinstance(statement, Update) else ()
    name = statement.buffer if isinstance(statement, Store) else statement.targets[0]
    strides = dict(strides_of(buffers(program)[name], statement.indices) or ())
    out: list[Step] = []
    inner = around[-1] if around else None
    if width > 1 and inner is not None and inner.extent >= width and strides.get(inner.var) == 1:
        out += [Split(inner.var, width), Vectorize(f"{inner.var}.1")]
    if parallel and len(around) > 1 and around[0].var not in axes and around[0].extent > 1:
        out.append(Parallel(around[0].var))
    return out + _cuts(around, statement)


def default_steps(program: Program) -> tuple[Step, ...]:
    """The plain nest, but for long sums: they are cut, so that no running total loses its digits."""
    return tuple([step for nest in nests(program.body) for step in _cuts(*nest)])


def _cuts(around: tuple[For, ...], statement: Store | Update) -> list[Step]:
    if not isinstance(statement, Update) or not COMBINERS[statement.combiner].adds:
        return []
    reduced = [loop for loop in around if loop.var in statement.axes and loop.extent > 1]
    terms, target, out = prod([loop.extent for loop in reduced]), statement.targets[0], list[Step]()
    several = len(statement.targets) > 1
    for loop in reduced[:-1]:
        if terms > LONG_SUM:
            # What the loops inside of this one add up has a total of its own.
            target, step = _total(target, loop.var, loop.var, several)
            out.append(step)
            terms //= loop.extent
    if reduced and terms > LONG_SUM:
        out += _cut(reduced[-1].var, reduced[-1].extent, target, several)
    return out


def _total(target: str, at: str, mark: str, several: bool) -> tuple[str, Step]:
    """A total of its own for what is added up inside of a loop: its name, and the step that makes it."""
    name = f"{target}_{mark}"
    return f"{name}.{target}" if several else name, CacheWrite(target, at, name=name)


def _cut(loop: str, extent: int, target: str, several: bool) -> list[Step]:
    """Blocks of CHAIN terms, and blocks of CHAIN blocks, each with a total of its own."""
    size = CHAIN if extent <= CHAIN * CHAIN else CHAIN * CHAIN
    inner, step = _total(target, f"{loop}.0", loop, several)
    out = [Split(loop, size), step]
    return out if size == CHAIN else [*out, *_cut(f"{loop}.1", size, inner, several)]
