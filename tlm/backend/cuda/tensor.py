"""Matrix instructions: the factors that a warp loads once, and the products of all of them."""

from __future__ import annotations

from ...errors import BackendError
from ...ir.exprs import Expr, Load, Var, const, op
from ...ir.nodes import For, Stmt
from ...ir.simplify import simplify
from ...ir.walk import free_vars, substitute
from ...lower.gpu_vectors import divisor
from ...schedule.access import Key, linear
from ...schedule.matrix import WARP, Product, misfit, product
from .collective import Collectives

# The first architecture with each kind of factor, and with 16 products at once.
_ARCHITECTURE = {("f16", 8): 75}
_FIRST = 80
_ROW = 16
"""Bytes of a row of a matrix that is loaded as a whole."""


class Tensors(Collectives):
    """Writes statements in which a warp multiplies matrices. `lane`: the loop over its threads, if any."""

    lane: For | None = None
    architecture: int = 0

    def statement(self, stmt: Stmt, pad: str) -> list[str]:
        found = instruction(stmt)
        return super().statement(stmt, pad) if found is None else self.multiplied(*found, pad)

    def multiplied(self, rows: tuple[For, ...], p: Product, pad: str) -> list[str]:
        """Both factors of all `rows` are loaded, each once; then each pair is multiplied."""
        lane = self.checked(p)
        lines = []
        parts = []
        for load, side in ((p.left, "left"), (p.right, "right")):
            own = tuple([r for r in rows if any(r.var in free_vars(i) for i in load.indices)])
            name = self.unique.name(f"{load.buffer}_{side}")
            count = self.held(p, side)
            sizes = "".join([f"[{r.extent}]" for r in own])
            lines.append(f"{pad}unsigned {name}{sizes}[{count}];")
            lines += [self.head(r, pad + "  " * n) for n, r in enumerate(own)]
            part = name + "".join([f"[{self.names[r.var]}]" for r in own])
            deep = pad + "  " * len(own)
            lines += [deep + x for x in self.loaded_factor(p, load, side, part, count, lane)]
            lines += [f"{pad}{'  ' * n}}}" for n in reversed(range(len(own)))]
            parts.append(part)
        lines += [self.head(r, pad + "  " * n) for n, r in enumerate(rows)]
        sums = [self.at(p.update.targets[0], self.picked(p, p.update.indices, n)) for n in range(4)]
        kind = "tf32" if _is_tf32(p.left) else p.left.dtype.name
        call = f"mma_m16n8k{p.k.extent}_{kind}({', '.join(sums)}, {', '.join(parts)});"
        lines.append(pad + "  " * len(rows) + self.use(call))
        return lines + [f"{pad}{'  ' * n}}}" for n in reversed(range(len(rows)))]

    def checked(self, p: Product) -> str:
        """The variable of the lanes; BackendError where the target or the block has no such instruction."""
        first = _ARCHITECTURE.get((p.left.dtype.name, p.k.extent), _FIRST)
        if self.architecture < first:
            raise BackendError(
                f"matrix instructions of depth {p.k.extent} on {p.left.dtype} start at sm_{first}, "
                f"the target is sm_{self.architecture}"
            )
        if self.lane is None or self.shape[0] != WARP:
            raise BackendError(
                f"matrix instructions need blocks of {WARP} threads along x, got {self.shape[0]}: "
                "bind warps to threadIdx.y"
            )
        for loop in (p.k, p.m, p.n):
            self.extents[loop.var] = loop.extent
        reason = misfit(p, self.extents, self.lane.var)
        if reason is not None:
            raise BackendError(f"no matrix instruction: {reason}")
        return self.lane.var

    def held(self, p: Product, side: str) -> int:
        """Registers of a lane that hold its part of a factor."""
        whole = p.k.extent // (2 if p.left.dtype.bytes == 4 else 4)
        return whole if side == "left" else whole // 2

    def picked(self, p: Product, indices: tuple[Expr, ...], number: int) -> tuple[Expr, ...]:
        """The place of sum `number` of the four of a lane."""
        at: dict[str, Expr] = {p.m.var: const(number // 2), p.n.var: const(number % 2)}
        return tuple([substitute(i, at) for i in indices])

    def loaded_factor(self, p: Product, load: Load, side: str, part: str, count: int, lane: str) -> list[str]:
        """The lines that load this lane's part of a factor: whole matrices at once where rows allow it."""
        whole = self.matrix_rows(p, load, side, count, lane)
        if whole is not None:
            rounded = [f"{part}[{n}] = to_tf32(__uint_as_float({part}[{n}]));" for n in range(count)]
            return [self.use(whole.format(part)) + ";", *map(self.use, rounded if _is_tf32(load) else [])]
        x = Var(lane)
        lines = []
        for n in range(count):
            # Of a pair of 16-bit elements the first is in the lower half.
            steps = (0, 1) if load.dtype.bytes == 2 else (0,)
            deep = [
                x % 4 * len(steps) + (j + 4 * len(steps) * (n // 2 if side == "left" else n)) for j in steps
            ]
            own: dict[str, Expr]
            own = {p.m.var: const(n % 2)} if side == "left" else {lane: x // 8, p.n.var: x // 4 % 2}
            codes = [self.at(load.buffer, self.placed(load, {**own, p.k.var: k})) for k in deep]
            code = f"to_tf32({codes[0]})" if len(codes) == 1 else f"{codes[0]} | (unsigned){codes[1]} << 16"
            lines.append(f"{part}[{n}] = {self.use(code)};")
        return lines

    def placed(self, load: Load, at: dict[str, Expr]) -> tuple[Expr, ...]:
        return tuple([simplify(substitute(i, at), self.extents) for i in load.indices])

    def matrix_rows(self, p: Product, load: Load, side: str, count: int, lane: str) -> str | None:
        """The call that loads matrices of eight rows of 16 bytes from shared memory; None where rows are not
        contiguous.

        Lane n gives the address of row n % 8 of matrix n / 8. A factor that is contiguous along k comes as it
        lies, one of 16-bit elements that is contiguous along its other side is turned.
        """
        home = self.homes[load.buffer]
        if home.buffer.memory != "shared":
            return None
        row = _ROW // load.dtype.bytes
        terms: dict[Key, int] = {}
        for index, stride in zip(load.indices, home.buffer.element_strides, strict=True):
            for key, c in linear(simplify(index, self.extents)).items():
                terms[key] = terms.get(key, 0) + c * stride
        x = Var(lane)
        deep: Expr = x // 16 * row if side == "left" else x // 8 % 2 * row
        if count == (2 if side == "left" else 1):
            deep = const(0)
        across = self.across(p, side, lane)
        own: dict[str, Expr]
        if _whole(terms, {p.k.var: 1}, row):
            if side == "left":
                own = {lane: x % 8 * 4, p.m.var: x // 8 % 2, p.k.var: deep}
            else:
                own = {lane: x % 8 // 2, p.n.var: x % 2, p.k.var: deep}
            turned = ""
        elif load.dtype.bytes == 2 and _whole(terms, across, row):
            rows = x % 8 + deep
            own = {lane: const(0), p.k.var: rows}
            own |= {p.m.var: x // 8 % 2} if side == "left" else {p.n.var: const(0)}
            turned = "_trans"
        else:
            return None
        place = self.at(load.buffer, self.placed(load, own))
        return f"load_matrix_x{count}{turned}({{}}, &{place})"

    def across(self, p: Product, side: str, lane: str) -> dict[Key, int]:
        """The coefficients of a factor whose rows run along its side that is not summed."""
        if side == "left":
            return {op("floordiv", Var(lane), const(4)): 1}
        return {op("mod", Var(lane), const(4)): 2, p.n.var: 1}


def _is_tf32(load: Load) -> bool:
    """Whether the elements of a factor are rounded on their way."""
    return load.dtype.name == "f32"


def _whole(terms: dict[Key, int], along: dict[Key, int], row: int) -> bool:
    """Whether `row` elements along the keys `along` are contiguous and start at multiples of 16 bytes."""
    rest = {k: c for k, c in terms.items() if k not in along}
    return all(terms.get(k) == c for k, c in along.items()) and all(
        c * divisor(k) % row == 0 for k, c in rest.items()
    )


def instruction(stmt: Stmt) -> tuple[tuple[For, ...], Product] | None:
    """The unrolled loops around a matrix instruction, and it; None for other statements."""
    rows: list[For] = []
    while isinstance(stmt, For) and stmt.kind == "unroll" and stmt.bound is None:
        rows.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, For) or stmt.kind != "tensor":
        return None
    found = product(stmt)
    if found is None or any(x.kind != "tensor" for x in (found.k, found.m, found.n)):
        return None
    return tuple(rows), found
