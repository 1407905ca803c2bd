"""Which loops one matrix instruction of a warpgroup runs, and which results each of its threads holds.

A warpgroup is four neighbouring warps, numbered by the thread loop y around the one over their lanes l. Its
instruction multiplies 64 x 16 by 16 x N (N a multiple of 8 up to 256), both in shared memory. Of the 64 x N
results, lane l of warp w holds those in rows 16 * w + l // 4 and 8 below, in columns 2 * (l % 4) and the next
one of every 8. So a nest is one instruction where each thread sums its own 2 x 2 results of each 8 columns:

    threadIdx.y for y in 4 * groups: threadIdx.x for l in 32:
      warpgroup for k in 16: warpgroup for j in N / 8: warpgroup for m in 2: warpgroup for n in 2:
        acc[y, l, j, m, n] (k; no init)+= f32(A[y // 4 * 64 + y % 4 * 16 + m * 8 + l // 4, k])
                                          * f32(B[k, j * 8 + l % 4 * 2 + n])

(PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16".) Where rows and columns lie in shared memory is for
the backend to check, once that is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ..ir.dtypes import DType, bf16, f16
from ..ir.exprs import Expr, Load, Var, const
from ..ir.nodes import For, Program, Stmt, Update
from ..ir.paths import Path, loops_on
from ..ir.simplify import simplify
from ..ir.walk import free_vars, substitute
from .base import Rewrite, Step
from .matrix import WARP, Product, product
from .tensorize import Form, instruction

WARPS = 4
ROWS, COLUMNS, DEPTH = 64, 8, 16
"""Rows of an instruction, columns of its least one, and products of each sum."""
MOST_COLUMNS = 256
FACTORS: tuple[DType, ...] = (bf16, f16)


@dataclass(frozen=True, slots=True)
class GroupProduct(Product):
    """The sum of products of four nested loops: over k, groups j of eight columns, and two results each along
    m (of `left`) and n."""

    j: For


def group_product(stmt: Stmt) -> GroupProduct | None:
    """The product that a nest of four loops over k, j, m and n is; None for other statements."""
    heads: list[For] = []
    while isinstance(stmt, For) and len(heads) < 4:
        heads.append(stmt)
        stmt = stmt.body
    if len(heads) != 4 or not isinstance(stmt, Update):
        return None
    k, j, m, n = heads
    found = product(replace(k, body=replace(m, body=replace(n, body=stmt))))
    if found is None or (found.k.var, found.m.var, found.n.var) != (k.var, m.var, n.var):
        return None
    return None if j.var in stmt.axes else GroupProduct(k, m, n, stmt, found.left, found.right, j)


def odd_size(p: GroupProduct) -> str | None:
    """Why there is no instruction of the size and dtype of `p`; None where there is."""
    if p.left.dtype not in FACTORS:
        return f"warpgroups multiply {', '.join(map(str, FACTORS))}, not {p.left.dtype}"
    if p.k.extent != DEPTH or not 1 <= p.j.extent <= MOST_COLUMNS // COLUMNS:
        return (
            f"loops {p.k.var} and {p.j.var} have {p.k.extent} and {p.j.extent} iterations; instructions are "
            f"{DEPTH} products deep and of 1 to {MOST_COLUMNS // COLUMNS} times {COLUMNS} columns"
        )
    if any(x.bound is not None for x in (p.k, p.j, p.m, p.n)):
        return "a loop in it has a limit that is known at run time only"
    return None


def group_misfit(p: GroupProduct, extents: Mapping[str, int], y: str, lane: str) -> str | None:
    """Why `p`, of the warps `y` and their lanes, is not one instruction; None where it is."""
    odd = odd_size(p)
    if odd is not None:
        return odd
    own = (p.j, p.m, p.n)
    around = [getattr(i, "name", None) for i in p.update.indices[:-3]]
    if not {y, lane} <= set(around) or not all(map(_indexed, p.update.indices[-3:], own)):
        listed = ", ".join([x.var for x in own])
        return f"{p.update.targets[0]} has no dimensions for {y}, {lane}, and at last {listed}"
    if extents[y] % WARPS:
        return f"the {extents[y]} warps of {y} are no whole groups of {WARPS}"
    for load, side, others in ((p.left, "left", (p.j, p.n)), (p.right, "right", (p.m,))):
        used = [x.var for x in others if any(x.var in free_vars(i) for i in load.indices)]
        if used:
            return f"the {side} factor, of {load.buffer}, depends on {used[0]}"
        if not _by_rows(load, y, lane, side, extents):
            wanted = f"{lane} // 4" if side == "left" else f"{y} // {WARPS} and {lane} % 4"
            return f"the {side} factor, of {load.buffer}, does not depend on {y} and {lane} by {wanted} alone"
    return None


def _indexed(index: Expr, loop: For) -> bool:
    return index == Var(loop.var) or (loop.extent == 1 and index == const(0))


def _by_rows(load: Load, y: str, lane: str, side: str, extents: Mapping[str, int]) -> bool:
    """Whether the threads of a warpgroup that hold results of one row (or column) read one element."""
    known = {**extents, _GROUP: extents[y] // WARPS}

    def at(warp: int, number: int) -> tuple[Expr, ...]:
        threads: dict[str, Expr] = {y: Var(_GROUP) * WARPS + warp, lane: const(number)}
        return tuple([simplify(substitute(i, threads), known) for i in load.indices])

    forms = {(w, n): at(w, n) for w in range(WARPS) for n in range(WARP)}
    first = (lambda w, n: (w, n - n % 4)) if side == "left" else (lambda w, n: (0, n % 4))
    return all(form == forms[first(w, n)] for (w, n), form in forms.items())


# No loop of a program is called so.
_GROUP = "warpgroup "


@dataclass(frozen=True, slots=True)
class TensorizeGroup(Step):
    """A product of 64 x 16 by 16 x N becomes one matrix instruction of a warpgroup (wgmma of sm_90a).

        threadIdx.y for y in 4: threadIdx.x for l in 32: for k in 16: for j in 8: for m in 2: for n in 2:
          acc[y, l, j, m, n] (k; no init)+= f32(A[y * 16 + m * 8 + l // 4, k])
                                            * f32(B[k, j * 8 + l % 4 * 2 + n])
    ->  threadIdx.y for y in 4: threadIdx.x for l in 32: warpgroup for k in 16: warpgroup for j in 8: ...

    `loop` is the outermost of the four, in the order k, j, m, n. Factors are bf16 or f16, sums are f32. What
    the left factor reads may depend on a thread only by its warp and l // 4, what the right one reads only by
    l % 4 and the group of four warps. Guards inside go where both factors are padded with zeros.
    """

    primitive: ClassVar[str] = "tensorize_group"
    loop: str

    def plan(self, program: Program) -> Rewrite:
        return instruction(self, self.loop, program, _FORM)


def _group_threads(step: Step, program: Program, path: Path, loop: str) -> tuple[For, ...]:
    """The loops over the warps of a block and over their lanes."""
    bound = {f.kind: f for f in loops_on(path)}
    y, lane = bound.get("threadIdx.y"), bound.get("threadIdx.x")
    if y is None or lane is None or lane.extent != WARP or y.extent % WARPS or "threadIdx.z" in bound:
        legal = f"Bind {WARP} lanes to threadIdx.x, and a multiple of {WARPS} warps to threadIdx.y."
        raise step.refuse(program, f"no whole groups of {WARPS} warps run {loop}", legal)
    return y, lane


_FORM = Form(
    kind="warpgroup",
    loops=4,
    others="the three loops in it",
    legal="They are the summed loop, one over groups of 8 columns, and one of 2 for each factor.",
    read=group_product,
    threads=_group_threads,
    misfit=group_misfit,
)
