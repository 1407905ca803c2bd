"""What a schedule is written for: a machine as figures. `host()` is this one, `Target(name)` another."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

from .errors import ArgumentError, RecordError

Kind = Literal["cpu", "cuda"]

_SSE = ("cx16", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2")
_AVX2 = (*_SSE, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_AVX512 = (*_AVX2, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
# Instructions beyond a level that a kernel may use where the machine has them.
_EXTRAS = ("avx512bf16", "avx512fp16", "avx512vnni", "avxvnni", "bf16", "dotprod", "fullfp16", "i8mm")

# Levels by name, in LLVM's spelling of features. Cache sizes are those of common machines of the level.
_PRESETS: dict[str, dict[str, Any]] = {
    "avx512": dict(vector_bytes=64, registers=32, l1=48 << 10, l2=2 << 20, l3=32 << 20, features=_AVX512),
    "avx2": dict(vector_bytes=32, registers=16, l1=32 << 10, l2=512 << 10, l3=32 << 20, features=_AVX2),
    "sse": dict(
        vector_bytes=16, registers=16, l1=32 << 10, l2=256 << 10, l3=8 << 20, fma=False, features=_SSE
    ),
    "neon": dict(vector_bytes=16, registers=32, l1=64 << 10, l2=1 << 20, l3=32 << 20, features=("neon",)),
    "sm_80": dict(
        kind="cuda", vector_bytes=16, registers=65536, l1=164 << 10, l2=40 << 20, l3=0, threads=108
    ),
    "sm_90": dict(
        kind="cuda", vector_bytes=16, registers=65536, l1=228 << 10, l2=50 << 20, l3=0, threads=132
    ),
}
# What a preset leaves out.
_COMMON: dict[str, Any] = dict(kind="cpu", fma=True, threads=1, features=())
_LEVELS = ("avx512", "avx2", "sse", "neon")

# Spellings of /proc/cpuinfo that differ from LLVM's.
_CPUINFO = {
    "sse4_1": "sse4.1", "sse4_2": "sse4.2", "pni": "sse3", "abm": "lzcnt", "bmi1": "bmi",
    "avx512_bf16": "avx512bf16", "avx512_fp16": "avx512fp16", "avx512_vnni": "avx512vnni",
    "avx_vnni": "avxvnni", "asimd": "neon", "asimddp": "dotprod", "asimdhp": "fullfp16",
}  # fmt: skip


@dataclass(frozen=True, slots=True, init=False)
class Target:
    """A machine. `Target(name)` takes the figures of a level ("avx512", "avx2", "sse", "neon", "sm_80",
    "sm_90") or, for "cpu", of this machine; any keyword overrides a figure.

    vector_bytes: width of a vector register. registers: vector registers (GPU: 32-bit ones a multiprocessor).
    l1, l2: bytes a core (GPU: shared memory a multiprocessor, L2 in all); l3: bytes a socket, 0 where none.
    threads: CPUs that a kernel may use, 1 for a level by name (GPU: multiprocessors). features: LLVM's names
    of the instruction sets a kernel may use.
    """

    name: str
    kind: Kind
    isa: str
    vector_bytes: int
    registers: int
    fma: bool
    l1: int
    l2: int
    l3: int
    threads: int
    features: tuple[str, ...]

    def __init__(self, name: str = "cpu", **figures: Any) -> None:
        base = {**_figures(name), **figures}
        unknown = base.keys() - {f.name for f in fields(Target)}
        if unknown:
            raise ArgumentError(
                f"Target has no figure {sorted(unknown)}; it has {[f.name for f in fields(Target)]}"
            )
        base["features"] = tuple(sorted(base["features"]))
        for key, value in ({"name": name} | base).items():
            object.__setattr__(self, key, value)
        _check(self)

    @property
    def key(self) -> str:
        """A stable string of every figure, not the name: equal keys mean equal schedules and code."""
        figures = asdict(self)
        del figures["name"], figures["features"]
        return " ".join(
            [f"{k}={int(v) if isinstance(v, bool) else v}" for k, v in figures.items()] + list(self.features)
        )

    def lanes(self, bytes: int) -> int:
        """Elements of `bytes` bytes in one vector register."""
        return max(1, self.vector_bytes // bytes)

    def with_threads(self, n: int) -> Target:
        """The same machine with `n` CPUs."""
        return self if n == self.threads else Target(**(asdict(self) | {"threads": n}))

    def with_isa(self, isa: str) -> Target:
        """The same caches and CPUs, restricted to (or extended to) the instructions of another CPU level."""
        if isa == self.isa:
            return self
        if isa not in _LEVELS:
            raise ArgumentError(f"no CPU level {isa!r}; known are {', '.join(_LEVELS)}")
        keep = {k: getattr(self, k) for k in ("l1", "l2", "l3", "threads")}
        return Target(isa, **keep)

    def runs_here(self) -> bool:
        """Whether this machine has every instruction set that the target names."""
        return self.kind == "cpu" and set(self.features) <= set(host().features)

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return asdict(self) | {"features": list(self.features)}

    @staticmethod
    def from_json(data: Any) -> Target:
        """The target of `to_json`; RecordError where a figure is missing, unknown or of the wrong type."""
        names = {f.name for f in fields(Target)}
        if not isinstance(data, Mapping) or set(data) != names:
            raise RecordError(f"a target is an object with exactly {sorted(names)}, got {str(data)[:200]}")
        if data["name"] not in (*_PRESETS, "cpu"):
            raise RecordError(
                f"unknown target name {str(data['name'])[:40]!r}; known are {', '.join(_PRESETS)}, cpu"
            )
        try:
            return Target(**data)
        except (ArgumentError, TypeError) as error:
            raise RecordError(f"not a target: {error}") from None


def _figures(name: str) -> dict[str, Any]:
    if name == "cpu":
        return asdict(host())
    if name not in _PRESETS:
        raise ArgumentError(f"unknown target {name!r}; known are cpu, {', '.join(_PRESETS)}, or a tlm.Target")
    return {**_COMMON, "isa": name, **_PRESETS[name]}


def _check(target: Target) -> None:
    for name in ("vector_bytes", "registers", "l1", "l2", "l3", "threads"):
        value = getattr(target, name)
        least = 0 if name == "l3" else 1
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 40:
            raise ArgumentError(f"Target.{name} is an integer from {least} to 2**40, got {value!r}")
    if target.kind not in ("cpu", "cuda"):
        raise ArgumentError(f"Target.kind is 'cpu' or 'cuda', got {target.kind!r}")
    if target.kind == "cpu" and target.isa not in _LEVELS:
        raise ArgumentError(f"Target.isa of a CPU is one of {', '.join(_LEVELS)}, got {target.isa!r}")
    if not all(isinstance(f, str) and f.replace(".", "").isalnum() for f in target.features):
        raise ArgumentError(f"Target.features are LLVM feature names such as 'avx2', got {target.features!r}")


def level(features: Iterable[str]) -> str:
    """The widest CPU level whose instruction sets are all among `features`."""
    have = set(features)
    for name in _LEVELS:
        if have.issuperset(_PRESETS[name]["features"]):
            return name
    return "neon" if platform.machine() in ("aarch64", "arm64") else "sse"


@cache
def host() -> Target:
    """This machine: its instruction sets, caches, and CPUs this process may use. Read once a process."""
    have = cpu_features(Path("/proc/cpuinfo"))
    isa = level(have)
    features = (*_PRESETS[isa]["features"], *(f for f in _EXTRAS if f in have))
    sizes = cache_sizes(Path("/sys/devices/system/cpu"))
    figures = {**_figures(isa), **sizes, "features": tuple(sorted(features)), "threads": available_threads()}
    made = object.__new__(Target)
    for key, value in ({"name": "cpu"} | figures).items():
        object.__setattr__(made, key, value)
    return made


def cpu_features(cpuinfo: Path) -> frozenset[str]:
    """The instruction sets in a /proc/cpuinfo, in LLVM's spelling; empty where the file cannot be read."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(_CPUINFO.get(f, f) for f in value.split())
    return frozenset()


def cache_sizes(cpus: Path) -> dict[str, int]:
    """l1, l2 and l3 in bytes of the first CPU under a /sys/devices/system/cpu; only those that are found."""
    found: dict[str, int] = {}
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    for index in sorted((cpus / "cpu0" / "cache").glob("index*")):
        try:
            kind, depth, size = ((index / part).read_text().strip() for part in ("type", "level", "size"))
            if kind != "Instruction":
                found[f"l{int(depth)}"] = int(size.rstrip("KMG")) * units.get(size[-1], 1)
        except (OSError, ValueError):
            continue
    return {k: v for k, v in found.items() if k in ("l1", "l2", "l3") and v > 0}


def available_threads(root: Path = Path("/")) -> int:
    """CPUs that this process may use: its affinity, cut by a container's quota (whole CPUs, at least 1)."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota(root)
    return max(1, min(cpus, int(quota)) if quota is not None else cpus)


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """The tightest quota, in CPUs, of this process's control group and those above it (versions 1, 2)."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        base = root / "sys/fs/cgroup"
        if number != "0" and "cpu" in controllers.split(","):
            base = base / "cpu"
        elif number != "0":
            continue
        parts = [p for p in path.split("/") if p and p != ".."]
        quotas += [_quota(base.joinpath(*parts[:depth])) for depth in range(len(parts) + 1)]
    return min((q for q in quotas if q is not None), default=None)


def _quota(group: Path) -> float | None:
    try:
        if (group / "cpu.max").exists():
            limit, period = (group / "cpu.max").read_text().split()
        else:
            limit, period = (
                (group / f"cpu.cfs_{part}_us").read_text().strip() for part in ("quota", "period")
            )
        return int(limit) / int(period) if limit not in ("max", "-1") else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
