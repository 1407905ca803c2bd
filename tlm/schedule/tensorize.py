"""Matrix instructions of GPUs: a nest of loops that a warp runs as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from ..ir.affine import conjuncts, implied
from ..ir.exprs import Const, Expr, Load, Op, Var
from ..ir.nodes import For, If, LoopKind, Program, Stmt, Store
from ..ir.paths import Path, extents_of, find_writers, loops_on, rebuild, with_body
from ..ir.walk import buffers, free_vars, rewrap, substitute
from .annotate import marked
from .base import Rewrite, Step
from .matrix import WARP, Product, misfit, product

P = TypeVar("P", bound=Product)


@dataclass(frozen=True, slots=True)
class Form(Generic[P]):
    """A kind of matrix instruction, with whose name its `loops` nested loops are marked.

    read: the product that a nest is. threads: the loops over the threads that run one together, or
    ScheduleError. misfit(product, extents, *names of these loops): why it is not one instruction; None where
    it is. others, legal: how messages call the loops inside of the first one, and what these must be.
    """

    kind: LoopKind
    loops: int
    others: str
    legal: str
    read: Callable[[Stmt], P | None]
    threads: Callable[[Step, Program, Path, str], tuple[For, ...]]
    misfit: Callable[..., str | None]


def instruction(step: Step, loop: str, program: Program, form: Form[P]) -> Rewrite:
    """The rewrite of `step`: the nest under `loop` becomes one instruction of a form."""
    path, outermost = step.serial(program, loop)
    nest, guards = _unguarded(outermost)
    found = form.read(nest)
    if found is None:
        reason = f"{loop} and {form.others} are no sum of products with 2 x 2 results"
        raise step.refuse(program, reason, form.legal)
    threads = form.threads(step, program, path, loop)
    wrong = form.misfit(found, extents_of(program.body), *[t.var for t in threads])
    if wrong is not None:
        raise step.refuse(program, wrong)
    target = buffers(program)[found.update.targets[0]]
    if target.memory != "register" or found.update.init:
        legal = "Use cache_write(memory='register') and decompose_reduction first."
        raise step.refuse(program, f"{target.name} is not summed in registers that start before", legal)
    for thread in threads:
        _whole_warps(step, program, path, thread)
    _padded(step, program, found, guards)
    return lambda: with_body(program, rebuild(path, _marked(nest, form.loops, form.kind)))


@dataclass(frozen=True, slots=True)
class Tensorize(Step):
    """A product of 16 x K by K x 8 becomes one matrix instruction of a warp.

        threadIdx.x for l in 32: for k in 16: for m in 2: for n in 2:
          acc[l, m, n] (k; no init)+= f32(A[m * 8 + l // 4, k]) * f32(B[k, l % 4 * 2 + n])
    ->  threadIdx.x for l in 32: tensor for k in 16: tensor for m in 2: tensor for n in 2: the same

    `loop` is the outermost of the three; they may come in any order. What the left factor reads may depend on
    the thread l only by l // 4, what the right one reads only by l % 4. Factors are bf16 or f16 (16 or 8
    products deep) or f32, which the instruction rounds to 10 bits (8 or 4 deep); sums are f32.
    Guards inside go where both factors are padded with zeros.
    """

    primitive: ClassVar[str] = "tensorize"
    loop: str

    def plan(self, program: Program) -> Rewrite:
        return instruction(self, self.loop, program, _FORM)


def _lanes(step: Step, program: Program, path: Path, loop: str) -> tuple[For, ...]:
    """The loop over the lanes of a warp."""
    lanes = [f for f in loops_on(path) if f.kind == "threadIdx.x"]
    if not lanes or lanes[0].extent != WARP:
        legal = f"Bind a loop of {WARP} iterations around it to threadIdx.x."
        raise step.refuse(program, f"no loop over the {WARP} lanes of a warp is around {loop}", legal)
    return (lanes[0],)


_FORM = Form(
    kind="tensor",
    loops=3,
    others="the two loops in it",
    legal="They are the loop that is summed, and one of 2 iterations for each factor.",
    read=product,
    threads=_lanes,
    misfit=misfit,
)


def _whole_warps(step: Step, program: Program, path: Path, lane: For) -> None:
    """Refuse `step` where some threads of the loop `lane` may skip the instruction at `path`."""
    for stmt in path:
        if isinstance(stmt, If) and lane.var in free_vars(stmt.cond):
            raise step.refuse(program, f"a guard on {lane.var} is around it", _ADVICE)


def _padded(step: Step, program: Program, found: Product, guards: tuple[Expr, ...]) -> None:
    """Refuse `step` for guards inside the nest, but where both factors are zero wherever these fail."""
    extents = extents_of(program.body)
    for guard in guards:
        for load in (found.left, found.right):
            inside = _filled(program, load)
            if inside is None or implied(guard, extents, (inside,)) is not True:
                raise step.refuse(program, f"{load.buffer} may not be 0 where a guard inside fails", _ADVICE)


_ADVICE = "Stage both factors with cache_read(..., pad=True), and tensorize before the copies are split."


def _filled(program: Program, load: Load) -> Expr | None:
    """Where a padded copy has no padding at the place of `load`; None for other buffers."""
    writers = find_writers(program.body, load.buffer)
    leaf = writers[0][-1] if len(writers) == 1 else None
    match leaf:
        case Store(_, indices, Op("where", (cond, _, Const(0)), _)):
            at: dict[str, Expr] = {}
            for own, read in zip(indices, load.indices, strict=True):
                if not isinstance(own, Var):
                    return None
                at[own.name] = read
            return substitute(cond, at)
    return None


def _unguarded(stmt: Stmt) -> tuple[Stmt, tuple[Expr, ...]]:
    """A nest of loops without the guards in it, and these."""
    match stmt:
        case For(body=body):
            inner, guards = _unguarded(body)
            return rewrap(stmt, inner), guards
        case If(cond, then, None):
            inner, guards = _unguarded(then)
            return inner, (*conjuncts(cond), *guards)
    return stmt, ()


def _marked(stmt: Stmt, depth: int, kind: LoopKind) -> Stmt:
    if depth == 0 or not isinstance(stmt, For):
        return stmt
    return marked(rewrap(stmt, _marked(stmt.body, depth - 1, kind)), kind)
