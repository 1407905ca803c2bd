"""Matrix instructions of warpgroups: descriptors of both factors, products, and the wait for all of them."""

from __future__ import annotations

from math import prod

from ...errors import BackendError
from ...ir.exprs import Const, Expr, Load, const
from ...ir.nodes import For, Stmt
from ...ir.walk import statements
from ...lower.gpu_build import all_nodes
from ...lower.gpu_descriptor import descriptor
from ...lower.gpu_tree import Barrier, Branch, Collective, Kernel, Loop, Nest, Node, Pipeline
from ...schedule.matrix import WARP
from ...schedule.warpgroup import COLUMNS, WARPS, GroupProduct, group_product, odd_size
from .tensor import Tensors


class Groups(Tensors):
    """Writes statements in which warpgroups multiply matrices. `warps`: the loop over the warps of a block.

    `warpgroups`: whether the target has such instructions.
    """

    warps: For | None = None
    warpgroups: bool = False

    def statement(self, stmt: Stmt, pad: str) -> list[str]:
        found = _instruction(stmt)
        return super().statement(stmt, pad) if found is None else [self.issued(found, pad)]

    def issued(self, p: GroupProduct, pad: str) -> str:
        """The call of one instruction, which goes on by itself."""
        warps, lane = self.group_threads()
        for loop in (p.k, p.j, p.m, p.n):
            self.extents[loop.var] = loop.extent
        parts, turned = [], []
        for side, load in (("left", p.left), ("right", p.right)):
            buffer = self.homes[load.buffer].buffer
            found = odd_size(p) or descriptor(p, side, buffer, warps, lane, self.extents)
            if isinstance(found, str):
                raise BackendError(f"no matrix instruction: {found}")
            place = self.at(load.buffer, found.start)
            parts.append(f"matrix_descriptor<{found.leading}, {found.stride}>(&{place})")
            turned.append(str(int(found.turned)))
        name = f"wgmma_m64n{COLUMNS * p.j.extent}k16_{p.left.dtype.name}"
        call = f"{name}<{', '.join(turned)}>(&{self.sums(p)}, {', '.join(parts)});"
        return pad + self.use(call)

    def group_threads(self) -> tuple[str, str]:
        """The variables of the warps and of their lanes; BackendError where there are no such groups."""
        if not self.warpgroups:
            raise BackendError(
                f"warpgroups multiply matrices on sm_90a, the target is sm_{self.architecture}"
            )
        x, y, z = self.shape
        if self.lane is None or self.warps is None or x != WARP or z != 1 or self.warps.extent % WARPS:
            raise BackendError(
                f"matrix instructions of warpgroups need blocks of {WARP} threads along x and a multiple of "
                f"{WARPS} along y, got {x} x {y} x {z}"
            )
        return self.warps.var, self.lane.var

    def sums(self, p: GroupProduct) -> str:
        """The first of the sums that a thread has of one instruction; the others follow it."""
        target = p.update.targets[0]
        home = self.homes[target]
        size = len(home.buffer.shape)
        own = p.update.indices[-3:]
        if home.kept is None or home.kept[-3:] != (size - 3, size - 2, size - 1) or not _own(p, own):
            raise BackendError(f"no matrix instruction: {target} does not hold the sums of a thread in order")
        return self.at(target, (*p.update.indices[:-3], const(0), const(0), const(0)))

    def multiplied_by_groups(self, node: Nest, pad: str) -> list[str] | None:
        """The lines of a nest of such instructions, which ends when all of them have; None for other ones."""
        found = _only(node.body)
        if found is None:
            if any(isinstance(s, For) and s.kind == "warpgroup" for s in statements(node.body)):
                raise BackendError(
                    "no matrix instruction: its nest is more than loops around one product of a warpgroup"
                )
            return None
        home = self.homes[found.update.targets[0]]
        count = prod([home.buffer.shape[d] for d in home.kept or ()])
        hold = f"{pad}{self.use(f'wgmma_hold<{count}>')}(&{home.name}{'[0]' * len(home.kept or ())});"
        return [
            hold,
            pad + self.use("wgmma_fence();"),
            *self.statement(node.body, pad),
            pad + self.use("wgmma_commit();"),
            pad + self.use("wgmma_wait<0>();"),
            hold,
        ]


def _own(p: GroupProduct, indices: tuple[Expr, ...]) -> bool:
    """Whether sums are indexed by the loops of an instruction in their order."""
    pairs = zip((p.j, p.m, p.n), indices, strict=True)
    return all(
        getattr(i, "name", None) == x.var or (x.extent == 1 and isinstance(i, Const)) for x, i in pairs
    )


def _instruction(stmt: Stmt) -> GroupProduct | None:
    if not isinstance(stmt, For) or stmt.kind != "warpgroup":
        return None
    found = group_product(stmt)
    if found is None or any(x.kind != "warpgroup" for x in (found.k, found.j, found.m, found.n)):
        raise BackendError(f"no matrix instruction: loop {stmt.var} is marked, and no product of a warpgroup")
    return found


def _only(stmt: Stmt) -> GroupProduct | None:
    """The instruction that a nest of loops runs, where it runs nothing else."""
    while isinstance(stmt, For) and stmt.kind in ("serial", "unroll") and stmt.bound is None:
        stmt = stmt.body
    return _instruction(stmt)


def described(kernel: Kernel) -> frozenset[str]:
    """The buffers of a kernel that instructions of warpgroups read by themselves."""
    names: set[str] = set()
    for node in all_nodes(kernel.body):
        found = _only(node.body) if isinstance(node, Nest) else None
        if found is not None:
            factors: tuple[Load, ...] = (found.left, found.right)
            names.update([load.buffer for load in factors])
    return frozenset(names)


def fenced(nodes: tuple[Node, ...]) -> frozenset[int]:
    """The ids of the barriers that come last before an instruction which reads shared memory by itself."""
    found: set[int] = set()
    _reached(nodes, False, found)
    return frozenset(found)


def _reached(nodes: tuple[Node, ...], after: bool, found: set[int]) -> bool:
    """Whether such an instruction may come next, before any barrier, where `nodes` begin; `after`: where they
    end."""
    for node in reversed(nodes):
        match node:
            case Barrier():
                if after:
                    found.add(id(node))
                after = False
            case Nest() | Collective():
                after |= isinstance(node, Nest) and _only(node.body) is not None
            case Loop(_, body):
                after |= _reached(body, after or _reached(body, after, set()), found)
            case Branch(_, then, other):
                after = _reached(then, after, found) | _reached(other, after, found)
            case Pipeline():
                # It begins each iteration with a barrier of its own.
                _reached(node.body, after, found)
    return after
