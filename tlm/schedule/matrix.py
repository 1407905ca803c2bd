"""Which loops one matrix instruction of a warp runs, and which elements each of its lanes holds.

An instruction multiplies 16 x K by K x 8. Lane l of the warp holds 4 of the 16 x 8 results: in rows l // 4
and l // 4 + 8, columns 2 * (l % 4) and the next one. So a nest is one instruction where each lane l sums its
own 2 x 2 results, of a left factor that depends on l by l // 4 alone and a right one that does by l % 4:

    threadIdx.x for l in 32: tensor for k in 16: tensor for m in 2: tensor for n in 2:
      acc[l, m, n] (k; no init)+= f32(A[m * 8 + l // 4, k]) * f32(B[k, l % 4 * 2 + n])

(PTX ISA, "Matrix Fragments for mma.m16n8k16" and the other shapes.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.dtypes import DType, bf16, f16, f32
from ..ir.exprs import Cast, Expr, Load, Op, const
from ..ir.nodes import For, Stmt, Update
from ..ir.simplify import simplify
from ..ir.walk import free_vars, substitute

WARP = 32
# Depths of the instructions by the dtype of the factors; f32 is rounded to tf32.
DEPTHS: dict[DType, tuple[int, ...]] = {bf16: (16, 8), f16: (16, 8), f32: (8, 4)}


@dataclass(frozen=True, slots=True)
class Product:
    """The sum of products of three nested loops: over k, and two results each along m (of `left`) and n."""

    k: For
    m: For
    n: For
    update: Update
    left: Load
    right: Load


def product(stmt: Stmt) -> Product | None:
    """The product that a nest of three loops is, of whatever kinds and order; None for other statements."""
    loops: list[For] = []
    while isinstance(stmt, For) and len(loops) < 3:
        loops.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, Update) or len(loops) != 3 or stmt.combiner != "sum":
        return None
    value = stmt.values[0]
    if not isinstance(value, Op) or value.op != "mul" or value.dtype != f32:
        return None
    factors = [_factor(a) for a in value.args]
    deep = [x for x in loops if x.var in stmt.axes]
    wide = [x for x in loops if x.var not in stmt.axes]
    if None in factors or len(deep) != 1 or any(x.extent != 2 or x.bound is not None for x in wide):
        return None
    left, right = [f for f in factors if f is not None]
    for m, n in (wide, wide[::-1]):
        if not _uses(left, n.var) and not _uses(right, m.var) and left.dtype == right.dtype:
            return Product(deep[0], m, n, stmt, left, right)
    return None


def _factor(value: Expr) -> Load | None:
    """What a factor reads: an element of a dtype that matrix instructions multiply."""
    if isinstance(value, Cast) and value.value.dtype != f32:
        value = value.value
    return value if isinstance(value, Load) and value.dtype in DEPTHS else None


def _uses(load: Load, var: str) -> bool:
    return any(var in free_vars(i) for i in load.indices)


def misfit(p: Product, extents: Mapping[str, int], lane: str) -> str | None:
    """Why `p`, of the threads `lane`, is not one instruction; None where it is."""
    depths = DEPTHS[p.left.dtype]
    if p.k.extent not in depths or p.k.bound is not None:
        return f"loop {p.k.var} has {p.k.extent} iterations; instructions for {p.left.dtype} take {depths}"
    known = {**extents, lane: WARP}
    for load, side in ((p.left, "left"), (p.right, "right")):
        forms = [_at(load, lane, n, known) for n in range(WARP)]
        if any(forms[n] != forms[n - n % 4 if side == "left" else n % 4] for n in range(WARP)):
            wanted = f"{lane} // 4" if side == "left" else f"{lane} % 4"
            return f"the {side} factor, of {load.buffer}, does not depend on {lane} by {wanted} alone"
    if any(v not in [getattr(i, "name", None) for i in p.update.indices] for v in (lane, p.m.var, p.n.var)):
        return f"{p.update.targets[0]} has no dimensions for {lane}, {p.m.var} and {p.n.var}"
    return None


def _at(load: Load, lane: str, number: int, extents: Mapping[str, int]) -> tuple[Expr, ...]:
    at: dict[str, Expr] = {lane: const(number)}
    return tuple([simplify(substitute(i, at), extents) for i in load.indices])
