"""What a run in the shim tells: the traffic and the barriers of each line, or the fault that ended it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.cuda.shim_build import Library

# Index: FaultKind of state.h.
KINDS = (
    "none",
    "race",
    "blocks",
    "pending",
    "bounds",
    "alignment",
    "index",
    "barrier",
    "warp",
    "lane",
    "memory",
    "proxy",
    "sums",
    "product",
)
# Index: CountKind of state.h.
COUNTS = (
    *("global_reads", "global_writes", "shared_reads", "shared_writes"),
    *("barriers", "warp_operations", "matrix_operations"),
)
READY, AT_BARRIER, AT_WARP_OP, EXITED = range(4)
WRITES, ATOMIC, PENDING = 1, 2, 4
SHARED, NOWHERE = 1, 0xFFFFFFFF


class ShimError(AssertionError):
    """A kernel did what it must not.

    `kind`: "race" (threads of a block), "blocks" (race between blocks), "pending" (data of a cp.async that
    was not waited for), "bounds", "alignment", "index" (of an array of the text), "barrier" (divergent),
    "warp" (incomplete operation), "lane" (a shuffle from or by a lane outside of the operation), "launch"
    (limits, arguments), "order" (results that depend on the order of threads), "memory" (the host's), "proxy"
    (a wgmma reads what no fence showed it), "sums" (registers of a wgmma without its fence or wait),
    "product" (a write to what a wgmma still reads).
    `lines`: numbers of the lines of the text.
    """

    def __init__(self, kind: str, message: str, lines: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.lines = tuple(lines)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of warps, their sectors of 32 bytes (global) or passes over the banks (shared), the least."""

    requests: int = 0
    transactions: int = 0
    ideal: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.requests + other.requests,
            self.transactions + other.transactions,
            self.ideal + other.ideal,
        )


@dataclass(frozen=True, slots=True)
class Line:
    """Counts of one line of the text, over all blocks.

    What inlined functions do counts for the line of the kernel that calls them.
    """

    number: int
    text: str
    global_reads: Traffic = Traffic()
    global_writes: Traffic = Traffic()
    shared_reads: Traffic = Traffic()
    shared_writes: Traffic = Traffic()
    barriers: int = 0
    warp_operations: int = 0
    matrix_operations: int = 0

    def __add__(self, other: Line) -> Line:
        sums = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return Line(0, "", **sums)


@dataclass(frozen=True, slots=True)
class Report:
    """The lines that touched memory or waited, in order. `truncated`: some accesses were not counted."""

    lines: tuple[Line, ...]
    truncated: bool = False

    def at(self, part: str) -> Line:
        """The counts of all lines whose text has `part`, in one; KeyError where no line has."""
        found = [line for line in self.lines if part in line.text]
        if not found:
            raise KeyError(f"no counted line has {part!r}")
        return sum(found, Line(0, ""))

    @property
    def total(self) -> Line:
        return sum(self.lines, Line(0, ""))

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("line", "global", "ideal", "shared", "ideal", "barriers", "")]
        for line in self.lines:
            far, near = line.global_reads + line.global_writes, line.shared_reads + line.shared_writes
            counts = (far.transactions, far.ideal, near.transactions, near.ideal, line.barriers)
            rows.append((str(line.number), *(str(c) if c else "" for c in counts), line.text))
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        return "\n".join(
            "  ".join([*(c.rjust(w) for c, w in zip(r[:6], widths, strict=True)), r[6]]) for r in rows
        )


def report(library: Library, counts: Iterable[tuple[int, int, int, int, int]], truncated: bool) -> Report:
    """`counts`: (place, kind, requests, transactions, ideal)."""
    counts = list(counts)
    library.resolve(place for place, *_ in counts)
    sums: dict[int, dict[str, Any]] = {}
    for place, kind, *numbers in counts:
        number = (library.lines(place) or (0,))[-1]
        line, name = sums.setdefault(number, {}), COUNTS[kind]
        value: Any = Traffic(*numbers) if kind < 4 else numbers[0]
        line[name] = line[name] + value if name in line else value
    return Report(tuple(Line(n, library.line_text(n), **sums[n]) for n in sorted(sums)), truncated)


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a fault happened. `arrays`: (name, bytes of an element) by region."""

    library: Library
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arrays: tuple[tuple[str, int], ...]

    def thread(self, index: int) -> str:
        return f"thread {_unravel(index, self.block)}"

    def at(self, place: int) -> str:
        """The line that a place stands for; where it is in an inlined function, that function's line too."""
        lines = self.library.lines(place)
        if not lines:
            return "outside of the text"
        inner = f" (in `{self.library.line_text(lines[0])}`)" if len(lines) > 1 else ""
        return f"line {lines[-1]}: `{self.library.line_text(lines[-1])}`{inner}"

    def target(self, fault: Mapping[str, Any]) -> str:
        offset, end = fault["address"], fault["address"] + fault["bytes"]
        if fault["space"] == NOWHERE:
            return f"{fault['bytes']} bytes at {offset:#x}, in no array that this access may use"
        if fault["space"] == SHARED:
            return f"bytes {offset} to {end} of shared memory ({fault['extent']} bytes)"
        name, size = self.arrays[fault["region"]]
        signed = offset - (1 << 64) if offset >> 63 else offset
        return f"{name}, element {signed // size} of {fault['extent'] // size} ({fault['bytes']} bytes)"


def _unravel(index: int, extents: Sequence[int]) -> tuple[int, int, int]:
    return index % extents[0], index // extents[0] % extents[1], index // extents[0] // extents[1]


def _verb(mode: int) -> str:
    if mode & PENDING:
        return "copies asynchronously to"
    if mode & ATOMIC:
        return "updates atomically"
    return "writes" if mode & WRITES else "reads"


def _conflict(scene: Scene, fault: Mapping[str, Any]) -> str:
    blocks = fault["kind"] == KINDS.index("blocks")
    other_block = f" of block {_unravel(fault['other_block'], scene.grid)}" if blocks else ""
    if fault["other_mode"] & PENDING:
        reason = "and has not waited for the copy"
    elif blocks:
        reason = "and blocks of a launch are not ordered"
    else:
        reason = "and no barrier is between the two"
    return (
        f"{scene.thread(fault['thread'])} {_verb(fault['mode'])} {scene.target(fault)} "
        f"at {scene.at(fault['pc'])}; "
        f"{scene.thread(fault['other_thread'])}{other_block} {_verb(fault['other_mode'])} it at "
        f"{scene.at(fault['other_pc'])}, {reason}"
    )


def _ranges(numbers: Sequence[int]) -> str:
    """(0, 1, 2, 5) -> "0-2, 5"."""
    starts = [i for i, n in enumerate(numbers) if i == 0 or numbers[i - 1] != n - 1]
    pieces = [numbers[a:b] for a, b in zip(starts, [*starts[1:], len(numbers)], strict=True)]
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in pieces)


def _waiting(scene: Scene, threads: Sequence[tuple[int, int]], only: range) -> tuple[str, list[int]]:
    """Who waits where. Threads are numbered as they lie in warps: x first."""
    groups: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    places: dict[tuple[int, tuple[int, ...]], int] = {}
    for t in only:
        state, place = threads[t]
        key = (state, scene.library.lines(place) if state in (AT_BARRIER, AT_WARP_OP) else ())
        groups.setdefault(key, []).append(t)
        places[key] = place
    words = []
    for key, members in groups.items():
        who = f"thread {members[0]}" if len(members) == 1 else f"threads {_ranges(members)}"
        if key[0] == EXITED:
            words.append(f"{who} exited")
        elif key[0] == READY:
            words.append(f"{who} still to run")
        else:
            what = "the barrier" if key[0] == AT_BARRIER else "the warp operation"
            words.append(f"{who} at {what} of {scene.at(places[key])}")
    return "; ".join(words), [lines[-1] for _, lines in groups if lines]


def explain(scene: Scene, fault: Mapping[str, Any], threads: Sequence[tuple[int, int]]) -> ShimError:
    """The error of a fault (fields of state.h's Fault). `threads`: (state, place) of those of the block."""
    kind = KINDS[fault["kind"]]
    places = [fault["pc"], *([fault["other_pc"]] if fault["other_pc"] else [])]
    scene.library.resolve([*places, *(place for _, place in threads if place)])
    lines = [scene.library.lines(p)[-1] for p in places if scene.library.lines(p)]
    here = scene.at(fault["pc"])
    who = scene.thread(fault["thread"])
    match kind:
        case "race" | "blocks" | "pending":
            what = ("race between blocks: " if kind == "blocks" else "race: ") + _conflict(scene, fault)
        case "bounds":
            what = f"out of bounds: {who} {_verb(fault['mode'])} {scene.target(fault)} at {here}"
        case "alignment":
            what = f"misaligned: {who} {_verb(fault['mode'])} {scene.target(fault)} at {here}"
        case "index":
            what = f"out of bounds: {who} takes {fault['text'].decode()} at {here}"
        case "barrier":
            text, lines = _waiting(scene, threads, range(len(threads)))
            what = f"divergent barrier: {text}"
        case "warp":
            first = fault["thread"] // 32 * 32
            text, lines = _waiting(scene, threads, range(first, min(first + 32, len(threads))))
            what = f"incomplete warp operation: {text}"
        case "lane":
            what = f"warp operation of {who}: {fault['text'].decode()}, at {here}"
        case "sums":
            what = f"{who} {fault['text'].decode()}, at {here}"
        case "proxy":
            other = f"{scene.thread(fault['other_thread'])} wrote it at {scene.at(fault['other_pc'])}"
            what = (
                f"the wgmma at {here} reads {scene.target(fault)}; {other}, and made no fence.proxy.async "
                "between that and a barrier"
            )
        case "product":
            what = (
                f"{who} {_verb(fault['mode'])} {scene.target(fault)} at {here}, which a wgmma that was not "
                "waited for still reads"
            )
        case _:
            what = "the host has no memory for the threads of a block"
    where = f"kernel {scene.kernel}, block {_unravel(fault['block'], scene.grid)}"
    return ShimError(kind, f"{where}: {what}", lines)
