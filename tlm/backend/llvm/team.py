"""The code around a parallel loop: what each thread of the team runs, and how the team shares iterations.

The iterations are cut into one even share a member, in order, and each share into pieces. A member takes the
pieces of its own share first, which keeps its data in its own caches from call to call, then those that the
others have not begun (work stealing: Blumofe and Leiserson 1999, with counters in place of deques, since the
pieces of a loop are known). A thread that the system lets wait holds the loop up by one piece.
"""

from __future__ import annotations

MOST = 256
"""Threads of a team: the counters of a loop lie on the stack."""

LINE = 64
PIECES = 16
"""Of a share, where the loop has that many iterations."""


def context_bytes(arguments: int) -> int:
    """Of the memory that a team reads: the arguments, then a counter for each member on a line of its own."""
    return counters_at(arguments) + LINE * MOST


def counters_at(arguments: int) -> int:
    """The place of the first counter."""
    return -(-8 * arguments // LINE) * LINE


RESET = f"""define internal void @tlm.reset(ptr %counters, i64 %members) #0 {{
  br label %each
each:
  %n = phi i64 [ 0, %0 ], [ %next, %each ]
  %at = mul i64 %n, {LINE}
  %counter = getelementptr i8, ptr %counters, i64 %at
  store i64 0, ptr %counter, align {LINE}
  %next = add i64 %n, 1
  %more = icmp ult i64 %next, %members
  br i1 %more, label %each, label %done
done:
  ret void
}}"""
"""No piece of any share is taken."""


def member(name: str, pointers: int, numbers: int) -> str:
    """The function that a member runs: fetch the arguments, then run @name on pieces until none is left.

    The last number is the count of iterations; @name takes the others, then first and last (exclusive)
    iteration and the member's number.
    """
    lines = [f"define internal void @{name}.member(ptr %context) #0 {{", "start:"]
    arguments = []
    for n in range(pointers + numbers):
        kind = "ptr" if n < pointers else "i64"
        lines.append(f"  %at{n} = getelementptr i8, ptr %context, i64 {8 * n}")
        lines.append(f"  %a{n} = load {kind}, ptr %at{n}, align 8")
        arguments.append(f"{kind} %a{n}")
    stop = f"%a{pointers + numbers - 1}"
    passed = ", ".join([*arguments[:-1], "i64 %first", "i64 %last", "i64 %me"])
    lines.append(f"""\
  %counters = getelementptr i8, ptr %context, i64 {counters_at(pointers + numbers)}
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
  %low.scaled = mul i64 %whose, {stop}
  %high.scaled = mul i64 %after, {stop}
  %low = udiv i64 %low.scaled, %members
  %high = udiv i64 %high.scaled, %members
  %size = sub i64 %high, %low
  %even = udiv i64 %size, {PIECES}
  %piece = call i64 @llvm.umax.i64(i64 %even, i64 1)
  %offset = mul i64 %whose, {LINE}
  %counter = getelementptr i8, ptr %counters, i64 %offset
  br label %look
look:
  %seen = load atomic i64, ptr %counter monotonic, align 8
  %left = icmp ult i64 %seen, %size
  br i1 %left, label %take, label %finished
take:
  %taken = atomicrmw add ptr %counter, i64 %piece monotonic, align 8
  %mine = icmp ult i64 %taken, %size
  br i1 %mine, label %run, label %finished
run:
  %first = add i64 %low, %taken
  %end = add i64 %first, %piece
  %last = call i64 @llvm.umin.i64(i64 %end, i64 %high)
  call void @{name}({passed})
  br label %look
finished:
  %next = add i64 %n, 1
  %more = icmp ult i64 %next, %members
  br i1 %more, label %share, label %done
done:
  ret void
}}""")
    return "\n".join(lines)
