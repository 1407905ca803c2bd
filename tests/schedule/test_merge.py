"""Merging loops: what is legal, what becomes private, and that every bit stays."""

from __future__ import annotations

import numpy as np
import pytest

from tlm.errors import ScheduleError
from tlm.ir.build import Builder
from tlm.ir.nodes import Program
from tlm.ir.verify import verify
from tlm.schedule import Schedule


def centred(rows: int = 5, n: int = 7) -> Program:
    """Rows minus their sum, and how often a row is larger than its neighbour above."""
    b = Builder("centred")
    x = b.input("X", (rows, n), "f32")
    s = b.reduce("S", (rows,), {"k": n}, lambda i, k: x[i, k], axes=("i",))
    y = b.compute("Y", (rows, n), lambda i, j: x[i, j] - s[i])
    b.compute("Z", (rows, n), lambda i, j: y[i, j] * 2.0 + s[i], output=True)
    return b.build()


def right(s: Schedule) -> Schedule:
    verify(s.program)
    shape = s.original.inputs[0].shape
    x = np.random.default_rng(0).integers(-4, 5, shape).astype("f4")
    np.testing.assert_array_equal(s.run(x)[0], Schedule(s.original).run(x)[0])
    assert Schedule.from_json(s.original, s.to_json()).program == s.program
    return s


def test_rows_run_together_and_temporaries_become_private():
    s = right(Schedule(centred()).merge("i", "Y_i").merge("i", "Z_i"))
    assert (
        str(s)
        == """\
program centred(X: f32[5, 7]) -> (Z: f32[5, 7])
for i in 5:
  alloc Y: f32[1, 7] heap:
    alloc S: f32[1] heap:
      for k in 7:
        S[0] (k)+= X[i, k]
      for Y_j in 7:
        Y[0, Y_j] = X[i, Y_j] - S[0]
      for Z_j in 7:
        Z[i, Z_j] = Y[0, Z_j] * 2.0 + S[0]"""
    )
    s = right(s.merge("Y_j", "Z_j"))
    assert "Y: f32[1, 1]" in str(s)


@pytest.mark.parametrize("block", [2, 3, 5])
def test_blocks_of_rows_with_a_tail(block):
    s = Schedule(centred())
    for loop in ("i", "Y_i", "Z_i"):
        s.split(loop, block)
    s = right(s.merge("i.0", "Y_i.0").merge("i.0", "Z_i.0"))
    assert f"S: f32[{block}]" in str(s)
    right(s.merge("Y_i.1", "Z_i.1"))


def test_values_of_other_iterations_are_refused():
    with pytest.raises(ScheduleError, match="are not loops of one sequence"):
        Schedule(centred()).merge("i", "Z_j")
    with pytest.raises(ScheduleError, match="statements between the two depend on both"):
        Schedule(centred()).merge("i", "Z_i")
    with pytest.raises(ScheduleError, match="does not run after"):
        Schedule(centred()).merge("Y_i", "i")
    b = Builder("shifted")
    x = b.input("X", (6,), "f32")
    y = b.compute("Y", (6,), lambda i: x[i] * 2.0, axes=("i",))
    b.compute("Z", (5,), lambda i: y[i + 1], axes=("i",), output=True)
    with pytest.raises(ScheduleError, match="i has 6 iterations, Z_i 5"):
        Schedule(b.build()).merge("i", "Z_i")
    b = Builder("reversed")
    x = b.input("X", (6,), "f32")
    y = b.compute("Y", (6,), lambda i: x[i] * 2.0, axes=("i",))
    b.compute("Z", (6,), lambda i: y[5 - i], axes=("i",), output=True)
    with pytest.raises(ScheduleError, match="Z_i reads Y of other iterations of i"):
        Schedule(b.build()).merge("i", "Z_i")
    b = Builder("total")
    x = b.input("X", (6,), "f32")
    s = b.reduce("S", (), {"k": 6}, lambda k: x[k], axes=())
    b.compute("Z", (6,), lambda i: x[i] - s[()], axes=("i",), output=True)
    with pytest.raises(ScheduleError, match="Z_i reads S of other iterations of k"):
        Schedule(b.build()).merge("k", "Z_i")


def test_an_independent_statement_between_moves_aside():
    b = Builder("beside")
    x, w = b.input("X", (4, 6), "f32"), b.input("W", (6,), "f32")
    s = b.reduce("S", (4,), {"k": 6}, lambda i, k: x[i, k], axes=("i",))
    v = b.compute("V", (6,), lambda j: w[j] * 2.0, axes=("j",))
    b.compute("Z", (4, 6), lambda i, j: (x[i, j] - s[i]) * v[j], output=True)
    program = b.build()
    s = Schedule(program).merge("i", "Z_i")
    verify(s.program)
    a, c = np.arange(24, dtype="f4").reshape(4, 6), np.arange(6, dtype="f4")
    np.testing.assert_array_equal(s.run(a, c)[0], (a - a.sum(1, keepdims=True)) * c * 2)


def test_a_sum_over_the_loop_keeps_its_buffer():
    """The sum goes on from one iteration to the next, so it must not be made anew in each."""
    b = Builder("two")
    x = b.input("X", (6,), "f32")
    s = b.reduce("S", (1,), {"k": 6}, lambda z, k: x[k], axes=("z",))
    t = b.reduce("T", (1,), {"k": 6}, lambda z, k: x[k] * x[k], axes=("z",))
    b.compute("Z", (1,), lambda z: s[z] + t[z], axes=("z",), output=True)
    s = Schedule(b.build()).merge("z", "T_z").merge("k", "T_k")
    right(s)
    assert str(s).count("for ") == 3
