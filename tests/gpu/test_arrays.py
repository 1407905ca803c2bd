"""Arrays of CuPy, torch and jax on a GPU: kinds, layouts, streams, graphs, devices."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tlm
from tlm.errors import ArgumentError

HOW = {"schedule": "heuristic"}


def whole(*shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


A, B = whole(200, 120), whole(120, 136, seed=1)
LONG = whole(4, 20000)
"""A sum of its rows takes a workspace."""


@pytest.fixture
def torch():
    found = pytest.importorskip("torch", reason="torch is not installed")
    if not found.cuda.is_available():
        pytest.skip("torch has no GPU")
    return found


@pytest.fixture
def jax():
    found = pytest.importorskip("jax")
    if found.default_backend() != "gpu":
        pytest.skip("jax has no GPU")
    return found


def test_cupy(cupy):
    a, b = cupy.asarray(A), cupy.asarray(B)
    for settings in ({}, {"target": "cuda"}):
        for _ in range(2):
            got = tlm.ops.matmul(a, b, **HOW, **settings)
            assert isinstance(got, cupy.ndarray)
            np.testing.assert_array_equal(got.get(), A @ B)
    out = cupy.zeros((200, 136), "f4")
    assert tlm.ops.matmul(a, b, out=out, **HOW) is out
    np.testing.assert_array_equal(out.get(), A @ B)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int8"])
def test_cupy_dtypes(cupy, dtype):
    a, b = A.astype(dtype), whole(120, 24, dtype=dtype, seed=2)
    got = tlm.ops.matmul(cupy.asarray(a), cupy.asarray(b), **HOW)
    np.testing.assert_array_equal(got.get(), (a.astype("f8") @ b.astype("f8")).astype("i8").astype(dtype))


def test_cupy_bf16(cupy):
    a, b = A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)
    got = tlm.ops.matmul(cupy.asarray(a), cupy.asarray(b), **HOW)
    want = (A @ B).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(got.get().view("u2"), want.view("u2"))


def test_layouts_and_alignments(cupy):
    x = cupy.asarray(A)
    for view in (x.T, x[::2, ::2], x[::-1, ::-1], x[:, 3:], x[5:, :64], cupy.broadcast_to(x[:1], x.shape)):
        np.testing.assert_array_equal(tlm.ops.negative(view, **HOW).get(), -view.get())
    flat = cupy.asarray(whole(1001))
    np.testing.assert_array_equal(tlm.ops.negative(flat[1:], **HOW).get(), -flat[1:].get())
    np.testing.assert_array_equal(tlm.ops.matmul(x.T, x, **HOW).get(), A.T @ A)


def test_out_that_overlaps(cupy):
    x = cupy.asarray(whole(64, 64))
    want = x.get() @ x.get()
    assert tlm.ops.matmul(x, x, out=x, **HOW) is x
    np.testing.assert_array_equal(x.get(), want)


def test_empty_arrays(cupy):
    assert tlm.ops.matmul(cupy.zeros((0, 5), "f4"), cupy.zeros((5, 3), "f4"), **HOW).shape == (0, 3)
    got = tlm.ops.matmul(cupy.zeros((4, 0), "f4"), cupy.zeros((0, 3), "f4"), **HOW)
    np.testing.assert_array_equal(got.get(), np.zeros((4, 3)))


def test_mixed_places_are_refused(cupy):
    with pytest.raises(ArgumentError, match="bring them to one place"):
        tlm.ops.matmul(cupy.asarray(A), B, **HOW)


def test_calls_follow_the_current_stream_and_do_not_wait(cupy):
    """A call returns while earlier work of its stream, about a second of it, still runs."""
    a, b = cupy.asarray(A), cupy.asarray(B)
    x = cupy.asarray(LONG)
    tlm.ops.matmul(a, b, **HOW)
    tlm.ops.add(a, 1.5, **HOW)
    tlm.ops.sum(x, axis=1, **HOW)
    slow = cupy.zeros((8192, 8192), "f4")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        tlm.ops.add(a, 1.5, **HOW)
        cupy.matmul(slow, slow)
        stream.synchronize()
        for _ in range(20):
            slow = cupy.matmul(slow, slow)
        a2 = a + 1
        got, more, sums = (
            tlm.ops.matmul(a2, b, **HOW),
            tlm.ops.add(a2, 1.5, **HOW),
            tlm.ops.sum(x, axis=1, **HOW),
        )
        assert not stream.done, "the calls waited"
        stream.synchronize()
        np.testing.assert_array_equal(got.get(), (A + 1) @ B)
        np.testing.assert_array_equal(more.get(), A + 2.5)
        np.testing.assert_array_equal(sums.get(), LONG.sum(1))


def test_graphs(cupy):
    """Captured calls, numbers and workspaces with them, replay on new data."""
    a, b, x = cupy.asarray(A), cupy.asarray(B), cupy.asarray(LONG)
    out, more, sums = cupy.zeros((200, 136), "f4"), cupy.zeros_like(a), cupy.zeros(4, "f4")

    def calls():
        tlm.ops.matmul(a, b, out=out, **HOW)
        tlm.ops.add(a, 1.5, out=more, **HOW)
        tlm.ops.sum(x, axis=1, out=sums, **HOW)

    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        calls()
        stream.begin_capture()
        calls()
        graph = stream.end_capture()
        for factor in (1, 2):
            a[...] = cupy.asarray(A * factor)
            x[...] = cupy.asarray(LONG * factor)
            out.fill(0), more.fill(0), sums.fill(0)
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_array_equal(out.get(), factor * (A @ B))
            np.testing.assert_array_equal(more.get(), factor * A + 1.5)
            np.testing.assert_array_equal(sums.get(), factor * LONG.sum(1))


def test_every_device(cupy):
    count = cupy.cuda.runtime.getDeviceCount()
    if count < 2:
        pytest.skip("one GPU only")
    for number in range(count):
        with cupy.cuda.Device(number):
            a, b = cupy.asarray(A), cupy.asarray(B)
        got = tlm.ops.matmul(a, b, **HOW)
        assert got.device.id == number
        np.testing.assert_array_equal(got.get(), A @ B)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_torch(cupy, torch, dtype):
    kind = getattr(torch, dtype)
    a, b = (torch.from_numpy(x).cuda().to(kind) for x in (A, B))
    for _ in range(2):
        got = tlm.ops.matmul(a, b, **HOW)
        assert isinstance(got, torch.Tensor)
        assert (got.dtype, got.device) == (kind, a.device)
        assert torch.equal(got.double().cpu(), torch.from_numpy(A @ B).to(kind).double())
    out = torch.zeros(200, 136, dtype=kind, device="cuda")
    assert tlm.ops.matmul(a, b, out=out, **HOW) is out
    assert torch.equal(out, got)
    assert torch.equal(tlm.ops.relu(a[::2, ::3], **HOW), a[::2, ::3].relu())


def test_torch_streams_and_graphs(cupy, torch):
    a, b, x = (torch.from_numpy(v).cuda() for v in (A, B, LONG))
    with torch.cuda.stream(torch.cuda.Stream()):
        a2 = a + 1
        got = tlm.ops.matmul(a2, b, **HOW)
        sums = tlm.ops.sum(x, axis=1, **HOW)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(got.cpu().numpy(), (A + 1) @ B)
    np.testing.assert_array_equal(sums.cpu().numpy(), LONG.sum(1))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got, more = tlm.ops.matmul(a, b, **HOW), tlm.ops.add(a, 1.5, **HOW)
        sums = tlm.ops.sum(x, axis=1, **HOW)
    a.mul_(2), x.mul_(3)
    graph.replay()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(got.cpu().numpy(), 2 * (A @ B))
    np.testing.assert_array_equal(more.cpu().numpy(), 2 * A + 1.5)
    np.testing.assert_array_equal(sums.cpu().numpy(), 3 * LONG.sum(1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_jax(cupy, jax, dtype):
    a, b = (jax.numpy.asarray(x, dtype) for x in (A, B))
    for _ in range(2):
        got = tlm.ops.matmul(a, b, **HOW)
        assert isinstance(got, jax.Array)
        assert got.dtype == a.dtype
        assert got.devices() == a.devices()
        want = jax.numpy.asarray(A @ B, dtype)
        np.testing.assert_array_equal(np.asarray(got, "f4"), np.asarray(want, "f4"))
    with pytest.raises(ArgumentError, match="never changes"):
        tlm.ops.matmul(a, b, out=got, **HOW)


def test_jax_waits_for_our_kernels_and_we_for_its(cupy, jax):
    x = jax.numpy.ones((4096, 4096), "float32")
    for _ in range(5):
        x = x @ x / 4096
    got = tlm.ops.add(x, 1.0, **HOW) * 2
    np.testing.assert_allclose(np.asarray(got), 4.0, rtol=1e-4)


def test_a_kernel_and_its_time(cupy):
    kernel = tlm.ops.matmul.kernel(A, B, target="cuda", **HOW)
    np.testing.assert_array_equal(kernel(cupy.asarray(A), cupy.asarray(B)).get(), A @ B)
    assert 1e-7 < kernel.time() < 1
    assert kernel.target.threads == cupy.cuda.Device().attributes["MultiProcessorCount"]
