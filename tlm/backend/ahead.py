"""Ahead of time: a kernel as an object file, a C header, and a C program that runs and checks it.

    kernel.o   the code: `void f(const in *..., out *..., void *workspace, int64_t threads)`
    kernel.h   its declaration, the layout of each argument, the bytes of workspace
    main.c     fills the inputs, calls the kernel, compares with the plain loops in double

Nothing of Python is needed to link and run them. Vector math is libmvec's, a part of glibc's libm, where the
code was made for this machine, else own polynomials and libm; parallel loops call libgomp.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import textwrap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, BackendError
from ..ir.dtypes import bf16, f16, to_numpy
from ..ir.names import SYMBOL_LETTERS
from ..ir.nodes import Buffer, Program
from ..target import Target
from . import plain_c
from .c_text import C_TYPES

if TYPE_CHECKING:
    from .llvm.emitter import Module

# The kernel sums in f32 or f64, the loops of the example in double; half types round once more.
_TOLERANCE = {
    "f64": ("1e-10", "1e-290"), "f32": ("2e-5", "1e-36"), "f16": ("4e-3", "1e-6"), "bf16": ("3e-2", "1e-36"),
}  # fmt: skip
_COMPILERS = {"neon": "aarch64-linux-gnu-gcc"}


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is saved: `plain` is the unscheduled program, `code` the object file of `module`."""

    plain: Program
    target: Target
    module: Module
    code: bytes
    name: str = "kernel"

    @property
    def libraries(self) -> str:
        """What to link with: libm brings libmvec along."""
        return "-lm -lgomp" if self.module.parallel else "-lm"

    @property
    def command(self) -> str:
        """How the example is linked."""
        compiler = _COMPILERS.get(self.target.isa, "gcc")
        return f"{compiler} -O2 main.c {self.name}.o {self.libraries} -o main"


def check_name(name: Any) -> None:
    """ArgumentError where `name` cannot be a part of names of files and of C."""
    if not (isinstance(name, str) and name.isascii() and name.isidentifier()):
        raise ArgumentError(f"name= becomes names of files and of C: letters, digits, _; got {name!r}")
    if len(name) > SYMBOL_LETTERS:
        raise ArgumentError(f"name= has at most {SYMBOL_LETTERS} letters, got {len(name)}: {name!r}")


def save(directory: str | os.PathLike[str], ahead: Ahead) -> Path:
    """Write the three files to `directory`, all or none; returns the directory.

    A directory that holds such files already is replaced, with the program `main` that was linked from them.
    ArgumentError where it holds others, or cannot be written; BackendError for code that is not for Linux's
    calling conventions.
    """
    if ahead.target.kind != "cpu":
        raise BackendError(f"only kernels for CPUs are saved as object files, not for {ahead.target.name}")
    check_name(ahead.name)
    final = _path(directory)
    files = {
        f"{ahead.name}.o": ahead.code,
        f"{ahead.name}.h": header(ahead).encode(),
        "main.c": example(ahead).encode(),
    }
    try:
        _check_directory(final)
        final.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=final.parent, prefix=f".{final.name}."))
        try:
            for name, data in files.items():
                (made / name).write_bytes(data)
            made.chmod(0o755)
            _replace(made, final)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise ArgumentError(f"cannot write a kernel to {final}: {error}") from error
    return final


def _path(directory: str | os.PathLike[str]) -> Path:
    """The directory; ArgumentError where no file of this system can have such a name."""
    try:
        given = os.fspath(directory)
        encoded = os.fsencode(given)
    except (TypeError, UnicodeError) as error:
        raise ArgumentError(f"{directory!r} names no directory: {error}") from None
    if b"\0" in encoded:
        raise ArgumentError(f"{directory!r} names no directory: a path has no zero bytes")
    try:
        return Path(os.fsdecode(given)).resolve()
    except (OSError, RuntimeError) as error:
        raise ArgumentError(f"{given} cannot be found: {error}") from None


def _check_directory(final: Path) -> None:
    if final.is_dir():
        found = list(final.iterdir())
        if found and not _is_saved(found):
            raise ArgumentError(
                f"{final} holds other files than those of a saved kernel; give a new or an empty directory"
            )
    elif final.exists():
        raise ArgumentError(f"{final} is a file; a kernel is saved to a directory")


_ELF = b"\x7fELF"


def _is_saved(found: list[Path]) -> bool:
    """Whether these are the files of one saved kernel, by their names and by how they begin, and perhaps the
    program that was linked from them."""
    if any(p.is_symlink() or not p.is_file() for p in found):
        return False
    starts = {p.name: _start(p) for p in found}
    headers = [n.removesuffix(".h") for n in starts if n.endswith(".h")]
    if len(headers) != 1 or starts.keys() - {"main"} != {"main.c", f"{headers[0]}.o", f"{headers[0]}.h"}:
        return False
    (name,) = headers
    build = rf"/\* \S+ -O2 main\.c {re.escape(name)}\.o .*-o main && \./main"
    about = " ".join(starts[f"{name}.h"].decode(errors="replace").split())
    return (
        re.match(build + r"\n   Runs \S+ on made-up ", starts["main.c"].decode(errors="replace")) is not None
        and re.match(r"/\* \S+ for CPUs with ", about) is not None
        and all(starts[n].startswith(_ELF) for n in starts.keys() & {"main", f"{name}.o"})
    )


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1024)


def _replace(made: Path, final: Path) -> None:
    """Put `made` at `final`; what was there is gone only when the new one is in place."""
    if final.is_dir() and final.samefile(Path.cwd()):
        # The folder in which this process works is not exchanged, as the process would stay in the old one.
        names = [path.name for path in made.iterdir()]
        for name in names:
            os.replace(made / name, final / name)
        for path in final.iterdir():
            if path.name not in names:
                path.unlink()
        return
    if not (final.is_dir() and any(final.iterdir())):
        os.replace(made, final)
        return
    old = Path(tempfile.mkdtemp(dir=final.parent, prefix=f".{final.name}."))
    try:
        os.replace(final, old)
        try:
            os.replace(made, final)
        except OSError:
            os.replace(old, final)
            raise
    except OSError:
        with suppress(OSError):  # where it could not be put back, the old one stays here
            old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def header(ahead: Ahead) -> str:
    """The C (and C++) header."""
    program, module, symbol = ahead.plain, ahead.module, ahead.module.symbol
    names = plain_c.identifiers([b.name for b in program.parameters])
    arguments = [
        f"{'const ' if b in program.inputs else ''}{C_TYPES[b.dtype.name]} *{names[b.name]}"
        for b in program.parameters
    ]
    guard, size = f"{symbol.upper()}_H", f"{symbol.upper()}_WORKSPACE"
    about = [_argument(names[b.name], b, b in program.outputs) for b in program.parameters]
    features = " ".join(ahead.target.features) or ahead.target.isa
    top = textwrap.wrap(f"{program.name} for CPUs with {features}.", 96)
    shares = "how many of them share the work" if module.parallel else "not used: this kernel has one"
    return "\n".join([
        "/* " + "\n   ".join(top), "", *about,
        f"   workspace   {size}(threads) bytes, aligned to {size}_ALIGNMENT; NULL where that is 0",
        f"   threads     {shares}; at least 1", "",
        "   Outputs overlap neither inputs nor each other; arrays are aligned to their elements. Calls with",
        f"   different workspaces may run at the same time. Link with {ahead.libraries}. */",
        f"#ifndef {guard}", f"#define {guard}", "#include <stdint.h>", "",
        f"#define {size}_ALIGNMENT 64",
        f"#define {size}(threads) ((int64_t){module.shared} + (int64_t)(threads) * {module.per_thread})", "",
        "#ifdef __cplusplus", 'extern "C"', "#endif",
        f"void {symbol}({', '.join([*arguments, 'void *workspace', 'int64_t threads'])});", "",
        "#endif", "",
    ])  # fmt: skip


def _argument(name: str, b: Buffer, output: bool) -> str:
    halves = {"f16": "f16 (bits of IEEE half)", "bf16": "bf16 (upper half of float)"}
    kind, way = halves.get(b.dtype.name, b.dtype.name), "out" if output else "in"
    shape = " x ".join(map(str, b.shape)) or "one element"
    steps = "C order" if b.strides is None else f"strides of {', '.join(map(str, b.strides))} elements"
    return f"   {name:<11} {way}, {kind}, {shape}, {steps}"


_MAIN = """/* {command} && ./main
   Runs {symbol} on made-up inputs and compares with the plain loops in double. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

{plain}

/* From 0 to 15, the same numbers in each run. */
static int next(void) {{
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int)(state >> 60);
}}

static int bad = 0;

/* `got` and `want` are expressions of i_. */
#define CHECK(name, n, got, want, relative, absolute) do {{ \\
  double scale_ = 0, worst_ = 0; \\
  for (int64_t i_ = 0; i_ < (n); i_++) {{ \\
    double x_ = (double)(got), y_ = (double)(want); \\
    double error_ = x_ == y_ || (x_ != x_ && y_ != y_) ? 0 : fabs(x_ - y_); \\
    if (isfinite(y_) && fabs(y_) > scale_) scale_ = fabs(y_); \\
    if (error_ != error_ || error_ > worst_) worst_ = error_ == error_ ? error_ : INFINITY; \\
  }} \\
  printf("%s: largest value %g, largest error %g\\n", name, scale_, worst_); \\
  if (!(worst_ <= (relative) * scale_ + (absolute))) bad = 1; \\
}} while (0)

int main(int argc, char **argv) {{
  int64_t threads = argc > 1 ? atoll(argv[1]) : {threads};
{body}
  puts(bad ? "WRONG" : "right");
  return bad;
}}
"""


def example(ahead: Ahead) -> str:
    """The C program that runs the kernel and checks it."""
    program, symbol = ahead.plain, ahead.module.symbol
    names = plain_c.identifiers([b.name for b in program.parameters])
    size = f"{symbol.upper()}_WORKSPACE"
    inputs, outputs = [names[b.name] for b in program.inputs], [names[b.name] for b in program.outputs]
    wanted = plain_c.identifiers([f"want_{names[b.name]}" for b in program.outputs], names.values())
    wants = dict(zip(outputs, wanted.values(), strict=True))
    lines = []
    for b in program.inputs:
        lines += [*_array(b, names[b.name], C_TYPES[b.dtype.name]), _fill(b, names[b.name])]
    for b in program.outputs:
        lines += _array(b, names[b.name], C_TYPES[b.dtype.name])
        lines += _array(b, wants[names[b.name]], plain_c.element(b.dtype))
    lines += [
        f"  int64_t size = {size}(threads), line = {size}_ALIGNMENT;",
        "  void *workspace = size ? aligned_alloc(line, (size + line - 1) / line * line) : NULL;",
        f"  {symbol}({', '.join([*inputs, *outputs, 'workspace', 'threads'])});",
        f"  plain({', '.join([*inputs, *wants.values()])});",
    ]
    for b in program.outputs:
        name, (before, after) = names[b.name], plain_c.reach(b)
        at = f"[i_ - {before}]" if before else "[i_]"
        got = plain_c.decoded(name + at, b.dtype)
        relative, absolute = _TOLERANCE.get(b.dtype.name, ("0", "0"))
        bounds = f"{relative}, {absolute}"
        lines.append(f'  CHECK("{name}", {before + after}, {got}, {wants[name]}{at}, {bounds});')
    return _MAIN.format(
        command=ahead.command, symbol=symbol, name=ahead.name, threads=ahead.target.threads,
        plain=plain_c.function(program, "plain"), body="\n".join(lines),
    )  # fmt: skip


def _array(b: Buffer, name: str, kind: str) -> list[str]:
    before, after = plain_c.reach(b)
    moved = [f"  {name} += {before};"] if before else []
    return [f"  {kind} *{name} = calloc({before + after}, sizeof *{name});", *moved]


def _fill(b: Buffer, name: str) -> str:
    """Small numbers whose products and sums are exact in every float type."""
    before, after = plain_c.reach(b)
    values = {"float": "(next() - 8) / 8.0f", "int": "next() - 8", "uint": "next()", "bool": "next() > 7"}
    value = values[b.dtype.kind]
    if b.dtype in (f16, bf16):
        bits = ((np.arange(16) - 8) / 8).astype(to_numpy(b.dtype)).view(np.uint16)
        value = f"((const uint16_t[]){{{', '.join([hex(x) for x in bits])}}})[next()]"
    return f"  for (int64_t i_ = {-before}; i_ < {after}; i_++) {name}[i_] = {value};"
