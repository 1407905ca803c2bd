"""Products of narrow types: dot-product instructions where the target has them, operands converted once."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tlm.backend import compile
from tlm.ir.build import Builder
from tlm.ir.dtypes import DTYPES, to_numpy
from tlm.ir.exprs import Cast
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.lower.dots import groupings
from tlm.schedule import Widen, apply
from tlm.search.heuristic import heuristic
from tlm.space.decide import Decided, at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target, host

ALL = ("avx512bf16", "avx512vnni")


def machine(level: str, *features: str, threads: int = 1) -> Target:
    return Target(level, features=(*Target(level).features, *features), threads=threads)


def product(
    a: str, b: str, acc: str, shape: tuple[int, int, int], turned: bool = False, out: str | None = None
) -> Program:
    """A sum of products in `acc`; B transposed in memory if `turned`; stored as `out`."""
    m, k, n = shape
    made = Builder("matmul")
    wide = DTYPES[acc]
    x, y = made.input("A", (m, k), a), made.input("B", (k, n), b, (1, k) if turned else None)
    c = made.reduce(
        "C", (m, n), over={"k": k}, axes=("i", "j"), output=out is None,
        fn=lambda i, j, k: Cast(x[i, k], wide) * Cast(y[k, j], wide),
    )  # fmt: skip
    if out is not None:
        made.compute("Y", (m, n), lambda i, j: Cast(c[i, j], DTYPES[out]), axes=("i", "j"), output=True)
    return made.build()


def asked(decided: Decided) -> dict[str, tuple[int | str, ...]]:
    return {choice.name: choice.values for choice, _ in decided.choices}


def picked(decided: Decided) -> dict[str, int | str]:
    return {choice.name: choice.values[index] for choice, index in decided.choices}


@pytest.mark.parametrize(
    ("a", "b", "acc", "target", "terms"),
    [
        ("bf16", "bf16", "f32", machine("avx512", *ALL), (1, 2)),
        ("bf16", "bf16", "f32", machine("avx512"), None),
        ("f16", "f16", "f32", machine("avx512", *ALL), None),
        ("f32", "f32", "f32", machine("avx512", *ALL), None),
        ("f64", "f64", "f64", machine("avx512", *ALL), None),
        ("i8", "i8", "i32", machine("avx512", *ALL), (1, 2)),
        ("u8", "i8", "i32", machine("avx512", *ALL), (1, 2, 4)),
        ("i8", "u8", "i32", machine("avx2", "avxvnni"), (1, 2, 4)),
        ("i16", "i16", "i32", machine("sse"), (1, 2)),
        ("i32", "i32", "i32", machine("avx512", *ALL), None),
        ("i8", "i8", "i32", machine("neon", "dotprod"), (1, 4)),
        ("i8", "i8", "i32", machine("neon"), None),
    ],
)
def test_terms_are_asked_where_the_target_has_an_instruction(
    a: str, b: str, acc: str, target: Target, terms: tuple[int, ...] | None
) -> None:
    decided = run(space_for(product(a, b, acc, (32, 64, 96)), target), heuristic)
    assert asked(decided).get("terms") == terms


@pytest.mark.parametrize(("dtype", "acc"), [("bf16", "f32"), ("i8", "i32"), ("f32", "f64")])
def test_packed_operands_are_as_wide_as_they_are_used(dtype: str, acc: str) -> None:
    program = product(dtype, dtype, acc, (64, 64, 64))
    seen = set()
    for seed in range(40):
        steps = run(space_for(program, machine("avx512", *ALL)), at_random(Random(seed))).steps
        packed = {s.name for s in steps if getattr(s, "primitive", "") == "cache_read"}
        widened = {s.buffer: s.dtype for s in steps if isinstance(s, Widen)}
        if packed:
            seen |= {(name in widened, widened.get(name, dtype)) for name in packed}
    assert seen <= {"bf16": {(True, "f32"), (False, "bf16")}, "i8": {(True, "i32"), (True, "i16")},
                    "f32": {(True, "f64")}}[dtype]  # fmt: skip
    assert (True, acc) in seen


SHAPES = [(7, 19, 37), (16, 32, 64), (1, 13, 40), (33, 6, 5), (9, 70, 17)]


@pytest.mark.parametrize(
    ("a", "b", "acc", "out"),
    [
        ("bf16", "bf16", "f32", "bf16"), ("f16", "f16", "f32", None), ("i8", "i8", "i32", None),
        ("u8", "i8", "i32", "i8"), ("i8", "u8", "i32", None), ("i16", "i16", "i32", None),
    ],
)  # fmt: skip
def test_random_sentences_are_right(a: str, b: str, acc: str, out: str | None) -> None:
    """In the interpreter and as code for this machine; sums of small whole numbers are exact in any order."""
    rng, levels = np.random.default_rng(0), [host()]
    levels += [t for t in (machine("avx2"), machine("sse")) if t.runs_here()]
    for seed in range(15):
        shape, target = SHAPES[seed % len(SHAPES)], levels[seed % len(levels)].with_threads(1 + seed % 2)
        program = product(a, b, acc, shape, turned=seed % 3 == 0, out=out)
        arrays = []
        for buffer in program.inputs:
            low = 0 if buffer.dtype.kind == "uint" else -3
            values = rng.integers(low, 4, buffer.shape).astype(to_numpy(buffer.dtype))
            turned = buffer.strides is not None
            arrays.append(np.asfortranarray(values) if turned else values)
        (want,) = interpret(program, arrays)
        decided = run(space_for(program, target), at_random(Random(seed)))
        kernel = compile(apply(program, decided.steps), target, cache=False)
        got = np.empty(want.shape, want.dtype)
        kernel(*arrays, got)
        np.testing.assert_array_equal(got, want, err_msg=f"{picked(decided)} of {shape}")
        if seed < 4:
            np.testing.assert_array_equal(interpret(apply(program, decided.steps), arrays)[0], want)


def test_the_heuristic_uses_them_for_integers_that_are_read_again() -> None:
    target = machine("avx512", *ALL)
    for a, shape, terms in (("i8", (64, 256, 256), 2), ("u8", (64, 256, 256), 4), ("i8", (1, 256, 256), 1)):
        found = picked(run(space_for(product(a, "i8", "i32", shape), target), heuristic))
        assert found["terms"] == terms
    # On some CPUs the instruction is slower than two FMAs.
    found = picked(run(space_for(product("bf16", "bf16", "f32", (64, 256, 256)), target), heuristic))
    assert found["terms"] == 1
    assert (found["pack_n"], found["pack_m"]) == ("block", "block")


def test_what_operands_are_held_as() -> None:
    target = machine("avx512", *ALL)
    kinds = {n: DTYPES[n] for n in ("i8", "u8", "i16", "i32", "bf16", "f32")}

    def of(a: str, b: str, acc: str) -> list[tuple[int, str, str]]:
        return [(g.terms, g.a.name, g.b.name) for g in groupings(target, kinds[a], kinds[b], kinds[acc], 16)]

    assert of("i8", "i8", "i32") == [(2, "i16", "i16")]
    assert of("u8", "i8", "i32") == [(2, "i16", "i16"), (4, "u8", "i8")]
    assert of("i8", "u8", "i32") == [(2, "i16", "i16"), (4, "i8", "u8")]
    assert of("bf16", "bf16", "f32") == [(2, "bf16", "bf16")]
    assert of("bf16", "f32", "f32") == []
