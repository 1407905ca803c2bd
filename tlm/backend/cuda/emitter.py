"""Launches as CUDA C: readable, without headers, for NVRTC and for the C++ compilers of tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import BackendError
from ...ir.nodes import Buffer, For, Program
from ...ir.walk import reads, writes
from ...lower.gpu import architecture, lower_gpu
from ...lower.gpu_build import all_nodes
from ...lower.gpu_descriptor import ALIGNMENT as DESCRIBED
from ...lower.gpu_tree import AXES, Barrier, Branch, Collective, Kernel, Loop, Nest, Node, Pipeline
from ...target import Target
from .device import HELPERS, STORED
from .group import Groups, described, fenced
from .names import Names
from .values import Home

# Shared memory that a kernel may declare; more is one array whose size the launch gives.
STATIC_SHARED = 48 << 10
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of the text. `parameters` are the positions, in `Source.buffers`, of what it takes.

    `shared_bytes` of dynamic shared memory are given at the launch; `static_shared` are declared in the text.
    """

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    static_shared: int
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a program, and how to launch it.

    `buffers` are all arrays: the inputs, the outputs, then scratch that the caller provides, uninitialised.
    `aligned`: whether the text relies on arrays that start at multiples of 16 bytes.
    """

    text: str
    kernels: tuple[Launch, ...]
    buffers: tuple[Buffer, ...]
    aligned: bool


def emit(program: Program, target: Target, *, vectors: bool = True) -> Source:
    """CUDA C of a scheduled program: a kernel for each loop nest at its top, in running order.

    Without `vectors`, arrays may start anywhere. BackendError where the program is not one of launches, or is
    above a limit of the target.
    """
    lowered = lower_gpu(program, target, vectors)
    buffers = (*program.parameters, *lowered.scratch)
    positions = {b.name: n for n, b in enumerate(buffers)}
    names = Names()
    texts, launches, helpers, aligned = [], [], set[str](), False
    for kernel in lowered.kernels:
        writer = _Writer(kernel, names, vectors, target)
        text, launch = writer.whole(positions)
        used = launch.shared_bytes + launch.static_shared
        if used > target.block_shared:
            raise BackendError(
                f"{kernel.name}: a block has {used} bytes of shared memory, above the limit of "
                f"{target.name}, {target.block_shared}: stage smaller tiles or fewer stages"
            )
        texts.append(text)
        launches.append(launch)
        helpers |= writer.helpers
        aligned |= writer.aligned
    head = [text for name, text in HELPERS.items() if name in helpers]
    return Source("\n\n".join([*head, *texts]) + "\n", tuple(launches), buffers, aligned)


def storage(buffer: Buffer) -> int:
    """Elements from the first to the last one of a buffer, with what its strides leave out, and what pieces
    that change places may reach."""
    spans = zip(buffer.element_strides, buffer.shape, strict=True)
    size = 1 + sum(stride * max(extent - 1, 0) for stride, extent in spans)
    unit = 1 if buffer.swizzle is None else buffer.swizzle[1] * buffer.swizzle[2]
    return -(-size // unit) * unit


def _stage_bytes(buffer: Buffer) -> int:
    """Bytes of one copy of a shared buffer, a multiple of 16."""
    return -(-storage(buffer) * buffer.dtype.bytes // _ALIGNMENT) * _ALIGNMENT


class _Writer(Groups):
    def __init__(self, kernel: Kernel, names: Names, vectors: bool, target: Target) -> None:
        super().__init__(Names(), vectors)
        self.kernel = kernel
        self.shape, self.architecture = kernel.block, architecture(target)
        self.warpgroups = target.warpgroups
        self.described, self.fences = described(kernel), fenced(kernel.body)
        self.scratch: list[tuple[str, str, int]] = []
        self.name = names.name(kernel.name)
        self.unique.taken |= names.taken
        self.stages: dict[str, int] = {}
        self.filling = False

    def whole(self, positions: dict[str, int]) -> tuple[str, Launch]:
        """The text of the kernel, and its launch."""
        parameters = []
        for buffer in self.kernel.parameters:
            self.homes[buffer.name] = Home(self.unique.name(buffer.name), buffer)
            const = "" if buffer.name in self.kernel.written else "const "
            kind = STORED[buffer.dtype.name]
            parameters.append(f"{const}{kind}* __restrict__ {self.homes[buffer.name].name}")
        for name, place in self.kernel.places.items():
            kept = place.kept if place.memory == "private" else None
            self.homes[name] = Home(self.unique.name(name), place.buffer, kept)
        self.extents |= dict(zip(AXES, self.shape, strict=True))
        body = [self.bound(x) for x in self.kernel.blocks]
        self.count_stages(self.kernel.body)
        main = self.nodes(self.kernel.body, "  ")
        shared, dynamic, static = self.shared_memory()
        private = [
            "  " + self.declared(name) for name, p in self.kernel.places.items() if p.memory == "private"
        ]
        x, y, z = self.shape
        head = (
            f'extern "C" __global__ void __launch_bounds__({x * y * z})\n'
            f"{self.name}({', '.join(parameters)}) {{"
        )
        lines = [*shared, *body, *private, *main]
        numbers = tuple([positions[b.name] for b in self.kernel.parameters])
        launch = Launch(self.name, self.kernel.grid, self.shape, dynamic, static, numbers)
        return "\n".join([head, *lines, "}"]), launch

    def bound(self, loop: For) -> str:
        """The definition of a loop variable that is a block."""
        self.extents[loop.var] = loop.extent
        return f"  const int {self.named(loop.var)} = {loop.kind};"

    # Shared memory

    def shared_memory(self) -> tuple[list[str], int, int]:
        """(declarations, bytes given at the launch, bytes declared)."""
        arrays: list[tuple[str, str, int, int, int]] = []
        for name, place in self.kernel.places.items():
            if place.memory == "shared":
                kind, size = STORED[place.buffer.dtype.name], _stage_bytes(place.buffer)
                whole = size * self.stages.get(name, 1)
                start = DESCRIBED if name in self.described else _ALIGNMENT
                count = whole // place.buffer.dtype.bytes
                arrays.append((self.homes[name].name, kind, count, whole, start))
        for name, kind, count in self.scratch:
            each = {"double": 8, "long long": 8, "short": 2, "signed char": 1, "unsigned char": 1, "bool": 1}
            size = -(-count * each.get(kind, 4) // _ALIGNMENT) * _ALIGNMENT
            arrays.append((name, kind, count, size, _ALIGNMENT))
        # What starts at larger multiples comes first, and is whole multiples long: nothing lies in between.
        arrays.sort(key=lambda a: -a[4])
        total = sum(a[3] for a in arrays)
        if total <= STATIC_SHARED:
            lines = [f"  __shared__ __align__({at}) {k} {n}[{count}];" for n, k, count, _, at in arrays]
            return lines, 0, total
        lines = [f"  extern __shared__ __align__({arrays[0][4]}) unsigned char tlm_shared[];"]
        start = 0
        for name, kind, _, size, _ in arrays:
            lines.append(f"  {kind}* const {name} = reinterpret_cast<{kind}*>(tlm_shared + {start});")
            start += size
        return lines, total, 0

    def count_stages(self, nodes: Iterable[Node]) -> None:
        """Learn how many copies each shared buffer has."""
        for node in nodes:
            match node:
                case Loop(_, body):
                    self.count_stages(body)
                case Branch(_, then, other):
                    self.count_stages((*then, *other))
                case Pipeline():
                    self.stages.update(dict.fromkeys(node.buffers, node.stages))
                    self.count_stages(node.body)

    # Nodes

    def nodes(self, nodes: Iterable[Node], pad: str) -> list[str]:
        return [line for n in nodes for line in self.node(n, pad)]

    def node(self, node: Node, pad: str) -> list[str]:
        match node:
            case Nest():
                return self.nest(node, pad)
            case Collective(_, _, _, update):
                over = ", ".join(dict.fromkeys([x.kind for x in node.threads if x.var in update.axes]))
                comment = f"{pad}// {', '.join(update.targets)}: {update.combiner} over {over}"
                return [comment, *self.collective(node, pad)]
            case Barrier():
                return [*self.fence(pad, id(node) in self.fences), pad + "__syncthreads();"]
            case Loop(loop, body):
                return [self.head(loop, pad), *self.nodes(body, pad + "  "), pad + "}"]
            case Branch(cond, then, other):
                lines = [f"{pad}if ({self.truth(cond)}) {{", *self.nodes(then, pad + "  ")]
                lines += [f"{pad}}} else {{", *self.nodes(other, pad + "  ")] if other else []
                return [*lines, pad + "}"]
            case Pipeline():
                return self.pipeline(node, pad)
        raise TypeError(f"not a node: {node!r}")

    def fence(self, pad: str, wanted: bool) -> list[str]:
        """What shows instructions that read shared memory by themselves what was written there."""
        return [pad + self.use("fence_async();")] if wanted else []

    def nest(self, node: Nest, pad: str) -> list[str]:
        """Code of single threads: their loop variables, the threads that run it, and the statement."""
        sizes = dict(zip(AXES, self.shape, strict=True))
        bound = {x.kind: x for x in node.threads}
        self.lane, self.warps = bound.get("threadIdx.x"), bound.get("threadIdx.y")
        conds = []
        lines = []
        for axis in AXES:
            loop = bound.get(axis)
            if loop is not None:
                self.extents[loop.var] = loop.extent
                lines.append(f"{pad}  const int {self.named(loop.var)} = {axis};")
                if loop.extent < sizes[axis]:
                    conds.append(f"{axis} < {loop.extent}")
            elif sizes[axis] > 1:
                conds.append(f"{axis} == 0")
        inner = pad + "  "
        grouped = self.multiplied_by_groups(node, inner)
        body = grouped or (self.copied if self.filling else self.statement)(node.body, inner)
        head = f"{pad}if ({' && '.join(conds)}) {{" if conds else pad + "{"
        return [pad + self.comment(node), head, *lines, *body, pad + "}"]

    def comment(self, node: Nest) -> str:
        """What a stage makes, of what."""
        made = sorted(writes(node.body))
        used = sorted(reads(node.body) - set(made))
        return f"// {', '.join(made)}" + (f" from {', '.join(used)}" if used else "")

    # Pipelines

    def pipeline(self, node: Pipeline, pad: str) -> list[str]:
        """Fills run `stages - 1` iterations ahead; one barrier an iteration, after waiting for the oldest.

        It says that the buffers of this iteration are full, and that those of the one before are free.
        """
        loop, depth, deeper = node.loop, node.stages - 1, pad + "  "
        self.extents[node.ahead] = loop.extent
        ahead = self.named(node.ahead)
        commit = [deeper + self.use("copy_async_commit();")] if node.copies else []
        lines = [f"{pad}#pragma unroll", f"{pad}for (int {ahead} = 0; {ahead} < {depth}; ++{ahead}) {{"]
        lines += [*self.filled(node, node.copies, (*node.early, *node.late), deeper), *commit, pad + "}"]
        lines.append(self.head(loop, pad))
        lines += [f"{deeper}copy_async_wait<{depth - 1}>();"] if node.copies else []
        lines += [
            *self.fence(deeper, not self.described.isdisjoint(node.buffers)),
            deeper + "__syncthreads();",
            f"{deeper}const int {ahead} = {self.names[loop.var]} + {depth};",
        ]
        lines += [*self.filled(node, node.copies, node.early, deeper), *commit]
        lines += self.of(node, loop.var, deeper, (), node.body)
        lines += self.filled(node, (), node.late, deeper)
        return [*lines, pad + "}"]

    def filled(
        self, node: Pipeline, copies: tuple[Node, ...], others: tuple[Node, ...], pad: str
    ) -> list[str]:
        """Fills for the iteration `node.ahead`, where there is one."""
        if not copies and not others:
            return []
        loop = node.loop
        limit = str(loop.extent) if loop.bound is None else f"min({loop.extent}, {self.index(loop.bound)})"
        lines = self.of(node, node.ahead, pad + "  ", copies, others)
        return [f"{pad}if ({self.names[node.ahead]} < {limit}) {{", *lines, pad + "}"]

    def of(
        self, node: Pipeline, var: str, pad: str, copies: tuple[Node, ...], others: tuple[Node, ...]
    ) -> list[str]:
        """Nodes with the copies of the shared buffers that belong to iteration `var`."""
        lines, kept = [], dict(self.homes)
        used = [n for n in all_nodes((*copies, *others)) if isinstance(n, Nest | Collective)]
        touched = frozenset().union(*[_touched(n) for n in used])
        for name in [n for n in node.buffers if n in touched]:
            home = kept[name]
            size = _stage_bytes(home.buffer) // home.buffer.dtype.bytes
            own = self.unique.name(f"{home.name}_{'now' if var == node.loop.var else 'ahead'}")
            kind = STORED[home.buffer.dtype.name]
            lines.append(
                f"{pad}{kind}* const {own} = {home.name} + {self.names[var]} % {node.stages} * {size};"
            )
            self.homes[name] = Home(own, home.buffer)
        self.filling = True
        lines += self.nodes(copies, pad)
        self.filling = False
        lines += self.nodes(others, pad)
        self.homes.update({name: kept[name] for name in node.buffers})
        return lines


def _touched(node: Nest | Collective) -> frozenset[str]:
    stmt = node.body if isinstance(node, Nest) else node.update
    return reads(stmt) | writes(stmt)
