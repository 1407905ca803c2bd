"""Calls that users get wrong, or that other libraries answer: a right result or one clear error."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tlm
from tlm import ops
from tlm.errors import ArgumentError, DTypeError

PLAIN = {"schedule": "heuristic", "threads": 1}


class Wrapped:
    """Has what an array has, and is none: it converts to one."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self.array

    shape = property(lambda self: self.array.shape)
    strides = property(lambda self: self.array.strides)
    dtype = property(lambda self: self.array.dtype)


@pytest.mark.parametrize("op", [ops.matmul, ops.linear, ops.add])
def test_what_converts_to_an_array_does_so_in_every_call(op):
    a = np.eye(4, dtype="f4")
    for _ in range(3):
        want = a + a if op is ops.add else a @ a
        np.testing.assert_array_equal(op(Wrapped(a), Wrapped(a), **PLAIN), want)


def test_subclasses_of_arrays_are_remembered(monkeypatch: pytest.MonkeyPatch):
    a = np.arange(16, dtype="f4").reshape(4, 4)
    mine = a.view(np.memmap)
    ops.matmul(mine, a, **PLAIN)
    monkeypatch.setattr("tlm.ops.dispatch.kernel_for", lambda *_: pytest.fail("decides again"))
    monkeypatch.setattr("tlm.ops.kept.load", lambda *_: pytest.fail("loads again"))
    np.testing.assert_array_equal(ops.matmul(mine, a, **PLAIN), a @ a)
    np.testing.assert_array_equal(ops.matmul(Wrapped(a), a, **PLAIN), a @ a)


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({"name": "cpu", "isa": "neon"}, "lack neon"),
        ({"name": "neon", "features": ()}, "lack neon"),
        ({"name": "avx2", "isa": "avx512", "vector_bytes": 64, "registers": 32}, "lack .*avx512f"),
        ({"name": "avx2", "features": "avx2"}, "several of LLVM's feature names, got 'avx2'"),
        ({"name": "avx2", "features": 5}, "several of LLVM's feature names, got 5"),
        ({"name": ["avx2"]}, "the name is a string"),
        ({"name": "avx2", "fma": "no"}, "Target.fma is True or False, got 'no'"),
    ],
)
def test_targets_that_contradict_themselves_are_refused(figures, says):
    with pytest.raises(ArgumentError, match=says):
        tlm.Target(**figures)


@pytest.mark.parametrize("name", ["schedule", "target", "threads", "out"])
def test_settings_are_not_called_as_options_of_every_call(name: str):
    names: dict = {}
    exec(f"def g(a, *, {name}=2): return a", names)
    with pytest.raises(ArgumentError, match=f"g has a parameter {name}, an option of every call"):
        tlm.operator(names["g"])


class Copies:
    @property
    def __array_interface__(self):
        self.last = np.zeros((), "f4")
        return self.last.__array_interface__


@pytest.mark.parametrize(
    ("out", "says"), [(np.float32(0), "out= is an array; a number"), (Copies(), "shows another copy")]
)
def test_out_is_something_that_can_be_written_to(out, says):
    for x in (np.arange(6, dtype="f4"), np.zeros(0, "f4")):
        with pytest.raises(ArgumentError, match=says):
            ops.sum(x, out=out, **PLAIN)


@pytest.mark.parametrize("exponent", [2, 3, 4, 5, 6, 7, 8, 9])
def test_pow_of_whole_numbers_is_within_its_bound(exponent: int):
    x = np.linspace(1.07, 1.0905, 20000, dtype="f4")
    got, want = ops.pow(x, exponent, **PLAIN), x.astype("f8") ** exponent
    assert (np.abs(got - want) / np.spacing(want.astype("f4"))).max() <= 4
    half = x.astype("f2")
    np.testing.assert_array_equal(
        ops.pow(half, exponent, **PLAIN), (half.astype("f8") ** exponent).astype("f2")
    )
    whole = np.arange(-5, 6, dtype="i4")
    np.testing.assert_array_equal(ops.pow(whole, exponent, **PLAIN), whole**exponent)


def test_names_of_dtypes_are_numpys():
    np.testing.assert_array_equal(ops.astype(np.array([300.0, 5]), "i8", **PLAIN), [300, 5])
    assert ops.astype(np.array([300.0]), "u1", **PLAIN).dtype == np.uint8
    with pytest.raises(DTypeError, match="'u8' is not supported"):
        ops.astype(np.array([300.0, 5]), "u8", **PLAIN)


def test_whole_numbers_do_not_take_products_of_floats():
    a = np.full((2, 2), 0.5, "f4")
    image, weights = np.full((1, 3, 3, 1), 0.5, "f4"), np.full((2, 2, 1, 1), 0.5, "f4")
    for call in (
        lambda: ops.matmul(a, a, dtype=np.int32),
        lambda: ops.einsum("ij,jk", a, a, dtype=np.int32),
        lambda: ops.conv2d(image, weights, dtype="int32"),
    ):
        with pytest.raises(DTypeError, match="dtype int32 cannot hold products of float32"):
            call()
    assert ops.matmul(a.astype("i1"), a.astype("i1"), dtype=np.int32, **PLAIN).dtype == np.int32


def test_numbers_that_a_type_cannot_hold_compare_as_numpy_has_it():
    for x in (np.array([1, 200], "u1"), np.array([-3, 100], "i1"), np.array([5, -6], "i4")):
        for number in (-1, 300, 3_000_000_000, -3_000_000_000):
            for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
                want = getattr(np, name)(x, number)
                np.testing.assert_array_equal(getattr(ops, name)(x, number, **PLAIN), want)
    x = np.array([1, 200], "u1")
    np.testing.assert_array_equal(ops.clip(x, -5, 300, **PLAIN), x)
    np.testing.assert_array_equal(ops.clip(x, min=7, max=90, **PLAIN), [7, 90])
    with pytest.raises(ArgumentError, match="300 is out of range for uint8"):
        ops.add(x, 300, **PLAIN)
    for call in (ops.add, ops.clip):
        with pytest.raises(ArgumentError, match="is out of range for float32"):
            call(np.ones(2, "f4"), 10**400, **PLAIN)


def test_cumsum_of_several_axes_needs_one():
    with pytest.raises(ArgumentError, match="cumsum of an array of 2 axes needs axis="):
        ops.cumsum(np.ones((2, 2), "f4"))


def test_saving_to_the_present_folder_and_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kernel = ops.matmul.kernel(np.ones((4, 4), "f4"), np.ones((4, 4), "f4"), **PLAIN)
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("one", "two", "two"):
        kernel.save(".", name=name)
        assert set(os.listdir(tmp_path / "here")) == {"main.c", f"{name}.o", f"{name}.h"}
    (tmp_path / "link").symlink_to(tmp_path / "there")
    for _ in range(2):
        kernel.save(tmp_path / "link")
        assert (tmp_path / "there" / "main.c").exists()
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["here", "link", "there"]
