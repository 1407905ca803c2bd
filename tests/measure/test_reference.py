"""The reference agrees with numpy and the interpreter within its bounds, and the bounds are tight."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tlm.ir.build import Builder
from tlm.ir.dtypes import bf16, f16, f32, i32, i64
from tlm.ir.exprs import Cast, const, op
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.measure import arrays
from tlm.measure.bounds import RULES, Bounded
from tlm.measure.reference import Expected, _cast, _grid, agrees, reference, worst

from .helpers import matmul


def given(program: Program) -> list[np.ndarray]:
    return [g.array for g in arrays.inputs(program)]


def build(fill) -> Program:
    b = Builder("p")
    fill(b)
    return b.build()


def batched(b: Builder) -> None:
    x, y = b.input("A", (3, 5, 7), "f32"), b.input("B", (3, 7, 4), "f32")
    b.reduce("C", (3, 5, 4), over={"k": 7}, fn=lambda n, i, j, k: x[n, i, k] * y[n, k, j], output=True)


def transposed(b: Builder) -> None:
    x, y = b.input("A", (5, 7), "f32", strides=(1, 5)), b.input("B", (7, 4), "f32", strides=(1, 7))
    b.reduce("C", (5, 4), over={"k": 7}, fn=lambda i, j, k: x[i, k] * y[k, j], output=True)


def gelu(b: Builder) -> None:
    x, w, c = b.input("X", (6, 9), "bf16"), b.input("W", (9, 5), "bf16"), b.input("c", (5,), "bf16")
    acc = b.reduce("acc", (6, 5), over={"k": 9}, fn=lambda i, j, k: Cast(x[i, k], f32) * Cast(w[k, j], f32))

    def formula(i, j):
        v = acc[i, j] + Cast(c[j], f32)
        return Cast(v * 0.5 * (op("erf", v * math.sqrt(0.5)) + 1.0), bf16)

    b.compute("Y", (6, 5), formula, output=True)


def softmax(b: Builder) -> None:
    x = b.input("X", (4, 33), "f32")
    top = b.reduce("m", (4,), over={"k": 33}, fn=lambda i, k: x[i, k], combiner="max", axes=("i",))
    e = b.compute("e", (4, 33), lambda i, j: op("exp", x[i, j] - top[i]))
    s = b.reduce("s", (4,), over={"k": 33}, fn=lambda i, k: e[i, k], axes=("i",))
    b.compute("y", (4, 33), lambda i, j: e[i, j] / s[i], output=True)


def convolution(b: Builder) -> None:
    x, w = b.input("X", (2, 6, 6, 3), "f32"), b.input("W", (3, 3, 3, 4), "f32")
    b.reduce(
        "y", (2, 4, 4, 4), over={"r": 3, "s": 3, "c": 3}, axes=("n", "h", "w", "o"), output=True,
        fn=lambda n, h, v, o, r, s, c: x[n, h + r, v + s, c] * w[r, s, c, o],
    )  # fmt: skip


def padded(b: Builder) -> None:
    x = b.input("X", (7,), "f32")

    def window(i, k):
        at = i + k - 1
        return op("where", op("and", at >= 0, at < 7), x[at], const(0, f32))

    b.reduce("y", (7,), over={"k": 3}, fn=window, axes=("i",), output=True)


def argmax(b: Builder) -> None:
    x = b.input("X", (5, 12), "f32")
    b.reduce(
        ("v", "n"), (5,), over={"k": 12}, combiner="argmax", axes=("i",), output=True,
        fn=lambda i, k: (x[i, k], Cast(k, i64)),
    )  # fmt: skip


def welford(b: Builder) -> None:
    x = b.input("X", (5, 13), "f32")
    one, zero = const(1, f32), const(0, f32)
    b.reduce(
        ("n", "mean", "m2"), (5,), over={"k": 13}, combiner="welford", axes=("i",), output=True,
        fn=lambda i, k: (one, x[i, k], zero),
    )  # fmt: skip


def integers(b: Builder) -> None:
    x, y = b.input("A", (5, 40), "i8"), b.input("B", (40, 3), "i8")
    b.reduce(
        "C", (5, 3), over={"k": 40}, fn=lambda i, j, k: Cast(x[i, k], i32) * Cast(y[k, j], i32), output=True
    )


def single(b: Builder) -> None:
    """No dimension: the position and the variance of a whole array."""
    x = b.input("X", (13,), "f32")
    _, at = b.reduce(
        ("v", "n"), (), over={"k": 13}, combiner="argmax", fn=lambda k: (x[k], Cast(k, i64)), axes=(),
    )  # fmt: skip
    total = b.reduce("t", (), over={"k": 13}, fn=lambda k: x[k] * x[k], axes=())
    b.compute("y", (), lambda: total[()] / 13.0 + Cast(at[()], f32), axes=(), output=True)


FILLS = [batched, transposed, gelu, softmax, convolution, padded, argmax, welford, integers, single]


@pytest.mark.parametrize("fill", FILLS, ids=lambda f: f.__name__)
def test_it_agrees_with_the_interpreter_and_sees_an_error(fill):
    program = build(fill)
    inputs = given(program)
    for got, want in zip(interpret(program, inputs), reference(program, inputs), strict=True):
        assert agrees(got, want)
        assert Expected(want).met_by(got)
        bad = got.copy()
        at = tuple(n // 2 for n in bad.shape)
        bad[at] = bad[at] + (1 if bad.dtype.kind in "iu" else np.asarray(0.26, bad.dtype))
        assert not agrees(bad, want)
        assert not Expected(want).met_by(bad)
        assert f"1 of {bad.size} elements wrong; at [{', '.join(map(str, at))}]" in worst(bad, want)


@pytest.mark.parametrize("k", [1, 64, 3072])
def test_any_order_of_summation_is_within_the_bounds_and_a_missing_term_is_not(k: int):
    rng = np.random.default_rng(k)
    program = matmul(16, 16, k)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((16, k), (k, 16)))
    (want,) = reference(program, [a, b])
    order = rng.permutation(k)
    naive = np.zeros((16, 16), np.float32)
    for n in order:
        naive += a[:, n : n + 1] * b[n : n + 1]
    assert agrees(naive, want)
    assert agrees(a @ b, want)
    short = naive - a[:, :1] * b[:1]
    assert not agrees(short, want)


@pytest.mark.parametrize("terms", [65_536, 1_000_003, 4_194_304])
def test_a_missing_term_of_a_very_long_sum_is_seen(terms: int):
    b = Builder("p")
    x = b.input("A", (terms,), "f32")
    b.reduce("s", (), over={"k": terms}, fn=lambda k: x[k], output=True)
    program = b.build()
    (a,) = given(program)
    want = Expected(reference(program, [a])[0])
    assert want.met_by(a.sum(dtype="f4"))
    assert want.met_by(np.add.accumulate(a, dtype="f4")[-1])
    last = np.flatnonzero(a)[-1]
    assert not want.met_by(a[:last].sum(dtype="f4"))


@pytest.mark.parametrize("k", [3072, 100_000])
def test_products_of_exact_inputs_are_exact(k: int):
    program = matmul(3, k, 5)
    a, b = given(program)
    want = Expected(reference(program, [a, b])[0])
    got = (a.astype("f8") @ b.astype("f8")).astype("f4")
    assert want.met_by(got)
    assert not want.met_by(np.nextafter(got, np.float32(np.inf)))


def test_f64_is_compared_in_f64():
    third = np.array(1 / 3)
    want = Expected(Bounded(third, np.array(1e-16)))
    assert want.met_by(third)
    assert not want.met_by(np.float64(np.float32(third)))
    assert not want.met_by(np.nextafter(np.float32(third), np.float32(1)))
    assert Expected(Bounded(third, np.array(1e-7))).met_by(np.float32(third))


def test_a_sum_over_several_axes_may_be_added_in_any_order():
    """The sum of one axis first cancels; other orders do not, and round."""
    b = Builder("p")
    x = b.input("X", (2048, 16), "f32")

    def term(i, j):
        power = x[i, j] * x[i, j] * x[i, j] * x[i, j] * x[i, j]
        return op("where", op("lt", j, const(8)), power, op("neg", power))

    b.reduce("s", (), over={"i": 2048, "j": 16}, fn=term, output=True)
    program = b.build()
    values = np.full((2048, 16), 1.875, "f4")
    want = Expected(reference(program, [values])[0])
    terms = values**5 * np.where(np.arange(16) < 8, 1, -1).astype("f4")
    assert want.met_by(np.add.accumulate(terms.T.ravel(), dtype="f4")[-1])
    assert want.met_by(np.add.accumulate(terms.ravel(), dtype="f4")[-1])


@pytest.mark.parametrize("name", ["mod", "rem"])
def test_what_a_division_leaves_may_lie_on_both_sides_of_a_step(name: str):
    u = 2.0**-24
    want = Expected(RULES[name](Bounded(np.array(3.0), np.array(1e-6)), Bounded(np.array(1.0)), u))
    for operand in (3.0, 3.0 - 2**-22, 3.0 + 2**-22):
        assert want.met_by(np.float32(operand % 1.0))
    beside = Bounded(np.array(3.25), np.array(1e-6))
    assert not Expected(RULES[name](beside, Bounded(np.array(1.0)), u)).met_by(np.float32(0.5))


def test_conversions_pass_errors_on():
    half = _cast(Bounded(np.array(1 / 3), np.array(0.0)), f16, bf16)
    assert half.error > 0
    whole = _cast(Bounded(np.array(3.0), np.array(1e-6)), f32, i32)
    assert agrees(np.int32(2), whole)
    assert not agrees(np.int32(1), whole)
    assert not agrees(np.int32(2), _cast(Bounded(np.array(3.0)), f32, i32))


def test_a_step_may_be_missed_where_the_operands_are_not_exact():
    near = Bounded(np.array(2.9999999999), np.array(1e-6))
    want = RULES["floordiv"](near, Bounded(np.array(1.0)), 2.0**-24)
    assert Expected(want).met_by(np.float32(3.0))
    assert not Expected(RULES["floordiv"](Bounded(near.value), Bounded(np.array(1.0)), 2.0**-24)).met_by(
        np.float32(3.0)
    )


def test_nan_and_infinity_must_be_where_they_should():
    program = matmul(2, 2, 2)
    a, b = np.array([[np.nan, 1], [1, np.inf]], np.float32), np.ones((2, 2), np.float32)
    (want,) = reference(program, [a, b])
    good = np.array([[np.nan, np.nan], [np.inf, np.inf]], np.float32)
    assert Expected(want).met_by(good)
    for bad in (np.float32(0), np.float32(np.nan), np.float32(-np.inf)):
        wrong = good.copy()
        wrong[1, 0] = bad
        assert not Expected(want).met_by(wrong)
    assert not Expected(want).met_by(np.nan_to_num(good))


def test_large_grids_are_cut():
    def total(b: Builder) -> None:
        x = b.input("X", (40, 300, 500), "f32")
        b.reduce(
            "y", (40,), over={"j": 300, "k": 500}, fn=lambda i, j, k: x[i, j, k], axes=("i",), output=True
        )

    program = build(total)
    (x,) = given(program)
    (want,) = reference(program, [x])
    assert agrees(x.sum((1, 2)), want)


@pytest.mark.parametrize(("shape", "most"), [((1050,), 12), ((7, 30), 3), ((7, 101), 14), ((3, 210, 2), 15)])
def test_cutting_a_grid_keeps_its_parts_large(monkeypatch, shape: tuple[int, ...], most: int):
    """One iteration at a time, five million elements in a row took minutes."""
    monkeypatch.setattr("tlm.measure.reference._LARGEST_GRID", 100)

    def twice(b: Builder) -> None:
        x = b.input("X", shape, "f32")
        b.compute("y", shape, lambda *v: x[v] * 2.0 + Cast(v[0], f32), output=True)

    program = build(twice)
    (x,) = given(program)
    parts: list[int] = []
    monkeypatch.setattr(
        "tlm.measure.reference._grid", lambda loops, start=0: parts.append(len(loops)) or _grid(loops, start)
    )
    (want,) = reference(program, [x])
    rows = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    assert agrees(x * 2 + rows, want)
    assert len(parts) <= most


def test_inputs_make_sums_exact_in_any_order():
    program = matmul(32, 32, 512)
    a, b = given(program)
    assert (a @ b == (a.astype(np.float64) @ b.astype(np.float64))).all()
    again = given(program)
    assert (a == again[0]).all()
    assert len(np.unique(a)) > 20


def test_arrays_lie_as_those_of_numpy_strided_and_guarded():
    program = build(transposed)
    made = arrays.inputs(program) + [arrays.allocate(b) for b in program.outputs]
    for g, buffer in zip(made, program.parameters, strict=True):
        assert g.pointer % 4096 == 16
        assert g.array.shape == buffer.shape
        assert tuple(s // 4 for s in g.array.strides) == buffer.element_strides
        assert g.intact()
    out = made[-1]
    out.poison()
    assert np.isnan(out.array).all()
    assert out.intact()
    out.raw[out.start + out.size] = 0
    assert not out.intact()


def test_below_the_normal_numbers_a_rounding_is_as_large_as_the_least_of_them():
    def silu(b: Builder) -> None:
        x = b.input("X", (3,), "f32")
        b.compute("y", (3,), lambda i: x[i] * op("logistic", x[i]), output=True)

    program, x = build(silu), np.array([-100.0, -101.5, -97.0], np.float32)
    (want,) = reference(program, [x])
    exact = (x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)
    off = exact * np.float32(1 + 2.5e-3)
    assert (off != exact).all()
    assert agrees(off, want)
    assert Expected(want).met_by(off)
    assert not agrees(np.float32(2) * exact, want)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("factor", [1.0117, 1.001464, 0.1])
def test_constants_are_of_their_dtype(dtype: str, factor: float):
    def scaled(b: Builder) -> None:
        x = b.input("X", (257,), dtype)
        b.compute("y", (257,), lambda i: x[i] * factor, output=True)

    program = build(scaled)
    (want,) = reference(program, given(program))
    (meant,) = interpret(program, given(program))
    assert Expected(want).met_by(meant), worst(meant, want)


def test_bounds_are_not_loose():
    program = matmul(8, 8, 768)
    (want,) = reference(program, given(program))
    assert isinstance(want, Bounded)
    assert want.error.max() < 1e-3 * np.abs(want.value).max()
