"""Measuring on a GPU: workers, checks and records, with a stand-in for the device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.sentences import product
from tests.cuda.gpu_fake import Device, Fake
from tlm.errors import BackendError
from tlm.measure.gpu import gpu_measurer, is_here
from tlm.measure.gpu_runner import GpuRunner
from tlm.measure.limits import Limits
from tlm.measure.measure import Measurer
from tlm.space.decide import run
from tlm.space.spaces import space_for
from tlm.target import Target, host

SM_90 = Target("sm_90")
PROGRAM = product((1, 4, 6, 5), 0)


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Measurer]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    limits = Limits(build=20.0, run=1.0, memory=1 << 46)
    with Measurer(SM_90, builders=1, limits=limits, toolchain="tests.cuda.gpu_fake:Fake") as made:
        yield made


def test_every_fault_is_a_record_and_the_rest_is_timed(measurer: Measurer):
    faults = ["none", "wrong", "outside", "nothing", "crash", "illegal", "load-raises", "hang", "none"]
    records = measurer.measure(PROGRAM, [(fault, 10 + n) for n, fault in enumerate(faults)])
    got = [r.status for r in records]
    assert got == ["ok", "wrong", "wrong", "wrong", "crash", "crash", "crash", "timeout", "ok"]
    assert "wrote outside C" in records[2].message
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in records[5].message
    assert "CUDA_ERROR_INVALID_IMAGE" in records[6].message
    assert [r.score for r in (records[0], records[-1])] == pytest.approx([1e-5, 1.8e-5])
    assert {r.kind for r in records} == {"search"}
    assert records[0].target["kind"] == "cuda"


def runner() -> tuple[GpuRunner, Device]:
    device = Device()
    made = GpuRunner(lambda: device)
    made.workload(PROGRAM, SM_90)
    return made, device


def code(fault: str) -> bytes:
    return Fake().build(PROGRAM, SM_90, (fault, 7))[1]


def test_inputs_go_to_the_device_once_and_outputs_are_poisoned_before_each_check():
    made, device = runner()
    assert device.memories == []
    assert made.load(0, code("none"))["status"] == "ok"
    assert len(device.memories) == 3
    assert made.load(1, code("nothing"))["status"] == "wrong"
    assert len(device.memories) == 3
    assert made.sample(0, cold=False) == pytest.approx(7e-6)
    assert len(device.memories) == 3
    assert made.sample(0, cold=True) == pytest.approx(7e-6)
    assert len(device.memories[-1].raw) == 2 * SM_90.l2
    assert made.finish(0, check=True) == {"status": "ok"}


def test_a_result_that_changes_is_found_at_the_end():
    made, _ = runner()
    assert made.load(0, code("wrong-later"))["status"] == "ok"
    assert made.finish(0, check=True)["status"] == "wrong"


def test_without_a_gpu_nothing_is_measured():
    if is_here(SM_90):
        pytest.skip("this machine has such a GPU")
    with pytest.raises(BackendError, match="needs a GPU here that runs code for sm_90"):
        gpu_measurer(SM_90)
    assert not is_here(host())


def test_code_travels_without_pickle():
    pytest.importorskip("cupy_backends", reason="compiling for CUDA needs CuPy and NVRTC")
    from tlm.backend.cuda import packed
    from tlm.measure.gpu import NVRTC
    from tlm.search.heuristic import heuristic

    program = product((1, 64, 4096, 64), 0)
    decided = run(space_for(program, SM_90), heuristic)
    steps, data = NVRTC().build(program, SM_90, decided.values)
    found = packed.unpack(data)
    assert len(steps) == len(decided.steps)
    assert found.cubin[:4] == b"\x7fELF"
    assert len(found.launches) == 2, "the parts of the sum, then their total"
    assert all(n > 0 and n % 4 == 0 for n in found.scratch)
    assert len(found.scratch) >= 1
    assert np.prod(found.launches[0].block) <= 1024
    for bad in (b"", b"tlmg1", data[:40], b"x" + data):
        with pytest.raises(BackendError, match="not a packed kernel"):
            packed.unpack(bad)
