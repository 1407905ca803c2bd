"""What one thread runs: statements, with vectors of 4, 8 or 16 bytes and asynchronous copies."""

from __future__ import annotations

from dataclasses import replace

from ...ir.affine import interval
from ...ir.combiners import COMBINERS
from ...ir.dtypes import DType
from ...ir.exprs import Cast, Const, Expr, Load, Op, Var, const
from ...ir.nodes import Alloc, Block, For, If, Prefetch, Stmt, Store, Update
from ...ir.simplify import simplify
from ...ir.walk import free_vars, loads, substitute, walk
from ...lower.gpu_vectors import Copy, copies, vector_width
from ..brackets import bare
from .device import STORED, VALUES, VECTORS, WORDS, is_half
from .names import Names
from .values import Home, Values

# A loop variable beyond this is a long long.
_INT = 2**31 - 1
_MEMBERS = "xyzw"
# The bits of a half that is 0.
_NOTHING = "(unsigned short)0x0000"


class Threads(Values):
    """Writes statements. `vectors`: whether arrays start at multiples of 16 bytes."""

    def __init__(self, names: Names, vectors: bool = True) -> None:
        super().__init__()
        self.unique = names
        self.vectors = vectors
        self.aligned = False

    def statement(self, stmt: Stmt, pad: str) -> list[str]:
        """The lines of a statement."""
        match stmt:
            case Block(stmts):
                return [line for s in stmts for line in self.statement(s, pad)]
            case For(kind="vectorize"):
                return self.lanes(stmt, stmt.body, pad)
            case For():
                return [self.head(stmt, pad), *self.statement(stmt.body, pad + "  "), pad + "}"]
            case If(cond, then, other):
                lines = [f"{pad}if ({self.truth(cond)}) {{", *self.statement(then, pad + "  ")]
                if other is not None:
                    lines += [f"{pad}}} else {{", *self.statement(other, pad + "  ")]
                return [*lines, pad + "}"]
            case Alloc(buffer, body):
                self.homes[buffer.name] = Home(
                    self.unique.name(buffer.name), buffer, tuple(range(len(buffer.shape)))
                )
                return [pad + self.declared(buffer.name), *self.statement(body, pad)]
            case Store(buffer, indices, value):
                return [f"{pad}{self.at(buffer, indices)} = {self.stored(value)};"]
            case Update():
                return self.update(stmt, [self.at(t, stmt.indices) for t in stmt.targets], pad)
            case Prefetch():
                return []
        raise TypeError(f"not a statement: {stmt!r}")

    def named(self, var: str) -> str:
        """The identifier of a loop variable; loops of one name in different places share it."""
        if var not in self.names:
            self.names[var] = self.unique.name(var)
        return self.names[var]

    def declared(self, buffer: str) -> str:
        """The declaration of an array that each thread has for itself."""
        home = self.homes[buffer]
        assert home.kept is not None
        sizes = "".join([f"[{max(home.buffer.shape[d], 1)}]" for d in home.kept] or ["[1]"])
        return f"{STORED[home.buffer.dtype.name]} {home.name}{sizes};"

    def head(self, loop: For, pad: str) -> str:
        """The head of a loop, with its hint to the compiler; its variable is known from here on."""
        self.extents[loop.var] = loop.extent
        name = self.named(loop.var)
        kind = "int" if loop.extent <= _INT else "long long"
        limit = str(loop.extent)
        if loop.bound is not None:
            reach = interval(loop.bound, self.extents)
            code = self.index(loop.bound)
            both = (limit, code) if kind == "int" else (limit + "LL", f"(long long)({code})")
            limit = code if reach and reach[1] <= loop.extent else f"min({', '.join(both)})"
        pragma = ""
        if loop.kind in ("unroll", "tensor"):
            pragma = f"{pad}#pragma unroll\n"
        elif loop.unroll > 1:
            pragma = f"{pad}#pragma unroll {loop.unroll}\n"
        return f"{pragma}{pad}for ({kind} {name} = 0; {name} < {limit}; ++{name}) {{"

    # Reductions

    def update(self, stmt: Update, targets: list[str], pad: str) -> list[str]:
        """One step of a reduction into the elements `targets`."""
        if stmt.combiner == "sum" and not is_half(stmt.values[0].dtype) and stmt.values[0].dtype.is_float:
            return [f"{pad}{targets[0]} += {bare(self.value(stmt.values[0]))};"]
        dtypes = tuple([v.dtype for v in stmt.values])
        old = [self.loaded(t, d) for t, d in zip(targets, dtypes, strict=True)]
        lines, merged = self.merged(stmt.combiner, dtypes, old, [self.value(v) for v in stmt.values], pad)
        lines += [f"{pad}{t} = {self.kept(m, d)};" for t, m, d in zip(targets, merged, dtypes, strict=True)]
        return lines if len(targets) == 1 else [pad + "{", *["  " + x for x in lines], pad + "}"]

    def merged(
        self, combiner: str, dtypes: tuple[DType, ...], old: list[str], new: list[str], pad: str
    ) -> tuple[list[str], list[str]]:
        """(lines before, values of the merge of `old` and `new`), texts in the value types."""
        lines: list[str] = []
        if len(dtypes) > 1 or combiner not in ("sum", "prod", "any", "all"):
            # Parts are used more than once, and all of them before the first changes.
            sides = []
            for side, codes in (("old", old), ("new", new)):
                names = [self.unique.name(f"{side}{n}") for n in range(len(codes))]
                lines += [
                    f"{pad}const {VALUES[d.name]} {n} = {bare(c)};"
                    for n, c, d in zip(names, codes, dtypes, strict=True)
                ]
                sides.append(names)
            old, new = sides
        self.parts = {f"$old{n}": c for n, c in enumerate(old)} | {f"$new{n}": c for n, c in enumerate(new)}
        a, b = (tuple([Load(f"${s}{n}", (), d) for n, d in enumerate(dtypes)]) for s in ("old", "new"))
        merged = [bare(self.value(e)) for e in COMBINERS[combiner].merge(a, b)]
        self.parts = {}
        return lines, merged

    # Vectors

    def lanes(self, loop: For, body: Stmt, pad: str) -> list[str]:
        """A vectorised loop: its loads and stores as vectors where they can be."""
        match body:
            case Block(stmts):
                return [line for s in stmts for line in self.lanes(loop, s, pad)]
            case If(cond, then, None) if loop.var not in free_vars(cond):
                return [f"{pad}if ({self.truth(cond)}) {{", *self.lanes(loop, then, pad + "  "), pad + "}"]
            case Store(buffer, indices, Op("where", (cond, a, b))) if loop.var not in free_vars(cond):
                first = self.lanes(loop, Store(buffer, indices, a), pad + "  ")
                second = self.lanes(loop, Store(buffer, indices, b), pad + "  ")
                return [f"{pad}if ({self.truth(cond)}) {{", *first, f"{pad}}} else {{", *second, pad + "}"]
            case Store() if loop.extent > 1:
                self.extents[loop.var] = loop.extent
                return self.vector_store(loop, body, pad)
        plain = replace(loop, kind="unroll", body=body)
        return self.statement(plain, pad)

    def vector_store(self, loop: For, store: Store, pad: str) -> list[str]:
        """Loads, then the value of every lane, then the stores; each as wide as it can be."""
        lines = self.moved_vectors(loop, store, pad)
        if lines:
            return lines
        loaded: dict[Load, list[str]] = {}
        picked = any(isinstance(n, Op) and n.op == "where" for n in walk(store.value))
        for load in dict.fromkeys(loads(store.value)):
            width = 1 if picked else self.width(load.buffer, load.indices, loop)
            if width > 1:
                loaded[load] = self.vector_load(load, loop, width, lines, pad)
        values = [self.stored(self.lane_value(store.value, loop, n, loaded)) for n in range(loop.extent)]
        self.parts = {}
        width = self.width(store.buffer, store.indices, loop)
        dtype = self.homes[store.buffer].buffer.dtype
        for start in range(0, loop.extent, width):
            place = self.at(store.buffer, self.moved(store.indices, loop, start))
            if width == 1:
                lines.append(f"{pad}{place} = {values[start]};")
            else:
                kind, code = self.packed(values[start : start + width], dtype)
                lines.append(f"{pad}*reinterpret_cast<{kind}*>(&{place}) = {code};")
        wrapped = any("const " in x for x in lines)
        return [pad + "{", *["  " + x for x in lines], pad + "}"] if wrapped else lines

    def moved_vectors(self, loop: For, store: Store, pad: str) -> list[str]:
        """A copy whose vectors are as wide on both sides; nothing for other stores."""
        value = store.value
        if not isinstance(value, Load):
            return []
        width = self.width(store.buffer, store.indices, loop)
        if width == 1 or width != self.width(value.buffer, value.indices, loop):
            return []
        kind, lines = self.vector_type(value.dtype, width), []
        for start in range(0, loop.extent, width):
            target = self.at(store.buffer, self.moved(store.indices, loop, start))
            source = self.at(value.buffer, self.moved(value.indices, loop, start))
            read = f"*reinterpret_cast<const {kind}*>(&{source})"
            lines.append(f"{pad}*reinterpret_cast<{kind}*>(&{target}) = {read};")
        return lines

    def width(self, buffer: str, indices: tuple[Expr, ...], loop: For) -> int:
        """Elements of one access along a vectorised loop; registers are no memory, and have no vectors."""
        home = self.homes[buffer]
        if home.kept is not None or (home.buffer.memory in ("array", "heap") and not self.vectors):
            return 1
        width = vector_width(home.buffer, indices, loop.var, loop.extent)
        self.aligned |= width > 1 and home.buffer.memory == "array"
        return width

    def moved(self, indices: tuple[Expr, ...], loop: For, lane: int) -> tuple[Expr, ...]:
        """`indices` in one lane."""
        at: dict[str, Expr] = {loop.var: const(lane)}
        return tuple([simplify(substitute(i, at), self.extents) for i in indices])

    def vector_load(self, load: Load, loop: For, width: int, lines: list[str], pad: str) -> list[str]:
        """Texts of all lanes of a load, from vectors that `lines` read."""
        out = []
        for start in range(0, loop.extent, width):
            name = self.unique.name(f"{load.buffer}_vector")
            kind = self.vector_type(load.dtype, width)
            place = self.at(load.buffer, self.moved(load.indices, loop, start))
            lines.append(f"{pad}const {kind} {name} = *reinterpret_cast<const {kind}*>(&{place});")
            out += [self.member(name, load.dtype, width, n) for n in range(width)]
        return out

    def vector_type(self, dtype: DType, width: int) -> str:
        return VECTORS.get((dtype.name, width)) or WORDS[dtype.bytes * width]

    def member(self, vector: str, dtype: DType, width: int, lane: int) -> str:
        """Element `lane` of a vector, as it lies in memory."""
        if (dtype.name, width) in VECTORS:
            return f"{vector}.{_MEMBERS[lane]}"
        word, part = divmod(lane * dtype.bytes, 4)
        whole = vector if dtype.bytes * width == 4 else f"{vector}.{_MEMBERS[word]}"
        if dtype.name == "bool":
            return f"(({whole} >> {8 * part} & 1) != 0)"
        return f"({STORED[dtype.name]})({whole} >> {8 * part})" if part else f"({STORED[dtype.name]}){whole}"

    def packed(self, values: list[str], dtype: DType) -> tuple[str, str]:
        """(type, text) of the vector of some elements."""
        kind = self.vector_type(dtype, len(values))
        if (dtype.name, len(values)) in VECTORS:
            return kind, f"{kind}{{{', '.join(values)}}}"
        if set(values) == {_NOTHING}:
            return kind, f"{kind}{{}}"
        each = 4 // dtype.bytes
        mask = "" if dtype.name in ("f16", "bf16", "u8", "bool") else f" & 0x{'ff' * dtype.bytes}"
        words = []
        for start in range(0, len(values), each):
            parts = [
                (f"((unsigned)({v}){mask})" if mask else f"(unsigned)({v})")
                + (f" << {8 * n * dtype.bytes}" if n else "")
                for n, v in enumerate(values[start : start + each])
            ]
            words.append(" | ".join(parts))
        return kind, words[0] if len(words) == 1 else f"{kind}{{{', '.join(words)}}}"

    def lane_value(self, value: Expr, loop: For, lane: int, loaded: dict[Load, list[str]]) -> Expr:
        """`value` in one lane; vector loads become leaves that stand for their elements."""

        def replaced(e: Expr) -> Expr:
            match e:
                case Load() if e in loaded:
                    name = f"$lane{len(self.parts)}"
                    self.bits[name] = loaded[e][lane]
                    self.parts[name] = self.loaded(loaded[e][lane], e.dtype)
                    return Load(name, (), e.dtype)
                case Load(buffer, indices, dtype):
                    return Load(buffer, self.moved(indices, loop, lane), dtype)
                case Op(name, args, dtype):
                    return Op(name, tuple([replaced(a) for a in args]), dtype)
                case Var(name) if name == loop.var:
                    return Const(lane)
            return Cast(replaced(e.value), e.dtype) if isinstance(e, Cast) else e

        return replaced(value)

    # Asynchronous copies

    def copied(self, stmt: Stmt, pad: str) -> list[str]:
        """A fill of shared memory by copies that go on while the thread does."""
        known = {n: h.buffer for n, h in self.homes.items()}
        sources = frozenset([n for n, b in known.items() if b.memory in ("array", "heap")])
        found = copies(stmt, known, sources) if isinstance(stmt, For | Store) else None
        if found is not None:
            return [line for c in found for line in self.copy(c, pad)]
        match stmt:
            case Block(stmts):
                return [line for s in stmts for line in self.copied(s, pad)]
            case For():
                return [self.head(stmt, pad), *self.copied(stmt.body, pad + "  "), pad + "}"]
            case If(cond, then, None):
                return [f"{pad}if ({self.truth(cond)}) {{", *self.copied(then, pad + "  "), pad + "}"]
        raise TypeError(f"not a copy: {stmt!r}")

    def copy(self, c: Copy, pad: str) -> list[str]:
        """The call of one asynchronous copy."""
        target, source = self.at(c.buffer, c.indices), self.at(c.source.buffer, c.source.indices)
        self.aligned |= c.bytes > self.homes[c.buffer].buffer.dtype.bytes
        size = "" if c.cond is None else f", {self.truth(c.cond)} ? {c.bytes} : 0"
        return [pad + self.use(f"copy_async_{c.bytes}(&{target}, &{source}{size})") + ";"]
