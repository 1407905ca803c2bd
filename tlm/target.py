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

# What all present GPUs have alike: threads of a warp and of a block, registers that a thread may have.
_LIMITS = dict(warp=32, block_threads=1024, thread_registers=255)

# Common GPUs of each compute capability. Limits are those of the CUDA C++ Programming Guide (table of
# technical specifications per compute capability), counts and rates those of the vendor's data sheets:
# T4, A100 SXM 80 GB, RTX 3090, RTX 4090, H100 SXM, B200.
_KIB = 1 << 10
_GPUS: dict[int, dict[str, Any]] = {
    75: dict(
        registers=65536, l1=64 * _KIB, l2=4 << 20, threads=40, block_shared=64 * _KIB, sm_threads=1024,
        sm_blocks=16, fma_rate=64, tensor_rate=512, clock=1590, bandwidth=320, **_LIMITS,
    ),
    80: dict(
        registers=65536, l1=164 * _KIB, l2=40 << 20, threads=108, block_shared=163 * _KIB, sm_threads=2048,
        sm_blocks=32, fma_rate=64, tensor_rate=1024, clock=1410, bandwidth=2039, **_LIMITS,
    ),
    86: dict(
        registers=65536, l1=100 * _KIB, l2=6 << 20, threads=82, block_shared=99 * _KIB, sm_threads=1536,
        sm_blocks=16, fma_rate=128, tensor_rate=256, clock=1695, bandwidth=936, **_LIMITS,
    ),
    89: dict(
        registers=65536, l1=100 * _KIB, l2=72 << 20, threads=128, block_shared=99 * _KIB, sm_threads=1536,
        sm_blocks=24, fma_rate=128, tensor_rate=256, clock=2520, bandwidth=1008, **_LIMITS,
    ),
    90: dict(
        registers=65536, l1=228 * _KIB, l2=50 << 20, threads=132, block_shared=227 * _KIB, sm_threads=2048,
        sm_blocks=32, fma_rate=128, tensor_rate=2048, clock=1980, bandwidth=3350, **_LIMITS,
    ),
    100: dict(
        registers=65536, l1=228 * _KIB, l2=126 << 20, threads=148, block_shared=227 * _KIB, sm_threads=2048,
        sm_blocks=32, fma_rate=128, tensor_rate=4096, clock=1965, bandwidth=8000, **_LIMITS,
    ),
}  # fmt: skip

# Levels by name, in LLVM's spelling of features. Cache sizes are those of common machines of the level.
_PRESETS: dict[str, dict[str, Any]] = {
    "avx512": dict(vector_bytes=64, registers=32, l1=48 << 10, l2=2 << 20, l3=32 << 20, features=_AVX512),
    "avx2": dict(vector_bytes=32, registers=16, l1=32 << 10, l2=512 << 10, l3=32 << 20, features=_AVX2),
    "sse": dict(
        vector_bytes=16, registers=16, l1=32 << 10, l2=256 << 10, l3=8 << 20, fma=False, features=_SSE
    ),
    "neon": dict(vector_bytes=16, registers=32, l1=64 << 10, l2=1 << 20, l3=32 << 20, features=("neon",)),
    **{
        f"sm_{arch}": {"kind": "cuda", "vector_bytes": 16, "l3": 0, **figures}
        for arch, figures in _GPUS.items()
    },
    "sm_90a": {"kind": "cuda", "vector_bytes": 16, "l3": 0, **_GPUS[90]},
}
# What a preset leaves out.
_COMMON: dict[str, Any] = dict(kind="cpu", fma=True, threads=1, features=())
_GPU_FIGURES = (
    *_LIMITS,
    "block_shared",
    "sm_threads",
    "sm_blocks",
    "fma_rate",
    "tensor_rate",
    "clock",
    "bandwidth",
)
_NO_GPU = dict.fromkeys(_GPU_FIGURES, 0)
_LEVELS = ("avx512", "avx2", "sse", "neon")

# Spellings of /proc/cpuinfo that differ from LLVM's.
_CPUINFO = {
    "sse4_1": "sse4.1", "sse4_2": "sse4.2", "pni": "sse3", "abm": "lzcnt", "bmi1": "bmi",
    "avx512_bf16": "avx512bf16", "avx512_fp16": "avx512fp16", "avx512_vnni": "avx512vnni",
    "avx_vnni": "avxvnni", "asimd": "neon", "asimddp": "dotprod", "asimdhp": "fullfp16",
}  # fmt: skip


@dataclass(frozen=True, slots=True, init=False)
class Target:
    """A machine. `Target(name)` takes the figures of a level ("avx512", "avx2", "sse", "neon", or
    "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100") or, for "cpu", of this machine; any
    keyword overrides a figure.

    vector_bytes: width of a vector register. registers: vector registers (GPU: 32-bit ones a multiprocessor).
    l1, l2: bytes a core (GPU: shared memory a multiprocessor, L2 in all); l3: bytes a socket, 0 where none.
    threads: CPUs that a kernel may use, 1 for a level by name (GPU: multiprocessors). features: LLVM's names
    of the instruction sets a kernel may use.

    Of a GPU only (0 for a CPU): warp, threads of a warp; block_threads and block_shared, the most threads and
    bytes of shared memory of one block; thread_registers, the most of one thread; sm_threads and sm_blocks,
    the most that are resident on a multiprocessor; fma_rate and tensor_rate, f32 and half-precision matrix
    multiply-adds a multiprocessor and cycle; clock in MHz; bandwidth of the device's memory in GB/s.
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
    warp: int = 0
    block_threads: int = 0
    block_shared: int = 0
    thread_registers: int = 0
    sm_threads: int = 0
    sm_blocks: int = 0
    fma_rate: int = 0
    tensor_rate: int = 0
    clock: int = 0
    bandwidth: int = 0

    def __init__(self, name: str = "cpu", **figures: Any) -> None:
        base = {**_NO_GPU, **_figures(name), **figures}
        unknown = base.keys() - {f.name for f in fields(Target)}
        if unknown:
            raise ArgumentError(
                f"Target has no figure {sorted(unknown)}; it has {[f.name for f in fields(Target)]}"
            )
        given = base["features"]
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ArgumentError(f"Target.features are several of LLVM's feature names, got {given!r}")
        base["features"] = tuple(sorted(given, key=str))
        for key, value in ({"name": name} | base).items():
            object.__setattr__(self, key, value)
        _check(self)

    @property
    def key(self) -> str:
        """A stable string of every figure, not the name: equal keys mean equal schedules and code."""
        figures = self._own()
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
        return self._own() | {"features": list(self.features)}

    @property
    def warpgroups(self) -> bool:
        """Whether groups of four warps multiply matrices at once (wgmma, of sm_90a alone)."""
        return self.isa == "sm_90a"

    def _own(self) -> dict[str, Any]:
        """The figures that a machine of this kind has."""
        return {k: v for k, v in asdict(self).items() if self.kind == "cuda" or k not in _GPU_FIGURES}

    @staticmethod
    def from_json(data: Any) -> Target:
        """The target of `to_json`; RecordError where a figure is missing, unknown or of the wrong type."""
        gpu = isinstance(data, Mapping) and data.get("kind") == "cuda"
        names = {f.name for f in fields(Target) if gpu or f.name not in _GPU_FIGURES}
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
    if not isinstance(name, str):
        raise ArgumentError(f"Target(name): the name is a string, got {name!r}")
    if name == "cpu":
        return asdict(host())
    if name not in _PRESETS:
        raise ArgumentError(f"unknown target {name!r}; known are cpu, {', '.join(_PRESETS)}, or a tlm.Target")
    return {**_COMMON, "isa": name, **_PRESETS[name]}


def _check(target: Target) -> None:
    gpu = target.kind == "cuda"
    for name in ("vector_bytes", "registers", "l1", "l2", "l3", "threads", *_GPU_FIGURES):
        value = getattr(target, name)
        least = 0 if name == "l3" or (name in _GPU_FIGURES and not gpu) else 1
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 40:
            raise ArgumentError(f"Target.{name} is an integer from {least} to 2**40, got {value!r}")
    if target.kind not in ("cpu", "cuda"):
        raise ArgumentError(f"Target.kind is 'cpu' or 'cuda', got {target.kind!r}")
    stray = [name for name in _GPU_FIGURES if not gpu and getattr(target, name)]
    if stray:
        raise ArgumentError(
            f"Target.{stray[0]} is a figure of GPUs, got {getattr(target, stray[0])} for a CPU"
        )
    if target.kind == "cpu" and target.isa not in _LEVELS:
        raise ArgumentError(f"Target.isa of a CPU is one of {', '.join(_LEVELS)}, got {target.isa!r}")
    if not all(isinstance(f, str) and f.replace(".", "").isalnum() for f in target.features):
        raise ArgumentError(f"Target.features are LLVM feature names such as 'avx2', got {target.features!r}")
    if not isinstance(target.fma, bool):
        raise ArgumentError(f"Target.fma is True or False, got {target.fma!r}")
    missing = sorted(set(_PRESETS[target.isa]["features"]) - set(target.features)) if not gpu else []
    if missing:
        raise ArgumentError(
            f"Target.features of a CPU of level {target.isa} lack {', '.join(missing)}; those of"
            f" tlm.Target({target.isa!r}) are all that the level has"
        )


def gpu_architectures() -> tuple[int, ...]:
    """The compute capabilities of GPUs that have a name here, ten times their number, in order."""
    return tuple(_GPUS)


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
    for key, value in ({"name": "cpu"} | _NO_GPU | figures).items():
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


@cache
def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What the CPU calls itself; its architecture where it does not tell."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    names = [
        value.strip() for key, _, value in (x.partition(":") for x in lines) if key.strip() == "model name"
    ]
    return names[0][:100] if names else platform.machine()


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
    return min([q for q in map(_quota, control_groups("cpu", root)) if q is not None], default=None)


def control_groups(controller: str, root: Path = Path("/")) -> list[Path]:
    """Folders of this process's control group for "cpu" or "memory" and of those above it (versions 1, 2)."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        base = root / "sys/fs/cgroup"
        if number != "0" and controller in controllers.split(","):
            base = base / controller
        elif number != "0":
            continue
        parts = [p for p in path.split("/") if p and p != ".."]
        found += [base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    return found


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
