"""Programs survive JSON; hostile JSON (kind Y) is refused at once with a RecordError."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.programs import argmax_rows, linear_relu, matmul, tiled_matmul, with_body
from tests.ir.strategies import indices, quick
from tlm.errors import RecordError
from tlm.ir.affine import implied, interval
from tlm.ir.build import Builder
from tlm.ir.dtypes import boolean, f32, f64, i64
from tlm.ir.exprs import Cast, Const, Var, const, op
from tlm.ir.nodes import Alloc, Block, Buffer, For, If, Prefetch, Store
from tlm.ir.printer import text
from tlm.ir.serialize import from_json, to_json
from tlm.ir.simplify import simplify
from tlm.ir.verify import verify

i = Var("i")


def _everything():
    """One of every statement."""
    b = Builder("all")
    x = b.input("x", (8,), "f32")
    b.compute("y", (8,), lambda i: x[i], output=True)
    scratch = Buffer("t", (2, 4), f32, "register", (1, 2))
    store = Store("y", (i,), op("where", op("not", i < 3), x[i], const(-1.5, f32)))
    guarded = If(op("and", i < 7, const(True, boolean)), store, Block((store, Prefetch("x", (i + 8,), 1))))
    body = For("i", 8, Alloc(scratch, guarded), "serial", 4, const(8))
    return with_body(b.build(), body)


@pytest.mark.parametrize("program", [matmul(), linear_relu(), argmax_rows(), tiled_matmul(), _everything()])
def test_round_trip(program):
    verify(program)
    line = json.dumps(to_json(program))
    back = from_json(json.loads(line))
    assert back == program
    assert text(back) == text(program)


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, 1e300, math.inf, -math.inf, math.nan])
def test_constants_keep_their_bits(value):
    b = Builder("c")
    b.compute("y", (), lambda: Const(value, f64), output=True)
    back = from_json(json.loads(json.dumps(to_json(b.build()), allow_nan=False))).body.value.value
    assert (math.isnan(back) and math.isnan(value)) or (
        back == value and math.copysign(1, back) == math.copysign(1, value)
    )


@quick
@given(indices)
def test_expressions_round_trip(expr):
    b = Builder("e")
    b.compute("y", (1,), lambda i: const(0), output=True)
    program = with_body(b.build(), If(expr < 3, Store("y", (const(0),), expr)))
    for name in ("i", "j", "k.0", "one"):
        program = with_body(program, For(name, 2, program.body))
    assert from_json(json.loads(json.dumps(to_json(program)))) == program


GOOD = to_json(matmul())
STORE = ["store", "C", [0, 0], ["const", "f32", 0.0]]
EVIL = '"); system("touch m");//'


def _with(path, value, record=GOOD):
    data = copy.deepcopy(record)
    at = data
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return data


def _deep(n):
    value = ["load", "A", ["i", "k"]]
    for _ in range(n):
        value = ["op", "neg", value]
    return value


UPDATE = ("body", 6, 6, 6)
HOSTILE = {
    "not an object": [],
    "a string": "matmul",
    "no version": {k: v for k, v in GOOD.items() if k != "version"},
    "another version": _with(["version"], 999),
    "a bool as version": _with(["version"], True),
    "a float as version": _with(["version"], 1.0),
    "an extra field": {**GOOD, "hook": "os.system"},
    "a missing field": {k: v for k, v in GOOD.items() if k != "body"},
    "a name with quotes": _with(["name"], EVIL),
    "a path as a name": _with(["outputs", 0, "name"], "../../x"),
    "a buffer name with quotes": _with(["inputs", 0, "name"], EVIL),
    "a loop name with a newline": _with(["body", 1], "i\nimport os"),
    "a loop name in other letters": _with(["body", 1], "\u0131"),
    "an operation with quotes": _with([*UPDATE, 3, 0, 1], EVIL),
    "a python expression as a number": _with(["body", 2], "__import__('os').system('touch m')"),
    "a python expression as a value": _with([*UPDATE, 3, 0], "open('m', 'w')"),
    "an expression as a dict": _with([*UPDATE, 3, 0], {"op": "add"}),
    "an unknown combiner": _with([*UPDATE, 4], "eval"),
    "an unknown dtype": _with(["inputs", 0, "dtype"], "object"),
    "an unknown memory": _with(["inputs", 0, "memory"], "disk"),
    "an unknown loop kind": _with(["body", 3], "fork"),
    "an unknown statement": _with(["body"], ["exec", "C"]),
    "too few items": _with(["body"], ["for", "i", 4]),
    "a huge extent": _with(["body", 2], 10**12),
    "a negative extent": _with(["body", 2], -1),
    "a float extent": _with(["body", 2], 4.0),
    "a bool extent": _with(["body", 2], True),
    "an integer of a million digits": _with(["body", 2], 10**100_000),
    "a huge unroll": _with(["body", 4], 10**9),
    "a huge unrolled loop": _with(["body"], ["for", "i", 10**9, "unroll", 1, None, STORE]),
    "a huge array": _with(["inputs", 0, "shape"], [10**10, 10**10]),
    "many dimensions": _with(["inputs", 0, "shape"], [1] * 10_000),
    "a huge stride": _with(["inputs", 0, "strides"], [10**30, 1]),
    "many buffers": _with(["inputs"], [GOOD["inputs"][0]] * 10**5),
    "a million statements": _with(["body"], ["block", [STORE] * 10**6]),
    "many small statements": _with(["body"], ["block", [["block", [STORE] * 150]] * 150]),
    "a deep expression": _with([*UPDATE, 3, 0], _deep(900)),
    "a wide operation": _with([*UPDATE, 3, 0], ["op", "add", *["i"] * 10**5]),
    "a wrong arity": _with([*UPDATE, 3, 0], ["op", "add", "i"]),
    "mixed dtypes": _with([*UPDATE, 3, 0], ["op", "add", "i", ["load", "A", ["i", "k"]]]),
    "an infinite index": _with([*UPDATE, 2, 0], ["const", "i64", math.inf]),
    "a nan extent": _with(["body", 2], math.nan),
    "a constant of the wrong type": _with([*UPDATE, 3, 0], ["const", "f32", "1.0; drop"]),
    "a constant out of range": _with([*UPDATE, 3, 0], ["cast", "f32", ["const", "i8", 300]]),
    "an i64 constant out of range": _with([*UPDATE, 2, 0], 2**70),
    "an undefined buffer": _with([*UPDATE, 3, 0], ["load", "secret", [0]]),
    "an access outside": _with([*UPDATE, 2, 0], 4),
    "an init that is no bool": _with([*UPDATE, 6], "yes"),
    "nothing written": _with(["body"], ["block", []]),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_are_refused_at_once(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(RecordError) as caught:
        from_json(HOSTILE[name])
    seconds, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 1
    assert peak < 50e6
    assert len(str(caught.value)) < 1000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["where", "cast", "not"])
def test_nested_conditions_take_no_exponential_time(step):
    """Each level asks for the bounds of the one below: twice a level would be 2^40."""
    index = i
    for _ in range(40):
        test = op("not", index >= 1) if step == "not" else index < 1
        index = op("where", test, i, i + 1) if step == "where" else Cast(test, i64)
    start = time.process_time()
    assert interval(index, {"i": 3}) in ((0, 3), (0, 1))
    assert implied(index < 9, {"i": 3}) is True
    simplify(index, {"i": 3})
    assert time.process_time() - start < 1


RECORD = to_json(_everything())


def _spots(node, path=()):
    for at in node if isinstance(node, dict) else range(len(node)):
        yield (*path, at)
        if isinstance(node[at], (dict, list)):
            yield from _spots(node[at], (*path, at))


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({})
)


@quick
@given(st.sampled_from(list(_spots(RECORD))), JUNK)
def test_random_damage_gives_a_program_or_a_record_error(path, junk):
    """Any one value of a good record replaced by junk: either it is still a program, or a RecordError."""
    with contextlib.suppress(RecordError):
        verify(from_json(_with(path, junk, RECORD)))
