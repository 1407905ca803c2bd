"""Saved kernels: linked by the C compiler, run without Python, right by their own check; for aarch64 too."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tlm
from tests.backend.programs import elementwise, target
from tlm.backend import Ahead, cross_compile, save
from tlm.errors import ArgumentError, BackendError, DTypeError
from tlm.ir.combiners import COMBINERS
from tlm.ir.dtypes import DTYPES, DType, boolean, f32, to_numpy
from tlm.ir.exprs import Cast, Expr, Load, Var, const, op
from tlm.ir.nodes import Buffer, For, Program, Store, Update, block
from tlm.ir.optable import OPS
from tlm.ir.walk import substitute_in
from tlm.schedule import Schedule
from tlm.target import Target

STRICT = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-type-limits"]
CROSS = "aarch64-linux-gnu-gcc"
QEMU = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]


def ahead(program: Program, isa: str, scheduled: Program | None = None) -> Ahead:
    chosen = Target(isa) if isa == "neon" else target(isa)
    return Ahead(program, chosen, *cross_compile(scheduled or program, chosen))


def build(directory: Path, isa: str, flags: Sequence[str] = ()) -> list[str]:
    """Link main.c with what lies beside it and what it names; the command that runs the program."""
    compiler = CROSS if isa == "neon" else "gcc"
    needed = [compiler, QEMU[0]] if isa == "neon" else [compiler]
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
    objects = sorted(p.name for p in directory.glob("*.o"))
    libraries = re.findall(r" -l\w+", (directory / "main.c").read_text().partition("\n")[0])
    command = [compiler, *STRICT, *flags, "main.c", *objects, *[x.strip() for x in libraries], "-o", "main"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [*(QEMU if isa == "neon" else ()), str(directory / "main")]


def run(command: list[str], *args: str) -> str:
    done = subprocess.run([*command, *args], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def right(made: Ahead, directory: Path, flags: Sequence[str] = ()) -> str:
    save(directory, made)
    out = run(build(directory, made.target.isa, flags))
    assert out.endswith("right\n")
    return out


@pytest.fixture(params=["avx512", "avx2", "neon"])
def level(request: pytest.FixtureRequest) -> str:
    if request.param != "neon":
        target(request.param)
    return str(request.param)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8"])
def test_products_of_every_dtype(dtype: str, level: str, tmp_path: Path) -> None:
    x = to_numpy(DTYPES[dtype])
    chosen = Target(level, threads=2)
    kernel = tlm.ops.matmul.kernel(
        np.ones((21, 30), x), np.ones((30, 37), x), schedule="heuristic", target=chosen
    )
    kernel.save(tmp_path / "k")
    command = build(tmp_path / "k", level)
    assert run(command, "1").endswith("right\n")
    assert run(command, "2").endswith("right\n")


def test_parallel_vectors_and_workspace(level: str, tmp_path: Path) -> None:
    """Packed operands lie in the workspace; threads share rows; tails both ways."""
    a, b = np.ones((45, 33), np.float32), np.ones((33, 70), np.float32)
    program = tlm.ops.matmul.program(a, b)
    s = Schedule(program)
    s.split("i", 6)
    s.split("j", 8)
    s.cache_read("B", at="", layout=("j.0", "k", "j.1"), pad=True)
    s.reorder("i.0", "j.0", "k", "i.1", "j.1")
    s.vectorize("j.1")
    s.parallel("i.0")
    made = ahead(program, level, s.program)
    assert made.module.parallel
    assert made.module.workspace_bytes(2) >= 33 * 72 * 4
    save(tmp_path / "k", made)
    command = build(tmp_path / "k", level)
    for threads in ("1", "2", "3"):
        assert run(command, threads).endswith("right\n")
    assert "-lgomp" in (tmp_path / "k" / "main.c").read_text().splitlines()[0]


def test_the_command_in_the_example_works(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    tlm.ops.linear.kernel(
        np.ones((5, 7), np.float32), np.ones((7, 9), np.float32), activation="gelu", schedule="heuristic"
    ).save(tmp_path / "k")
    command = (tmp_path / "k" / "main.c").read_text().splitlines()[0].removeprefix("/* ")
    done = subprocess.run(
        command, shell=True, cwd=tmp_path / "k", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "right"), done.stderr


def test_a_wrong_kernel_is_found_out(tmp_path: Path) -> None:
    wrong = elementwise("exp", [f32], f32, 19)
    good = ahead(elementwise("sin", [f32], f32, 19), "avx2")
    save(tmp_path / "k", replace(good, plain=wrong))
    command = build(tmp_path / "k", "avx2")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "WRONG")


def results(dtype: DType) -> dict[str, Expr]:
    """Every operation that takes `dtype`, on x and y at i; casts to every type."""
    x, y = (Load(b, (Var("i"),), dtype) for b in "xy")
    out: dict[str, Expr] = {f"to_{d}": Cast(x, d) for d in DTYPES.values() if d != dtype}
    for name, info in OPS.items():
        args: list[Expr] = [x, y, x][: info.arity]
        if name == "where":
            args = [op("lt", x, y), x, y]
        try:
            if name in ("shl", "shr"):
                args[1] = op("mod", y, const(5, dtype))
            out[f"{name}_"] = op(name, *args)
        except DTypeError:
            continue
    return out


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_operation(dtype: str, level: str, tmp_path: Path) -> None:
    """Vectors with a tail; own polynomials and libm on aarch64, libmvec here."""
    d, n = DTYPES[dtype], 37
    outputs, nests = [], []
    for name, value in results(d).items():
        var = f"i_{name}"
        outputs.append(Buffer(name, (n,), value.dtype))
        store = substitute_in(Store(name, (Var("i"),), value), {"i": Var(var)})
        nests.append(For(var, n, store, "vectorize"))
    inputs = (Buffer("x", (n,), d), Buffer("y", (n,), d))
    right(ahead(Program(f"all_{dtype}", inputs, tuple(outputs), block(*nests)), level), tmp_path / "k")


@pytest.mark.parametrize("combiner", list(COMBINERS))
def test_every_combiner(combiner: str, level: str, tmp_path: Path) -> None:
    parts = COMBINERS[combiner].parts
    kind = boolean if combiner in ("any", "all") else f32
    x = Buffer("x", (5, 23), kind)
    at = Load("x", (Var("i"), Var("k")), kind)
    values: dict[str, tuple[Expr, ...]] = {
        "argmax": (at, Var("k")), "argmin": (at, Var("k")),
        "welford": (const(1.0, f32), at, const(0.0, f32)), "logsumexp": (at, const(1.0, f32)),
    }  # fmt: skip
    terms = values.get(combiner, (at,))
    outputs = tuple([Buffer(f"y{n}", (5,), v.dtype) for n, v in enumerate(terms)])
    update = Update(tuple([b.name for b in outputs]), (Var("i"),), terms, combiner, ("k",))
    assert len(terms) == parts
    program = Program(f"reduce_{combiner}", (x,), outputs, For("i", 5, For("k", 23, update)))
    vectors = Schedule(program)
    vectors.vectorize("k")
    right(ahead(program, level, vectors.program), tmp_path / "k")


def test_strides_and_names_that_c_keeps_for_itself(tmp_path: Path) -> None:
    """Rows backwards, columns apart, gaps between them; buffers named as words of C and of the example."""
    x, y = Buffer("double", (3, 4), f32, strides=(-16, 3)), Buffer("size", (3, 4), f32, strides=(9, 2))
    value = Load("double", (Var("int"), Var("exp")), f32) + 1.0
    body = For("int", 3, For("exp", 4, Store("size", (Var("int"), Var("exp")), op("exp", value))))
    right(ahead(Program("while", (x,), (y,), body), "avx2"), tmp_path / "k")


@pytest.mark.parametrize(
    ("taken", "given"),
    [
        ("i", "x"),
        ("want_y", "y"),
        ("y", "error"),
        ("scale", "worst"),
        ("calloc", "printf"),
        ("errno", "INFINITY"),
        ("new", "class"),
    ],
)
def test_names_that_the_example_and_cplusplus_use(tmp_path: Path, taken: str, given: str) -> None:
    x, y = Buffer(taken, (9,), f32), Buffer(given, (9,), f32)
    body = For("i", 9, Store(given, (Var("i"),), Load(taken, (Var("i"),), f32) + 1.0))
    right(ahead(Program("p", (x,), (y,), body), "avx2"), tmp_path / "k")
    if shutil.which("g++") is not None:
        (tmp_path / "h.cpp").write_text('#include "k/kernel.h"\n')
        subprocess.run(["g++", "-Wall", "-Werror", "-c", "h.cpp"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_several_kernels_in_one_program(tmp_path: Path, threads: int) -> None:
    """Each under its own name; the header serves C++ as well."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    for name, n in (("first", 8), ("second", 16)):
        a = np.ones((n, n), np.float32)
        how = tlm.Schedule(tlm.ops.matmul.program(a, a)).parallel("i")
        kernel = tlm.ops.matmul.kernel(a, a, schedule=how, threads=threads)
        kernel.save(tmp_path / name, name=name)
    text = """#include <cstdio>
#include "first/first.h"
#include "second/second.h"
int main() {
  float a[256], c[256];
  for (float &x : a) x = 1;
  tlm_first(a, a, c, nullptr, THREADS);
  std::printf("%g ", c[63]);
  tlm_second(a, a, c, nullptr, THREADS);
  std::printf("%g", c[255]);
}
"""
    (tmp_path / "both.cpp").write_text(text.replace("THREADS", str(threads)))
    objects = ["first/first.o", "second/second.o"]
    command = ["g++", "-Wall", "-Werror", "both.cpp", *objects, "-lm", "-lgomp", "-o", "both"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert run([str(tmp_path / "both")]) == "8 16"


def test_saving_replaces_a_kernel_and_nothing_else(tmp_path: Path) -> None:
    made = ahead(elementwise("exp", [f32], f32, 9), "avx2")
    place = tmp_path / "deep" / "k"
    assert save(place, made) == place
    save(place, replace(made, name="other"))
    assert sorted(p.name for p in place.iterdir()) == ["main.c", "other.h", "other.o"]
    assert [p.name for p in place.parent.iterdir()] == ["k"]
    (place / "notes.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="holds other files"):
        save(place, made)
    assert (place / "notes.txt").read_text() == "mine"
    with pytest.raises(ArgumentError, match="is a file"):
        save(place / "notes.txt", made)
    with pytest.raises(ArgumentError, match="name="):
        save(tmp_path / "new", replace(made, name="a b"))
    with pytest.raises(ArgumentError, match="cannot write"):
        save(place / "notes.txt" / "k", made)
    assert not (tmp_path / "new").exists()


SOURCES = {"main.c": b"int main() {}", "util.c": b"int x;", "util.h": b"int x;"}
DATA = {"main.c": b"int main() {}", "data.csv": b"1,2", "data.old": b"3,4"}
OBJECTS = {"main.c": b"/* mine */", "util.h": b"/* mine */", "util.o": b"\x7fELF"}


@pytest.mark.parametrize("files", [SOURCES, DATA, OBJECTS])
def test_files_that_only_look_like_a_kernel_stay(files: dict[str, bytes], tmp_path: Path) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ArgumentError, match="holds other files than those of a saved kernel"):
        save(tmp_path, ahead(elementwise("exp", [f32], f32, 9), "avx2"))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == files


@pytest.mark.parametrize("changed", ["main.c", "kernel.h", "kernel.o", "main", "folder", "link", "second"])
def test_a_saved_kernel_with_anything_of_ones_own_stays(changed: str, tmp_path: Path) -> None:
    made, place = ahead(elementwise("exp", [f32], f32, 9), "avx2"), tmp_path / "k"
    save(place, made)
    if changed == "folder":
        (place / "main").mkdir()
    elif changed == "link":
        (tmp_path / "elsewhere").write_bytes(b"\x7fELF")
        (place / "main").symlink_to(tmp_path / "elsewhere")
    elif changed == "second":
        shutil.copyfile(place / "kernel.h", place / "other.h")
    else:
        (place / changed).write_text("mine")
    before = sorted(place.iterdir())
    with pytest.raises(ArgumentError, match="holds other files than those of a saved kernel"):
        save(place, made)
    assert sorted(place.iterdir()) == before
    assert changed in ("folder", "link", "second") or (place / changed).read_text() == "mine"


@pytest.mark.parametrize("name", ["kernel", "other"])
def test_saving_replaces_a_kernel_whose_example_was_built(name: str, level: str, tmp_path: Path) -> None:
    made = ahead(elementwise("exp", [f32], f32, 9), level)
    right(made, tmp_path / "k")
    assert (tmp_path / "k" / "main").exists()
    save(tmp_path / "k", replace(made, name=name))
    assert sorted(p.name for p in (tmp_path / "k").iterdir()) == sorted(["main.c", f"{name}.h", f"{name}.o"])


def test_a_directory_is_never_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ahead(elementwise("exp", [f32], f32, 9), "avx2")
    save(tmp_path / "k", made)
    before = {p.name: p.read_bytes() for p in (tmp_path / "k").iterdir()}
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "main.c":
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    other = ahead(elementwise("sin", [f32], f32, 9), "avx2")
    for place in ("k", "fresh"):
        with pytest.raises(ArgumentError, match="No space left"):
            save(tmp_path / place, other)
    assert {p.name: p.read_bytes() for p in (tmp_path / "k").iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["k"]


def test_kernels_for_gpus_are_refused(tmp_path: Path) -> None:
    made = replace(ahead(elementwise("exp", [f32], f32, 9), "avx2"), target=Target("sm_90"))
    with pytest.raises(BackendError, match="sm_90"):
        save(tmp_path / "k", made)
