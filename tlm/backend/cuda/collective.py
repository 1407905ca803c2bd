"""The text of reductions over the threads of a block."""

from __future__ import annotations

from math import prod

from ...ir.affine import conjunction
from ...ir.combiners import COMBINERS
from ...ir.exprs import Var
from ...lower.gpu_collective import WARP, Groups, groups
from ...lower.gpu_tree import AXES, Collective
from ..brackets import bare
from .device import VALUES
from .threads import Threads

# Types that shuffles take; others travel as int.
_SHUFFLED = ("float", "double", "int", "long long")


class Collectives(Threads):
    """Writes collectives, for blocks of `shape` threads. `scratch` collects their shared arrays: (name, type,
    elements)."""

    shape: tuple[int, int, int] = (1, 1, 1)
    scratch: list[tuple[str, str, int]]

    def collective(self, node: Collective, pad: str) -> list[str]:
        """The lines of a collective: all threads of the block take them."""
        by = groups(node, self.shape)
        deeper = pad + "  "
        rows = prod([row.extent for row in node.rows])
        types = [VALUES[v.dtype.name] for v in node.update.values]
        scratch = [] if by.way == "warp" else [self.shared(node, n, t, by, rows) for n, t in enumerate(types)]
        lines = []
        for x in node.threads:
            self.extents[x.var] = x.extent
            lines.append(f"{deeper}const int {self.named(x.var)} = {x.kind};")
        if by.way != "warp":
            lines.append(f"{deeper}const int thread = {self.linear()};")
        lines += self.first(node, by, scratch, deeper)
        if by.way != "warp":
            lines.append(f"{deeper}__syncthreads();")
            lines += self.second(node, by, scratch, deeper)
        return [pad + "{", *lines, pad + "}"]

    def linear(self) -> str:
        """The number of a thread in its block."""
        x, y, z = self.shape
        out = "threadIdx.x"
        if y > 1 or z > 1:
            out += f" + {x} * threadIdx.y" if z == 1 else f" + {x} * (threadIdx.y + {y} * threadIdx.z)"
        return f"(int)({out})"

    def shared(self, node: Collective, part: int, kind: str, by: Groups, rows: int) -> str:
        """A shared array of this collective, and its declaration."""
        x, y, z = self.shape
        total = x * y * z
        size = rows * (total // WARP if by.way == "warps" else total)
        name = self.unique.name(
            f"{node.update.targets[part]}_of_{'warps' if by.way == 'warps' else 'threads'}"
        )
        self.scratch.append((name, kind, size))
        return name

    def first(self, node: Collective, by: Groups, scratch: list[str], pad: str) -> list[str]:
        """Each thread's values, merged in its warp where warps merge, then handed on or stored."""
        lines = self.row_heads(node, pad)
        inner = pad + "  " * len(node.rows)
        names, body = self.own_values(node, inner)
        lines += body
        if by.way != "shared":
            lines += self.shuffles(node, names, min(by.size, WARP), inner)
        if by.way == "warp":
            lines += self.result(node, names, self.leader(node), inner)
        else:
            place = f"thread / {WARP}" if by.way == "warps" else "thread"
            lines_each = [
                f"{s}[{self.slot(node, by, place)}] = {n};" for s, n in zip(scratch, names, strict=True)
            ]
            if by.way == "warps":
                lines += [
                    f"{inner}if (thread % {WARP} == 0) {{",
                    *[f"{inner}  {x}" for x in lines_each],
                    inner + "}",
                ]
            else:
                lines += [inner + x for x in lines_each]
        return lines + self.row_ends(node, pad)

    def second(self, node: Collective, by: Groups, scratch: list[str], pad: str) -> list[str]:
        """The values of all warps, or all threads, of a group, merged by its first warp or thread."""
        if by.way == "warps":
            return self.across_warps(node, by, scratch, pad)
        heads = self.row_heads(node, pad + "  ")
        inner = pad + "  " + "  " * len(node.rows)
        lines = [f"{pad}if ({' && '.join(self.leader(node)) or 'true'}) {{", *heads]
        names, body = self.identities(node, inner)
        lines += body
        place, loops, depth = self.members(node, by, inner)
        lines += loops
        deep = inner + "  " * depth
        dtypes = tuple([v.dtype for v in node.update.values])
        read = [f"{s}[{self.slot(node, by, place)}]" for s in scratch]
        before, merged = self.merged(node.update.combiner, dtypes, names, read, deep)
        lines += before + [f"{deep}{n} = {m};" for n, m in zip(names, merged, strict=True)]
        lines += [f"{inner}{'  ' * n}}}" for n in reversed(range(depth))]
        lines += self.result(node, names, [], inner)
        return [*lines, *self.row_ends(node, pad + "  "), pad + "}"]

    def members(self, node: Collective, by: Groups, pad: str) -> tuple[str, list[str], int]:
        """(number of a thread of the group, loops over the group, how many)."""
        strides: dict[str, int] = dict(
            zip(AXES, (1, self.shape[0], self.shape[0] * self.shape[1]), strict=True)
        )
        place, lines = "thread", []
        extents: dict[str, int] = {x.kind: x.extent for x in node.threads}
        for n, axis in enumerate(by.axes):
            name = self.unique.name(f"other_{axis[-1]}")
            head = f"for (int {name} = 0; {name} < {extents[axis]}; ++{name}) {{"
            lines.append(f"{pad}{'  ' * n}{head}")
            place += f" + {name}" if strides[axis] == 1 else f" + {name} * {strides[axis]}"
        return place, lines, len(by.axes)

    def across_warps(self, node: Collective, by: Groups, scratch: list[str], pad: str) -> list[str]:
        warps = by.size // WARP
        whole = by.size == self.shape[0] * self.shape[1] * self.shape[2]
        member = "thread" if whole else f"thread % {by.size}"
        inner = pad + "  "
        lines = [f"{pad}if ({member} < {WARP}) {{", *self.row_heads(node, inner)]
        deep = inner + "  " * len(node.rows)
        names, body = self.identities(node, deep)
        first = f"thread % {WARP}" if whole else f"thread / {by.size} * {warps} + thread % {WARP}"
        reads = [f"{n} = {s}[{self.slot(node, by, first)}];" for n, s in zip(names, scratch, strict=True)]
        lines += [
            *body,
            f"{deep}if (thread % {WARP} < {warps}) {{",
            *[f"{deep}  {x}" for x in reads],
            deep + "}",
        ]
        width = 1
        while width < warps:
            width *= 2
        lines += self.shuffles(node, names, width, deep)
        lines += self.result(node, names, self.leader(node), deep)
        return [*lines, *self.row_ends(node, inner), pad + "}"]

    # Pieces

    def row_heads(self, node: Collective, pad: str) -> list[str]:
        return [self.head(r, pad + "  " * n) for n, r in enumerate(node.rows)]

    def row_ends(self, node: Collective, pad: str) -> list[str]:
        return [f"{pad}{'  ' * n}}}" for n in reversed(range(len(node.rows)))]

    def slot(self, node: Collective, by: Groups, place: str) -> str:
        """The place of a value in the shared array, among those of its row."""
        x, y, z = self.shape
        each = x * y * z // (WARP if by.way == "warps" else 1)
        row = ""
        for r in node.rows:
            name = self.names[r.var]
            row = f"({row}) * {r.extent} + {name}" if row else name
        return f"({row}) * {each} + {place}" if row else place

    def identities(self, node: Collective, pad: str) -> tuple[list[str], list[str]]:
        """Variables that hold the identity, and their declarations."""
        dtypes = tuple([v.dtype for v in node.update.values])
        start = COMBINERS[node.update.combiner].identity(dtypes)
        names = [self.unique.name(f"{t}_merged") for t in node.update.targets]
        return names, [
            f"{pad}{VALUES[d.name]} {n} = {bare(self.value(c))};"
            for n, c, d in zip(names, start, dtypes, strict=True)
        ]

    def own_values(self, node: Collective, pad: str) -> tuple[list[str], list[str]]:
        """Variables with the values of this thread; the identity in threads that are not asked."""
        sizes: dict[str, int] = dict(zip(AXES, self.shape, strict=True))
        active = [f"{self.names[x.var]} < {x.extent}" for x in node.threads if x.extent < sizes[x.kind]]
        names, lines = self.identities(node, pad)
        values = [bare(self.value(v)) for v in node.update.values]
        if not active:
            kinds = [VALUES[v.dtype.name] for v in node.update.values]
            return names, [f"{pad}{k} {n} = {v};" for k, n, v in zip(kinds, names, values, strict=True)]
        sets = [f"{pad}  {n} = {v};" for n, v in zip(names, values, strict=True)]
        return names, [*lines, f"{pad}if ({' && '.join(active)}) {{", *sets, pad + "}"]

    def shuffles(self, node: Collective, names: list[str], width: int, pad: str) -> list[str]:
        """A butterfly over `width` lanes: all of them end with the merge of all."""
        if width < 2:
            return []
        x, y, z = self.shape
        lanes = min(WARP, x * y * z)
        mask = f"0x{(1 << lanes) - 1:x}u"
        dtypes = tuple([v.dtype for v in node.update.values])
        deeper = pad + "  "
        lines = [
            f"{pad}#pragma unroll",
            f"{pad}for (int offset = {width // 2}; offset > 0; offset /= 2) {{",
        ]
        others = [self.unique.name(f"{n}_other") for n in names]
        for other, name, dtype in zip(others, names, dtypes, strict=True):
            kind = VALUES[dtype.name]
            plain = kind in _SHUFFLED
            sent = f"__shfl_xor_sync({mask}, {name if plain else f'(int){name}'}, offset)"
            lines.append(f"{deeper}const {kind} {other} = {sent if plain else f'({kind}){sent}'};")
        before, merged = self.merged(node.update.combiner, dtypes, names, others, deeper)
        lines += before + [f"{deeper}{n} = {m};" for n, m in zip(names, merged, strict=True)]
        return [*lines, pad + "}"]

    def leader(self, node: Collective) -> list[str]:
        """The conditions under which a thread writes the result of its group."""
        loops = {x.kind: x for x in node.threads}
        out = []
        for axis, n in zip(AXES, self.shape, strict=True):
            x = loops.get(axis)
            if n > 1 and (x is None or x.var in node.update.axes):
                out.append(f"{axis} == 0")
            elif x is not None and x.extent < n:
                out.append(f"{axis} < {x.extent}")
        return out

    def result(self, node: Collective, names: list[str], conds: list[str], pad: str) -> list[str]:
        """The merge of a group stored in, or merged with, the target."""
        update = node.update
        if node.guards:
            conds = [*conds, self.truth(conjunction(node.guards))]
        inner = pad + "  " if conds else pad
        targets = [self.at(t, update.indices) for t in update.targets]
        dtypes = tuple([v.dtype for v in update.values])
        store = [f"{t} = {self.kept(n, d)};" for t, n, d in zip(targets, names, dtypes, strict=True)]
        own = {x.var for x in node.threads}
        outer = [a for a in update.axes if a not in own]
        lines = [inner + s for s in store]
        if not update.init or outer:
            old = [self.loaded(t, d) for t, d in zip(targets, dtypes, strict=True)]
            deep = inner + "  " if outer and update.init else inner
            before, merged = self.merged(update.combiner, dtypes, old, names, deep)
            both = [
                f"{deep}{t} = {self.kept(m, d)};" for t, m, d in zip(targets, merged, dtypes, strict=True)
            ]
            if outer and update.init:
                first = self.truth(conjunction([Var(a) < 1 for a in outer]))
                lines = [f"{inner}if ({first}) {{", *[f"{deep}{s}" for s in store], f"{inner}}} else {{"]
                lines += [*before, *both, inner + "}"]
            else:
                lines = before + both
        joined = " && ".join([f"({c})" if "||" in c else c for c in conds])
        return [f"{pad}if ({joined}) {{", *lines, pad + "}"] if conds else lines
