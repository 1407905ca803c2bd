"""Lanes, vectors, registers, kinds: the other passes, each on the smallest program that needs it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lower.programs import AVX2, double, dtypes, lines, lowered, matmul, row_sums, same, scheduled
from tlm.errors import BackendError
from tlm.ir.build import Builder
from tlm.ir.dtypes import f32, f64, i64
from tlm.ir.exprs import Cast, Load, Var, const
from tlm.ir.nodes import Alloc, Buffer, For, Program, Stmt, Store, Update, block
from tlm.ir.walk import loops, walk
from tlm.lower import lower
from tlm.lower.initial import explicit_init
from tlm.lower.kinds import EXPANSION_LIMIT, cap_expansion, cpu_kinds
from tlm.lower.lanes import lane_partials
from tlm.lower.memory import Layout, place, register_layout
from tlm.lower.promote import promote
from tlm.lower.vectors import native_width, private_lanes, single_level
from tlm.target import Target

A, B = Var("i"), Var("j")


def test_lanes_are_merged_after_the_loop() -> None:
    program = scheduled(row_sums(3, 32), ("split", "k", 8), ("vectorize", "k.1"))
    out = replace(program, body=lane_partials(program.body, dtypes(program)))
    same(out, program)
    assert lines(out.body) == [
        "for i in 3:",
        "  alloc s_lanes: f32[8] register:",
        "    vectorize for k.1@init in 8:",
        "      s_lanes[k.1@init] = 0.0",
        "    for k.0 in 4:",
        "      vectorize for k.1 in 8:",
        "        s_lanes[k.1] (k.0; no init)+= x[i, k.0 * 8 + k.1]",
        "    vectorize for k.1@s_lanes in 8:",
        "      s[i] (k.1@s_lanes)+= s_lanes[k.1@s_lanes]",
    ]


def test_lanes_of_several_rows() -> None:
    steps = [("split", "i", 2), ("split", "k", 8), ("reorder", "i.0", "k.0", "i.1", "k.1"), ("unroll", "i.1")]
    out = lowered(scheduled(row_sums(5, 30), *steps, ("vectorize", "k.1")))
    assert {n.buffer.memory for n in walk(out.body) if isinstance(n, Alloc)} == {"register"}


def test_a_target_that_others_touch_is_merged_in_time() -> None:
    """A peeled tail under the same loop adds to the same sum."""
    steps = [("split", "k", 6), ("split", "k.1", 5, "peel"), ("vectorize", "k.1.1")]
    lowered(scheduled(row_sums(3, 16), *steps))


def test_sums_in_memory_move_to_registers() -> None:
    program = matmul(2, 16, 3)
    body = scheduled(program, ("reorder", "i", "k", "j"), ("vectorize", "j")).body
    out = lower(replace(program, body=body), AVX2)
    same(out, program)
    inner = next(n for n in walk(out.body) if isinstance(n, For) and n.var == "k")
    targets = {t for n in walk(inner) if isinstance(n, Update) for t in n.targets}
    assert targets == {"C_sum"}


def test_sums_stay_in_memory_where_registers_would_not_do() -> None:
    """A serial loop over the targets, or more of them than there are registers."""
    for program in (scheduled(matmul(4, 50, 3), ("reorder", "i", "k", "j")),
                    scheduled(matmul(4, 200, 3), ("reorder", "i", "k", "j"), ("unroll", "j"))):  # fmt: skip
        kept = [n for n in walk(lowered(program).body) if isinstance(n, Update)]
        assert {t for n in kept for t in n.targets} == {"C"}
    plain = matmul().body
    assert promote(plain, dtypes(matmul())) == plain  # it has an implicit start


@pytest.mark.parametrize(
    ("extent", "lanes"), [(8, [8]), (16, [8]), (5, [5]), (13, [8, 5]), (1, []), (9, [8]), (100, [8, 4])]
)
def test_vectors_of_the_machine(extent: int, lanes: list[int]) -> None:
    out = lowered(scheduled(double(extent), ("vectorize", "i")))
    assert [v.extent for v in loops(out.body) if v.kind == "vectorize"] == lanes


def test_the_widest_element_decides() -> None:
    value = Cast(Cast(Load("x", (A,), f32), f64) * 2.0, f32)
    body = For("i", 8, Store("y", (A,), value), "vectorize")
    out = native_width(body, 32, {"x": f32, "y": f32})
    assert [v.extent for v in loops(out) if v.kind == "vectorize"] == [4]


def test_one_level_of_vectors() -> None:
    nest = For("i", 4, For("j", 8, Store("y", (A, B), const(1.0, f32)), "vectorize"), "vectorize")
    assert [x.kind for x in loops(single_level(nest))] == ["serial", "vectorize"]


def test_temporaries_of_a_vector_loop_get_a_lane() -> None:
    t = Buffer("t", (2,), f32, "register")
    body = block(Store("t", (const(1),), const(1.0, f32)), Store("y", (A,), Load("t", (const(1),), f32)))
    out = private_lanes(For("i", 8, Alloc(t, body), "vectorize"))
    assert lines(out) == [
        "alloc t: f32[2, 8] register:", "  vectorize for i in 8:", "    t[1, i] = 1.0", "    y[i] = t[1, i]",
    ]  # fmt: skip


def test_slots_of_a_layout() -> None:
    assert [Layout(4, 1).slot(n) for n in (0, 3, 4, 9)] == [(0, 0), (0, 3), (4, 0), (8, 1)]
    assert [Layout(2, 3).slot(n) for n in (0, 2, 3, 5, 6)] == [(0, 0), (2, 0), (0, 1), (2, 1), (6, 0)]


def acc(body: Stmt, *shape: int) -> Layout | None:
    return register_layout(Buffer("t", shape, f32, "register"), body)


def test_registers_need_indices_known_when_compiling() -> None:
    write = Store("t", (A, B), const(0.0, f32))
    rows = For("i", 4, For("j", 8, write, "vectorize"), "unroll")
    assert acc(rows, 4, 8) == Layout(8, 1)
    assert acc(For("i", 4, For("j", 8, write, "vectorize")), 4, 8) is None
    assert acc(For("j", 8, For("i", 4, write, "vectorize"), "unroll"), 4, 8) == Layout(4, 8)
    assert acc(block(rows, For("j", 4, For("i", 4, write, "vectorize"), "unroll")), 4, 8) is None
    shifted = Store("t", (B + 1,), const(0.0, f32))
    assert acc(For("j", 8, shifted, "vectorize"), 16) is None


def test_placing() -> None:
    """Unknown indices go to the stack, what is large to the heap, what is never read away."""
    use = block(Store("t", (A,), const(0.0, f32)), Store("y", (A,), Load("t", (A,), f32)))
    for size, want in ((64, "stack"), (4096, "heap")):
        out = place(Alloc(Buffer("t", (size,), f32, "register"), For("i", size, use)))
        assert isinstance(out, Alloc)
        assert out.buffer.memory == want
    dead = Alloc(Buffer("t", (8,), f32, "heap"), For("i", 8, Store("t", (A,), const(0.0, f32))))
    assert lines(place(dead)) == ["pass"]
    nested: Stmt = use
    for n in range(12):
        name = f"t{n}"
        both = block(Store(name, (A,), const(0.0, f32)), Store("y", (A,), Load(name, (A,), f32)), nested)
        nested = Alloc(Buffer(name, (1000,), f32, "stack"), both)
    memories = [n.buffer.memory for n in walk(place(For("i", 1000, nested))) if isinstance(n, Alloc)]
    assert memories.count("stack") == 8  # 32 KiB in all


def test_kinds_of_a_cpu() -> None:
    store = Store("y", (A, B), const(1.0, f32))
    gpu = For("i", 4, For("j", 8, store, "threadIdx.x"), "blockIdx.x")
    assert [x.kind for x in loops(cpu_kinds(gpu))] == ["serial", "serial"]
    nested = For("i", 4, For("j", 8, store, "parallel"), "parallel")
    assert [x.kind for x in loops(cpu_kinds(nested))] == ["parallel", "serial"]
    with pytest.raises(BackendError, match="buffer t is shared between GPU threads"):
        cpu_kinds(Alloc(Buffer("t", (1,), f32, "shared"), store))


def test_expansion_is_capped_from_the_outside() -> None:
    store = Store("y", (A, B), const(1.0, f32))
    nest = For("i", 64, For("j", 1024, store, "unroll"), "unroll")
    assert [x.kind for x in loops(cap_expansion(nest, 8))] == ["serial", "unroll"]
    assert EXPANSION_LIMIT >= 1024
    repeated = cap_expansion(For("i", 64, For("j", 256, store, "unroll"), unroll=64), 8)
    assert isinstance(repeated, For)
    assert repeated.unroll < 64


@pytest.mark.parametrize("name", ["avx512", "avx2", "sse", "neon"])
def test_every_target(name: str) -> None:
    program: Program = scheduled(matmul(9, 21, 5), ("split", "j", 16), ("reorder", "i", "j.0", "k", "j.1"),
                                 ("vectorize", "j.1"))  # fmt: skip
    lowered(program, Target(name))


@pytest.mark.parametrize(
    ("terms", "merges"), [(37, 2), (45, 3), (19, 1), (8 * 8, 3), (8 * 21 + 3, 5)], ids=lambda x: str(x)
)
def test_whole_vectors_are_folded_as_a_tree_before_one_is_merged_across_its_lanes(
    terms: int, merges: int
) -> None:
    """In vectors of 8: of 21, eight take rounds, five are left over for the first of them, three halvings."""
    program = scheduled(row_sums(3, terms), ("vectorize", "k"))
    known = dtypes(program)
    out = replace(program, body=native_width(explicit_init(program.body, known), 32, known))
    same(out, program)
    targets = [n.targets for n in walk(out.body) if isinstance(n, Update)]
    assert targets == [("s_fold",)] * merges + [("s",)] * (1 + (terms % 8 > 0))
    assert [n.buffer.shape for n in walk(out.body) if isinstance(n, Alloc)] == [
        (min(8, 1 << (terms // 8).bit_length() - 1), 8)
    ]
    for combiner in ("max", "min", "prod"):
        lowered(scheduled(row_sums(3, terms, combiner), ("split", "k", 16), ("vectorize", "k.1")))


def test_small_temporaries_with_known_places_become_registers() -> None:
    program = row_sums(3, 16)
    body = scheduled(program, ("cache_write", "s", "i", "heap"), ("vectorize", "k")).body
    out = lower(replace(program, body=body), AVX2)
    same(out, program)
    assert {n.buffer.memory for n in walk(out.body) if isinstance(n, Alloc)} == {"register"}


def test_a_result_that_nobody_reads_stays_where_a_tuple_needs_it() -> None:
    b = Builder("argmax")
    x = b.input("x", (3, 20), "f32")
    names, over = ("best", "at"), {"k": 20}
    b.reduce(
        names, (3,), over, lambda i, k: (x[i, k], Cast(k, i64)), combiner="argmax", axes=("i",), output=True
    )
    program = b.build()
    best, at = program.outputs
    unread = replace(program, outputs=(at,), body=Alloc(replace(best, memory="heap"), program.body))
    assert "best" in {n.buffer.name for n in walk(lower(unread, AVX2).body) if isinstance(n, Alloc)}
