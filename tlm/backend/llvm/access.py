"""Loads and stores: of memory, with masks and strides, and of registers as SSA values."""

from __future__ import annotations

from ...ir.dtypes import boolean
from ...ir.exprs import Const, Expr, const
from ...ir.simplify import simplify
from ...ir.walk import free_vars, substitute
from .memory import Linear, Mask, Memory, Place, Runtime, linear
from .transpose import transposed
from .types import memory_type, scalar_type, splat_literal, suffix, value_type, vector


def access(e: Memory, name: str, indices: tuple[Expr, ...]) -> Access | SlotAccess:
    """An access to a buffer, in memory or in registers."""
    place = e.places[name]
    form = Linear(0, {}, [])
    for index, stride in zip(indices, place.buffer.element_strides, strict=True):
        linear(index, stride, form)
    return Access(e, place, form) if place.layout is None else SlotAccess(e, place, form)


class Access:
    """An access to memory, its lanes `step` elements apart; `lanes` is 1 where all touch one element."""

    __slots__ = ("e", "element", "lanes", "others", "pattern", "place", "start", "step", "terms", "varying")

    def __init__(self, e: Memory, place: Place, form: Linear) -> None:
        self.e, self.place = e, place
        size = place.buffer.dtype.bytes
        self.element = memory_type(place.buffer.dtype)
        self.step = form.terms.get(e.lane, 0) if e.lane is not None else 0
        self.start = form.const * size
        self.terms = [(n, c * size) for n, c in form.terms.items() if c and n != e.lane]
        compiled = [(e.code(x), c * size) for x, c in form.others]
        self.others = [(code, c) for code, c in compiled if code.lanes == 1]
        self.varying = [(code, c) for code, c in compiled if code.lanes > 1]
        self.lanes = e.lanes if self.step or self.varying else 1
        self.pattern = self._pattern(form) if self.varying and not self.step else None

    def _pattern(self, form: Linear) -> tuple[int, ...] | None:
        """Elements of each lane from `address`, where all that varies is arithmetic on the lane's number."""
        e, lane = self.e, self.e.lane
        terms = [(x, c) for x, c in form.others if lane is not None and lane in free_vars(x)]
        if len(terms) != len(self.varying) or any(free_vars(x) != {lane} for x, _ in terms):
            return None
        out = []
        for i in range(e.lanes):
            values = [simplify(substitute(x, {lane or "": const(i)}), {}) for x, _ in terms]
            if not all(isinstance(v, Const) for v in values):
                return None
            out.append(
                sum(
                    [
                        int(v.value) * c
                        for v, (_, c) in zip(values, terms, strict=True)
                        if isinstance(v, Const)
                    ]
                )
            )
        return tuple(out)

    def address(self) -> str:
        """The pointer to the element of lane 0 (without varying terms)."""
        e = self.e
        shift, runtime = self.start, []
        for name, c in self.terms:
            value = e.env[name]
            if isinstance(value, int):
                shift += c * value
            else:
                shift += c * value.offset
                runtime.append((value, c))
        if len(runtime) > 1:
            runtime.sort(key=lambda t: (t[0].depth, t[0].name))
        out = e.pointer(self.place, tuple(runtime))
        for code, c in self.others:
            offset = e.pure(f"mul i64 {code.emit()}, {c}")
            out = e.pure(f"getelementptr i8, ptr {out}, i64 {offset}")
        return e.pure(f"getelementptr i8, ptr {out}, i64 {shift}") if shift else out

    def _addresses(self) -> str:
        """A vector of pointers, one a lane."""
        e, n = self.e, self.e.lanes
        offsets = e.iota("i64", self.step * self.place.buffer.dtype.bytes) if self.step else ""
        for code, c in self.varying:
            term = e.pure(f"mul <{n} x i64> {code.emit()}, {splat_literal(str(c), 'i64', n)}")
            offsets = e.pure(f"add <{n} x i64> {offsets}, {term}") if offsets else term
        return e.pure(f"getelementptr i8, ptr {self.address()}, <{n} x i64> {offsets}")

    def load(self) -> str:
        """The value in the type of values (bool as i1)."""
        dtype = self.place.buffer.dtype
        value = self._load()
        if dtype != boolean:
            return value
        zero = "0" if self.lanes == 1 else "zeroinitializer"
        return self.e.pure(f"icmp ne {vector('i8', self.lanes)} {value}, {zero}")

    def _load(self) -> str:
        e = self.e
        if self.lanes == 1:
            return self._remembered(self._safe(self.address(), 1), self.element)
        mask = e.mask
        if self.pattern is not None and not isinstance(mask, str):
            found = self._permuted(self.pattern, mask)
            if found is not None:
                return found
        if self.varying or (mask is not None and self.step != 1):
            return self._gather(mask)
        if self.step == 1 and mask is None:
            return self._remembered(self._safe(self.address(), e.lanes), vector(self.element, e.lanes))
        if self.step == 1:
            return self._masked(mask)
        return self._strided()

    def _safe(self, pointer: str, lanes: int) -> str:
        """`pointer`, or where the guard is false one to some memory that may be read."""
        e = self.e
        guard = e.guard
        if lanes == 1 and isinstance(e.mask, str):
            t = vector("i1", e.lanes)
            any_lane = e.pure(f"call i1 @llvm.vector.reduce.or.v{e.lanes}i1({t} {e.mask})")
            guard = any_lane if guard is None else e.pure(f"and i1 {guard}, {any_lane}")
        if guard is None:
            return pointer
        return e.pure(f"select i1 {guard}, ptr {pointer}, ptr @tlm.readable")

    def _remembered(self, pointer: str, type_: str) -> str:
        memo = self.e.function.loads.setdefault(self.place.buffer.name, {})
        key = f"{type_} {pointer}"
        found = memo.get(key)
        if found is None:
            size = self.place.buffer.dtype.bytes
            found = memo[key] = self.e.function.value(f"load {type_}, ptr {pointer}, align {size}")
        return found

    def _masked(self, mask: Mask) -> str:
        e, n = self.e, self.e.lanes
        assert mask is not None
        t, pointer = vector(self.element, n), self._safe(self.address(), n)
        memo = e.function.loads.setdefault(self.place.buffer.name, {})
        size, bits = self.place.buffer.dtype.bytes, e.mask_text(mask)
        text = (
            f"call {t} @llvm.masked.load.{suffix(self.element, n)}.p0(ptr {pointer}, i32 {size}, "
            f"<{n} x i1> {bits}, {t} zeroinitializer)"
        )
        found = memo.get(text)
        if found is None:
            found = memo[text] = e.function.value(text)
        return found

    def _gather(self, mask: Mask) -> str:
        e, n = self.e, self.e.lanes
        t, pointers = vector(self.element, n), self._addresses()
        bits = splat_literal("true", "i1", n) if mask is None else e.mask_text(mask)
        if e.guard is not None:
            on = e.arith.splat(e.guard, "i1", n)
            bits = e.pure(f"and <{n} x i1> {bits}, {on}")
        name = f"llvm.masked.gather.{suffix(self.element, n)}.v{n}p0"
        return e.function.value(
            f"call {t} @{name}(<{n} x ptr> {pointers}, i32 {self.place.buffer.dtype.bytes}, "
            f"<{n} x i1> {bits}, {t} zeroinitializer)"
        )

    def _strided(self) -> str:
        e, n, size = self.e, self.e.lanes, self.place.buffer.dtype.bytes
        t, first = vector(self.element, n), self.address()
        if self.step == -1 and e.guard is None:
            low = e.pure(f"getelementptr i8, ptr {first}, i64 {-(n - 1) * size}")
            value = self._remembered(low, t)
            order = ", ".join([f"i32 {n - 1 - i}" for i in range(n)])
            return e.pure(f"shufflevector {t} {value}, {t} poison, <{n} x i32> <{order}>")
        if self.step == 2:
            return self._every_second(self._safe(first, n), t)
        out = "poison"
        for lane in range(n):
            shift = lane * self.step * size
            at = e.pure(f"getelementptr i8, ptr {first}, i64 {shift}") if shift else first
            one = self._remembered(self._safe(at, n), self.element)
            out = e.pure(f"insertelement {t} {out}, {self.element} {one}, i64 {lane}")
        return out

    def _every_second(self, first: str, type_: str) -> str:
        """Elements 0, 2, 4, ... from two vectors that overlap in one element, so that none is read beyond."""
        e, n = self.e, self.e.lanes
        at = e.pure(f"getelementptr i8, ptr {first}, i64 {(n - 1) * self.place.buffer.dtype.bytes}")
        low, high = self._remembered(first, type_), self._remembered(at, type_)
        picked = ", ".join([f"i32 {2 * i if 2 * i < n else 2 * i + 1}" for i in range(n)])
        return e.pure(f"shufflevector {type_} {low}, {type_} {high}, <{n} x i32> <{picked}>")

    def _permuted(self, pattern: tuple[int, ...], mask: tuple[bool, ...] | None) -> str | None:
        """One vector with all elements that the lanes ask for, put in their order; None if it is too long."""
        e, n, size = self.e, self.e.lanes, self.place.buffer.dtype.bytes
        on = [p for i, p in enumerate(pattern) if mask is None or mask[i]]
        low = min(on)
        if max(on) - low >= n:
            return None
        at = self.address()
        first = self._safe(e.pure(f"getelementptr i8, ptr {at}, i64 {low * size}") if low else at, n)
        t = vector(self.element, n)
        asked = tuple([i + low in on for i in range(n)])
        if all(asked):
            value = self._remembered(first, t)
        else:
            memo = e.function.loads.setdefault(self.place.buffer.name, {})
            text = (
                f"call {t} @llvm.masked.load.{suffix(self.element, n)}.p0(ptr {first}, i32 {size}, "
                f"<{n} x i1> {e.mask_text(asked)}, {t} zeroinitializer)"
            )
            value = memo.get(text) or memo.setdefault(text, e.function.value(text))
        order = ", ".join([f"i32 {min(max(p - low, 0), n - 1)}" for p in pattern])
        return e.pure(f"shufflevector {t} {value}, {t} poison, <{n} x i32> <{order}>")

    def store(self, value: str) -> None:
        """Write a value of `lanes` lanes, under the mask in force."""
        e, dtype = self.e, self.place.buffer.dtype
        if dtype == boolean:
            t = vector("i1", self.lanes)
            value = e.pure(f"zext {t} {value} to {vector('i8', self.lanes)}")
        e.function.loads.pop(self.place.buffer.name, None)
        size, n = dtype.bytes, self.lanes
        if n == 1:
            e.function.line(f"store {self.element} {value}, ptr {self.address()}, align {size}")
        elif self.varying or (e.mask is not None and self.step != 1):
            self._scatter(value)
        elif self.step != 1:
            self._store_lanes(value)
        elif e.mask is None:
            e.function.line(f"store {vector(self.element, n)} {value}, ptr {self.address()}, align {size}")
        elif isinstance(e.mask, tuple) and sum(e.mask) == 1:
            # LLVM 22 stores too many bytes for one lane of a vector of narrow integers.
            lane = e.mask.index(True)
            at = e.pure(f"getelementptr i8, ptr {self.address()}, i64 {lane * size}")
            one = e.pure(f"extractelement {vector(self.element, n)} {value}, i64 {lane}")
            e.function.line(f"store {self.element} {one}, ptr {at}, align {size}")
        else:
            name = f"llvm.masked.store.{suffix(self.element, n)}.p0"
            e.function.line(
                f"call void @{name}({vector(self.element, n)} {value}, ptr {self.address()}, i32 {size}, "
                f"<{n} x i1> {e.mask_text(e.mask)})"
            )

    def _scatter(self, value: str) -> None:
        e, n = self.e, self.lanes
        bits = splat_literal("true", "i1", n) if e.mask is None else e.mask_text(e.mask)
        name = f"llvm.masked.scatter.{suffix(self.element, n)}.v{n}p0"
        e.function.line(
            f"call void @{name}({vector(self.element, n)} {value}, <{n} x ptr> {self._addresses()}, "
            f"i32 {self.place.buffer.dtype.bytes}, <{n} x i1> {bits})"
        )

    def _store_lanes(self, value: str) -> None:
        e, n, size = self.e, self.lanes, self.place.buffer.dtype.bytes
        first = self.address()
        for lane in range(n):
            shift = lane * self.step * size
            at = e.pure(f"getelementptr i8, ptr {first}, i64 {shift}") if shift else first
            one = e.pure(f"extractelement {vector(self.element, n)} {value}, i64 {lane}")
            e.function.line(f"store {self.element} {one}, ptr {at}, align {size}")


class SlotAccess:
    """An access to a register buffer: a whole slot where the lanes run along it, else one element of it."""

    __slots__ = ("e", "lanes", "layout", "name", "place", "start", "terms", "turned")

    def __init__(self, e: Memory, place: Place, form: Linear) -> None:
        assert place.layout is not None
        assert not form.others
        self.e, self.place, self.layout = e, place, place.layout
        self.name = place.buffer.name
        along = e.lane is not None and bool(form.terms.get(e.lane))
        self.lanes = e.lanes if along else 1
        step = form.terms[e.lane] if along and e.lane is not None else 0
        # Lanes across slots: a column of a tile whose rows are the slots.
        self.turned = along and step != self.layout.stride
        self.start = form.const
        self.terms = [(n, c) for n, c in form.terms.items() if c and n != e.lane]

    def _offset(self) -> int:
        env = self.e.env
        return self.start + sum([c * _known(env[n]) for n, c in self.terms])

    @property
    def _type(self) -> str:
        return value_type(self.place.buffer.dtype, self.layout.lanes)

    def load(self) -> str:
        base, lane = self.layout.slot(self._offset())
        if self.turned:
            n, slots = self.lanes, self.e.slots[self.name]
            rows = [slots.get(base + n * row, "undef") for row in range(n)]
            return transposed(self.e.arith, rows, scalar_type(self.place.buffer.dtype))[lane]
        value = self.e.slots[self.name].get(base, "undef")
        if self.lanes > 1 or self.layout.lanes == 1:
            return value
        return self.e.pure(f"extractelement {self._type} {value}, i64 {lane}")

    def store(self, value: str) -> None:
        e, slots = self.e, self.e.slots[self.name]
        base, lane = self.layout.slot(self._offset())
        if self.lanes > 1:
            if e.mask is not None:
                old = slots.get(base, "undef")
                value = e.arith.select(e.mask_text(e.mask), self.lanes, value, old, self._type)
            slots[base] = value
        elif self.layout.lanes == 1:
            slots[base] = value
        else:
            old, element = slots.get(base, "undef"), scalar_type(self.place.buffer.dtype)
            slots[base] = e.pure(f"insertelement {self._type} {old}, {element} {value}, i64 {lane}")


def _known(value: int | Runtime) -> int:
    assert isinstance(value, int)
    return value
