"""Reading chains with matrix products out of a program: attention, or a softmax of a product.

Found from the structure: a chain of rows (`rows.py`) in which some reductions are sums of products of two
reads. The row axis that only the first factor has is the axis m of all products; each has an axis n that only
its second factor has, and an axis k that it sums over. Scores and weights are then the temporaries of a block
of rows, and never exist as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ..ir.affine import affine
from ..ir.exprs import Load
from ..ir.nodes import Program, Update
from ..ir.walk import buffers, free_vars
from .problem import factors_of, nests
from .rows import Rows, rows


@dataclass(frozen=True, slots=True)
class Product:
    """A stage (by number) out[m, n] = sum over k of a * b, as axes; `followed` by an elementwise stage.

    `unit` says whether b is contiguous along n, `crossed` whether it is along k. `outer` are the other row
    axes that move b, `follower` the name of the stage that alone reads the product, element by element.
    """

    stage: int
    n: str
    k: str
    b: str
    unit: bool
    crossed: bool
    outer: tuple[str, ...]
    follower: str


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """A chain of rows with products; `m` is the row axis of their tiles, `outer` are the other row axes."""

    rows: Rows
    m: str
    outer: tuple[str, ...]
    products: tuple[Product, ...]

    def extent(self, axis: str) -> int:
        """Iterations over `axis`."""
        return self.rows.extent(axis)

    @property
    def heads(self) -> int:
        """Iterations over all row axes but m."""
        return prod([self.extent(axis) for axis in self.outer])

    @property
    def others(self) -> tuple[int, ...]:
        """Numbers of the stages of the body that are neither products nor their followers."""
        gone = {p.stage for p in self.products}
        names = {p.follower for p in self.products}
        return tuple([n for n in self.rows.body if n not in gone and self.rows.stages[n].name not in names])


@lru_cache(maxsize=256)
def attention(program: Program) -> Attention | None:
    """The chain of `program`, if it has products and other reductions in the same rows; None otherwise."""
    r = rows(program)
    if r is None or not r.together or len(r.body) < len(r.stages):
        return None
    found = [_product(program, r, n) for n in r.body]
    products = [p for p in found if p is not None]
    plain = [s for n, s in enumerate(r.stages) if s.combiner and found[n] is None]
    ms = {m for m, _ in products}
    if not products or not plain or len(ms) != 1:
        return None
    m = ms.pop()
    return Attention(r, m, tuple([a for a in r.rows if a != m]), tuple([p for _, p in products]))


def _product(program: Program, r: Rows, number: int) -> tuple[str, Product] | None:
    """(axis m, product) of a stage; None where it is no product of two different buffers."""
    stage = r.stages[number]
    leaf = list(nests(program.body))[number][1]
    if not isinstance(leaf, Update) or leaf.combiner != "sum" or len(stage.reduced) != 1:
        return None
    factors = factors_of(leaf.values[0])
    if factors is None or factors[0].buffer == factors[1].buffer:
        return None
    axis = {v: a for (v, _), a in zip(stage.loops, stage.axes, strict=True)}
    used = [{axis[v] for i in f.indices for v in free_vars(i)} for f in factors]
    k = stage.reduced[0]
    a, b = used
    m = [x for x in r.rows if x in a - b]
    n = [x for x in stage.axes if x in b - a and x != k and x not in r.rows]
    if len(m) != 1 or len(n) != 1 or k not in a & b or len(stage.axes) > len(r.rows) + 2:
        return None
    steps = _steps(program, factors[1], axis)
    outer = tuple([x for x in r.rows if x in b])
    made = Product(
        number, n[0], k, factors[1].buffer, steps.get(n[0]) == 1, steps.get(k) == 1, outer,
        _follower(program, r, number),
    )  # fmt: skip
    return m[0], made


def _steps(program: Program, read: Load, axis: dict[str, str]) -> dict[str, int]:
    """Elements by which a step of each axis moves a read, for axes that are affine in every index."""
    total: dict[str, int] = {}
    bad: set[str] = set()
    buffer = buffers(program)[read.buffer]
    for index, stride in zip(read.indices, buffer.element_strides, strict=True):
        form = affine(index)
        if form is None:
            bad |= {axis[v] for v in free_vars(index)}
            continue
        for name, c in form.terms:
            total[axis[name]] = total.get(axis[name], 0) + c * stride
    return {a: c for a, c in total.items() if a not in bad}


def _follower(program: Program, r: Rows, number: int) -> str:
    """The elementwise stage that alone reads a product, at the same element; "" for none."""
    name = r.stages[number].name
    readers = [s for s in r.stages if name in s.reads]
    if name in r.outputs or len(readers) != 1:
        return ""
    one, product = readers[0], r.stages[number]
    kept = {a for a in product.axes if a not in product.reduced}
    # Its other operands must be there when the product is stored: nothing is computed between the two.
    between = {t for s in r.stages[number + 1 : r.stages.index(one)] for t in s.targets}
    same = not one.combiner and set(one.axes) == kept and name not in one.apart
    return one.name if same and not one.reads & between else ""
