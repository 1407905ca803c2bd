"""Kernels on a GPU: every operator checked against float64, then timed beside cuBLAS, cuDNN and torch.

    PYTHONPATH=. python bench/cuda.py [--quick] [--only FAMILY] [--schedule HOW] [--seconds S] [--json FILE]

Needs CuPy 14 and a GPU, nothing else; torch (with it cuDNN) where it is installed. A line that fails is
recorded and the rest goes on; the JSON file is replaced as a whole after each line.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import cuda_cases, cuda_lines
from bench.cuda_line import Device, Line, ways, wide
from bench.cuda_timing import OURS, Clock, GpuClock, measure, reason

QUICK = 170.0
"""Seconds after which `--quick` starts nothing more."""
_COPY = 1 << 30


class Report:
    """What was found so far, in a file that is always whole."""

    def __init__(self, path: Path | None, facts: dict[str, Any]) -> None:
        self.path = path
        self.data: dict[str, Any] = {**facts, "checks": {"passed": 0, "failed": []}, "lines": []}
        self.write()

    def write(self) -> None:
        """Replace the file; readers see the old one or the new one."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name, suffix=".part")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(self.data, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def checked(self, name: str, problem: str) -> None:
        """One operator on small arrays; `problem` is empty where it was right."""
        if problem:
            self.data["checks"]["failed"].append({"case": name, "problem": problem})
            self.write()
        else:
            self.data["checks"]["passed"] += 1

    def line(self, row: dict[str, Any]) -> None:
        self.data["lines"].append(row)
        self.write()


def check(case: cuda_cases.Case, ops: Any, xp: Any, how: dict[str, Any]) -> str:
    """What is wrong with an operator on a case; empty where nothing is."""
    try:
        operands = case.operands()
        got = xp.asnumpy(case.call(ops, [xp.asarray(x) for x in operands], **how))
        found = cuda_cases.error(got, case.expected(operands))
    except Exception as error:
        return reason(error)
    return (
        ""
        if found <= cuda_cases.allowed(case)
        else f"error {found:.2e}, allowed {cuda_cases.allowed(case):.0e}"
    )


def copy_bandwidth(cupy: Any, clock: Clock) -> float:
    """Bytes a second, read plus written, of a copy that no cache holds."""
    x, y = cupy.zeros(_COPY, "u1"), cupy.empty(_COPY, "u1")
    times = sorted(clock.warm(lambda: cupy.copyto(y, x), 5) for _ in range(5))
    return 2.0 * _COPY / times[2]


def run_line(
    line: Line, device: Device, clock: Clock, ops: Any, how: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Check a line and time it, warm and cold; what fails is told in the row."""
    row: dict[str, Any] = {"family": line.family, "name": line.name, "dtype": line.dtype, "failures": {}}
    try:
        arrays = device.arrays(line)
        started = time.perf_counter()
        line.ours(ops, arrays, how)
        row["seconds_to_first_result"] = time.perf_counter() - started
        row["error"] = _error(line, device, arrays)
        if not row["error"] <= line.tolerance:
            row["failures"][OURS] = f"wrong: error {row['error']:.2e}, allowed {line.tolerance:.0e}"
        row["kernel"] = facts_of_kernel(ops)
    except Exception as error:
        row["failures"][OURS] = reason(error)
        return row
    made = ways(line, device, arrays, lambda: line.ours(ops, arrays, how))
    row["failures"] |= {n: reason(x) for n, x in made.items() if isinstance(x, Exception)}
    calls = {n: x for n, x in made.items() if not isinstance(x, Exception)}
    rounds = max(5, min(50, int(seconds / (4e-3 * len(calls)))))
    for label, cold in (("warm", False), ("cold", True)):
        times = measure(calls, clock, rounds=rounds, cold=cold)
        row[label] = times.to_json()
        row["failures"] |= times.failures
    return row


def _error(line: Line, device: Device, arrays: dict[str, Any]) -> float:
    """The largest error as a share of the largest magnitude, against float64 on the GPU."""
    xp = device.cupy
    want = line.truth(xp, arrays)
    got = wide(xp, arrays["out"])
    difference = float(xp.abs(got - want).max())
    return difference / max(1.0, float(xp.abs(want).max())) if math.isfinite(difference) else math.inf


def facts_of_kernel(ops: Any) -> dict[str, Any]:
    """Grid, block, registers and so on of the kernel that was compiled last."""
    from tlm.ops import dispatch

    kernels = list(dispatch._kernels.values())
    if not kernels or not hasattr(kernels[-1], "grid"):
        return {}
    k = kernels[-1]
    return {
        "grid": k.grid, "block": k.block, "shared_bytes": k.shared_bytes, "registers": k.stats.registers,
        "spills": k.stats.spills, "occupancy": k.stats.occupancy, "launches": len(k.launches),
        "choices": {name: picked for name, _, picked, _ in k.choices},
    }  # fmt: skip


def judged(line: Line, row: dict[str, Any], copy: float) -> dict[str, Any]:
    """Figures of a row that depend on others: rates, its share of a copy's bandwidth, and its bar."""
    ours = row.get("warm", {}).get("seconds", {}).get(OURS)
    if not ours:
        return {}
    found: dict[str, Any] = {"tflops": line.flops / ours / 1e12, "gbs": line.bytes / ours / 1e9}
    if copy:
        found["share_of_copy"] = line.bytes / ours / copy
    if line.bar is not None:
        share = found.get("share_of_copy")
        value = share if line.bar.peer == "copy" else row["warm"]["ratios"].get(line.bar.peer)
        holds = value is not None and value >= line.bar.least and OURS not in row["failures"]
        found["bar"] = {"of": line.bar.peer, "least": line.bar.least, "value": value, "holds": holds}
    return found


def facts(cupy: Any, torch: Any, schedule: str) -> dict[str, Any]:
    """Versions, the device and its driver."""
    import tlm

    card = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    name = card["name"].decode() if isinstance(card["name"], bytes) else str(card["name"])
    return {
        "device": name, "capability": str(cupy.cuda.Device().compute_capability),
        "driver": cupy.cuda.runtime.driverGetVersion(), "runtime": cupy.cuda.runtime.runtimeGetVersion(),
        "cupy": cupy.__version__, "torch": getattr(torch, "__version__", None), "numpy": np.__version__,
        "tlm": tlm.__version__, "python": platform.python_version(), "schedule": schedule,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip


_COLUMNS: dict[str, Any] = {
    "workload": "left", "tlm us": "right", "TFLOP/s": "right", "of copy": "right", "peers": "left",
    "error": "right", "bar": "left", "failed": "left",
}  # fmt: skip


def table(data: dict[str, Any]) -> Any:
    """A table of all lines for rich."""
    from rich.table import Table

    copy = data.get("copy_bytes_per_second", 0.0)
    title = f"{data['device']}, schedule={data['schedule']!r}, copy {copy / 1e12:.2f} TB/s"
    made = Table(title=title, caption="ratios: time of the peer over tlm's; warm (L2-cold)")
    for name, justify in _COLUMNS.items():
        made.add_column(name, justify=justify)
    family = None
    for row in data["lines"]:
        if row["family"] != family:
            family = row["family"]
            made.add_section()
            made.add_row(f"[bold]{family}[/bold]")
        made.add_row(*cells(row))
    return made


def cells(row: dict[str, Any]) -> list[str]:
    """The cells of a line."""
    warm, cold = row.get("warm", {}), row.get("cold", {})
    ours, figures = warm.get("seconds", {}).get(OURS), row.get("figures", {})
    peers = [
        f"{name} {ratio:.2f} ({cold['ratios'][name]:.2f})"
        if name in cold.get("ratios", {})
        else f"{name} {ratio:.2f}"
        for name, ratio in warm.get("ratios", {}).items()
    ]
    bar = figures.get("bar")
    share = figures.get("share_of_copy")
    told = f"{bar['of']} {bar['least']}: {'holds' if bar['holds'] else 'MISSED'}" if bar else ""
    return [
        row["name"],
        f"{ours * 1e6:.1f}" if ours else "",
        f"{figures['tflops']:.1f}" if "tflops" in figures else "",
        f"{share:.2f}" if share is not None else "",
        ", ".join(peers),
        f"{row['error']:.0e}" if "error" in row else "",
        told,
        "; ".join([f"{n}: {why}" for n, why in row["failures"].items()]),
    ]


def bench(
    report: Report,
    device: Device,
    clock: Clock,
    ops: Any,
    *,
    cases: Sequence[cuda_cases.Case],
    lines: Sequence[Line],
    how: dict[str, Any],
    seconds: float,
    left: Callable[[], float],
    say: Callable[[str], None],
) -> None:
    """Check all cases, then time all lines, as long as seconds are `left`; `say` gets a line for each."""
    for case in cases:
        if left() <= 0:
            report.checked(case.name, "left out: no time left")
            continue
        problem = check(case, ops, device.cupy, how)
        report.checked(case.name, problem)
        if problem:
            say(f"{case.name}: {problem}")
    report.data["copy_bytes_per_second"] = copy = copy_bandwidth(device.cupy, clock)
    report.write()
    for line in lines:
        if left() <= 0:
            row = {"family": line.family, "name": line.name, "failures": {OURS: "left out: no time left"}}
        else:
            row = run_line(line, device, clock, ops, how, seconds)
            row["figures"] = judged(line, row, copy)
        report.line(row)
        say(" | ".join([c for c in cells(row) if c]))


def chosen(only: Sequence[str], quick: bool) -> tuple[list[cuda_cases.Case], list[Line]]:
    """Cases and lines of the families that `only` names in part (all where it is empty)."""

    def wanted(name: str) -> bool:
        return not only or any(o.lower() in name.lower() for o in only)

    cases = cuda_cases.cases([f for f in cuda_cases.FAMILIES if wanted(f)])
    lines = [x for x in cuda_lines.lines() if wanted(x.family) and (x.quick or not quick)]
    if quick:
        first = {}
        for case in cases:
            first.setdefault(
                (case.op, case.dtype if case.op in ("matmul", "softmax", "conv2d") else ""), case
            )
        cases = list(first.values())
    if not cases and not lines:
        families = sorted({*cuda_cases.FAMILIES, *(x.family for x in cuda_lines.lines())})
        raise SystemExit(f"no family has {' or '.join(only)} in its name; there are {', '.join(families)}")
    return cases, lines


def failed(data: dict[str, Any]) -> bool:
    """Whether an operator was wrong or a line of tlm's failed. A bar that is missed is no failure."""
    return bool(data["checks"]["failed"]) or any(OURS in row["failures"] for row in data["lines"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one line or two a family, within three minutes")
    parser.add_argument("--only", action="append", default=[], metavar="FAMILY", help="a part of its name")
    parser.add_argument("--schedule", default="generate")
    parser.add_argument("--seconds", type=float, default=1.0, help="for timing each line, about")
    parser.add_argument("--json", type=Path, default=Path("cuda.json"))
    args = parser.parse_args()
    # Run as a script, the folder of this file would hide the package `cuda` from CuPy.
    here = Path(__file__).resolve().parent
    sys.path = [p for p in sys.path if Path(p or ".").resolve() != here]
    from rich.console import Console

    import tlm
    from tlm.backend.cuda import runtime
    from tlm.errors import BackendError

    cases, lines = chosen(args.only, args.quick)
    try:
        cupy = runtime.cupy()
    except BackendError as error:
        raise SystemExit(str(error)) from None
    try:
        import torch
    except ImportError:
        torch = None
    end = time.monotonic() + (QUICK if args.quick else math.inf)
    report = Report(args.json, facts(cupy, torch, args.schedule))
    clock = GpuClock(cupy, max(4 * int(cupy.cuda.Device().attributes["L2CacheSize"]), 1 << 29))
    bench(
        report, Device(cupy, torch), clock, tlm.ops, cases=cases, lines=lines,
        how={"schedule": args.schedule}, seconds=0.3 if args.quick else args.seconds,
        left=lambda: end - time.monotonic(),
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table(report.data))
    checks = report.data["checks"]
    console.print(f"checks: {checks['passed']} right, {len(checks['failed'])} wrong; {args.json}")
    raise SystemExit(1 if failed(report.data) else 0)


if __name__ == "__main__":
    main()
