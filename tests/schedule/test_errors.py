"""Refusals: primitive, loop, reason, what would be legal, the nest; and limits on what is accepted."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from tlm.errors import ArgumentError, RecordError, ScheduleError
from tlm.ir.build import Builder
from tlm.ir.nodes import Program
from tlm.schedule import PRIMITIVES, CacheRead, Schedule, Split, Unroll, Vectorize, apply, from_json, to_json


def matmul(m: int = 8, n: int = 12, k: int = 6) -> Program:
    b = Builder("matmul")
    x, w = b.input("A", (m, k), "f32"), b.input("B", (k, n), "f32")
    b.reduce("C", (m, n), {"k": k}, lambda i, j, r: x[i, r] * w[r, j], output=True)
    return b.build()


def plus_one(m: int, n: int) -> Program:
    b = Builder("plus")
    x = b.input("x", (m, n), "f32")
    b.compute("y", (m, n), lambda i, j: x[i, j] + 1.0, output=True)
    return b.build()


def test_a_refusal_says_everything_and_changes_nothing() -> None:
    s = Schedule(matmul()).split("i", 4)
    before = s.program
    with pytest.raises(ScheduleError) as caught:
        s.parallel("k")
    message = str(caught.value)
    for part in (
        "parallel(loop='k')",
        "C is reduced over k",
        "rfactor(k)",
        "for i.0 in 2:",
        "C[i.0 * 4 + i.1, j] (k)+=",
    ):
        assert part in message
    assert s.program is before
    assert len(s.history) == 1


def test_misspelt_and_stale_names() -> None:
    s = Schedule(matmul()).split("k", 4).fuse("i", "j")
    with pytest.raises(ScheduleError, match=r"there is no loop 'k.2'(.|\n)*Did you mean k.1, k.0\?"):
        s.vectorize("k.2")
    with pytest.raises(ScheduleError, match=r"k was split or fused; what is left of it is k.0, k.1"):
        s.unroll("k")
    with pytest.raises(ScheduleError, match=r"what is left of it is i\*j"):
        s.split("i", 2)
    with pytest.raises(ScheduleError, match=r"no statement writes 'CC'(.|\n)*Did you mean C\?"):
        s.cache_write("CC")
    with pytest.raises(ScheduleError, match=r"there is no buffer 'Bx'(.|\n)*Did you mean B\?"):
        s.cache_read("Bx")
    with pytest.raises(ScheduleError, match="C is not read anywhere"):
        s.cache_read("C")
    with pytest.raises(ScheduleError, match="there is no memory 'regsiter'"):
        s.cache_write("C", memory="regsiter")


def test_new_buffers_have_plain_names() -> None:
    s = Schedule(matmul()).split("k", 3)
    for name in ("../../x", 'x"); //', "a b", "", 7):
        with pytest.raises(ScheduleError, match="is no name of a buffer"):
            s.cache_write("C", name=name)
        if name:
            with pytest.raises(ScheduleError, match="is no name of a buffer"):
                s.cache_read("A", name=name)
        with pytest.raises(ScheduleError, match="is no name of a buffer"):
            s.rfactor("k.0", name=name)
    assert len(s.history) == 1


def test_layouts_name_the_loops_that_the_place_uses() -> None:
    s = Schedule(matmul()).split("j", 4)
    with pytest.raises(ScheduleError, match=r"These are j.0, j.1, k"):
        s.cache_read("B", layout=("j.1", "k"))
    with pytest.raises(ScheduleError, match=r"These are i, j.0, j.1"):
        s.cache_write("C", layout=("i", "j.0"))


def test_one_thread_axis_for_one_loop() -> None:
    s = Schedule(matmul()).bind("i", "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"threadIdx.x is taken by loop i"):
        s.bind("j", "threadIdx.x")
    with pytest.raises(ScheduleError, match="C is reduced over k"):
        Schedule(matmul()).reorder("k", "i", "j").bind("k", "blockIdx.x")
    with pytest.raises(ScheduleError, match=r"no axis 'threadIdx.w'(.|\n)*threadIdx.x"):
        s.bind("j", "threadIdx.w")


@pytest.mark.parametrize("rows", [65535, 65536, 70000])
def test_grid_limits(rows: int) -> None:
    s = Schedule(plus_one(rows, 8))
    if rows > 65535:
        with pytest.raises(ScheduleError, match=f"{rows} of i is above the limit of blockIdx.y, 65535"):
            s.bind("i", "blockIdx.y")
    else:
        s.bind("i", "blockIdx.y")
    Schedule(plus_one(rows, 8)).bind("i", "blockIdx.x")


def test_threads_a_block() -> None:
    s = Schedule(plus_one(64, 64)).bind("i", "threadIdx.y")
    with pytest.raises(ScheduleError, match="4096 threads a block are more than 1024"):
        s.bind("j", "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"above the limit of threadIdx.x, 1024"):
        Schedule(plus_one(2048, 2)).bind("i", "threadIdx.x")


def test_unrolling_is_bounded() -> None:
    start = time.perf_counter()
    s = Schedule(plus_one(64, 4096)).unroll("i")
    with pytest.raises(ScheduleError, match="262144 copies of statements; the limit is 4096"):
        s.unroll("j")
    with pytest.raises(ScheduleError, match="the limit is 4096"):
        s.unroll("j", 65)
    with pytest.raises(ScheduleError, match="1000000000 copies"):
        Schedule(plus_one(1, 10**9)).unroll("j")
    with pytest.raises(ScheduleError, match="lanes are more than 512"):
        Schedule(plus_one(1, 4096)).vectorize("j")
    Schedule(plus_one(4, 10**9)).split("j", 10**12).unroll("j.0", 10**9)
    assert time.perf_counter() - start < 1


def test_only_independent_innermost_loops_are_vectorised() -> None:
    with pytest.raises(ScheduleError, match="Only an innermost loop"):
        Schedule(matmul()).vectorize("j")
    b = Builder("prefix")
    x = b.input("x", (8,), "f32")
    p = b.compute("p", (8,), lambda i: x[i], axes=("i",))
    b.reduce("y", (4,), {"k": 2}, lambda i, k: p[i + k] * p[k], axes=("i",), output=True)
    s = Schedule(b.build()).vectorize("y_k").vectorize("i")
    data = np.arange(8, dtype="f4")
    assert np.array_equal(s.run(data)[0], data[:4] * 0 + data[1:5] * 1)


def test_numbers_must_be_numbers() -> None:
    s: Any = Schedule(matmul())
    for bad in (0, -1, 2.5, True, "4", None):
        with pytest.raises(ScheduleError, match="must be an integer >= 1"):
            s.split("i", bad)
    with pytest.raises(ScheduleError, match="locality is 0 to 3"):
        s.prefetch("A", "k", 1, 4)


WRONG_KINDS: dict[str, tuple[Any, str]] = {
    "a list of loops": (lambda s: s.reorder(["i", "j"]), r"loops must be names, .*got \(\['i', 'j'\],\)"),
    "one factor": (lambda s: s.tile(("i", "j"), 4), "factors must be integers, .*got 4"),
    "one loop": (lambda s: s.tile("i", (4,)), "loops must be names, .*got 'i'"),
    "factors of text": (lambda s: s.tile(("i", "j"), ("4", 4)), "factor must be an integer >= 1, got '4'"),
    "layout of a read": (lambda s: s.cache_read("A", layout=3), "layout must be names, .*got 3"),
    "layout of a write": (lambda s: s.cache_write("C", layout="ij"), "layout must be names, .*got 'ij'"),
    "a list for a buffer": (lambda s: s.cache_read(["A"]), r"buffer must be a name, got \['A'\]"),
    "a list for a loop": (lambda s: s.split(["i"], 4), r"loop must be a name, got \['i'\]"),
    "a list for a stage": (lambda s: s.compute_at(["C"], "i"), r"stage must be a name, got \['C'\]"),
    "a number to pad": (lambda s: s.cache_read("A", pad=1), "pad must be True or False, got 1"),
    "an input": (lambda s: s.inline("A"), "A is an input, which no statement writes(.|\n)*written are C"),
}


@pytest.mark.parametrize("name", WRONG_KINDS)
def test_arguments_of_another_kind(name: str) -> None:
    s, (call, words) = Schedule(matmul()), WRONG_KINDS[name]
    with pytest.raises(ScheduleError, match=words):
        call(s)
    assert s.history == ()


@pytest.mark.parametrize("step", ["split", None, Split, {"step": "split"}])
def test_only_steps_are_applied(step: Any) -> None:
    s = Schedule(matmul())
    with pytest.raises(ArgumentError, match="apply takes steps, such as"):
        s.apply(Split("i", 4), step)
    assert s.history == ()


def test_lists_are_tuples_of_steps() -> None:
    s: Any = Schedule(matmul())
    s.tile(["i", "j"], [4, 4]).cache_read("B", layout=["j.0", "k", "j.1"])
    assert s.steps[0].loops == ("i", "j")
    assert s.steps[1].layout == ("j.0", "k", "j.1")


def test_only_arrays_are_run() -> None:
    s: Any = Schedule(matmul())
    with pytest.raises(ArgumentError, match=r"A must be a numpy array of f32\[8, 6\], got \[\[1\]\]"):
        s.run([[1]], np.ones((6, 12), "f4"))


def test_undo_copy_and_replay() -> None:
    s = Schedule(matmul()).split("i", 3).reorder("i.0", "j", "i.1").cache_write("C", "j", layout=("i.1",))
    stored = json.loads(json.dumps(s.to_json()))
    again = Schedule.from_json(matmul(), stored)
    assert again.program == s.program
    assert again.steps == s.steps
    other = s.copy().undo()
    assert (len(other.history), len(s.history)) == (2, 3)
    assert from_json(to_json(s.steps)) == s.steps
    assert s.undo().undo().undo().undo().program == matmul()


def step(**changes: Any) -> dict[str, Any]:
    return {"step": "split", "loop": "i", "factor": 4, "tail": "guard", **changes}


STAGED = to_json([CacheRead("A", "i")])[0]
HOSTILE: dict[str, Any] = {
    "not a list": {"step": "split"},
    "not an object": ["split"],
    "no name": [{"loop": "i"}],
    "a name that is code": [step(step='x"); system("touch m");//')],
    "an unknown field": [step(extra=1)],
    "a missing field": [{"step": "split", "loop": "i"}],
    "an expression": [step(factor="__import__('os').system('id')")],
    "a bomb": [step(factor=10**12)],
    "a negative size": [step(factor=-1)],
    "a bool for a size": [step(factor=True)],
    "a float for a size": [step(factor=4.0)],
    "a long name": [step(loop="i" * 10**6)],
    "a list for a name": [step(loop=["i"])],
    "a buffer's name that is code": [{**STAGED, "name": 'x"); system("touch m");//'}],
    "a buffer's name that is a path": [{**STAGED, "name": "../../x"}],
    "a loop's name with a newline": [step(loop="i\n")],
    "many steps": [step()] * 10**6,
    "many loops": [{"step": "reorder", "loops": ["i"] * 10**5}],
    "nested lists": [{"step": "reorder", "loops": [["i"]]}],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_are_rejected(name: str) -> None:
    start = time.perf_counter()
    with pytest.raises(RecordError):
        from_json(HOSTILE[name])
    with pytest.raises(RecordError):
        Schedule.from_json(matmul(), {"version": 1, "steps": HOSTILE[name]})
    assert time.perf_counter() - start < 1


def test_other_versions_are_rejected() -> None:
    for data in (None, [], {"steps": []}, {"version": 999, "steps": []}, {"version": 1, "steps": [], "x": 0},
                 {"version": True, "steps": []}, {"version": 1.0, "steps": []}):  # fmt: skip
        with pytest.raises(RecordError):
            Schedule.from_json(matmul(), data)


def test_replayed_steps_are_checked_like_any_others() -> None:
    with pytest.raises(ScheduleError):
        Schedule.from_json(matmul(), {"version": 1, "steps": to_json([Vectorize("i")])})
    with pytest.raises(ScheduleError):
        apply(matmul(), [Split("i", 4), Unroll("i")])


def test_the_table_knows_every_primitive() -> None:
    for name, cls in PRIMITIVES.items():
        assert cls.primitive == name
        assert cls.__doc__
        assert hasattr(Schedule, {"prefetch_ahead": "prefetch"}.get(name, name))
