"""A lowered program as the text of one LLVM module.

    void kernel(ptr p0, ..., ptr pn, ptr workspace, i64 threads)

Parameters never alias: the caller guarantees that outputs overlap nothing. Heap buffers lie in the workspace:
first the part that all threads share, then one part for each thread of a parallel loop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...ir.exprs import Load, Var
from ...ir.names import SYMBOL_LETTERS
from ...ir.nodes import Alloc, Block, Buffer, For, If, Prefetch, Program, Stmt, Store, Update
from ...ir.walk import walk, writes
from ...target import Target
from . import team
from .arith import Arithmetic
from .builder import Function
from .control import Control
from .mathlib import Library
from .memory import Place, Runtime
from .types import memory_type

# Heap buffers start on cache lines; parts of threads start on pages of their own.
_LINE, _PAGE = 64, 4096


@dataclass(frozen=True, slots=True)
class Module:
    """`text` is the LLVM IR; `symbol` its entry; `imports` the functions it calls.

    The workspace has `shared` bytes plus `per_thread` bytes for each thread.
    """

    text: str
    symbol: str
    imports: tuple[str, ...]
    shared: int
    per_thread: int
    parallel: bool

    @property
    def standalone(self) -> str:
        """The text with all that a program without tlm needs, but for the system's libraries."""
        return team.standalone(self.text)

    def workspace_bytes(self, threads: int) -> int:
        """Scratch memory that one call with `threads` threads needs."""
        return self.shared + max(threads, 1) * self.per_thread


def emit(program: Program, target: Target, vector_math: bool = True) -> Module:
    """The module of a lowered program."""
    return _Emitter(program, target, vector_math).module()


def symbol(name: str) -> str:
    """The kernel's symbol: the program's name as far as it is an identifier."""
    return "tlm_" + re.sub(r"[^A-Za-z0-9_]", "_", name)[:SYMBOL_LETTERS]


class _Emitter(Control):
    def __init__(self, program: Program, target: Target, vector_math: bool) -> None:
        super().__init__(target)
        self.program = program
        self.library = Library(target.isa, vector_math)
        self.fma = target.fma
        self.f16c = "f16c" in target.features or target.isa == "neon"
        self.symbol = symbol(program.name)
        self.functions: list[str] = []
        self.used = 0
        self.worker = False
        self.shared, self.per_thread = heap_sizes(program.body)

    def module(self) -> Module:
        """The text of the whole program."""
        stored = writes(self.program.body)
        arguments = []
        for n, b in enumerate(self.program.parameters):
            arguments.append(f"ptr {_attributes(b, stored)} %p{n}")
            self.places[b.name] = Place(b, f"%p{n}")
        self._begin(
            f"define void @{self.symbol}({', '.join([*arguments, 'ptr %workspace', 'i64 %threads'])}) #0"
        )
        self.statement(self.program.body)
        self.function.line("ret void")
        parallel = bool(self.functions)
        self.functions.append(self.function.text())
        imports = (*self.library.declarations, *((team.TEAM,) if parallel else ()))
        return Module(self._text(parallel), self.symbol, imports, self.shared, self.per_thread, parallel)

    def _text(self, parallel: bool) -> str:
        body = "\n".join(self.functions)
        intrinsics = _declared(body)
        externals = [*self.library.declarations.values(), *((team.DECLARATION,) if parallel else ())]
        readable = ["@tlm.readable = private constant [1024 x i8] zeroinitializer, align 64"]
        return "\n".join([
            f"; {self.symbol}",
            *(readable if "@tlm.readable" in body else []), body,
            *sorted(externals), *intrinsics,
            'attributes #0 = { nounwind "prefer-vector-width"="512" }', "",
        ])  # fmt: skip

    def _begin(self, signature: str) -> None:
        self.function = Function(signature)
        self.arith = Arithmetic(self.function, self.library, self.fma, self.f16c)
        self.pointers = {}
        self.slots = {}
        self.idle = {}
        self.compiled = [{}]

    def temporary(self, alloc: Alloc) -> None:
        """A buffer on the stack (of the function's entry) or in the workspace, around the body of `alloc`."""
        buffer, f = alloc.buffer, self.function
        size = buffer.size * buffer.dtype.bytes
        if buffer.memory == "stack":
            kind = f"[{buffer.size} x {memory_type(buffer.dtype)}]"
            idle = self.idle.setdefault(kind, [])
            if not idle:
                idle.append(f.name("b"))
                f.entry.append(f"  {idle[-1]} = alloca {kind}, align 64")
            name = idle.pop()
            self._inside(alloc, name)
            idle.append(name)
            return
        name = f.name("b")
        f.entry.append(
            f"  {name} = getelementptr i8, ptr %{'own' if self.worker else 'workspace'}, i64 {self.used}"
        )
        self.used += _round(size, _LINE)
        self._inside(alloc, name)
        self.used -= _round(size, _LINE)

    def _inside(self, alloc: Alloc, base: str) -> None:
        self.places[alloc.buffer.name] = Place(alloc.buffer, base)
        self.function.loads.pop(alloc.buffer.name, None)
        self.statement(alloc.body)

    def parallel(self, loop: For) -> None:
        """The loop as a function of its own, run by a team of threads that share its iterations.

        Each member starts with its own even share, in order, and then helps the others with theirs: a thread
        that the system lets wait holds up the loop by one piece of its share, not by all of it.
        """
        used, looked = _names(loop.body)
        touched = sorted(used & self.places.keys())
        variables = sorted(v for v in looked if isinstance(self.env.get(v), Runtime))
        name = f"{self.symbol}.part{len(self.functions) // 2}"
        caller = self.function
        bases = [self.places[b].base for b in touched]
        values = [self.env[v].name for v in variables]  # type: ignore[union-attr]
        stop = self.bound(loop)
        self._fork(name, [*bases, "%workspace"], values, stop)
        state = (self.places, self.env, self.slots, self.idle, self.pointers, self.compiled, self.arith)
        mine, self.used = self.used, 0
        self._worker(name, loop, touched, variables)
        self.used = mine
        self.places, self.env, self.slots, self.idle, self.pointers, self.compiled, self.arith = state
        self.function = caller
        self._forget_loads(loop.body)

    def _fork(self, name: str, pointers: list[str], values: list[str], stop: str) -> None:
        """Call the part directly for one thread, else through a team, with the arguments in memory."""
        f = self.function
        args = [f"ptr {p}" for p in pointers] + [f"i64 {v}" for v in values]
        context = f.name("context")
        f.entry.append(f"  {context} = alloca [{8 * len(args)} x i8], align 8")
        wanted = f.value(f"call i64 @llvm.smin.i64(i64 %threads, i64 {stop})")
        several = f.value(f"icmp sgt i64 {wanted}, 1")
        together, alone, after = f.label("team"), f.label("alone"), f.label("joined")
        f.line(f"br i1 {several}, label %{together}, label %{alone}")
        f.start(alone)
        f.line(f"call void @{name}({', '.join([*args, 'i64 0', f'i64 {stop}', 'i64 0'])})")
        f.line(f"br label %{after}")
        f.start(together)
        for n, arg in enumerate(args):
            at = f.value(f"getelementptr i8, ptr {context}, i64 {8 * n}")
            f.line(f"store {arg}, ptr {at}, align 8")
        f.line(f"call void @{team.TEAM}(ptr @{name}.piece, ptr {context}, i64 {stop}, i64 {wanted})")
        f.line(f"br label %{after}")
        f.start(after)
        self.functions.append(team.piece(name, len(pointers), len(values)))

    def _worker(self, name: str, loop: For, touched: list[str], variables: list[str]) -> None:
        """The function that runs some of the iterations, on behalf of one member of the team."""
        stored = writes(loop.body)
        arguments = [f"ptr {_attributes(self.places[b].buffer, stored)} %p{n}" for n, b in enumerate(touched)]
        arguments += ["ptr %workspace", *[f"i64 %n{n}" for n in range(len(variables))]]
        arguments += ["i64 %first", "i64 %last", "i64 %member"]
        self.places = {b: Place(self.places[b].buffer, f"%p{n}") for n, b in enumerate(touched)}
        fixed = {v: x for v, x in self.env.items() if isinstance(x, int)}
        outer = self.env
        self._begin(f"define internal void @{name}({', '.join(arguments)}) #0")
        f = self.function
        self.env = dict(fixed)
        for n, v in enumerate(variables):
            value = outer[v]
            assert isinstance(value, Runtime)
            self.env[v] = Runtime(f"%n{n}", value.offset, 0)
        if self.per_thread:
            start = f.value(f"mul i64 %member, {self.per_thread}")
            start = f.value(f"add i64 {start}, {self.shared}")
            f.entry += f.lines[3:]
            del f.lines[3:]
            f.entry.append(f"  %own = getelementptr i8, ptr %workspace, i64 {start}")
        self.worker = True
        self.counted(loop, "%first", "%last", 1, nonempty=False)
        self.worker = False
        f.line("ret void")
        self.functions.append(f.text())


def _attributes(buffer: Buffer, written: frozenset[str]) -> str:
    return "noalias" if buffer.name in written else "noalias readonly"


def _names(stmt: Stmt) -> tuple[set[str], set[str]]:
    """The buffers that `stmt` reads, writes or fetches ahead, and the loop variables in its expressions."""
    used: set[str] = set()
    looked: set[str] = set()
    for node in walk(stmt):
        match node:
            case Var(name):
                looked.add(name)
            case Load() | Store() | Prefetch():
                used.add(node.buffer)
            case Update():
                used.update(node.targets)
    return used, looked


def heap_sizes(body: Stmt) -> tuple[int, int]:
    """Bytes of workspace: shared by all threads, and of each thread of a parallel loop."""
    return _heap(body, False), _round(_heap(body, True), _PAGE)


def _heap(stmt: Stmt, worker: bool, inside: bool = False) -> int:
    """The most bytes alive at once, of allocations inside parallel loops (`worker`) or outside them."""
    match stmt:
        case Alloc(buffer, body):
            counts = buffer.memory == "heap" and worker == inside
            own = _round(buffer.size * buffer.dtype.bytes, _LINE) if counts else 0
            return own + _heap(body, worker, inside)
        case For():
            return _heap(stmt.body, worker, inside or (stmt.kind == "parallel" and stmt.extent > 1))
        case If(_, then, other):
            return max(_heap(then, worker, inside), 0 if other is None else _heap(other, worker, inside))
        case Block(stmts):
            return max([_heap(s, worker, inside) for s in stmts], default=0)
    return 0


def _round(size: int, unit: int) -> int:
    return -(-size // unit) * unit


_CALL = re.compile(r"call (?:nsz )?(<[^>]*>|[a-z0-9]+) @(llvm\.[A-Za-z0-9_.]+)\(([^\n]*)\)$", re.MULTILINE)
_TYPE = re.compile(r"(<\d+ x \w+>|ptr|float|double|half|i\d+) ")


def _declared(body: str) -> list[str]:
    """Declarations of the intrinsics that `body` calls."""
    found: dict[str, str] = {}
    for match in _CALL.finditer(body):
        result, name, args = match.groups()
        if name not in found:
            found[name] = f"declare {result} @{name}({', '.join(_types(args))})"
    return [found[name] for name in sorted(found)]


def _types(args: str) -> list[str]:
    """Types of an argument list; an operand may be a vector literal, with commas of its own."""
    types, at = [], 0
    while at < len(args):
        match = _TYPE.match(args, at)
        assert match is not None, args[at:]
        types.append(match.group(1))
        at = match.end()
        depth = 0
        while at < len(args) and (depth or args[at] != ","):
            depth += {"<": 1, ">": -1}.get(args[at], 0)
            at += 1
        at += 2
    return types
