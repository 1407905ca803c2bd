"""Parallel loops: a runtime that every kernel calls, and how its teams share the iterations of a loop.

The iterations are cut into one even share a member, in order, and each share into pieces. A member takes the
pieces of its own share first, which keeps its data in its own caches from call to call, then those that the
others have not begun (work stealing: Blumofe and Leiserson 1999, with counters in place of deques, since the
pieces of a loop are known). A thread that the system lets wait holds the loop up by one piece.

    void tlm.team(void piece(void *context, i64 first, i64 last, i64 member), void *context,
                  i64 iterations, i64 threads)
"""

from __future__ import annotations

TEAM = "tlm.team"
"""The runtime's entry: not the name of any kernel, which has no dot."""

DECLARATION = f"declare void @{TEAM}(ptr, ptr, i64, i64)"

MOST = 256
"""Threads of a team: the counters of a loop lie on the stack."""

LINE = 64
PIECES = 16
"""Of a share, where the loop has that many iterations."""

_EXTERNALS = """\
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()"""

# What a team reads: piece, context and iterations, then a counter for each member on a line of its own.
_FUNCTIONS = f"""\
define LINKAGE void @{TEAM}(ptr %piece, ptr %context, i64 %iterations, i64 %threads) #0 {{
  %task = alloca [{LINE * (MOST + 1)} x i8], align {LINE}
  store ptr %piece, ptr %task, align 8
  %second = getelementptr i8, ptr %task, i64 8
  store ptr %context, ptr %second, align 8
  %third = getelementptr i8, ptr %task, i64 16
  store i64 %iterations, ptr %third, align 8
  %fits = icmp slt i64 %threads, {MOST}
  %members = select i1 %fits, i64 %threads, i64 {MOST}
  br label %each
each:
  %n = phi i64 [ 1, %0 ], [ %next, %each ]
  %at = mul i64 %n, {LINE}
  %counter = getelementptr i8, ptr %task, i64 %at
  store i64 0, ptr %counter, align {LINE}
  %next = add i64 %n, 1
  %more = icmp ule i64 %next, %members
  br i1 %more, label %each, label %go
go:
  %few = trunc i64 %members to i32
  call void @GOMP_parallel(ptr @{TEAM}.member, ptr %task, i32 %few, i32 0)
  ret void
}}
define internal void @{TEAM}.member(ptr %task) #0 {{
start:
  %piece = load ptr, ptr %task, align 8
  %second = getelementptr i8, ptr %task, i64 8
  %context = load ptr, ptr %second, align 8
  %third = getelementptr i8, ptr %task, i64 16
  %iterations = load i64, ptr %third, align 8
  %number = call i32 @omp_get_thread_num()
  %count = call i32 @omp_get_num_threads()
  %me = sext i32 %number to i64
  %members = sext i32 %count to i64
  br label %share
share:
  %n = phi i64 [ 0, %start ], [ %next, %finished ]
  %sum = add i64 %me, %n
  %whose = urem i64 %sum, %members
  %after = add i64 %whose, 1
  %low.scaled = mul i64 %whose, %iterations
  %high.scaled = mul i64 %after, %iterations
  %low = udiv i64 %low.scaled, %members
  %high = udiv i64 %high.scaled, %members
  %size = sub i64 %high, %low
  %even = udiv i64 %size, {PIECES}
  %some = icmp ugt i64 %even, 1
  %step = select i1 %some, i64 %even, i64 1
  %offset = mul i64 %after, {LINE}
  %counter = getelementptr i8, ptr %task, i64 %offset
  br label %look
look:
  %seen = load atomic i64, ptr %counter monotonic, align 8
  %left = icmp ult i64 %seen, %size
  br i1 %left, label %take, label %finished
take:
  %taken = atomicrmw add ptr %counter, i64 %step monotonic, align 8
  %mine = icmp ult i64 %taken, %size
  br i1 %mine, label %run, label %finished
run:
  %first = add i64 %low, %taken
  %end = add i64 %first, %step
  %inside = icmp ult i64 %end, %high
  %last = select i1 %inside, i64 %end, i64 %high
  call void %piece(ptr %context, i64 %first, i64 %last, i64 %me)
  br label %look
finished:
  %next = add i64 %n, 1
  %more = icmp ult i64 %next, %members
  br i1 %more, label %share, label %done
done:
  ret void
}}"""

RUNTIME = f"""\
; {TEAM}
{_FUNCTIONS.replace(" LINKAGE", "")}
{_EXTERNALS}
attributes #0 = {{ nounwind }}
"""
"""The module of the runtime; it calls the SYMBOLS of `openmp.py`."""


def standalone(text: str) -> str:
    """A kernel's module that carries the runtime along, for itself alone."""
    return text.replace(DECLARATION, f"{_FUNCTIONS.replace('LINKAGE', 'internal')}\n{_EXTERNALS}")


def piece(name: str, pointers: int, numbers: int) -> str:
    """The function @name.piece that the runtime calls: @name with its arguments fetched from the context."""
    lines = [f"define internal void @{name}.piece(ptr %context, i64 %first, i64 %last, i64 %member) #0 {{"]
    arguments = []
    for n in range(pointers + numbers):
        kind = "ptr" if n < pointers else "i64"
        lines.append(f"  %at{n} = getelementptr i8, ptr %context, i64 {8 * n}")
        lines.append(f"  %a{n} = load {kind}, ptr %at{n}, align 8")
        arguments.append(f"{kind} %a{n}")
    passed = ", ".join([*arguments, "i64 %first", "i64 %last", "i64 %member"])
    return "\n".join([*lines, f"  call void @{name}({passed})", "  ret void", "}"])
