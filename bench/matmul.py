"""f32 products by numpy, XLA and ONNX Runtime (where installed), each timed in turn with tlm in one process.

    python -m bench.matmul [--threads N] [--seconds S] [--schedule HOW] [--json FILE] [MxKxN ...]

ONNX Runtime gets the second operand as a constant, which it packs before the clock starts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]
Peer = Callable[[Any, Any, int], Call]

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def restart_with(threads: int) -> None:
    """Start again with every library held to `threads`, and without settings that slow OpenBLAS down."""
    wanted = {name: str(threads) for name in _THREAD_VARIABLES}
    if threads == 1:
        wanted["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    unwanted = [n for n in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if n in os.environ]
    if unwanted or any(os.environ.get(k) != v for k, v in wanted.items()):
        kept = {k: v for k, v in os.environ.items() if k not in unwanted}
        os.execve(sys.executable, [sys.executable, "-m", "bench.matmul", *sys.argv[1:]], kept | wanted)
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def numpy_peer(a: Any, b: Any, threads: int) -> Call:
    """OpenBLAS, into one result array."""
    import numpy as np

    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    return lambda: np.matmul(a, b, out=out)


def xla_peer(a: Any, b: Any, threads: int) -> Call:
    """jax.jit of the product on arrays that are on the device already."""
    import jax

    f, x, y = jax.jit(lambda p, q: p @ q), jax.numpy.asarray(a), jax.numpy.asarray(b)
    return lambda: f(x, y).block_until_ready()


def onnx_peer(a: Any, b: Any, threads: int) -> Call:
    """ONNX Runtime's CPU provider on a graph of one MatMul."""
    import onnx
    import onnxruntime

    helper = onnx.helper
    shape, result = list(a.shape), [a.shape[0], b.shape[1]]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, result)],
        [onnx.numpy_helper.from_array(b, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": a})


PEERS: dict[str, tuple[tuple[str, ...], Peer]] = {
    "numpy": (("numpy",), numpy_peer),
    "XLA": (("jax",), xla_peer),
    "ONNX Runtime": (("onnx", "onnxruntime"), onnx_peer),
}
"""Name -> (modules that it needs, how to make a call)."""


def installed() -> dict[str, Peer]:
    """The peers whose modules can be imported."""
    return {
        name: make
        for name, (modules, make) in PEERS.items()
        if all(importlib.util.find_spec(m) is not None for m in modules)
    }


def measure(shape: tuple[int, ...], peers: dict[str, Peer], args: argparse.Namespace) -> dict[str, Any]:
    """Seconds and ratios of one shape: tlm beside each peer, and its largest relative error."""
    import tlm
    from tlm.cli.timing import paired, relative_error
    from tlm.cli.workload import workload

    work = workload("matmul", shape)
    a, b = work.operands()
    settings = {"schedule": args.schedule, "threads": args.threads}
    out = tlm.ops.matmul(a, b, **settings)
    row: dict[str, Any] = {"shape": list(shape), "error": relative_error(out, work.reference([a, b]))}
    for name, make in peers.items():
        times = paired(
            lambda: tlm.ops.matmul(a, b, out=out, **settings), make(a, b, args.threads), seconds=args.seconds
        )
        row[name] = {"tlm_seconds": times.ours, "seconds": times.theirs, "ratio": times.ratio}
    return row


def table(rows: list[dict[str, Any]], peers: dict[str, Peer]) -> str:
    """Markdown: microseconds of tlm and of each peer, with the peer's time over tlm's."""
    lines = ["| M x K x N | tlm us | " + " | ".join(f"{p} us (ratio)" for p in peers) + " | error |"]
    lines.append("|---" * (len(peers) + 3) + "|")
    for row in rows:
        ours = min(row[p]["tlm_seconds"] for p in peers)
        cells = [f"{row[p]['seconds'] * 1e6:.1f} ({row[p]['ratio']:.2f})" for p in peers]
        name = " x ".join(map(str, row["shape"]))
        lines.append(f"| {name} | {ours * 1e6:.1f} | {' | '.join(cells)} | {row['error']:.1e} |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    from tlm.target import available_threads

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", help="MxKxN; default: a mixed list")
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--seconds", type=float, default=0.5, help="for each pair")
    parser.add_argument("--schedule", default="generate")
    parser.add_argument("--json", default="")
    return parser.parse_args()


def main() -> None:
    from tlm.cli.benching import SHAPES, parse_shape

    args, peers = arguments(), installed()
    rows = []
    for shape in [parse_shape(s) for s in args.shapes] or SHAPES:
        rows.append(measure(shape, peers, args))
        print(f"{rows[-1]}", file=sys.stderr, flush=True)
    print(table(rows, peers))
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"threads": args.threads, "schedule": args.schedule, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    if any(word.partition("=")[0] == "--threads" for word in sys.argv):
        restart_with(arguments().threads)
    main()
