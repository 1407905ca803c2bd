"""What formulas of users may say: operators of Python, indices from data, refusals of nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tlm
from tlm.errors import ArgumentError
from tlm.ir.exprs import Var
from tlm.ir.interpret import interpret

PLAIN = {"schedule": "default"}
X = np.arange(6, dtype="f4").reshape(2, 3) - 2


def mapped(formula: Callable[..., Any], **how: Any) -> Any:
    """The operator whose elements are formula(x, i, j)."""
    return tlm.operator(lambda x: tlm.compute(x.shape, lambda i, j: formula(x, i, j), **how))


NONSENSE: dict[str, tuple[Callable[..., Any], str]] = {
    "loops are equal": (lambda x, i, j: tlm.where(i == j, x[i, j], 0.0), "tlm.equal.*tlm.where"),
    "loops differ": (lambda x, i, j: tlm.where(i != j, x[i, j], 0.0), "!= .* i and j; .*tlm.not_equal"),
    "a loop is a number": (lambda x, i, j: x[i, j] if i == 0 else 0.0, "i and 0;"),
    "an element is a number": (lambda x, i, j: x[i, j] * (x[i, j] == 2.0), r"X\[i, j\] and 2.0;"),
    "a number of numpy": (lambda x, i, j: tlm.where(np.float32(2) == x[i, j], 1.0, x[i, j]), "tlm.equal"),
    "of an operation": (lambda x, i, j: tlm.where(i % 2 == 0, x[i, j], 0.0), "i % 2 and 0;"),
    "of a cast": (lambda x, i, j: tlm.where(tlm.cast(x[i, j], "i32") == 0, 1.0, x[i, j]), "and 0;"),
    "of a constant": (lambda x, i, j: tlm.where(tlm.cast(1, "i32") == i, 1.0, x[i, j]), "and i;"),
    "inverted": (lambda x, i, j: tlm.where(~(i == j), x[i, j], 0.0), "tlm.equal"),
    "of the whole tensor": (lambda x, i, j: tlm.where(x == 0, 1.0, x[i, j]), "tlm.equal"),
    "among": (lambda x, i, j: x[i, j] if i in (0, 1) else 0.0, "i and 0;"),
    "if": (lambda x, i, j: x[i, j] if x[i, j] > 0 else -x[i, j], r"X\[i, j\] > .* has a value at each"),
    "a chain": (lambda x, i, j: tlm.where(0 < x[i, j] < 2, x[i, j], 0.0), r"\(a < x\) & \(x < b\)"),
    "and": (lambda x, i, j: tlm.where(i > 0 and j > 0, x[i, j], 0.0), "&, |, ~"),
    "or": (lambda x, i, j: tlm.where(i > 0 or j > 0, x[i, j], 0.0), "&, |, ~"),
    "not": (lambda x, i, j: tlm.where(not i > 0, x[i, j], 0.0), "&, |, ~"),
    "max": (lambda x, i, j: max(x[i, j], 0.0), "tlm.maximum and tlm.minimum"),
    "min": (lambda x, i, j: min(x[i, j], x[0, j]), "tlm.maximum and tlm.minimum"),
    "a constant": (lambda x, i, j: x[i, j] if tlm.cast(0, "i32") else 0.0, "has a value at each element"),
}  # fmt: skip


@pytest.mark.parametrize("name", NONSENSE)
def test_what_has_no_sense_on_elements_is_refused(name: str):
    formula, words = NONSENSE[name]
    with pytest.raises(ArgumentError, match=words):
        mapped(formula)(X, **PLAIN)
    in_sum = tlm.operator(lambda x: tlm.sum((2,), lambda i, j: formula(x, i, j), over={"j": 3}))
    with pytest.raises(ArgumentError, match=words):
        in_sum(X, **PLAIN)
    assert (Var("i") == Var("i"), Var("i") == 0) == (True, False), "outside of formulas nodes are structures"


def test_what_is_meant_instead():
    def formula(x: Any, i: Any, j: Any) -> Any:
        inside = (x[i, j] > 0) & (x[i, j] < 3) & tlm.not_equal(j, 1)
        return tlm.where(tlm.equal(i, j) | inside, tlm.maximum(x[i, j], 0.5), -1.0)

    i, j = np.indices(X.shape)
    want = np.where((i == j) | ((X > 0) & (X < 3) & (j != 1)), np.maximum(X, 0.5), -1)
    np.testing.assert_array_equal(mapped(formula)(X, **PLAIN), want)


def test_flags_of_python_are_no_comparisons():
    for flag in (True, False):
        got = mapped(lambda x, i, j, f=flag: tlm.where(f & (x[i, j] > 0), x[i, j] * f, -1.0))(X, **PLAIN)
        np.testing.assert_array_equal(got, np.where(flag & (X > 0), X * flag, -1))


N = np.array([[0, 1, 2], [3, 12, 13]], "i8")
LEFT: dict[str, Callable[..., Any]] = {
    "//": lambda x, i: 50 // (x + 1), "%": lambda x, i: 50 % (x + 1), "&": lambda x, i: 6 & x,
    "|": lambda x, i: 6 | x, "^": lambda x, i: 6 ^ x, "<<": lambda x, i: 3 << x, ">>": lambda x, i: 999 >> x,
    "/": lambda x, i: 1 / (x + 1), "-": lambda x, i: 1 - x, "**": lambda x, i: 2 ** x,
    "x ^ x": lambda x, i: x ^ (x + 1), "x << n": lambda x, i: x << 2, "x >> n": lambda x, i: x >> 1,
    "+x": lambda x, i: +x, "bools": lambda x, i: True & (x > 2), "either": lambda x, i: False | (x > 2),
    "loops": lambda x, i: 5 // (i + 1) + 5 % (i + 1) + x,
    "numpy": lambda x, i: np.int64(50) // (x + 1) + np.int64(7) % (x + 1) + (np.int64(3) | x),
    "numpy bools": lambda x, i: np.bool_(True) & (x > 2),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_numbers_on_the_left(name: str):
    formula = LEFT[name]
    got = mapped(lambda x, i, j: formula(x[i, j], i))(N, **PLAIN)
    want = formula(N, np.indices(N.shape)[0])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@tlm.operator
def pick(x, at):
    return tlm.compute(at.shape, lambda i: x[at[i]])


FAR = [-(2**63), -(10**12), -1, 0, 2, 3, 4, 100000, 10**12, 2**63 - 1]


@pytest.mark.parametrize("schedule", ["default", "heuristic", tlm.Random(1)])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "i8"])
def test_indices_from_data_are_cut_to_the_array(dtype: str, schedule: Any):
    kind = np.iinfo(dtype)
    at = np.array([n for n in FAR if kind.min <= n <= kind.max], dtype)
    x = np.arange(10, 14, dtype="f4")
    want = x[np.clip(at, 0, 3)]
    np.testing.assert_array_equal(pick(x, at, schedule=schedule), want)
    np.testing.assert_array_equal(interpret(pick.program(x, at), [x, at])[0], want)


def test_every_index_from_data_is_cut():
    """In sums, inside of other indices, of intermediates, mixed with loops, and where it wraps."""
    x, at = np.arange(12, dtype="f4").reshape(3, 4), np.array([5, -7, 1, 2**63 - 1])

    @tlm.operator
    def several(x, at):
        double = tlm.compute(x.shape, lambda i, j: 2 * x[i, j])
        chain = tlm.compute(at.shape, lambda i: double[at[at[i]], at[i] + 1])
        return tlm.sum(at.shape, lambda i, k: x[k, at[i] - k] + chain[at[i]], over={"k": 3})

    cut = np.clip(at, 0, 3)
    chain = 2 * x[np.clip(at[cut], 0, 2), [3, 0, 2, 0]]
    columns = [[np.clip(n - k, 0, 3) for k in range(3)] for n in at.tolist()]
    want = [
        sum(x[k, c] for k, c in enumerate(row)) + 3 * chain[n] for row, n in zip(columns, cut, strict=True)
    ]
    np.testing.assert_array_equal(several(x, at, **PLAIN), want)


def test_a_stage_within_a_formula():
    @tlm.operator
    def shifted(x, at):
        def element(i: Any) -> Any:
            top = tlm.max((), lambda k: x[at[k]], over={"k": x.shape[0]})
            return x[i] - top[()]

        return tlm.compute(x.shape, element)

    x = np.array([3, 9, 4], "f4")
    np.testing.assert_array_equal(shifted(x, np.array([-5, 2, 0]), **PLAIN), x - 4)


def test_a_condition_on_data_keeps_no_index_inside():
    """Where it does not, the nearest element is read; conditions on loops are proofs, and cost nothing."""
    x = np.array([1, -2, 3, 4], "f4")

    @tlm.operator
    def following(x):
        return tlm.compute(x.shape, lambda i: tlm.where(x[i] > 0, x[i + 1], x[i - 1]))

    np.testing.assert_array_equal(following(x, **PLAIN), [-2, 1, 4, 4])
    np.testing.assert_array_equal(following(-x, **PLAIN), [-1, -3, 2, -3])

    @tlm.operator
    def proved(x):
        n = x.shape[0]
        last = lambda i: tlm.where(i < n - 1, x[i + 1], x[i - n + 1])  # noqa: E731
        return tlm.compute(x.shape, lambda i: tlm.where((i >= 1) & (x[i] > 0), x[i - 1], last(i)))

    assert "minimum" not in str(proved.program(x))
    np.testing.assert_array_equal(proved(x, **PLAIN), [-2, 3, -2, 3])


@pytest.mark.parametrize(
    ("index", "reach"),
    [
        (lambda i: i * i, r"index i \* i reaches 0..9"),
        (lambda i: i * 5 % 7, "reaches 0..5"),
        (lambda i: i // 2 - 1, "reaches -1..0"),
        (lambda i: tlm.where(i > 1, i + 3, i), "reaches 0..6"),
        (lambda i: tlm.maximum(i * 2, 1), "reaches 1..6"),
    ],
)
def test_any_index_of_loops_is_checked(index: Callable[..., Any], reach: str):
    x = np.array([3, 1, 4, 2], "f4")
    with pytest.raises(ArgumentError, match=reach + r", outside of an axis of 4: X\["):
        tlm.operator(lambda x: tlm.compute(x.shape, lambda i: x[index(i)]))(x, **PLAIN)


def test_indices_that_bounds_alone_do_not_prove():
    x = np.array([3, 1, 4, 2], "f4")
    turned = tlm.operator(lambda x: tlm.compute(x.shape, lambda i: x[i * i * i % 4 - i % 2] + x[(i * 3) % 4]))
    at = np.arange(4)
    np.testing.assert_array_equal(turned(x, **PLAIN), x[at**3 % 4 - at % 2] + x[at * 3 % 4])
    assert "minimum" not in str(turned.program(x))


def test_an_index_of_loops_is_cut_where_it_is_not_known_to_be_inside():
    """A condition on loops proves what is tried under it; one on data does not; much is not tried."""
    x = np.arange(4, dtype="f4")
    long = np.arange(2**20 + 1) ** 2 // 7

    squares = tlm.operator(lambda x, y: tlm.compute(y.shape, lambda i: tlm.where(y[i] > 0, x[i * i], 0.0)))
    some = np.array([1, 1, 0, 1, 1], "f4")
    np.testing.assert_array_equal(squares(x, some, **PLAIN), [0, 1, 0, 3, 3])
    guarded = tlm.operator(lambda x, y: tlm.compute(y.shape, lambda i: tlm.where(i < 2, x[i * i], y[i])))
    assert "minimum" not in str(guarded.program(x, some))
    np.testing.assert_array_equal(guarded(x, some, **PLAIN), [0, 1, 0, 1, 1])
    far = tlm.operator(lambda x, y: tlm.compute(y.shape, lambda i: x[(i * i) // 7] + y[i]))
    got = far(x, np.zeros(len(long), "f4"), **PLAIN)
    np.testing.assert_array_equal(got, x[np.minimum(long, 3)])


def test_what_a_formula_uses_again_and_again_is_counted():
    """Each step uses the one before three times: written out, 25 of them are a trillion operations."""

    def grown(steps: int) -> Any:
        def element(x: Any, i: Any) -> Any:
            value = x[i]
            for _ in range(steps):
                value = value * value + value
            return value

        return tlm.operator(lambda x: tlm.compute(x.shape, lambda i: element(x, i)))

    x = np.zeros(5, "f4")
    np.testing.assert_array_equal(grown(5)(x, **PLAIN), x)
    with pytest.raises(ArgumentError, match=r"the formula of map has .* operations .* make stages"):
        grown(25)(x, **PLAIN)


def test_no_index_is_cut_twice_or_without_need():
    x, at = np.ones(256, "f4"), np.zeros(3, "u1")
    for op, table, cuts in ((pick, x, 0), (pick, x[:255], 1), (tlm.ops.take, x[:255], 1)):
        text = str(op.program(table, at))
        assert (text.count("minimum"), text.count("maximum")) == (cuts, cuts)
    wrapped = tlm.operator(lambda x, at: tlm.compute(at.shape, lambda i: x[at[i] % 256]))
    assert "minimum" not in str(wrapped.program(x, at.astype("i8")))


def test_there_is_nothing_to_index_in_an_empty_axis():
    empty, none = np.ones(0, "f4"), np.zeros(0, "i8")
    with pytest.raises(ArgumentError, match=r"X\[at\[i\]\] reads an axis of no elements"):
        pick(empty, np.array([1]), **PLAIN)
    assert pick(empty, none, **PLAIN).shape == (0,)


def test_integers_of_numpy_are_indices_and_bools_are_not():
    first = mapped(lambda x, i, j: x[i, np.int64(1)] + x[np.uint8(0), j])
    np.testing.assert_array_equal(first(X, **PLAIN), X[:, 1:2] + X[:1])
    for wrong in (True, np.bool_(True), 1.0, None):
        with pytest.raises(ArgumentError, match=r"X is indexed with integers, got .* for axis 1"):
            mapped(lambda x, i, j, w=wrong: x[i, w])(X, **PLAIN)
    with pytest.raises(ArgumentError, match="index 3 of X is outside of axis 1, which has 3"):
        mapped(lambda x, i, j: x[i, np.int64(3)])(X, **PLAIN)


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (lambda x: tlm.compute((2,), 3), "the formula of map is a function of its indices, got 3"),
        (lambda x: tlm.compute((2,), None, axes=("i",)), "is a function of its indices, got None"),
        (lambda x: tlm.sum((2,), "x", {"k": 3}), "the formula of sum is a function"),
        (lambda x: tlm.sum((2,), "x", {"k": 3}, axes=("i",)), "the formula of sum is a function"),
        (lambda x: tlm.reduce("max", (2,), x, over={"k": 3}, axes=("i",)), "formula of max is a function"),
        (lambda x: tlm.argmax((2,), 3, {"k": 3}), "the formula of argmax is a function"),
        (lambda x: tlm.argmax((2,), lambda i, k: x[i, k], over=["k"]), "over= of argmax names the"),
        (lambda x: tlm.argmin((2,), lambda i, k: x[i, k], over=None), "over= of argmin names the"),
        (lambda x: tlm.argmax((2,), lambda i: x[i, 0], over={"k": 3}), r"of argmax takes 1 indices \(i\)"),
        (lambda x: tlm.argmax((2,), lambda i, k: x[i, k], over={"k": 2.5}), "loop k of argmax has size 2.5"),
        (lambda x: tlm.argmax("n", lambda i, k: x[i, k], over={"k": 3}), "the shape of argmax is a tuple"),
    ],
)  # fmt: skip
def test_stages_that_are_no_formulas(stage: Callable[[Any], Any], words: str):
    with pytest.raises(ArgumentError, match=words):
        tlm.operator(stage)(X, **PLAIN)


def test_long_chains_work_or_are_refused():
    def chain(count: int) -> Any:
        def value(x: Any, i: Any, j: Any) -> Any:
            total = x[i, j]
            for _ in range(count):
                total = total + 1
            return total

        return mapped(value)

    np.testing.assert_array_equal(chain(250)(X, **PLAIN), X + 250)
    with pytest.raises(ArgumentError, match="the formula of map nests more than 300 operations"):
        chain(2000)(X, **PLAIN)


VALUES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "logsumexp": lambda x, k: (x, tlm.cast(1, "f32")),
    "argmax": lambda x, k: (x, k),
    "welford": lambda x, k: (tlm.cast(1, "f32"), x, tlm.cast(0, "f32")),
}


@pytest.mark.parametrize("schedule", ["default", "heuristic", "generate", tlm.Random(1)])
@pytest.mark.parametrize(("name", "want"), [("logsumexp", -np.inf), ("argmax", -np.inf), ("welford", 0)])
def test_tuples_reduced_over_nothing_have_every_schedule(name: str, want: float, schedule: Any):
    """The parts of the identity are stages of their own, which may be placed apart."""

    @tlm.operator
    def parts(x):
        m, n = x.shape
        found = tlm.reduce(name, (m,), lambda i, k: VALUES[name](x[i, k], k), over={"k": n})
        return tlm.compute((m,), lambda i: found[0][i] + tlm.cast(found[1][i], "f32"))

    np.testing.assert_array_equal(parts(np.zeros((3, 0), "f4"), schedule=schedule), np.full(3, want, "f4"))
