"""Dot-product instructions: exact sums, the instruction that the target has, and none that it lacks."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from tests.backend.programs import Array, check, target, whole_numbers
from tests.backend.programs import run as run_kernel
from tests.backend.test_ahead import QEMU, ahead, build, run
from tlm.backend import assembly, compile, cross_compile, save
from tlm.ir.build import Builder
from tlm.ir.dtypes import DTYPES
from tlm.ir.exprs import Cast
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.lower.dots import DOTS, available
from tlm.schedule import Schedule
from tlm.target import Target, host


def with_features(isa: str, *features: str) -> Target:
    base = Target(isa)
    return Target(isa, features=(*base.features, *features))


def product(a: str, b: str, acc: str, m: int, n: int, k: int) -> Program:
    made = Builder(f"{a}_{b}")
    x, y = made.input("A", (m, k), a), made.input("B", (k, n), b)
    wide = DTYPES[acc]
    made.reduce("C", (m, n), over={"k": k}, fn=lambda i, j, k: Cast(x[i, k], wide) * Cast(y[k, j], wide),
                axes=("i", "j"), output=True)  # fmt: skip
    return made.build()


def grouped(program: Program, terms: int, lanes: int, rows: int = 3, pack_a: bool = False) -> Program:
    """Tiles of rows x 2 vectors, k in groups of `terms`, B packed with its terms side by side."""
    s = Schedule(program)
    s.split("i", rows)
    s.split("j", 2 * lanes)
    s.split("j.1", lanes)
    s.split("k", terms)
    s.reorder("i.0", "j.0", "k.0", "i.1", "j.1.0", "k.1", "j.1.1")
    s.cache_read("B", at="", layout=("j.0", "k.0", "j.1.0", "j.1.1", "k.1"), pad=True)
    if pack_a:
        s.cache_read("A", at="", layout=("i.0", "k.0", "i.1", "k.1"), pad=True)
    s.reorder("k.1@B_pack", "j.1.1@B_pack")
    s.cache_write("C", "j.0", memory="register", layout=("i.1", "j.1.0", "j.1.1"), name="acc")
    s.decompose_reduction("acc", "k.0")
    for copy in ("", "@init", "@acc"):
        s.unroll(f"i.1{copy}")
        s.unroll(f"j.1.0{copy}")
        s.vectorize(f"j.1.1{copy}")
    for name in ("k.1", "k.1@B_pack"):
        s.unroll(name)
    s.vectorize("j.1.1@B_pack")
    return s.program


INSTRUCTIONS = [
    ("avx512", ("avx512vnni",), "i16", "i16", "i32", 2, "vpdpwssd", 16),
    ("avx512", ("avx512vnni",), "u8", "i8", "i32", 4, "vpdpbusd", 16),
    ("avx512", ("avx512vnni",), "i8", "u8", "i32", 4, "vpdpbusd", 8),
    ("avx512", ("avx512bf16",), "bf16", "bf16", "f32", 2, "vdpbf16ps", 16),
    ("avx512", (), "i16", "i16", "i32", 2, "vpmaddwd", 16),
    ("avx2", ("avxvnni",), "u8", "i8", "i32", 4, "vpdpbusd", 8),
    ("avx2", (), "i16", "i16", "i32", 2, "vpmaddwd", 8),
    ("sse", (), "i16", "i16", "i32", 2, "pmaddwd", 4),
]


@pytest.mark.parametrize(("isa", "extra", "a", "b", "acc", "terms", "name", "lanes"), INSTRUCTIONS)
def test_products_by_dot_products(
    isa: str, extra: tuple[str, ...], a: str, b: str, acc: str, terms: int, name: str, lanes: int
) -> None:
    """Tails along m, n and k; what is left of k is computed without the instruction."""
    chosen = with_features(isa, *extra)
    if not chosen.runs_here():
        pytest.skip(f"this CPU has no {' '.join(extra) or isa}")
    for k, pack_a in ((16, False), (19, False), (19, True)):
        program = product(a, b, acc, 7, 2 * lanes + 5, k)
        scheduled = grouped(program, terms, lanes, pack_a=pack_a)
        kernel = check_on(scheduled, chosen)
        tile = max(re.split(r"\n(?=\.L)", kernel), key=lambda block: block.count(name))
        assert tile.count(f"{name}\t") >= 6
        if k % terms == 0:
            assert not re.search(r"pmulld|mulps|fmadd", kernel)


def check_on(program: Program, chosen: Target, arrays: list[Array] | None = None) -> str:
    """The assembly of `program` for a target of its own; the results must be the interpreter's."""
    arrays = whole_numbers(program) if arrays is None else arrays
    kernel = compile(program, chosen, cache=False)
    for got, want in zip(run_kernel(kernel, arrays), interpret(program, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    return kernel.assembly


def test_extreme_values_wrap_as_in_the_interpreter() -> None:
    """Products of the largest i16 overflow i32 in pairs; they wrap, and never saturate."""
    program = product("i16", "i16", "i32", 3, 32, 6)
    arrays = [np.full(b.shape, -(2**15), np.int16) for b in program.inputs]
    check(grouped(program, 2, 8), target("avx2").isa, arrays)
    if host().isa == "avx512":
        check_on(grouped(program, 2, 16), host().with_threads(1), arrays)


def test_no_instruction_that_the_target_lacks() -> None:
    program = grouped(product("bf16", "bf16", "f32", 6, 32, 8), 2, 16)
    assert "dpbf16ps" not in assembly(cross_compile(program, Target("avx512"))[0], Target("avx512"))
    bytes_ = grouped(product("u8", "i8", "i32", 6, 32, 8), 4, 16)
    assert "vpdpbusd" not in assembly(cross_compile(bytes_, Target("avx512"))[0], Target("avx512"))
    # AVX-VNNI has no 512-bit form.
    half = with_features("avx2", "avxvnni")
    assert "vpdpbusd" not in assembly(cross_compile(bytes_, half)[0], half)
    assert available(Target("neon")) == ()
    assert {d.terms for d in available(with_features("avx512", "avx512vnni"))} == {2, 4}
    assert all(d.terms * d.x.bytes == 4 for d in DOTS)


@pytest.mark.parametrize(
    ("a", "b", "acc", "terms", "name"),
    [("i8", "i8", "i32", 4, "sdot"), ("u8", "u8", "i32", 4, "udot"), ("i8", "u8", "i32", 4, "usdot"),
     ("bf16", "bf16", "f32", 2, "bfdot")],
)  # fmt: skip
def test_dot_products_of_aarch64(a: str, b: str, acc: str, terms: int, name: str, tmp_path) -> None:
    chosen = with_features("neon", "dotprod", "i8mm", "bf16")
    program = product(a, b, acc, 7, 13, 19)
    made = replace(ahead(program, "neon"), target=chosen)
    module, code = cross_compile(grouped(program, terms, 4), chosen)
    assert f"\t{name}\t" in assembly(module, chosen)
    save(tmp_path / "k", replace(made, module=module, code=code))
    command = build(tmp_path / "k", "neon")
    assert shutil.which(QEMU[0])
    assert run([command[0], "-cpu", "max", *command[1:]]).endswith("right\n")


def test_interleaved_copies_are_whole_stores() -> None:
    program = grouped(product("i16", "i16", "i32", 6, 64, 16), 2, 16)
    code = check(program, "avx512").assembly
    blocks = re.split(r"\n(?=\.L)", code)
    packing = max(blocks, key=lambda block: block.count("vpermw") + block.count("vpunpck"))
    assert len(re.findall(r"vmovdq\w+\t%zmm\d+, .*\(", packing)) == 1
    assert "vpextrw" not in packing
