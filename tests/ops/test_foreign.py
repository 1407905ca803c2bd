"""Arrays of jax, torch and anything that speaks DLPack: in without a copy, the same kind out (kind E)."""

from __future__ import annotations

import array
import sys
import types
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tlm
from tlm.errors import ArgumentError, DTypeError
from tlm.ops import foreign, linear, matmul

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32"]


def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def jax() -> Any:
    return pytest.importorskip("jax")


def whole(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    found = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(found)


def to_torch(x: np.ndarray) -> Any:
    return foreign._torch_back(None)(x)


class Exporter:
    """An array of another library: DLPack only, and a way back."""

    def __init__(self, data: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.data, self.device = data, device
        self.shape, self.dtype = data.shape, data.dtype

    def __dlpack__(self, **settings: Any) -> Any:
        return self.data.__dlpack__(**settings)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __array_namespace__(self) -> Any:
        return types.SimpleNamespace(from_dlpack=lambda x: Exporter(np.from_dlpack(x)))


class Interface:
    """An object with the array interface, and nothing else."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self.__array_interface__ = data.__array_interface__


def run(*operands: Any, **settings: Any) -> Any:
    return matmul(*operands, schedule="heuristic", threads=1, **settings)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_in_torch_out(dtype: str):
    t = torch()
    a, b = whole(5, 7, dtype=dtype), whole(7, 6, dtype=dtype, seed=1)
    for _ in range(2):
        got = run(to_torch(a), to_torch(b))
        assert isinstance(got, t.Tensor)
        assert str(got.dtype) == f"torch.{dtype}"
        np.testing.assert_array_equal(got.double().numpy(), (a.astype("f8") @ b.astype("f8")).astype(a.dtype))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "float64"])
def test_jax_in_jax_out(dtype: str):
    j = jax()
    a, b = whole(5, 7, dtype=dtype), whole(7, 6, dtype=dtype, seed=1)
    for _ in range(2):
        got = run(j.numpy.asarray(a), j.numpy.asarray(b))
        assert isinstance(got, j.Array)
        assert got.dtype == a.dtype
        np.testing.assert_array_equal(np.asarray(got), (a.astype("f8") @ b.astype("f8")).astype(a.dtype))


@pytest.mark.parametrize("name", ["jax", "torch", "dlpack", "interface"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_operands_are_not_copied(name: str, dtype: str):
    x = foreign.empty((4, 6), whole(1, dtype=dtype).dtype)
    x[...] = whole(4, 6, dtype=dtype)
    if name == "torch":
        torch()
        made = to_torch(x)
    elif name == "jax":
        made = jax().device_put(x)
        assert made.unsafe_buffer_pointer() == x.ctypes.data
    elif dtype == "bfloat16":
        pytest.skip("neither protocol carries bf16")
    else:
        made = Exporter(x) if name == "dlpack" else Interface(x)
    seen = foreign.view(made, "x")
    assert seen.ctypes.data == x.ctypes.data
    assert (seen.dtype, seen.shape) == (x.dtype, x.shape)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (64, 64)])
def test_results_are_not_copied(shape: tuple[int, ...]):
    made = foreign.empty(shape, np.dtype("f4"))
    made[...] = 1
    assert made.ctypes.data % 64 == 0
    j = jax()
    there = foreign.library(type(j.numpy.ones(1))).back(j.numpy.ones(1))(made)
    assert there.unsafe_buffer_pointer() == made.ctypes.data
    assert to_torch(made).data_ptr() == made.ctypes.data if "torch" in sys.modules else True


def test_layouts_and_read_only_operands():
    """Transposed, strided, expanded and reversed; a jax array is read-only always."""
    a, b = whole(6, 8), whole(8, 6, seed=1)
    want = a @ b
    frozen = a.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(run(Exporter(frozen), Exporter(b)).data, want)
    np.testing.assert_array_equal(run(Interface(a[:, ::-1]), Interface(b[::-1])), want)
    t = torch()
    x, y = t.from_numpy(a), t.from_numpy(b)
    for left, right in (
        (x.t().contiguous().t(), y),
        (x[:, ::2], y[::2]),
        (x[:1].expand(6, 8), y),
        (x, y.t().contiguous().t()),
    ):
        np.testing.assert_array_equal(run(left, right).numpy(), left.numpy() @ right.numpy())


def test_out_of_the_same_library():
    t = torch()
    a, b = t.ones(4, 5), t.ones(5, 6)
    out = t.zeros(4, 6)
    for _ in range(2):
        out.zero_()
        assert run(a, b, out=out) is out
        assert out.tolist() == [[5.0] * 6] * 4
    wide = t.zeros(4, 12)
    assert run(a, b, out=wide[:, ::2]) is not None
    assert wide[:, ::2].tolist() == [[5.0] * 6] * 4
    assert not wide[:, 1::2].any()
    half = t.zeros(4, 6, dtype=t.bfloat16)
    assert run(a.bfloat16(), b.bfloat16(), out=half) is half
    assert half.tolist() == [[5.0] * 6] * 4


def test_out_of_another_library():
    a, b = whole(4, 5), whole(5, 6)
    held = np.zeros((4, 6), "f4")
    for operands in ((a, b), (Exporter(a), b)):
        for make in (Exporter, Interface, np.asarray):
            held[:] = 0
            out = make(held)
            assert run(*operands, out=out) is out
            np.testing.assert_array_equal(held, a @ b)
    t = torch()
    out = t.zeros(4, 6)
    assert run(a, b, out=out) is out
    assert run(t.from_numpy(a), b, out=held) is held
    np.testing.assert_array_equal(out.numpy(), held)


def test_out_may_overlap_a_foreign_operand():
    t = torch()
    x = t.arange(16, dtype=t.float32).reshape(4, 4)
    want = x.numpy() @ x.numpy()
    assert run(x, x, out=x) is x
    np.testing.assert_array_equal(x.numpy(), want)


def test_libraries_mix_and_the_first_one_wins():
    j, t = jax(), torch()
    a, b = whole(3, 4), whole(4, 5)
    x, y = j.numpy.asarray(a), t.from_numpy(b)
    assert isinstance(run(x, y), j.Array)
    assert isinstance(run(t.from_numpy(a), j.numpy.asarray(b)), t.Tensor)
    assert isinstance(run(a, y), t.Tensor)
    assert isinstance(run(x, b), j.Array)
    assert isinstance(linear(a, b, j.numpy.ones(5), schedule="heuristic"), j.Array)
    assert type(run(a, b)) is np.ndarray
    np.testing.assert_array_equal(np.asarray(run(x, y)), a @ b)


def test_empty_and_zero_dimensional_results():
    t = torch()
    assert run(t.ones(3), t.ones(3)).item() == 3
    assert run(t.ones(0, 3), t.ones(3, 2)).shape == (0, 2)
    assert isinstance(run(t.ones(0, 3), t.ones(3, 2)), t.Tensor)
    assert run(t.ones(2, 0), t.ones(0, 2)).tolist() == [[0, 0], [0, 0]]


def test_numbers_lists_and_buffers():
    want = [[3.0, 3.0]]
    np.testing.assert_array_equal(run([[1.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]]), want)
    buffers = array.array("f", [1, 2]), memoryview(np.ones((2, 2), "f4"))
    got = run(*buffers)
    assert (type(got), got.tolist()) == (np.ndarray, want[0])


def test_kernels_take_foreign_arrays():
    a, b = whole(5, 7), whole(7, 6)
    kernel = matmul.kernel(a, b, schedule="heuristic")
    got = kernel(Exporter(a), Exporter(b))
    np.testing.assert_array_equal(got.data, a @ b)
    held = np.zeros((5, 6), "f4")
    out = Exporter(held)
    assert kernel(a, b, out=out) is out
    np.testing.assert_array_equal(held, a @ b)
    assert kernel.time(Exporter(a), Exporter(b)) > 0
    t = torch()
    made = matmul.kernel(t.ones(5, 7, device="meta"), t.ones(7, 6), schedule="heuristic")
    assert isinstance(made(t.from_numpy(a), t.from_numpy(b)), t.Tensor)


class Cuda:
    """An array of a GPU, as numba and CuPy show it."""

    def __init__(self) -> None:
        self.__cuda_array_interface__ = {"shape": (2, 2), "typestr": "<f4", "data": (0, False), "version": 3}


SQUARE = np.ones((2, 2), "f4")


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (Exporter(SQUARE, (2, 1)), r"operand 0 .*CPU's memory, operand 1 \(\w*.Exporter\) lies on GPU 1"),
        (Exporter(SQUARE, (10, 1)), r"operand 1 lies on device 1 of DLPack's kind 10.*the CPU's memory"),
        (Cuda(), r"operand 0 .*CPU's memory, operand 1 \(\w*.Cuda\) lies on a GPU"),
        (None, "operand 1 is no array: got NoneType"),
        ({"a": 1}, "operand 1 is no array: got dict"),
        (object(), "operand 1 is no array: got object"),
        ([[1.0], [1.0, 2.0]], r"operand 1 \(list\) cannot be read as an array"),
        (np.ma.masked_array(SQUARE, SQUARE > 2), "operand 1 is a masked array"),
        (np.ma.masked, "operand 1 is a masked array"),
        (type("Masked", (np.ma.MaskedArray,), {})(SQUARE, SQUARE > 2), "operand 1 is a masked array"),
    ],
)
def test_what_is_no_array_here(x: Any, words: str):
    with pytest.raises(ArgumentError, match=words):
        run(SQUARE, x)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ([[0.0] * 2] * 2, "out= is a numpy array, or shares memory with one; got list"),
        (Exporter(np.broadcast_to(np.float32(0), (2, 2))), "out= "),
        (Exporter(np.zeros((2, 3), "f4")), r"out= has shape \(2, 3\)"),
        (Exporter(SQUARE, (2, 0)), "out= lies on device 0"),
    ],
)
def test_what_is_no_out(out: Any, words: str):
    for _ in range(2):
        with pytest.raises(ArgumentError, match=words):
            run(SQUARE, SQUARE, out=out)
        run(SQUARE, SQUARE)


def test_jax_says_what_it_cannot():
    j = jax()
    x = j.numpy.ones((2, 2))
    with pytest.raises(ArgumentError, match="out= cannot be an array of jax, which never changes"):
        run(x, x, out=j.numpy.ones((2, 2)))
    with pytest.raises(ArgumentError, match="operand 0 is traced by jax"):
        j.jit(lambda y: run(y, x))(x)
    with pytest.raises(DTypeError, match="complex64"):
        run(x.astype("complex64"), x)


def test_torch_says_what_it_cannot():
    t = torch()
    x = t.ones(2, 2)
    with pytest.raises(ArgumentError, match=r"operand 1 requires grad.*detach"):
        run(x, x.clone().requires_grad_())
    with t.no_grad():
        assert run(x, x.clone().requires_grad_()).tolist() == [[2, 2], [2, 2]]
    with pytest.raises(ArgumentError, match="operand 0 lies on meta"):
        run(t.ones(2, 2, device="meta"), x)
    with pytest.raises(ArgumentError, match=r"operand 0 \(Tensor\) cannot be read"):
        run(x.to_sparse(), x)
    with pytest.raises(ArgumentError, match="share their memory"):
        run(x, x, out=t.ones(2, 1).expand(2, 2))
    with pytest.raises(DTypeError, match="complex64"):
        run(x.to(t.complex64), x)


def test_importing_nothing():
    """numpy arrays never import the other libraries."""
    import subprocess

    code = (
        "import sys, numpy as np, tlm; x = np.ones((2, 2), 'f4');"
        "tlm.ops.matmul(x, x, schedule='default');"
        "sys.exit(any(m in sys.modules for m in ('jax', 'torch', 'ml_dtypes')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
    assert tlm.__name__ == "tlm"
