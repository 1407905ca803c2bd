"""The team of threads that kernels share their parallel loops with: a small runtime as LLVM IR.

A kernel calls `tlm.team(function, context, members)`, which has `function(context, number, members)` run as
number 0 in the calling thread and, at the same time, by those workers that come; it returns when all who came
have left. Nobody is waited for who did not come: the function must give the work of members that are absent
to those who are there.

All of that turns on one word, the state: from the lowest bit on, 12 bits count the workers that are in the
region, 12 bits tell its members (0: closed), 40 bits its number. A worker enters by compare-and-swap on the
state that it saw. Once the master has closed the region, or opened the next one, that fails: a late worker
never touches what belongs to a region that has ended.

A worker without work looks for some, for as long as other pools do (those of OpenBLAS and MKL spin for tens
of milliseconds), since waking up costs more than a small kernel takes. It offers its CPU to others all the
while, and sleeps as soon as it had to wait for it: a thread that wakes up gets its CPU sooner than one that
has spun.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from ...target import host
from . import codegen
from .sharing import MOST

STACK = 1 << 20
"""Bytes of a worker's stack: kernels take some 32 KiB, and thread-local data of all libraries lies there."""

# Nanoseconds that a worker looks for work, and what it takes for being kept from its CPU.
_SPIN, _GAP = 30_000_000, 500_000
# Looks between two readings of the clock.
_LOOKS = 64
# Looks of the master before it offers its CPU to those it waits for: if each has its own CPU, and if not.
_PATIENT, _HASTY = 4096, 64
_ONE_REGION, _MEMBERS, _COUNT = 1 << 24, 0xFFF << 12, 0xFFF
# The signals that tell of errors of the thread itself stay open; all others are the business of the process.
_SIGNALS = (1 << 64) - 1 - sum(1 << (n - 1) for n in (4, 5, 6, 7, 8, 11, 31))

_PAUSE = {"neon": ("@llvm.aarch64.hint(i32 1)", "@llvm.aarch64.hint(i32)")}
_FUTEX = {"neon": 98}

_STATE = f"""\
@tlm.region = internal global {{ i64, ptr, ptr }} zeroinitializer, align 128
@tlm.spinners = internal global i64 0, align 128
@tlm.asleep = internal global [{MOST} x i32] zeroinitializer, align 128
@tlm.handles = internal global [{MOST} x i64] zeroinitializer, align 128
@tlm.signals = private constant [16 x i64] [i64 {_SIGNALS}, {", ".join(["i64 0"] * 15)}]
@tlm.runtime = constant [7 x ptr] [ptr @tlm.team, ptr @tlm.start, ptr @tlm.join, ptr @tlm.leave,
  ptr @tlm.region, ptr @tlm.spinners, ptr @tlm.handles]
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
attributes #0 = {{ nounwind }}
"""

_IMPORTS = (
    "clock_gettime", "sched_yield", "syscall", "pthread_create", "pthread_sigmask", "pthread_attr_init",
    "pthread_attr_setdetachstate", "pthread_attr_setstacksize", "pthread_attr_destroy",
)  # fmt: skip

_REGION = f"""\
define internal void @tlm.team(ptr %function, ptr %context, i64 %members) #0 {{
start:
  store ptr %function, ptr getelementptr (i8, ptr @tlm.region, i64 8), align 8
  store ptr %context, ptr getelementptr (i8, ptr @tlm.region, i64 16), align 8
  %old = load atomic i64, ptr @tlm.region monotonic, align 8
  %number = and i64 %old, {-_ONE_REGION}
  %next = add i64 %number, {_ONE_REGION}
  %limit = shl i64 %members, 12
  %open = or i64 %next, %limit
  store atomic i64 %open, ptr @tlm.region seq_cst, align 8
  br label %each
each:
  %k = phi i64 [ 1, %start ], [ %k.next, %after ]
  %flag = getelementptr i32, ptr @tlm.asleep, i64 %k
  %sleeps = load atomic i32, ptr %flag seq_cst, align 4
  %wanted = icmp ne i32 %sleeps, 0
  br i1 %wanted, label %wake, label %after
wake:
  store atomic i32 0, ptr %flag release, align 4
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %flag, i32 129, i32 1)
  br label %after
after:
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %members
  br i1 %more, label %each, label %run
run:
  call void %function(ptr %context, i64 0, i64 %members)
  %was = atomicrmw and ptr @tlm.region, i64 {~_MEMBERS} acq_rel, align 8
  %spinners = load atomic i64, ptr @tlm.spinners monotonic, align 8
  %crowded = icmp ugt i64 %members, %spinners
  %patience = select i1 %crowded, i64 {_HASTY}, i64 {_PATIENT}
  br label %look
look:
  %seen = phi i64 [ %was, %run ], [ %now, %again ]
  %n = phi i64 [ 0, %run ], [ %n.next, %again ]
  %inside = and i64 %seen, {_COUNT}
  %some = icmp ne i64 %inside, 0
  br i1 %some, label %wait, label %done
wait:
  call void PAUSE
  %n.next = add i64 %n, 1
  %late = icmp ugt i64 %n, %patience
  br i1 %late, label %offer, label %again
offer:
  %offered = call i32 @sched_yield()
  br label %again
again:
  %now = load atomic i64, ptr @tlm.region acquire, align 8
  br label %look
done:
  ret void
}}

define internal i64 @tlm.join(i64 %seen, i64 %me) #0 {{
  %shifted = lshr i64 %seen, 12
  %members = and i64 %shifted, {_COUNT}
  %wanted = icmp ult i64 %me, %members
  br i1 %wanted, label %try, label %no
try:
  %one.more = add i64 %seen, 1
  %pair = cmpxchg ptr @tlm.region, i64 %seen, i64 %one.more acq_rel monotonic, align 8
  %in = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %in, label %yes, label %no
yes:
  ret i64 %members
no:
  ret i64 0
}}

define internal void @tlm.leave() #0 {{
  %was = atomicrmw sub ptr @tlm.region, i64 1 release, align 8
  ret void
}}
"""

_WORKER = f"""\
define internal i64 @tlm.now() #0 {{
  %time = alloca [2 x i64], align 8
  %failed = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %at, align 8
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  ret i64 %now
}}

define internal ptr @tlm.worker(ptr %number) #0 {{
start:
  %me = ptrtoint ptr %number to i64
  %flag = getelementptr i32, ptr @tlm.asleep, i64 %me
  br label %idle
idle:
  %last = phi i64 [ 0, %start ], [ %region, %work ], [ %last, %sleeping ], [ %last, %up ]
  %begin = call i64 @tlm.now()
  br label %round
round:
  %before = phi i64 [ %begin, %idle ], [ %now, %stay ]
  br label %look
look:
  %n = phi i64 [ 0, %round ], [ %n.next, %rest ]
  %seen = load atomic i64, ptr @tlm.region monotonic, align 8
  %region = lshr i64 %seen, 24
  %new = icmp ne i64 %region, %last
  br i1 %new, label %try, label %rest
try:
  %members = call i64 @tlm.join(i64 %seen, i64 %me)
  %in = icmp ne i64 %members, 0
  br i1 %in, label %work, label %rest
work:
  %function = load ptr, ptr getelementptr (i8, ptr @tlm.region, i64 8), align 8
  %context = load ptr, ptr getelementptr (i8, ptr @tlm.region, i64 16), align 8
  call void %function(ptr %context, i64 %me, i64 %members)
  call void @tlm.leave()
  br label %idle
rest:
  call void PAUSE
  %n.next = add i64 %n, 1
  %again = icmp ult i64 %n.next, {_LOOKS}
  br i1 %again, label %look, label %tired
tired:
  %offered = call i32 @sched_yield()
  %now = call i64 @tlm.now()
  %gap = sub i64 %now, %before
  %spun = sub i64 %now, %begin
  %kept = icmp ugt i64 %gap, {_GAP}
  %enough = icmp ugt i64 %spun, {_SPIN}
  %spinners = load atomic i64, ptr @tlm.spinners monotonic, align 8
  %crowded = icmp uge i64 %me, %spinners
  %long = or i1 %kept, %enough
  %sleepy = or i1 %long, %crowded
  br i1 %sleepy, label %lie, label %stay
stay:
  br label %round
lie:
  store atomic i32 1, ptr %flag seq_cst, align 4
  %state = load atomic i64, ptr @tlm.region seq_cst, align 8
  %number.now = lshr i64 %state, 24
  %other = icmp ne i64 %number.now, %last
  %shifted = lshr i64 %state, 12
  %limit = and i64 %shifted, {_COUNT}
  %mine = icmp ult i64 %me, %limit
  %called = and i1 %other, %mine
  br i1 %called, label %up, label %sleep
up:
  store atomic i32 0, ptr %flag seq_cst, align 4
  br label %idle
sleep:
  %slept = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %flag, i32 128, i32 1, ptr null)
  br label %sleeping
sleeping:
  %still = load atomic i32, ptr %flag acquire, align 4
  %on = icmp ne i32 %still, 0
  br i1 %on, label %sleep, label %idle
}}

define internal i64 @tlm.start(i64 %first, i64 %members) #0 {{
start:
  %attributes = alloca [128 x i8], align 16
  %signals = alloca [16 x i64], align 16
  %a = call i32 @pthread_attr_init(ptr %attributes)
  %b = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 1)
  %c = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 {STACK})
  %d = call i32 @pthread_sigmask(i32 2, ptr @tlm.signals, ptr %signals)
  br label %each
each:
  %k = phi i64 [ %first, %start ], [ %next, %create ]
  %more = icmp ult i64 %k, %members
  br i1 %more, label %create, label %done
create:
  %handle = getelementptr i64, ptr @tlm.handles, i64 %k
  %number = inttoptr i64 %k to ptr
  %failed = call i32 @pthread_create(ptr %handle, ptr %attributes, ptr @tlm.worker, ptr %number)
  %next = add i64 %k, 1
  %made = icmp eq i32 %failed, 0
  br i1 %made, label %each, label %done
done:
  %e = call i32 @pthread_sigmask(i32 2, ptr %signals, ptr null)
  %f = call i32 @pthread_attr_destroy(ptr %attributes)
  ret i64 %k
}}
"""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime of this process.

    team: the address of `tlm.team`. start(first, members): starts workers `first` to `members` - 1, returns
    how many members there are then. join(state, number): enters the region of a state, returns its members,
    0 where it is over; `leave` ends it. state: the word. spinners: as many members spin before they sleep.
    handles: the pthread of each worker.
    """

    team: int
    start: ctypes._FuncPointer
    join: ctypes._FuncPointer
    leave: ctypes._FuncPointer
    state: ctypes.c_uint64
    spinners: ctypes.c_int64
    handles: ctypes.Array[ctypes.c_ulong]


def text(isa: str) -> str:
    """The LLVM IR of the runtime."""
    call, declaration = _PAUSE.get(isa, ("@llvm.x86.sse2.pause()", "@llvm.x86.sse2.pause()"))
    body = f"{_STATE}declare void {declaration}\n{_REGION}\n{_WORKER}"
    return body.replace("PAUSE", call).replace("FUTEX", str(_FUTEX.get(isa, 202)))


def runtime() -> Runtime:
    """The runtime, for Linux; loaded once in a process."""
    with codegen.LOCK:
        return _load()


@cache
def _load() -> Runtime:
    target = host()
    machine = codegen.machine(target.isa, target.features)
    jit = llvm.create_lljit_compiler(machine, use_jit_link=True)
    builder = llvm.JITLibraryBuilder()
    builder.add_object_img(codegen.kept_object_code(text(target.isa), target))
    builder.export_symbol("tlm.runtime")
    libc = ctypes.CDLL(None)
    for name in _IMPORTS:
        builder.import_symbol(name, ctypes.cast(getattr(libc, name), ctypes.c_void_p).value)
    tracker = builder.link(jit, "tlm.runtime")
    team, start, join, leave, region, spinners, handles = (ctypes.c_size_t * 7).from_address(
        tracker["tlm.runtime"]
    )
    # Workers run this code until the process is gone, later than Python itself: it is never unloaded.
    tracker.detach()
    jit.detach()
    number = ctypes.c_int64
    return Runtime(
        team,
        ctypes.CFUNCTYPE(number, number, number)(start),
        ctypes.CFUNCTYPE(number, ctypes.c_uint64, number)(join),
        ctypes.CFUNCTYPE(None)(leave),
        ctypes.c_uint64.from_address(region),
        number.from_address(spinners),
        (ctypes.c_ulong * MOST).from_address(handles),
    )
