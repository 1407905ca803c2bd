"""einsum: sums of products named by letters, two operands at a time."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ..errors import ArgumentError
from ..ir.build import Tensor
from ..ir.dtypes import DType, accumulator, boolean, promote
from ..ir.exprs import Expr, converted
from .dtypes import product_type
from .expressions import compute, sum
from .operator import operator


@dataclass(frozen=True, slots=True)
class _Term:
    """A tensor with the letter of each axis; an axis of one element that broadcasts has no letter ("")."""

    tensor: Tensor
    letters: tuple[str, ...]

    @property
    def set(self) -> frozenset[str]:
        return frozenset(self.letters) - {""}


@operator
def einsum(subscripts: str, *operands: Tensor, dtype: Any = None) -> Tensor:
    """The sum of products that `subscripts` name, as numpy.einsum: `tlm.ops.einsum("bik,bkj->bij", a, b)`.

    Letters that the result lacks are summed, a letter twice in an operand walks its diagonal, "..." stands
    for axes that broadcast; without "->" the result has the letters that occur once, in order.
    Operands are contracted in pairs, the cheapest pair first. Sums are held as those of `matmul`.
    """
    inputs, output, sizes = _parse(subscripts, operands)
    result = operands[0].dtype
    for x in operands[1:]:
        result = promote(result, x.dtype)
    if dtype is not None:
        result = product_type("einsum", dtype, [x.dtype for x in operands])
    acc = accumulator(result)
    terms = [_Term(x, letters) for x, letters in zip(operands, inputs, strict=True)]
    while len(terms) > 2:
        i, j = _cheapest(terms, output, sizes)
        pair = [terms[i], terms[j]]
        rest = [t for n, t in enumerate(terms) if n not in (i, j)]
        needed = frozenset(output).union(*[t.set for t in rest])
        kept = _order(pair, needed)
        terms = [*rest, _Term(_contract(pair, kept, sizes, (acc, result), "part"), kept)]
    return _finish(terms, output, sizes, acc, result)


def _finish(
    terms: Sequence[_Term], output: tuple[str, ...], sizes: dict[str, int], acc: DType, result: DType
) -> Tensor:
    if acc == result:
        return _contract(terms, output, sizes, (acc, result), "Y")
    total = _contract(terms, output, sizes, (acc, result), "acc")
    return compute(total.shape, lambda *at: total[at], name="Y", axes=output, dtype=result)


def _contract(
    terms: Sequence[_Term],
    kept: tuple[str, ...],
    sizes: dict[str, int],
    dtypes: tuple[DType, DType],
    name: str,
) -> Tensor:
    """The product of one or two terms, summed over the letters that are not kept.

    `dtypes`: that of the sum, and that of the whole einsum's result.
    """
    acc, result = dtypes
    summed = [c for t in terms for c in t.letters if c and c not in kept]
    over = {c: sizes[c] for c in dict.fromkeys(summed)}
    letters = (*kept, *over)

    def value(*at: Expr) -> Expr:
        named = dict(zip(letters, at, strict=True))
        elements: list[Expr] = [t.tensor[tuple([named[c] if c else 0 for c in t.letters])] for t in terms]
        if result == boolean:
            elements = [converted(x, boolean) for x in elements]
        factors = [converted(x, acc) for x in elements]
        return factors[0] if len(factors) == 1 else factors[0] * factors[1]

    shape = tuple([sizes[c] for c in kept])
    if not over:
        return compute(shape, value, name=name, axes=kept)
    return sum(shape, value, over, name=name, axes=kept, dtype=acc)


def _order(pair: Sequence[_Term], needed: frozenset[str]) -> tuple[str, ...]:
    """Letters of an intermediate: shared ones, then those of the first operand, then of the second."""
    a, b = [[c for c in dict.fromkeys(t.letters) if c in needed] for t in pair]
    shared = [c for c in a if c in b]
    return (*shared, *[c for c in a if c not in b], *[c for c in b if c not in a])


def _cheapest(terms: Sequence[_Term], output: tuple[str, ...], sizes: dict[str, int]) -> tuple[int, int]:
    """The pair whose product takes the fewest multiplications; the earliest of equals."""
    pairs = [(i, j) for i in range(len(terms)) for j in range(i + 1, len(terms))]
    return min(pairs, key=lambda p: (prod([sizes[c] for c in terms[p[0]].set | terms[p[1]].set]), p))


def _parse(
    subscripts: Any, operands: Sequence[Tensor]
) -> tuple[list[tuple[str, ...]], tuple[str, ...], dict[str, int]]:
    """Letters of each operand's axes and of the result, and the size of each letter."""
    if not isinstance(subscripts, str):
        raise ArgumentError(f"einsum: subscripts are a string such as 'ij,jk->ik', got {subscripts!r}")
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(operands):
        raise ArgumentError(
            f"einsum: {subscripts!r} names {len(parts)} operands, got {len(operands)} (shapes "
            f"{', '.join([str(x.shape) for x in operands])})"
        )
    for part in (*parts, right):
        plain = part.replace("...", "", 1)
        if not all(c in string.ascii_letters for c in plain):
            raise ArgumentError(f"einsum: {part!r} in {subscripts!r} is not letters with at most one '...'")
    widest = max([0, *[x.ndim - len(p) + 3 for p, x in zip(parts, operands, strict=True) if "..." in p]])
    # Axes of an ellipsis get names that no letter has; the last ones are shared.
    free = [f"e{n}" for n in range(widest)]
    named = [_letters(p, x, free, subscripts) for p, x in zip(parts, operands, strict=True)]
    sizes = _sizes(named, operands, set(free), subscripts)
    inputs = [
        tuple(["" if x.shape[n] == 1 != sizes[c] else c for n, c in enumerate(letters)])
        for letters, x in zip(named, operands, strict=True)
    ]
    if arrow:
        before, dots, after = right.partition("...")
        if free and not dots:
            raise ArgumentError(f"einsum: the result of {subscripts!r} needs the '...' of its operands")
        output = (*before, *(free if dots else ()), *after)
    else:
        counts = [c for letters in named for c in letters if c not in free]
        output = (*free, *sorted([c for c in set(counts) if counts.count(c) == 1]))
    if len(set(output)) != len(output) or not set(output) <= set(sizes):
        raise ArgumentError(
            f"einsum: the result of {subscripts!r} repeats a letter, or has one of no operand"
        )
    return inputs, output, sizes


def _letters(part: str, x: Tensor, free: list[str], subscripts: str) -> tuple[str, ...]:
    before, dots, after = part.partition("...")
    extra = x.ndim - len(before) - len(after)
    if extra < 0 or (extra and not dots):
        raise ArgumentError(
            f"einsum: {part!r} in {subscripts!r} names {len(before) + len(after)} axes, the operand has "
            f"shape {x.shape}"
        )
    return (*before, *free[len(free) - extra :], *after)


def _sizes(
    named: Sequence[tuple[str, ...]], operands: Sequence[Tensor], free: set[str], subscripts: str
) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for letters, x in zip(named, operands, strict=True):
        own = dict(zip(letters, x.shape, strict=True))
        for c, n in zip(letters, x.shape, strict=True):
            known = sizes.get(c, 1)
            # Axes of several operands broadcast; a diagonal is one of a square.
            if own[c] != n:
                known = own[c]
            if known != n and (own[c] != n or 1 not in (known, n)):
                raise ArgumentError(
                    f"einsum: {'an axis of ...' if c in free else repr(c)} in {subscripts!r} has sizes "
                    f"{known} and {n}"
                )
            sizes[c] = n if known == 1 else known
    return sizes
