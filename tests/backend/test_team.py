"""The team: nobody waits for a worker that did not come, none enters late, none is forgotten or left over."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.backend.programs import plain_matmul, run, target, tiled_matmul, whole_numbers
from tlm.backend import compile, team
from tlm.backend.llvm import codegen, workers
from tlm.schedule import Schedule
from tlm.target import Target

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are workers on Linux only")

ROOT = Path(__file__).parents[2]
PART = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
COUNT, MEMBERS = 0xFFF, 0xFFF << 12


class Region:
    """A runtime of the test's own, without workers at first, and Python functions in place of kernels."""

    def __init__(self) -> None:
        self.runtime = workers._load.__wrapped__()
        self._team = ctypes.CFUNCTYPE(None, PART, ctypes.c_void_p, ctypes.c_int64)(self.runtime.team)

    def run(self, function: Callable[[int, int], None], members: int) -> None:
        """Run function(number, members) by as many members as come; an exception of it is the test's."""
        errors: list[BaseException] = []

        def part(_: object, number: int, count: int) -> None:
            try:
                function(number, count)
            except BaseException as error:
                errors.append(error)

        self._team(PART(part), None, members)
        assert not errors, errors

    @property
    def state(self) -> int:
        return int(self.runtime.state.value)


@pytest.fixture
def region() -> Region:
    return Region()


def script(code: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *args],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def asleep(thread: int) -> bool:
    """Whether the thread of this process sleeps; the name in parentheses may hold anything."""
    return Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_nobody_waits_for_workers_that_do_not_come(region: Region) -> None:
    came: list[tuple[int, int]] = []
    for members in (2, 3, workers.MOST):
        region.run(lambda *numbers: came.append(numbers), members)
    assert came == [(0, 2), (0, 3), (0, workers.MOST)]


def test_a_kernel_without_its_workers_does_all_the_work(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The team believes that it has four members, and three of them never come."""
    idle = team._Team()
    idle.asked = 4
    monkeypatch.setattr(team, "_team", idle)
    monkeypatch.setattr(workers, "runtime", lambda: region.runtime)
    program = tiled_matmul(45, 70, 9, 8, 32, 16, threads=True)
    kernel = compile(program, target("avx2"), cache=False)
    arrays = whole_numbers(program)
    before = region.state
    np.testing.assert_array_equal(run(kernel, arrays, 4)[0], arrays[0] @ arrays[1])
    assert region.state != before
    assert idle.members == 1


def test_a_late_worker_stays_outside(region: Region) -> None:
    """What a worker saw of a region that is over lets it into none: not into that one, not into the next."""
    seen: list[int] = []
    region.run(lambda *_: seen.append(region.state), 3)
    join = region.runtime.join
    closed = region.state
    assert closed & (COUNT | MEMBERS) == 0
    assert [join(seen[0], 1), join(closed, 1), join(closed, 0)] == [0, 0, 0]
    assert region.state == closed

    def next_region(*_: int) -> None:
        assert join(seen[0], 1) == join(closed, 1) == 0
        assert join(region.state, 3) == 0
        assert join(region.state, 1) == 3
        assert join(region.state, 2) == 3
        assert region.state & COUNT == 2
        region.runtime.leave()
        region.runtime.leave()

    region.run(next_region, 3)
    assert region.state == closed + (1 << 24)


def test_the_master_waits_for_all_who_came(region: Region) -> None:
    left: list[int] = []

    def leave() -> None:
        # The region is closed already: its master waits inside the call.
        wait_for(lambda: region.state & MEMBERS == 0)
        time.sleep(0.01)
        left.append(1)
        region.runtime.leave()

    thread = threading.Thread(target=leave)

    def enter(*_: int) -> None:
        assert region.runtime.join(region.state, 1) == 2
        thread.start()

    region.run(enter, 2)
    assert left == [1]
    thread.join()


@pytest.mark.parametrize("spinners", [0, 4])
def test_every_worker_comes_and_keeps_its_number(region: Region, spinners: int) -> None:
    """Out of sleep (nobody may spin: each sleeps at once) and while they spin."""
    region.runtime.spinners.value = spinners
    assert region.runtime.start(1, 3) == 3
    assert region.runtime.start(3, 4) == 4
    threads: dict[int, int] = {}
    barrier = threading.Barrier(4)

    def meet(number: int, members: int) -> None:
        assert members == 4
        assert threads.setdefault(number, threading.get_native_id()) == threading.get_native_id()
        barrier.wait(20)

    for _ in range(5):
        region.run(meet, 4)
        others = [thread for number, thread in threads.items() if number]
        assert len(others) == 3
        if not spinners:
            wait_for(lambda: all(map(asleep, others)))  # noqa: B023
    assert region.state & (COUNT | MEMBERS) == 0


def test_idle_workers_fall_asleep_and_wake_up(region: Region) -> None:
    region.runtime.spinners.value = 2
    region.runtime.start(1, 2)
    barrier, threads = threading.Barrier(2), [0, 0]

    def meet(number: int, _: int) -> None:
        threads[number] = threading.get_native_id()
        barrier.wait(20)

    for _ in range(3):
        region.run(meet, 2)
        wait_for(lambda: asleep(threads[1]))


def test_small_regions_leave_other_workers_alone(region: Region) -> None:
    region.runtime.spinners.value = 4
    region.runtime.start(1, 4)
    came: set[int] = set()
    region.run(lambda *_: time.sleep(0.02), 4)
    for _ in range(20):
        region.run(lambda number, _: came.add(number) or time.sleep(0.001), 2)
    assert came <= {0, 1}


def test_signals_are_the_business_of_other_threads(region: Region) -> None:
    """Of those of the process, none; of those that tell of an error of the worker itself, all."""
    region.runtime.start(1, 2)
    barrier, masks = threading.Barrier(2), [0, 0]

    def look(number: int, _: int) -> None:
        status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text()
        masks[number] = int(status.partition("SigBlk:")[2].split()[0], 16)
        barrier.wait(20)

    region.run(look, 2)
    import signal

    blocked = {s for s in signal.Signals if masks[1] >> (s - 1) & 1}
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM} <= blocked
    assert not {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL} & blocked
    assert masks[0] == int(
        Path("/proc/thread-self/status").read_text().partition("SigBlk:")[2].split()[0], 16
    )


@pytest.mark.parametrize("threads", [2, 5])
def test_a_hundred_thousand_regions(threads: int) -> None:
    """A product with its reduction outermost: each step is a region of four iterations. No piece is lost,
    none runs twice."""
    s = Schedule(plain_matmul(4, 1, 100_000))
    s.reorder("k", "i", "j")
    s.parallel("i")
    kernel = compile(s.program, target("avx2"), cache=False)
    arrays = whole_numbers(s.program)
    np.testing.assert_array_equal(run(kernel, arrays, threads)[0], arrays[0] @ arrays[1])


def test_threads_that_cannot_be_started_are_done_without() -> None:
    """Address space for less than one stack is left."""
    code = """if True:
        import os, resource, numpy as np
        from tests.backend.programs import outputs, tiled_matmul, target, whole_numbers
        from tlm.backend import compile, team
        program = tiled_matmul(64, 64, 16, 8, 32, 16, threads=True)
        kernel = compile(program, target("avx2"), cache=False)
        arrays, out = whole_numbers(program), outputs(program)
        want = arrays[0] @ arrays[1]
        kernel(*arrays, *out, threads=1)
        before = len(os.listdir("/proc/self/task"))
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (512 << 10), -1))
        for _ in range(2):
            out[0][:] = 0
            kernel(*arrays, *out, threads=4)
            assert (out[0] == want).all()
        assert team._team.members == 1 and len(os.listdir("/proc/self/task")) == before
        print("good")
    """
    assert script(code) == "good\n"


def test_forks_while_another_thread_runs_kernels() -> None:
    """A child has workers of its own, whatever the parent's were doing when it was born."""
    code = """if True:
        import os, threading
        from tests.backend.programs import run, tiled_matmul, target, whole_numbers
        from tlm.backend import compile, team
        program = tiled_matmul(64, 64, 16, 8, 32, 16, threads=True)
        kernel = compile(program, target("avx2"), cache=False)
        arrays = whole_numbers(program)
        want = arrays[0] @ arrays[1]
        right = lambda: (run(kernel, arrays, 3)[0] == want).all()
        stop = threading.Event()
        def work():
            while not stop.is_set():
                assert right()
        thread = threading.Thread(target=work)
        thread.start()
        ends = []
        for _ in range(20):
            child = os.fork()
            if child == 0:
                good = all(right() for _ in range(20)) and len(os.listdir("/proc/self/task")) == 3
                os._exit(0 if good else 1)
            ends.append(os.waitpid(child, 0)[1])
        stop.set()
        thread.join()
        assert right()
        print(set(ends))
    """
    assert script(code) == "{0}\n"


@pytest.mark.parametrize("pause", ["0", "0.1"])
def test_python_ends_while_workers_spin_or_sleep(pause: str) -> None:
    code = """if True:
        import sys, time
        from tests.backend.programs import run, tiled_matmul, target, whole_numbers
        from tlm.backend import compile
        program = tiled_matmul(64, 64, 16, 8, 32, 16, threads=True)
        kernel = compile(program, target("avx2"), cache=False)
        run(kernel, whole_numbers(program), 4)
        time.sleep(float(sys.argv[1]))
    """
    for _ in range(3):
        script(code, pause)


HARNESS = """
#include <stdint.h>
#include <stdio.h>
#include <stdatomic.h>
#include <sched.h>
typedef void part(void *, int64_t, int64_t);
extern void *table[] __asm__("tlm.runtime");
static atomic_long runs, came;
static void count(void *context, int64_t me, int64_t members) {
  if (context != &runs || me >= members) atomic_fetch_add(&runs, 1000000);
  if (me == 0) atomic_fetch_add(&runs, 1); else atomic_fetch_add(&came, 1);
}
static void meet(void *context, int64_t me, int64_t members) {
  (void)me;
  atomic_fetch_add((atomic_long *)context, 1);
  while (atomic_load((atomic_long *)context) < members) sched_yield();
}
int main(void) {
  void (*run)(part *, void *, int64_t) = table[0];
  int64_t (*start)(int64_t, int64_t) = table[1];
  run(count, &runs, 3);
  *(int64_t *)table[5] = 2;
  if (start(1, 3) != 3) return 1;
  for (int n = 0; n < 20; n++) {
    atomic_long all = 0;
    run(meet, &all, 3);
    if (all != 3) return 2;
  }
  for (int n = 0; n < 20000; n++) run(count, &runs, 2 + n % 2);
  printf("%ld\\n", (long)runs);
  return came > 40000;
}
"""


@pytest.mark.parametrize("isa", ["sse", "neon"])
def test_the_runtime_in_a_c_program(isa: str, tmp_path: Path) -> None:
    """Without Python, and for the other processor."""
    compiler = "gcc" if isa == "sse" else "aarch64-linux-gnu-gcc"
    emulator = [] if isa == "sse" else ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
    for tool in [compiler, *emulator[:1]]:
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    (tmp_path / "runtime.o").write_bytes(codegen.object_code(workers.text(isa), Target(isa)))
    (tmp_path / "main.c").write_text(HARNESS)
    command = [compiler, "-O1", "-Wall", "-Werror", "main.c", "runtime.o", "-pthread", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([*emulator, "./main"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "20001\n"), done.stderr
