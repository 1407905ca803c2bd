"""Builds CUDA C text for the CPU with g++, once per text, and tells the lines of its machine code.

Objects live in a temporary folder of this process, named by a hash of everything they depend on.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent / "shim"
LABEL = "kernel.cu"
RUNTIME_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fno-gnu-unique")
# -O1 without scalar replacement keeps an access of the text one access of the code; aliasing is as lax as
# nvcc's. With DWARF 5, binutils 2.40 takes line numbers of g++ 12 for those of another file.
KERNEL_FLAGS = (
    *("-std=c++17", "-O1", "-g1", "-gdwarf-4", "-w", "-fPIC", "-pipe", "-fno-gnu-unique", "-fno-tree-sra"),
    *("-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-exceptions"),
    *("-fno-stack-protector", "-fsanitize=thread,bounds"),
)
# Dynamic shared arrays of any name and type are one memory; an assembler label names it.
DYNAMIC = re.compile(r"\bextern\s+__shared__\s+([^;]*?\b)(\w+)\s*\[\s*\]\s*;")
# Static shared arrays of classes would be constructed at their first use; zeros need no code.
STATIC = re.compile(r"(?<!extern )\b__shared__\b((?:[^;{}=()]|\([^()]*\))*);")
KERNEL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\(([^()]*)\)\s*)?void\s+"
    r"(?:__launch_bounds__\s*\(([^()]*)\)\s*)?(\w+)\s*\("
)


def missing() -> str | None:
    """Why kernels cannot be built here, or None."""
    for tool in ("g++", "addr2line"):
        if not shutil.which(tool):
            return f"the shim builds kernels with g++ and binutils, and there is no {tool} here"
    if platform.machine() not in ("x86_64", "aarch64"):
        return f"the fibers of the shim know x86-64 and aarch64, not {platform.machine()}"
    return None


@cache
def folder() -> Path:
    path = tempfile.mkdtemp(prefix="tlm-shim-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


@cache
def machine_flags() -> tuple[str, ...]:
    """fmaf as one instruction where the CPU has it: emulated, it would dominate every product."""
    info = Path("/proc/cpuinfo")
    has_fma = info.exists() and re.search(r"^flags.*\bfma\b", info.read_text(), re.MULTILINE)
    return ("-mfma",) if platform.machine() == "x86_64" and has_fma else ()


def _compile(command: Iterable[str], text: str = "") -> None:
    done = subprocess.run([*command], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"g++ refused the text:\n{done.stderr}")


@cache
def _runtime_hash() -> str:
    files = sorted(p for p in SOURCES.iterdir() if p.suffix in (".h", ".cpp"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()


@cache
def runtime() -> Path:
    """The library that schedules threads and checks their accesses."""
    path = folder() / f"runtime-{_runtime_hash()[:16]}.so"
    _compile(["g++", *RUNTIME_FLAGS, str(SOURCES / "runtime.cpp"), "-o", str(path)])
    return path


@cache
def headers() -> Path:
    """A folder with the header of all texts, read by g++ once."""
    made = folder() / f"headers-{_runtime_hash()[:16]}" / "tlm_shim.h.gch"
    made.parent.mkdir(exist_ok=True)
    header = str(SOURCES / "tlm_shim.h")
    _compile(["g++", *KERNEL_FLAGS, *machine_flags(), "-x", "c++-header", header, "-o", str(made)])
    return made.parent


@dataclass(slots=True)
class Library:
    """A built text. `kernels`: name -> its launch bound, or None. Places are offsets of return addresses."""

    path: Path
    text: str
    kernels: dict[str, int | None]
    handle: ctypes.CDLL
    known: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def resolve(self, places: Iterable[int]) -> None:
        """Looks up all of `places` that are not known yet, in one run of addr2line."""
        wanted = sorted({p for p in places if p not in self.known})
        if not wanted:
            return
        # The call is before the return address.
        command = ["addr2line", "-a", "-i", "-e", str(self.path), *(hex(p - 1) for p in wanted)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        frames: dict[int, list[int]] = {}
        here: list[int] = []
        for line in out.splitlines():
            if line.startswith("0x"):
                here = frames.setdefault(int(line, 16) + 1, [])
            elif found := re.search(rf"\b{re.escape(LABEL)}:(\d+)", line):
                here.append(int(found[1]))
        self.known.update({p: tuple(frames.get(p, ())) for p in wanted})

    def lines(self, place: int) -> tuple[int, ...]:
        """Line numbers of the text at a place: the innermost inlined function first, the kernel last."""
        self.resolve([place])
        return self.known[place]

    def line_text(self, number: int) -> str:
        return self.text.splitlines()[number - 1].strip() if number else "(not in the text)"


_LIBRARIES: dict[str, Library] = {}


def _kernels(text: str) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for before, after, name in KERNEL.findall(text):
        bound = (before or after).split(",")[0].strip()
        found[name] = int(bound) if bound.isdigit() else None
    return found


def build(text: str) -> Library:
    """The library of a text, built at its first use (0.15 s). ValueError where g++ refuses it."""
    key = hashlib.sha256(
        "\0".join((text, _runtime_hash(), *KERNEL_FLAGS, *machine_flags())).encode()
    ).hexdigest()
    if key in _LIBRARIES:
        return _LIBRARIES[key]
    kernels = _kernels(text)
    # The name has the hash: dlopen gives an old handle for a path that it knows.
    path = folder() / f"kernel-{key[:24]}.so"
    made = STATIC.sub(r"__shared__\1 = {};", DYNAMIC.sub(r'extern \1\2[] __asm__("tlm_shim_dynamic");', text))
    entries = "\n".join(f"TLM_SHIM_KERNEL({name})" for name in kernels)
    source = f'#include "tlm_shim.h"\n#line 1 "{LABEL}"\n{made}\n#line 1 "launch"\n{entries}\nTLM_SHIM_END\n'
    # g++ looks for the read header in the first folder, and in the second for what cannot be read ahead.
    flags = (*KERNEL_FLAGS, *machine_flags(), f"-I{headers()}", f"-I{SOURCES}")
    linked = ("-shared", "-nostdlib", "-x", "none", str(runtime()), "-o", str(path))
    _compile(["g++", *flags, "-x", "c++", "-", *linked], source)
    library = Library(path, text, kernels, ctypes.CDLL(str(path)))
    _LIBRARIES[key] = library
    return library
